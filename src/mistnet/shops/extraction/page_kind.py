"""Decides what a page is: about one thing for sale, a list, a home page, an article, a log-in ..."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from mistnet.shops.extraction.facts import PriceCandidate
from mistnet.shops.extraction.outline import JOINT, Outline
from mistnet.shops.extraction.price_words import says_any
from mistnet.shops.extraction.scorer import OWN, Choice
from mistnet.shops.model import Evidence, PageFacts, PageKind, PriceKind

_ROOT: Final = re.compile(
    r"/?(?:[a-z]{2}(?:[-_][a-z]{2,4})?/?)?(?:(?:index|default|home|main)(?:\.\w{2,5})?/?)?", re.IGNORECASE
)
_LIST_URL: Final = re.compile(
    r"/(?:category|categories|categor[a-zíi]+|kategori[a-z]*|cat|c|collections?|browse|departments?|listing|lists?|catalogsearch|brands?|"
    r"shop-all|tag|sale|outlet|l|b|gp/bestsellers|s|search|buscar|suche|recherche|ricerca|szukaj|wyszukiwanie|poisk|"
    r"deals?|offers|new-arrivals|refine)(?:[/.]|$)(?!.*/(?:products?|p|dp)/)|"
    # `/products/oak-chair` is one product: so are the addresses of every shop of some systems.
    r"/products(?:\.|/?(?:\?|$)|/page/)|/(?:products|category|catalog|list|search)\.\w{2,4}$|/N-z|-uri/",
    re.IGNORECASE,
)
_SEARCH_URL: Final = re.compile(
    r"/(?:search|s|suche|buscar|recherche|ricerca|catalogsearch|szukaj|sch)(?:[/?.]|$)|"
    # A word to search for in the address of the home page.
    r"^/(?:[a-z]{2}/)?(?:index\.\w+)?\?(?:.*&)?(?:s|q|query|search|keyword|k)=[^&]+",
    re.IGNORECASE,
)
_QUERY_URL: Final = re.compile(
    r"[?&](?:q|query|search|searchterm|keyword|keywords|k|s|_nkw|text|wd)=[^&]+", re.IGNORECASE
)
_PRODUCT_URL: Final = re.compile(
    r"/(?:p|pd|dp|product|products(?=/)|produkt|produit|producto|prodotto|produto|item|itm|prod|goods|gp/product|sku|artikel|proddetail|"
    r"productdetails?|product_info|product-detail|pdp|prd|tovar|detail)(?:[/._-]|$)|[_-]p_?\d|/\d{5,}(?:[/.]|$)|-\d{4,}\.html?$|"
    r"[?&](?:prod|product_?id|item_?id|pid|sku|goods_id|products_id)=\w",
    re.IGNORECASE,
)
_ACCOUNT_URL: Final = re.compile(
    r"log-?in|sign-?in|sign-?up|register|/account|/auth|/konto|/compte|/cuenta|anmelden|/customer|/my-?account|log-ind|"
    r"order[_-]status|/(?:orders?|ordre|ordrer|bestellung(?:en)?|commandes?|pedidos?|zamowieni[ae]|objednavky?)/[^/]+/status|password",
    re.IGNORECASE,
)
# Carts, check-outs, orders, wish lists and comparisons: pages of things that a visitor chose.
_CART_URL: Final = re.compile(
    r"/(?:cart|shopping[_-]?cart|checkout\w*|warenkorb|zur-?kasse|panier|carrito|carrello|koszyk|winkelwagen|winkelmand(?:je)?|afrekenen|varukorg|kundvagn|"
    r"handlekurv|indkobskurv|ostoskori|nakupni-kosik|pokladna|bevasarlokosar|penztar|sepetim|odeme|carrinho|korzina|keranjang|gio-hang|"
    r"order[_/-]?(?:confirm(?:ation|ed)?|success|received|complete)|orders?/(?:thank[_-]?you|success)|onepage/success|bestellbestaetigung|"
    r"wish-?lists?|wunsch(?:liste|zettel)|merkzettel|liste-d[e-]*envies|lista-(?:de-)?(?:desejos|deseos|dei-desideri)|verlanglijst(?:je)?|"
    r"onskelista|onskeliste|ulubione|oblibene|kivansaglista|istek-listesi|product[_-]compare|comparison)(?:[/?.]|$)|"
    # These are names of things for sale, too: a shop for bags has `/bag/leather`.
    r"/(?:basket|bag|kasse|kassa|kassan|kurv|kosik|kosar|coşul?-meu|cos|cesta|sepet|compare|vergleich|porovnani|porownanie|porownaj|"
    r"comparateur|comparador|confronta|vergelijk(?:en)?|jamfor|sammenlign|vertailu|osszehasonlitas|karsilastir(?:ma)?|favou?rites?|favoris|"
    r"favoritos|preferiti|favorieten|favoriter|favorilerim|suosikit|kedvencek|thank-?you|danke|merci|gracias)(?:\.\w{2,4})?/?(?:\?|$)",
    re.IGNORECASE,
)
_ARTICLE_URL: Final = re.compile(
    r"/(?:blog|blogs|news|article|articles|stories|magazine?|recipes?|rezepte?|recetas?|recettes?|ricett[ae]|receitas?|recepten|recept(?:y|ek)?|"
    r"przepisy|yemek-tarifleri|forums?|viewtopic|threads?|wiki|help|faq|about|contact|podcasts?|guides?|ratgeber|inspiration|inspiracje|lookbook|"
    r"jobs?|careers?|karriere|stellenangebote|emploi|empleos?|vagas|stores|store-(?:locator|finder)|filialen|filialer|tiendas|magasins|negozi|"
    r"sklepy|reviews?|testberichte?|avis|rese(?:n|ñ)as|recensioni|recensies|recenze|recenzje|versandkosten|livraison|"
    r"20\d\d/[01]?\d)(?:[/.]|$)",
    re.IGNORECASE,
)


class PageNames(msgspec.Struct, frozen=True, kw_only=True):
    """What a page calls itself: its addresses, `og:type`, title, the types in its data, how many products they name."""

    url: str
    canonical: str | None
    og_type: str
    types: Collection[str]
    products: int
    fits: bool
    priced: bool
    title: str


_MAIN: Final = frozenset({"card", "linked", "aside", "hidden", "struck"})


def page_features(page: Outline, names: PageNames, amounts: Sequence[PriceCandidate]) -> dict[str, float]:
    """What speaks for and against a page about one thing for sale."""
    path, query = _parts(names.url)
    if names.canonical and _ROOT.fullmatch(path) and not query:
        path, query = _parts(names.canonical)
    full = f"{path}?{query}" if query else path
    # Tiles without links count if their prices differ: a table may say one price many times.
    cards = sum(not _IN_CARDS.isdisjoint(each.features) for each in amounts)
    cards += len({each.amount for each in amounts if "many_alike" in each.features})
    shown = any("hidden" not in each.features for each in amounts)
    buttons = sum(not each.aside for each in page.buttons)
    known = {
        "page": True,
        "url_root": bool(_ROOT.fullmatch(path)) and not query,
        **{name: bool(pattern.search(full)) for name, pattern in _URLS},
        "og_product": "product" in names.og_type,
        "og_article": names.og_type in ("article", "blog"),
        "og_other": bool(names.og_type) and not re.search("product|article|blog", names.og_type),
        **{name: not types.isdisjoint(names.types) for name, types in _TYPES},
        "one_product": names.products == 1,
        "few_products": names.products == 2,
        "many_products": names.products > 2,
        "product_fits": names.fits and names.priced,
        "fits_unpriced": names.fits and not names.priced,
        "all_cards": shown and not any(_MAIN.isdisjoint(each.features) for each in amounts),
        "no_amounts": not shown,
        "button": 0 < buttons < _MANY_BUTTONS,
        "many_buttons": buttons >= _MANY_BUTTONS,
        "password": page.passwords > 0,
        "no_h1": not any(each.tag == "h1" for each in page.headings),
        "login_title": says_any(names.title[:120], "login"),
        "list_words": says_any(page.text[:_MOST_TEXT], "list"),
        "unpriced_words": says_any(_near_heading(page), "unpriced"),
    }
    return {"cards": min(cards, 12) / 12, **{name: 1.0 for name, is_so in known.items() if is_so}}


def _near_heading(page: Outline) -> str:
    """Words elsewhere, such as `get a quote` in a menu, are not about the page's own thing."""
    begin = next((page.first[each.place] for each in page.headings if each.tag == "h1"), 0)
    return page.text[begin : begin + _NEAR_HEADING].replace(JOINT, " ")


_NEAR_HEADING: Final = 1_500
_IN_CARDS: Final = frozenset({"card", "linked"})
_MANY_BUTTONS: Final = 4
_MOST_TEXT: Final = 100_000
_TYPES: Final = (
    ("type_list", frozenset({"ItemList", "CollectionPage", "SearchResultsPage", "OfferCatalog"})),
    (
        "type_article",
        frozenset(
            {
                *("Article", "NewsArticle", "BlogPosting", "Recipe", "PodcastEpisode", "FAQPage", "Blog", "HowTo"),
                *("QAPage", "DiscussionForumPosting", "JobPosting", "ContactPage", "AboutPage"),
            }
        ),
    ),
    ("type_local", frozenset({"Restaurant", "LocalBusiness", "Store", "Organization", "Person", "Place"})),
)
_URLS: Final = (
    ("url_list", _LIST_URL),
    ("url_search", _SEARCH_URL),
    ("url_query", _QUERY_URL),
    ("url_product", _PRODUCT_URL),
    ("url_account", _ACCOUNT_URL),
    ("url_cart", _CART_URL),
    ("url_article", _ARTICLE_URL),
)


def _parts(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return unquote(parts.path) or "/", parts.query
    except ValueError:
        return "/", ""


def name_kind(features: Mapping[str, float], facts: PageFacts, choice: Choice) -> PageKind:
    """One thing for sale if a price outweighs all that speaks against it; else what most speaks of."""
    if choice.winner:
        if facts.kind is PriceKind.BID or facts.bid_count:
            return PageKind.AUCTION
        return PageKind.VARIANTS if facts.amount_max else PageKind.PRODUCT
    if choice.none_score > 0 and (said := [kind for kind, names in _KINDS if any(each in features for each in names)]):
        return said[0]
    return PageKind.PRODUCT if "product_fits" in features else PageKind.UNKNOWN


def kind_evidence(kind: PageKind, features: Mapping[str, float]) -> Sequence[Evidence]:
    """What spoke for and against a page about one thing for sale, the weightiest first."""
    weighed = [(OWN.page.get(name, 0.0) * value, name) for name, value in features.items() if name != "page"]
    if kind.sells_one_thing:
        weighed = [(-weight, name) for weight, name in weighed]
    return [
        Evidence(
            field="page_kind",
            path=f"page:{name}",
            snippet=f"{'speaks for' if weight > 0 else 'speaks against'} {kind}",
            confidence=min(abs(weight) / _MOST_WEIGHT, 1.0),
        )
        for weight, name in sorted(weighed, key=lambda each: (-each[0], each[1]))
        if abs(weight) >= _LEAST_WEIGHT
    ]


_LEAST_WEIGHT: Final = 0.2
_MOST_WEIGHT: Final = 3.0
# The first that a page shows is its kind.
_KINDS: Final = (
    (PageKind.CART, ("url_cart",)),
    (PageKind.LOGIN, ("url_account", "login_title")),
    (PageKind.SEARCH, ("url_search",)),
    (PageKind.HOME, ("url_root",)),
    (PageKind.ARTICLE, ("url_article", "type_article", "og_article")),
    (PageKind.LIST, ("url_list", "type_list", "all_cards", "many_products", "list_words")),
)
