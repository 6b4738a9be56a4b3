"""The price of a page is chosen by the consensus of all its amounts, and only pages that sell one thing have one."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import json
import os
import subprocess
import sys
from decimal import Decimal

import pytest

from mistnet.shops.extraction import PageReading, PriceRole, explain_page, find_doubt
from mistnet.shops.extraction.scorer import OWN, choose
from mistnet.shops.model import PageKind, PageVerdict, PriceKind

URL = "https://www.kettles.example/p/blue-kettle"


def read(html: str, url: str = URL) -> PageReading:
    return explain_page(html.encode(), url=url, content_type="text/html")


def json_ld(price: object, **offer: object) -> str:
    asked = {"@type": "Offer", "price": price, "priceCurrency": "USD", **offer}
    product = {"@type": "Product", "name": "Blue kettle", "offers": asked}
    return f'<script type="application/ld+json">{json.dumps(product)}</script>'


def shop_page(beside: str, data: str = "") -> str:
    return f"<title>Blue kettle</title>{data}<main><h1>Blue kettle</h1>{beside}<button>Add to cart</button></main>"


@pytest.mark.parametrize(
    ("beside", "amount"),
    [
        ("<p>As low as $9.99</p><p class=price>$45.00</p>", "45.00"),
        ("<p class=price>$45.00</p><p>or 4 payments of $11.25</p>", "45.00"),
        ("<p>$11.25 per month</p><p class=price>$45.00</p>", "45.00"),
        ("<p>Free shipping on orders over $35.00</p><p class=price>$45.00</p>", "45.00"),
        ("<p>Shipping: $5.95</p><p class=price>$45.00</p>", "45.00"),
        ("<p>Used from $20.00</p><p class=price>$45.00</p>", "45.00"),
        ("<p>Pay a deposit of $10.00</p><p class=price>$45.00</p>", "45.00"),
        ("<p class=price><s>$60.00</s> $45.00</p>", "45.00"),
        ("<p class=price>Was $60.00</p><p class=price>Now $45.00</p>", "45.00"),
        ("<p class=price>$45.00</p><p>$1.50 / 100 g</p>", "45.00"),
        ("<p class=price>$45.00</p><p>You save $15.00</p>", "45.00"),
        ("<p class=price>$55.<sup>99</sup></p>", "55.99"),
        ("<p class=price><span>$</span><span>64</span><span>90</span></p>", "64.90"),
        ("<p class=price><i>$</i><i>1</i><i>,</i><i>964</i><i>.</i><i>15</i></p>", "1964.15"),
        ("<p class=price>$229<b>99</b></p>", "229.99"),
        ("<p class=price><span>$45.00</span><span>24h</span></p>", "45.00"),
        ("<p class=price>123,456.789 OMR</p>", "123456.789"),
        ("<p class=price>₹1,41,298.00</p>", "141298.00"),
        ("<p class=price>١٬٢٣٤٫٥٠ ر.ع.</p>", "1234.50"),
        # A copy for screen readers stands beside each amount, and the unit behind both.
        ("<p><i>$0.57</i><i>$0.57</i> / Ounce</p><p><i>$45.00</i><i>$45.00</i></p>", "45.00"),
        # A shop says the lowest price of the last 30 days.
        ("<p>Najniższa cena z 30 dni przed obniżką: 39,90 zł</p><p class=price>45,00 zł</p>", "45.00"),
        ("<p>Lägsta pris senaste 30 dagarna: 399 kr</p><p class=price>450 kr</p>", "450"),
        ("<p>30-Tage-Bestpreis: 39,90 €</p><p class=price>45,00 €</p>", "45.00"),
        ("<p>Τελευταίες 30 ημέρες: 39,90 €</p><p class=price>45,00 €</p>", "45.00"),
        # Numbers split over elements.
        ("<p class=price>149,<span>99 zł</span></p>", "149.99"),
        ("<p class=price>1.149<span>,–</span> €</p>", "1149"),
        ("<p>$0.085 each</p><p class=price>$45.00</p>", "45.00"),
        ("<p>¥<del>599</del> ¥450</p>", "450"),
        # The lower of two amounts is asked if it is less by the percentage beside them.
        ("<div><b>84,95 €</b> <i>-20%</i> <b>67,96 €</b></div>", "67.96"),
        ("<div><b>¥29,800</b> <i>23%</i> <b>¥38,900</b></div>", "29800"),
        # A fee is no price that was lowered.
        ("<p class=price>$45.00</p><p>Recycling fee <b>$0.25</b> <s>$0.50</s></p>", "45.00"),
        # A share or a count has no mark: it is that of the amount before it.
        ("<p class=price><b>45,00 kr</b><i>56%</i></p>", "45.00"),
        ("<p class=price><b>450 元</b> <i>2期</i></p>", "450"),
        ("<p class=price><s>Rs. 1,49,747.50</s><b>Rs. 97,473.</b><i>99</i></p>", "97473.99"),
        ("<p>Le prix le plus bas des 30 derniers jours : 39,90 €</p><p class=price>45,00 €</p>", "45.00"),
        # The rest of a line is said of the amount in that line.
        ("<p>+ $6.99 shipping</p><p>$45.00</p>", "45.00"),
        # Words behind the end of an element are those of the next amount.
        ("<p class=price><b>1 299:-</b> <i>Ord. pris 1 999:-</i></p>", "1299"),
        ("<p class=price><b>$45.00</b> <i>Shipping $5.95</i></p>", "45.00"),
    ],
)
def test_of_many_amounts_the_price_is_told(beside: str, amount: str) -> None:
    facts = read(shop_page(beside)).facts
    assert (facts.amount, facts.page_kind) == (Decimal(amount), PageKind.PRODUCT)


def test_a_discount_that_only_some_get_does_not_lower_the_price() -> None:
    shown = "<p class=price>$45.00</p><p>Subscribe and save 10%: $40.50</p>"
    reading = read(shop_page(shown))
    assert not any({"former_of_pair", "beside_former"} & each.features.keys() for each in reading.candidates)
    assert reading.facts.amount == Decimal("45.00")


def test_a_letter_is_a_mark_where_the_sites_currency_is_written_so() -> None:
    html = "<title>Blue kettle</title><h1>Blue kettle</h1><div>R 2,199</div><button>Add to cart</button>"
    facts = read(html, "https://www.kettles.co.za/blue-kettle").facts
    assert (facts.amount, facts.currency) == (Decimal(2199), "ZAR")
    assert read(html, "https://www.kettles.co.uk/blue-kettle").facts.amount is None


def test_the_last_letter_of_a_name_on_the_line_above_is_no_mark() -> None:
    beside = (
        "<div>Varenr: 12044 / NC700B</div><div><b class=price-now>2 490,-</b><b class=price-before>3 290,-</b></div>"
    )
    assert read(shop_page(beside), "https://www.kettles.no/p/blue-kettle").facts.amount == Decimal(2490)


def test_the_sale_price_of_the_meta_tags_is_the_price() -> None:
    tags = "".join(
        f'<meta property="product:{name}:{part}" content="{value}">'
        for name, amount in (("price", "56.00"), ("sale_price", "48.90"))
        for part, value in (("amount", amount), ("currency", "USD"))
    )
    beside = "<p><b class=price>$56.00</b></p><p class=sale>Sale price <b class=price>$48.90</b></p>"
    assert read(shop_page(beside, tags)).facts.amount == Decimal("48.90")


def test_thirty_days_alone_are_no_lowest_price() -> None:
    reading = read(shop_page("<p>30 days to return it, free</p><p class=price>30 days free returns $45.00</p>"))
    assert reading.facts.amount == Decimal("45.00")


def test_a_list_price_in_the_data_gives_way_to_the_price_beside_it() -> None:
    shown = "<span class=regular-price>$60.00</span> <span class=current-price>$45.00</span>"
    facts = read(shop_page(shown, json_ld(60))).facts
    assert (facts.amount, facts.list_amount) == (Decimal("45.00"), Decimal("60.00"))


def test_the_current_bid_counts_on_an_auction() -> None:
    shown = "<dl><dt>Starting bid</dt><dd>$10.00</dd><dt>Current bid</dt><dd>$152.50</dd></dl>"
    facts = read(shop_page(shown, json_ld(10))).facts
    assert (facts.amount, facts.kind, facts.page_kind) == (Decimal("152.50"), PriceKind.BID, PageKind.AUCTION)


def test_an_offer_of_a_used_thing_does_not_set_the_price_of_a_new_one() -> None:
    offers = [
        {"@type": "Offer", "price": 20, "priceCurrency": "USD", "itemCondition": "https://schema.org/UsedCondition"},
        {"@type": "Offer", "price": 45, "priceCurrency": "USD", "itemCondition": "https://schema.org/NewCondition"},
    ]
    product = {"@type": "Product", "name": "Blue kettle", "offers": offers}
    facts = read(shop_page("", f'<script type="application/ld+json">{json.dumps(product)}</script>')).facts
    assert (facts.amount, facts.amount_max, facts.details["condition"]) == (Decimal(45), None, "UsedCondition")


def test_prices_of_application_state_are_read_where_nothing_else_is() -> None:
    state = '<script id="__NEXT_DATA__">{"product":{"name":"Blue kettle","price":{"amount":"45.50"}}}</script>'
    facts = read(shop_page(state)).facts
    assert facts.amount == Decimal("45.50")


CARDS = "".join(
    f'<div class="tile"><a href="/p/{number}">Kettle {number}</a><p class="price">${number}.00</p></div>'
    for number in range(20, 32)
)


@pytest.mark.parametrize(
    ("url", "html", "kind"),
    [
        ("https://www.kettles.example/", f"<h1>Kettles</h1>{CARDS}", PageKind.HOME),
        ("https://www.kettles.example/collections/all", f"<h1>All</h1><p>Sort by</p>{CARDS}", PageKind.LIST),
        (
            "https://www.kettles.example/c/blue",
            f'<meta property="og:type" content="product"><h1>Blue</h1><p>Sort by</p>{CARDS}',
            PageKind.LIST,
        ),
        ("https://www.kettles.example/search?q=blue", f"<h1>Results</h1>{CARDS}", PageKind.SEARCH),
        ("https://www.kettles.example/login", "<h1>Sign in</h1><input type=password><p>$0.00</p>", PageKind.LOGIN),
        (
            "https://www.kettles.example/blog/2024/tea",
            "<h1>Tea</h1><p>We paid $5.00 for tea that was worth much more than that in our eyes, and drank it.</p>",
            PageKind.ARTICLE,
        ),
    ],
)
def test_a_page_that_does_not_sell_one_thing_has_no_price(url: str, html: str, kind: PageKind) -> None:
    reading = read(html, url)
    assert (reading.facts.verdict, reading.page_kind) == (PageVerdict.NO_PRICE, kind)
    assert reading.kind_evidence


def test_a_product_beside_related_ones_keeps_its_price() -> None:
    facts = read(shop_page("<p class=price>$45.00</p>") + f"<h2>You may also like</h2>{CARDS}").facts
    assert facts.amount == Decimal("45.00")


def test_the_reading_names_winners_and_losers_with_their_features() -> None:
    reading = read(shop_page("<p class=price>$45.00</p><p>Shipping: $5.95</p>", json_ld(45)))
    first = reading.candidates[0]
    assert (first.amount, first.chosen, first.currency) == (Decimal(45), True, "USD")
    assert {each.path.partition(":")[0] for each in reading.candidates if each.chosen} == {"json-ld", "visible"}
    loser = next(each for each in reading.candidates if each.amount == Decimal("5.95"))
    assert (loser.role, loser.chosen) == (PriceRole.SHIPPING, False)
    assert loser.score < first.score
    assert reading.facts.details["shipping"] == "5.95 USD"
    assert "other_price" in [each.field for each in reading.facts.evidence]
    assert reading.confidence is not None
    assert reading.confidence > 0.9


def test_agreement_raises_the_confidence_and_disagreement_lowers_it() -> None:
    def confidence(shown: str) -> float:
        return read(shop_page(f"<p class=price>{shown}</p>", json_ld(45))).confidence or 0.0

    assert confidence("$45.00") > confidence("$52.00")


def test_two_amounts_that_fit_alike_make_a_doubtful_offer() -> None:
    reading = read(shop_page("<p class=price>$45.00</p><p class=price>$46.00</p><p class=price>$47.00</p>"))
    assert reading.is_doubtful
    assert find_doubt(reading.facts, ()) == reading.facts.doubt


def test_every_weight_is_that_of_a_feature_and_the_choice_is_the_same_each_time() -> None:
    reading = read(shop_page("<p class=price>$45.00</p>", json_ld(45)))
    once, again = (choose(reading.candidates, {"page": 1.0}) for _ in range(2))
    assert [each.score for each in once.groups] == [each.score for each in again.groups]
    assert all(-10 <= weight <= 10 for table in (OWN.candidate, OWN.group, OWN.page) for weight in table.values())


_SCRIPT = """
from mistnet.shops.extraction import explain_page
from tests.shop_pages.generate import shop_pages
for page in shop_pages(24):
    print(explain_page(page.html.encode(), url=page.url, content_type="text/html"))
"""


def test_a_page_is_read_the_same_whatever_the_order_of_sets() -> None:
    readings = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(readings) == 1
