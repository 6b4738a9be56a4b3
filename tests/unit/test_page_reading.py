"""Saved pages become facts: from data for machines first, from what people see where there is none."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistnet.shops.extraction.read import read_page
from mistnet.shops.model import Availability, PageFacts, PageUnreadable, PageVerdict, PriceKind
from tests.examples import count_examples

URL = "https://www.kettles.example/p/blue-kettle-48213"


def page(html: str, url: str = URL) -> PageFacts:
    return read_page(html.encode(), url=url, content_type="text/html; charset=utf-8")


def proof(facts: PageFacts, field: str) -> str:
    return next(each.path for each in facts.evidence if each.field == field)


JSON_LD = """<html><head><title>Blue kettle</title><script type="application/ld+json">{"@context":"https://schema.org",
"@graph":[{"@type":"WebSite","name":"Kettles"},{"@type":["Product"],"name":"Blue kettle","sku":"K-48213",
"brand":{"@type":"Brand","name":"Boil"},"image":["https://img.example/k.jpg"],
"aggregateRating":{"ratingValue":4.5,"reviewCount":"1,204"},
"offers":{"@type":"Offer","price":"39.90","priceCurrency":"EUR","availability":"https://schema.org/InStock"}}]}</script>
</head><body><h1>Blue kettle</h1></body></html>"""


def test_json_ld_tells_everything_with_its_path() -> None:
    facts = page(JSON_LD)
    assert (facts.verdict, facts.amount, facts.currency) == (PageVerdict.OFFER, Decimal("39.90"), "EUR")
    assert (facts.title, facts.brand, facts.sku) == ("Blue kettle", "Boil", "K-48213")
    assert (facts.availability, facts.rating_count) == (Availability.IN_STOCK, 1204)
    assert proof(facts, "amount") == "json-ld:Product.offers.price"
    assert all(0 < each.confidence <= 1 and each.snippet for each in facts.evidence)


@pytest.mark.parametrize(
    "broken",
    [
        '{"@type":"Product","name":"A","offers":{"price":5.5,"priceCurrency":"USD",},}',
        '/* made by hand */ {"@type":"Product","name":"A","offers":{"price":5.5,"priceCurrency":"USD"}}',
        '<!-- {"@type":"Product","name":"A","offers":{"price":5.5,"priceCurrency":"USD"}} -->',
        '{"@type":"Product","name":"A\nB","offers":{"price":5.5,"priceCurrency":"USD"}};',
        '{"@type":"Product","name":"10\\" pan\\x","offers":{"price":5.5,"priceCurrency":"USD"}}',
        '{"@type":"Product","name":"A","offers":{"price":5.5,"priceCurrency":"USD"}} and more',
        "{&quot;@type&quot;:&quot;Product&quot;,&quot;offers&quot;:{&quot;price&quot;:5.5,&quot;priceCurrency&quot;:&quot;USD&quot;}}",
    ],
)
def test_broken_json_ld_is_mended_gently(broken: str) -> None:
    facts = page(f'<script type="application/ld+json">{broken}</script>')
    assert (facts.amount, facts.currency) == (Decimal("5.5"), "USD")


@pytest.mark.parametrize(
    ("offers", "low", "high"),
    [
        ('{"@type":"AggregateOffer","lowPrice":"10","highPrice":"25.5","priceCurrency":"EUR"}', "10", "25.5"),
        ('{"priceSpecification":{"price":12.5,"priceCurrency":"EUR"}}', "12.5", None),
        ('[{"price":9,"priceCurrency":"EUR"},{"price":7,"priceCurrency":"EUR"}]', "7", "9"),
        ('{"price":"1.299,00","priceCurrency":"EUR"}', "1299.00", None),
        ('{"price":"€ 15,90"}', "15.90", None),
    ],
)
def test_offers_come_in_many_forms(offers: str, low: str, high: str | None) -> None:
    facts = page(f'<script type="application/ld+json">{{"@type":"Product","name":"A","offers":{offers}}}</script>')
    assert (facts.amount, facts.currency) == (Decimal(low), "EUR")
    assert facts.amount_max == (None if high is None else Decimal(high))


@pytest.mark.parametrize(
    "written", ["javascript:alert(3)", " JavaScript:alert(3)", "data:image/png,x", "file:///etc/passwd"]
)
def test_only_addresses_of_the_web_are_taken_for_pictures(written: str) -> None:
    hostile = page(JSON_LD.replace("https://img.example/k.jpg", written))
    assert (hostile.verdict, hostile.image_url) == (PageVerdict.OFFER, None)
    assert "image_url" not in [each.field for each in hostile.evidence]
    tags = f'<meta property="og:image" content="/k.jpg"><link rel="canonical" href="{written}"></head>'
    relative = page(JSON_LD.replace("https://img.example/k.jpg", written).replace("</head>", tags))
    assert (relative.image_url, relative.canonical_url) == ("https://www.kettles.example/k.jpg", None)


def test_offers_that_are_sold_out_do_not_set_the_price() -> None:
    offers = (
        '[{"price":5,"priceCurrency":"EUR","availability":"OutOfStock"},'
        '{"price":8,"priceCurrency":"EUR","availability":"InStock"}]'
    )
    facts = page(f'<script type="application/ld+json">{{"@type":"Product","name":"A","offers":{offers}}}</script>')
    assert (facts.amount, facts.availability) == (Decimal(8), Availability.IN_STOCK)


def test_thousands_points_are_read_where_a_currency_has_no_cents() -> None:
    facts = page(
        '<script type="application/ld+json">{"@type":"Product","name":"A",'
        '"offers":{"price":"24.990","priceCurrency":"CLP"}}</script>'
    )
    assert facts.amount == Decimal(24990)


def test_the_pages_own_product_is_chosen_among_several() -> None:
    facts = page(
        """<title>Blue kettle | Kettles</title><script type="application/ld+json">[
        {"@type":"ItemList","itemListElement":[
        {"@type":"Product","name":"Red kettle","offers":{"price":1,"priceCurrency":"EUR"}}]},
        {"@type":"Product","name":"Green kettle","offers":{"price":2,"priceCurrency":"EUR"}},
        {"@type":"Product","name":"Blue kettle","offers":{"price":3,"priceCurrency":"EUR"}}]</script>
        <h1>Blue kettle</h1>"""
    )
    assert (facts.title, facts.amount) == ("Blue kettle", Decimal(3))


def test_microdata_is_read_like_json_ld() -> None:
    facts = page(
        """<div itemscope itemtype="http://schema.org/Product"><h1 itemprop="name">Red pan</h1>
        <span itemprop="sku">P-77</span><div itemprop="review" itemscope itemtype="http://schema.org/Review">
        <span itemprop="name">Great</span></div>
        <div itemprop="offers" itemscope itemtype="http://schema.org/Offer">
        <meta itemprop="priceCurrency" content="GBP">
        <span itemprop="price" content="25.00">£25</span><link itemprop="availability" href="http://schema.org/SoldOut">
        </div></div>"""
    )
    assert (facts.title, facts.sku, facts.amount, facts.currency) == ("Red pan", "P-77", Decimal("25.00"), "GBP")
    assert facts.availability is Availability.OUT_OF_STOCK
    assert proof(facts, "amount").startswith("microdata:")


def test_a_lone_offer_is_enough() -> None:
    facts = page(
        '<span itemprop="offers" itemscope itemtype="http://schema.org/Offer"><meta content="767.55" itemprop="price"/>'
        '<meta content="EUR" itemprop="priceCurrency"/><meta content="InStock" itemprop="availability"/></span>'
    )
    assert (facts.amount, facts.currency, facts.availability) == (Decimal("767.55"), "EUR", Availability.IN_STOCK)


def test_meta_tags_tell_price_and_stock() -> None:
    facts = page(
        """<meta property="og:title" content="Lamp"><meta property="product:price:amount" content="1,299.00">
        <meta property="product:price:currency" content="TWD"><meta property="product:availability" content="oos">
        <link rel="canonical" href="https://www.kettles.example/lamp">"""
    )
    assert (facts.title, facts.amount, facts.currency) == ("Lamp", Decimal("1299.00"), "TWD")
    assert facts.availability is Availability.OUT_OF_STOCK
    assert facts.canonical_url == "https://www.kettles.example/lamp"


VISIBLE = """<html><body><nav><span class="price">$1.00</span></nav><main><h1>Oak chair</h1>
<p class="old-price">$120.00</p><div class="price-now"><span>$</span><span>89</span><sup>50</sup></div>
<button>Add to cart</button><p>SKU: OC-5521</p></main>
<section class="related-products"><h3>You may also like</h3><span class="price">$15.00</span></section></body></html>"""


def test_what_people_see_is_read_where_machines_are_told_nothing() -> None:
    facts = page(VISIBLE, "https://www.chairs.com/oak-chair")
    assert (facts.amount, facts.currency, facts.availability) == (Decimal("89.50"), "USD", Availability.IN_STOCK)
    assert (facts.title, facts.sku) == ("Oak chair", "OC-5521")
    assert proof(facts, "amount").startswith("visible:")


def test_struck_prices_and_side_matters_are_passed_over() -> None:
    facts = page(
        """<h1>Tent</h1><del class="price">€ 200</del><div class="cart-summary"><b class="price">€ 5</b></div>
        <div class="shipping"><span class="price">€ 6,95</span></div><span class="price">€ 149,00</span>"""
    )
    assert facts.amount == Decimal("149.00")


def test_a_struck_price_in_the_data_gives_way_to_the_price_on_show() -> None:
    facts = page(
        """<script type="application/ld+json">{"@type":"Product","name":"Bag","offers":{"price":"219.99",
        "priceCurrency":"EUR","availability":"InStock"}}</script><h1>Bag</h1>
        <span class="original-price">EUR 219.99</span><span class="current-price">EUR 110.00</span>
        <button>Add to basket</button>"""
    )
    assert (facts.amount, facts.list_amount, facts.currency) == (Decimal("110.00"), Decimal("219.99"), "EUR")


def test_a_price_without_a_currency_takes_the_countrys() -> None:
    facts = page('<h1>甜點</h1><b class="price">294</b>', "https://www.sweets.com.tw/1")
    assert (facts.amount, facts.currency, proof(facts, "currency")) == (Decimal(294), "TWD", "visible:b.price")


def test_sold_counts_and_instalments_near_the_heading_are_no_price() -> None:
    facts = page('<h1>手機</h1><span class="price-sold">已售 3,000 件</span><span class="price">每期 NT$433</span>')
    assert facts.amount is None
    assert facts.verdict is PageVerdict.NO_PRICE


@pytest.mark.parametrize(
    ("html", "url", "sku"),
    [
        ("<p>Artikelnummer: 4711-09</p>", URL, "4711-09"),
        ("<p>商品編號：ABC-123</p>", URL, "ABC-123"),
        ('<div data-sku="ZX81"></div>', URL, "ZX81"),
        ("<li><b>Product Code - </b>39139301</li>", URL, "39139301"),
        ('<span class="product-reference">1002/710</span>', URL, "1002/710"),
        ('<script>var meta = {"variants":[{"sku":"A-1236"}]}</script>', URL, "A-1236"),
        ("", "https://www.kettles.example/p/blue-kettle-48213.html", "48213"),
        ("", "https://www.kettles.example/p?pid=99881", "99881"),
    ],
)
def test_the_shops_own_number_is_found(html: str, url: str, sku: str) -> None:
    assert page(f'<h1>Kettle</h1><b class="price">$5</b>{html}', url).sku == sku


def test_the_number_on_the_page_is_the_things_where_the_data_name_variants() -> None:
    def kettle(sku: str) -> str:
        return f'{{"@type":"Product","name":"Kettle","sku":"{sku}","offers":{{"price":5,"priceCurrency":"EUR"}}}}'

    sizes = f'<script type="application/ld+json">[{kettle("8451-S")},{kettle("8451-L")}]</script><p>Ref. 1002/710</p>'
    assert page(f"<h1>Kettle</h1>{sizes}").sku == "1002/710"
    one = f'<script type="application/ld+json">{kettle("MK6001-1")}</script><p>SKU MK6001</p>'
    assert page(f"<h1>Kettle</h1>{one}").sku == "MK6001"


def test_a_makers_number_stands_in_for_the_shops() -> None:
    data = (
        '{"@type":"Product","name":"A","gtin13":"4006381333931","mpn":"M-5","offers":{"price":1,"priceCurrency":"EUR"}}'
    )
    facts = page(f'<script type="application/ld+json">{data}</script>', "https://a.example/a")
    assert facts.sku == "M-5"


def test_an_auction_is_a_bid() -> None:
    facts = page(
        '<h1>Old coin</h1><span id="prcIsum_bidPrice">US $152.50</span><span id="qty-test">7 bids</span>',
        "https://www.ebay.com/itm/123456789012",
    )
    assert (facts.amount, facts.kind, facts.bid_count) == (Decimal("152.50"), PriceKind.BID, 7)
    assert facts.sku == "123456789012"


@settings(max_examples=count_examples(50))
@given(
    st.binary(max_size=600), st.sampled_from([URL, "https://shopee.tw/x", "https://item.taobao.com/item.htm?id=1", "x"])
)
def test_no_bytes_break_the_reader(body: bytes, url: str) -> None:
    facts = read_page(body, url=url, content_type="text/html; charset=gbk", charset="nonsense")
    assert facts.amount is None or facts.amount > 0


DEEP = 6000


@pytest.mark.parametrize(
    "html",
    [
        "<script type='application/ld+json'>" + '{"@type":"Product","name":' * DEEP + "1" + "}" * DEEP + "</script>",
        "<script type='application/ld+json'>" + "[" * DEEP + "</script>",
        '<script type="application/ld+json">{"@type":"Product","offers":{"price":1e999999}}</script>',
        '<script type="application/ld+json">{"@type":"Product","offers":{"price":' + "9" * 5000 + "}}</script>",
        "<b class=price>" + "1," * 30_000 + "</b>",
        '<script type="application/ld+json">' + '"' * 20_001 + "</script>",
    ],
)
def test_pages_made_to_hurt_do_no_harm(html: str) -> None:
    assert page(html).verdict in (PageVerdict.NO_PRICE, PageVerdict.OFFER)


@pytest.mark.parametrize(
    "html",
    [
        "<h1>A</h1><div class=price>" + "<span class=price>" * DEEP + "$5",
        "<div itemscope itemtype='http://schema.org/Product' itemprop=offers>" * DEEP,
    ],
)
def test_pages_that_nest_without_end_are_unreadable(html: str) -> None:
    with pytest.raises(PageUnreadable):
        page(html)


def test_numbers_with_exponents_keep_their_size() -> None:
    data = '{"@type":"Product","name":"A","offers":{"price":1.25e3,"priceCurrency":"EUR"}}'
    assert page(f'<script type="application/ld+json">{data}</script>').amount == Decimal(1250)


FRAGMENTS = st.sampled_from(
    [
        *("<h1>A</h1>", "<del>", "</del>", '<b class="price">', "$5", "1.234,50 €", "</b>", "<sup>99</sup>", "NT$"),
        *('<script type="application/ld+json">', '{"@type":"Product","offers":', "[{", '"price":"', "}]}", "</script>"),
        *(
            '<div itemscope itemtype="http://schema.org/Product">',
            '<i itemprop="price">',
            "已售 5",
            "null",
            "1e400",
            "\x00",
        ),
    ]
)


@settings(max_examples=count_examples(100))
@given(st.lists(FRAGMENTS, max_size=25))
def test_no_mixture_of_markup_breaks_the_reader(parts: list[str]) -> None:
    facts = page("".join(parts))
    assert (facts.amount is not None) == (facts.verdict is PageVerdict.OFFER)
    for amount in (facts.amount, facts.amount_max, facts.list_amount):
        assert amount is None or (amount.is_finite() and amount > 0)
    assert facts.currency is None or len(facts.currency) == 3
