"""Which pages sell one thing, by their address, the types in their data, and what their data say of."""

import json
from decimal import Decimal

import pytest

from mistnet.shops.extraction import PageReading, explain_page
from mistnet.shops.extraction.currencies import site_currency
from mistnet.shops.extraction.price_words import name_says
from mistnet.shops.model import Availability, PageKind

SHOP = "https://www.kettles.example"
ONE_PRICE = "<title>Blue kettle</title><h1>Blue kettle</h1><p class=price>$45.00</p><button>Add to cart</button>"


def read(html: str, path: str = "/p/blue-kettle") -> PageReading:
    return explain_page(html.encode(), url=SHOP + path, content_type="text/html")


def data(*things: dict[str, object]) -> str:
    return "".join(f'<script type="application/ld+json">{json.dumps(each)}</script>' for each in things)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/products/blue-kettle", PageKind.PRODUCT),
        ("/bag/leather-tote", PageKind.PRODUCT),
        ("/wishlist", PageKind.CART),
        ("/fr/wishlist/7f3a", PageKind.CART),
        ("/winkelwagen", PageKind.CART),
        ("/afrekenen/betaling", PageKind.CART),
        ("/varukorg?step=2", PageKind.CART),
        ("/bag", PageKind.CART),
        ("/compare?ids=1,2", PageKind.CART),
        ("/order/confirmation/8812", PageKind.CART),
        ("/checkout/onepage/success/", PageKind.CART),
        ("/checkout_confirmation.php", PageKind.CART),
        ("/shopping_cart.php", PageKind.CART),
    ],
)
def test_a_cart_and_its_like_is_told_by_its_address(path: str, kind: PageKind) -> None:
    assert read(ONE_PRICE, path).page_kind is kind


@pytest.mark.parametrize(
    ("path", "feature"),
    [
        ("/products", "url_list"),
        ("/products.asp?cat=7", "url_list"),
        ("/products/?sort=price", "url_list"),
        ("/products/page/2", "url_list"),
        ("/?s=kettle&post_type=product", "url_search"),
        ("/recetas/fabada", "url_article"),
        ("/viewtopic.php?t=8", "url_article"),
        ("/stores/boston", "url_article"),
        ("/review/blue-kettle", "url_article"),
        ("/ordre/DK-44812/status", "url_account"),
    ],
)
def test_lists_searches_and_articles_are_told_by_their_address(path: str, feature: str) -> None:
    assert f"page:{feature}" in [each.path for each in read("<h1>Blue</h1>", path).kind_evidence]


def test_the_address_of_a_product_below_products_is_none_of_a_list() -> None:
    evidence = read("<h1>Blue</h1>", "/products/blue-kettle").kind_evidence
    assert "page:url_list" not in [each.path for each in evidence]


@pytest.mark.parametrize("named", ["JobPosting", "HowTo", "QAPage", "DiscussionForumPosting", "ContactPage"])
def test_a_type_that_sells_nothing_speaks_against_a_price(named: str) -> None:
    html = f"{data({'@type': named, 'name': 'Sales clerk'})}<h1>Sales clerk</h1><p>We pay $25.00 or more per hour.</p>"
    reading = read(html, "/x/sales-clerk")
    assert reading.facts.amount is None
    assert "page:type_article" in [each.path for each in reading.kind_evidence]


def test_an_event_of_any_kind_is_for_sale() -> None:
    offer = {"@type": "Offer", "price": "59.50", "priceCurrency": "USD"}
    html = data({"@type": "MusicEvent", "name": "The Lanterns", "offers": offer}) + "<h1>The Lanterns</h1>"
    assert read(html, "/event/lanterns").facts.amount == Decimal("59.50")


def test_data_of_other_things_do_not_prove_a_price_that_is_shown() -> None:
    """Of a list that names several products the first is not the page's own."""
    products: list[dict[str, object]] = [
        {"@type": "Product", "name": f"Kettle {n}", "offers": {"@type": "Offer", "price": n, "priceCurrency": "USD"}}
        for n in (20, 30, 40)
    ]
    reading = read(f"{data(*products)}<h1>Kettles</h1><p>$20.00</p><p>$30.00</p><p>$40.00</p>", "/kettles")
    assert not any("data_and_visible" in each.features for each in reading.candidates)


def test_a_country_is_known_by_the_last_two_names_of_its_shops() -> None:
    assert (site_currency("https://www.bici.com.co/p"), site_currency("https://bici.co/p")) == ("COP", None)


RELATED = "".join(f"<article><h5>Kettle {n}</h5><p>${n}.00</p></article>" for n in (20, 30))


def test_the_heading_of_a_card_stands_below_that_of_its_section() -> None:
    html = f"<title>Blue kettle</title><h1>Blue kettle</h1><p>Sold out</p><h2>You may also like</h2>{RELATED}"
    candidates = read(html).candidates
    assert candidates
    assert all("related" in each.features and "title_400" not in each.features for each in candidates)
    assert read(html).facts.amount is None


def test_the_next_section_is_about_the_page_again() -> None:
    html = f"<h1>Blue kettle</h1><h2>You may also like</h2>{RELATED}<h2>Description</h2><p>Price: $45.00</p>"
    found = {each.amount: each.features for each in read(html).candidates}
    assert "related" in found[Decimal(20)]
    assert "related" not in found[Decimal(45)]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("CEmiEU", None),
        ("price_CEmiEU", None),
        ("css-1vatK9", None),
        ("emi-price", "instalment"),
        ("exVatPrice", "net"),
        ("oldPrice", "old"),
        ("deadline", None),
        ("line-clamp-2", None),
        ("line-through", "old"),
        ("lineThrough", "old"),
        ("eco-part", "extra"),
        ("puvodni-cena", "old"),
        ("regi-ar", "old"),
        ("akcios-ar", "current"),
        ("prezzo-barrato", "old"),
    ],
)
def test_names_say_what_an_amount_is_and_made_up_names_say_nothing(name: str, role: str | None) -> None:
    said = name_says(name).roles
    assert role in said if role else said <= {"price"}


STATE = """<script>window.__STATE__={"product":{"name":"Blue kettle","pricing":{"price":45.5}},
"others":[{"name":"Red kettle","price":20},{"name":"Green kettle","price":30},{"name":"Blue kettle stand","price":10},
{"name":"Lid","price":5}]}</script>"""


def test_the_last_name_before_a_price_says_whose_it_is() -> None:
    reading = read(f"<title>Blue kettle | Kettles</title><h1>Blue kettle</h1>{STATE}")
    assert reading.facts.amount == Decimal("45.5")
    assert [each.amount for each in reading.candidates if "script_named" in each.features] == [Decimal("45.5")]


@pytest.mark.parametrize(
    "said",
    [
        "Price on request",
        "Preis auf Anfrage",
        "Prix sur demande",
        "Prix : nous consulter",
        "Cena na zapytanie",
        "Pris på förfrågan",
        "가격 문의",
    ],
)
def test_a_thing_whose_price_is_told_on_request_has_none(said: str) -> None:
    asked = f"<title>Blue press</title><h1>Blue press</h1><p>{said}</p><p>Weight 950 kg</p><p>Oil: $129.00</p>"
    assert read(asked, "/blue-press").facts.amount is None
    assert "page:unpriced_words" in [each.path for each in read(asked, "/blue-press").kind_evidence]


def test_a_request_in_the_menu_does_not_hide_the_price() -> None:
    assert read(f"<header><a href=/q>Get a quote</a></header>{ONE_PRICE}").facts.amount == Decimal("45.00")


@pytest.mark.parametrize(
    ("beside", "stock"),
    [
        ("<p class=price>$45.00</p><button>Notify me when available</button>", Availability.OUT_OF_STOCK),
        ("<p class=price>$45.00</p><button>Bevaka</button>", Availability.OUT_OF_STOCK),
        ("<p class=price>$45.00</p><p>Sold out</p>", Availability.OUT_OF_STOCK),
        ("<p class=price>$45.00</p><p>M: sold out</p><button>Add to cart</button>", Availability.IN_STOCK),
        ("<p class=price>$45.00</p>", Availability.IN_STOCK),
    ],
)
def test_a_thing_that_is_sold_out_is_not_in_stock_for_its_price(beside: str, stock: Availability) -> None:
    facts = read(f"<title>Blue kettle</title><h1>Blue kettle</h1>{beside}").facts
    assert (facts.amount, facts.availability) == (Decimal("45.00"), stock)


def test_many_prices_alike_are_a_list_without_links_too() -> None:
    tiles = "".join(
        f"<div class=tile data-price={n}><b>Kettle {n}</b><i class=price>${n}.00</i></div>" for n in range(20, 32)
    )
    reading = read(f"<title>Kettles</title><h1>Kettles</h1>{tiles}", "/kettles")
    assert (reading.facts.amount, reading.page_kind) == (None, PageKind.UNKNOWN)
