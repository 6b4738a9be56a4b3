"""Makes pages from a seed: which kind, which shop system, which country, and what stands beside the price."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tests.shop_pages.data import others, put_data, put_state, put_tags, script
from tests.shop_pages.distractors import DISTRACTORS, EXCLUSIVE, cards, related
from tests.shop_pages.draft import Draft
from tests.shop_pages.locales import locales

SYSTEMS: Final = (
    "shopify", "woocommerce", "magento", "prestashop", "shopware", "bigcommerce", "squarespace", "vtex", "salesforce",
    "custom_table", "custom_spa", "custom_tailwind", "custom_bootstrap", "custom_market",
)  # fmt: skip
WITH_MICRODATA: Final = ("magento", "prestashop", "shopware", "custom_bootstrap")
OTHER_KINDS: Final = (
    "category",
    "home",
    "search",
    "article",
    "unpriced",
    "login",
    "wall",
    "missing",
    "forum",
    "category",
    "cart",
    "wishlist",
    "comparison",
    "order",
    "job",
    "store",
    "request",
)
PAGES_OF_PRODUCTS: Final = 0.65
PATHS: Final[Mapping[str, Sequence[str]]] = {
    "product": ("products/{}", "p/{}.html", "{}-p-7", "item?id=9&n={}", "shop/{}/"),
    "auction": ("lot/{}", "auctions/{}"),
    "unpriced": ("products/{}", "p/{}.html"),
    "category": ("c/{}", "collections/{}", "{}/"),
    "home": ("",),
    "search": ("search?q={}",),
    "article": ("blog/{}", "news/{}.html"),
    "login": ("login", "account/signin"),
    "forum": ("forum/t/{}", "viewtopic.php?t={}"),
    "wishlist": ("wishlist", "wishlist/{}"),
    "comparison": ("compare", "compare?ids=7,9", "product_compare/"),
    "order": ("order/confirmation/{}", "checkout/onepage/success/", "orders/thank-you"),
    "job": ("jobs/{}", "careers/{}"),
    "store": ("stores/{}", "store-locator/{}"),
    "request": ("products/{}", "p/{}.html"),
}
CARTS: Final[Mapping[str, Sequence[str]]] = {
    "de": ("warenkorb", "kasse"), "fr": ("panier",), "es": ("carrito", "cesta"), "it": ("carrello",),
    "pl": ("koszyk",), "sv": ("varukorg", "kassa"), "pt": ("carrinho",), "en": ("cart", "basket", "bag"),
}  # fmt: skip
TYPES: Final[Mapping[str, str]] = {"job": "JobPosting", "store": "Store"}


class ShopPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page and what is true of it. `amount` is None where no price must be told."""

    name: str
    url: str
    html: str
    kind: str
    system: str
    locale: str
    distractors: Sequence[str]
    amount: Decimal | None
    currency: str | None
    list_amount: Decimal | None = None
    in_stock: bool | None = None
    sku: str | None = None


def shop_pages(count: int, *, seed: int = 1) -> Iterator[ShopPage]:
    """The same pages for the same seed. Systems, locales, kinds and distractors are dealt out evenly."""
    return (shop_page(number, seed=seed) for number in range(count))


def shop_page(number: int, *, seed: int = 1) -> ShopPage:
    rng = Random(f"{seed}:{number}")
    names = sorted(locales())
    draft = Draft(rng, locales()[names[number % len(names)]])
    if rng.random() < PAGES_OF_PRODUCTS:
        return _auction(draft, number) if rng.random() < 0.07 else _product(draft, number)
    return _other(draft, number, OTHER_KINDS[(number // 3) % len(OTHER_KINDS)])


def _product(draft: Draft, number: int) -> ShopPage:
    rng = draft.rng
    system = SYSTEMS[(number // 2) % len(SYSTEMS)]
    microdata = system in WITH_MICRODATA and draft.chance(0.5)
    only_state = system == "custom_spa" and draft.chance(0.2)
    draft.in_stock = rng.choice([True, True, True, False])
    distractors = [] if only_state else _chosen(draft, number)
    for name in distractors:
        DISTRACTORS[name](draft)
    draft.small_cents = draft.locale.decimals == 2 and draft.chance(0.12)
    if draft.small_cents:
        distractors.append("cents apart")
    mode = "none" if only_state else rng.choice(["full", "full", "full", "partial", "none", "none", "none"])
    if "listed in data" in distractors:
        mode = "none" if microdata else "full"
    put_data(draft, mode)
    put_tags(draft, "product")
    put_state(draft, "product")
    stated = mode != "full" or draft.chance(0.7)
    html = _rendered(
        draft, system, microdata=microdata, only_state=only_state, embedded=draft.chance(0.5), stated=stated
    )
    return _page(draft, number, html, "product", system, distractors)


def _auction(draft: Draft, number: int) -> ShopPage:
    """The data for machines has the opening bid; the page shows the current one."""
    assert draft.price is not None
    draft.in_data = draft.other(0.05, 0.8)
    draft.in_stock = None
    distractors = [
        name for name in _chosen(draft, number) if name in ("related", "shipping", "coupon", "cart widget", "glued")
    ]
    for name in distractors:
        DISTRACTORS[name](draft)
    put_data(draft, draft.rng.choice(["full", "full", "none"]))
    put_tags(draft, "website")
    html = _rendered(draft, "custom_auction", stated=False)
    return _page(draft, number, html, "auction", "custom_auction", [*distractors, "opening bid"])


def _other(draft: Draft, number: int, kind: str) -> ShopPage:
    """A page that has no price to tell, though others' prices may stand on it."""
    rng = draft.rng
    draft.in_stock = draft.in_data = draft.was = None
    heading = {
        "search": rng.choice(str(draft.words["nouns"]).split("|")),
        "category": draft.menu()[0],
        "login": draft.say("login"),
        "missing": draft.say("missing"),
        "cart": draft.say("cart"),
    }.get(kind, draft.title)
    distractors = []
    if kind not in ("wall", "login", "missing") and draft.chance(0.6):
        distractors = [
            name
            for name in _chosen(draft, number)
            if name
            in ("free shipping", "coupon", "gift card", "cart widget", "related", "bundle", "cards with headings")
        ]
    for name in distractors:
        DISTRACTORS[name](draft)
    system = rng.choice(SYSTEMS)
    if kind in ("unpriced", "request"):
        return _unpriced(draft, number, kind, system, distractors)
    if kind in TYPES:
        named = {"@context": "https://schema.org", "@type": TYPES[kind], "name": heading}
        draft.put("head", "{}", script(named))
    draft.price = draft.sku = None
    draft.title = heading
    put_data(draft, "none")
    put_tags(draft, "page")
    if kind != "wall":
        put_state(draft, kind)
    if kind in ("category", "search", "home", "article") and draft.chance(0.25):
        draft.put("head", '<meta property="og:type" content="product">')
        distractors.append("product tag")
    if kind in ("category", "search", "home") and draft.chance(0.25):
        draft.put("head", "{}", script(others(draft)))
        distractors.append("list in data")
    if kind == "home" and draft.chance(0.6):
        draft.put("below", "<section><h2>{}</h2>{}</section>", draft.say("related"), cards(draft, rng.randrange(2, 9)))
        distractors.append("related")
    single = draft.chance(0.4)
    if single and kind in ("home", "article", "forum", "job", "store"):
        distractors.append("one stray price")
    microdata = kind in ("category", "search") and draft.chance(0.25)
    if microdata:
        distractors.append("list microdata")
    template = TEMPLATES.get(kind, kind)
    form = kind if template == "notice" else rng.choice([1, 2, 3, 4])
    html = _rendered(
        draft, template, heading=heading, single=single, microdata=microdata, form=form, count=rng.randrange(4, 30)
    )
    return _page(draft, number, html, kind, "listing" if template == "listing" else template, distractors)


TEMPLATES: Final = {
    **dict.fromkeys(("category", "search"), "listing"),
    **dict.fromkeys(("login", "missing"), "notice"),
    **dict.fromkeys(("cart", "wishlist", "comparison", "order"), "chosen"),
    **dict.fromkeys(("job", "store"), "article"),
}


def _unpriced(draft: Draft, number: int, kind: str, system: str, distractors: list[str]) -> ShopPage:
    """A product that cannot be bought now, or only on request: no price of its own, prices of others beside it."""
    draft.price, draft.in_stock = None, False
    if "related" not in distractors and draft.chance(0.7):
        related(draft)
        distractors.append("related")
    put_data(draft, draft.rng.choice(["partial", "none"]))
    put_tags(draft, "product")
    if kind == "request":
        draft.in_stock = None
        draft.put("before_price", "<p>{}</p>", draft.say("request"))
    html = _rendered(draft, system, microdata=False, only_state=False, embedded=False, stated=kind == "unpriced")
    return _page(draft, number, html, kind, system, distractors)


def _chosen(draft: Draft, number: int) -> list[str]:
    """One distractor in its turn, and some by chance."""
    known = [*DISTRACTORS]
    chosen = [known[number % len(known)]]
    for name in draft.rng.sample(known, k=draft.rng.choice([0, 1, 1, 2, 3, 4])):
        if name not in chosen and not any(name in group and group.intersection(chosen) for group in EXCLUSIVE):
            chosen.append(name)
    return chosen


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
)


def _rendered(draft: Draft, template: str, **values: Any) -> str:
    def one(options: Sequence[Any]) -> Any:
        found = draft.rng.choice(options)
        return Markup(found) if isinstance(found, str) and "<" in found else found

    return _ENVIRONMENT.get_template(f"{template}.html").render(d=draft, one=one, full=draft.chance(0.7), **values)


def _page(draft: Draft, number: int, html: str, kind: str, system: str, distractors: Sequence[str]) -> ShopPage:
    slug = (
        "".join(each if each.isascii() and each.isalnum() else "-" for each in draft.title.lower()).strip("-")
        or f"x{number}"
    )
    paths = CARTS.get(draft.locale.language, ("cart",)) if kind == "cart" else PATHS.get(kind, ("{}",))
    path = draft.rng.choice(paths).format(slug)
    return ShopPage(
        name=f"{number}-{system}-{draft.locale.name}-{kind}",
        url=f"https://{draft.host}/{path}",
        html=html,
        kind=kind,
        system=system,
        locale=draft.locale.name,
        distractors=sorted(distractors),
        amount=draft.price,
        currency=draft.locale.currency if draft.price is not None else None,
        list_amount=draft.was,
        in_stock=draft.in_stock,
        sku=draft.sku,
    )
