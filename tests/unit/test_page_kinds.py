"""Which pages sell one thing, by their address, the types in their data, and what their data say of."""

import json
from decimal import Decimal

import pytest

from mistnet.shops.extraction import PageReading, explain_page
from mistnet.shops.extraction.currencies import site_currency
from mistnet.shops.model import PageKind

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
