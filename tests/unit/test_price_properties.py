"""Amounts of every currency are read back, digits that touch are not one number, and no page harms its reader."""

# ruff: noqa: RUF001 (foreign digits and marks are the point)

import time
from decimal import Decimal
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistnet.shops.extraction import explain_page
from mistnet.shops.extraction.currencies import CODES, THOUSANDTHS, WHOLE
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.model import PageFacts, PageUnreadable
from tests.examples import count_examples

FORMATS: Final = [
    (",", "."),
    (".", ","),
    (" ", ","),
    (" ", "."),
    ("\u00a0", ","),
    ("\u202f", ","),
    ("'", "."),
    ("", "."),
]
MARKS_OF_DIRECTION: Final = "\u200e\u200f"
DIGITS: Final = {
    "Latin": "0123456789",
    "Arabic": "٠١٢٣٤٥٦٧٨٩",
    "Persian": "۰۱۲۳۴۵۶۷۸۹",
    "full width": "０１２３４５６７８９",
}


def decimals_of(currency: str) -> int:
    return 0 if currency in WHOLE else 3 if currency in THOUSANDTHS else 2


def written(amount: Decimal, group: str, mark: str, *, indian: bool = False) -> str:
    whole, _, rest = f"{amount:f}".partition(".")
    head, groups = (whole[:-3], [whole[-3:]]) if indian and len(whole) > 3 else (whole, list[str]())
    size = 2 if groups else 3
    while head:
        head, groups = head[:-size], [head[-size:], *groups]
    return group.join(groups) + (mark + rest if rest else "")


@st.composite
def prices(draw: st.DrawFn) -> tuple[Decimal, str, str]:
    """An amount, its currency, and how a shop might write the number."""
    currency = draw(st.sampled_from(sorted(CODES)))
    places = decimals_of(currency)
    units = draw(st.integers(min_value=10**places, max_value=10 ** (places + 8)))
    amount = Decimal(units).scaleb(-places)
    group, mark = draw(st.sampled_from(FORMATS))
    if places == 3 and amount < 1_000:
        # `1,234` alone is a thousand and more, everywhere.
        mark = "."
    return amount, currency, written(amount, group, mark)


@settings(max_examples=count_examples(400))
@given(prices(), st.sampled_from(["{} {}", "{}\u00a0{}"]), st.booleans())
def test_an_amount_is_read_back_in_every_currency_and_number_format(
    price: tuple[Decimal, str, str], form: str, code_first: bool
) -> None:
    amount, currency, number = price
    text = form.format(currency, number) if code_first else form.format(number, currency)
    found = parse_price(text)
    assert isinstance(found, ParsedPrice), (text, found)
    assert (found.min, found.currency) == (amount, currency), text


@settings(max_examples=count_examples(100))
@given(
    st.integers(min_value=1, max_value=10**11).map(lambda units: Decimal(units).scaleb(-2)),
    st.sampled_from(["₹", "Rs. ", "INR "]),
)
def test_indian_groups_are_read_back(amount: Decimal, mark: str) -> None:
    found = parse_price(mark + written(amount, ",", ".", indian=True), currency_hint="INR")
    assert isinstance(found, ParsedPrice)
    assert (found.min, found.currency) == (amount, "INR")


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("123,456.789 OMR", "123456.789", "OMR"),
        ("OMR 1,234.500", "1234.500", "OMR"),
        ("12,500.250 KWD", "12500.250", "KWD"),
        ("1.234,500 TND", "1234.500", "TND"),
        ("1 234,500 TND", "1234.500", "TND"),
        ("0.750 BHD", "0.750", "BHD"),
        ("1,234 JOD", "1234", "JOD"),
        ("1,234,567 JOD", "1234567", "JOD"),
        ("12,345.678 ر.ع.", "12345.678", "OMR"),
    ],
)
def test_three_decimals_are_read_beside_groups(text: str, amount: str, currency: str) -> None:
    found = parse_price(text)
    assert isinstance(found, ParsedPrice)
    assert (found.min, found.currency) == (Decimal(amount), currency)


@settings(max_examples=count_examples(150))
@given(
    st.integers(min_value=100, max_value=10**9),
    st.sampled_from(["₪{}", "{} ₪", "{} ر.س", "{} د.إ", "SAR {}", "{} ILS", "AED {}"]),
    st.lists(st.tuples(st.integers(min_value=0, max_value=40), st.sampled_from(MARKS_OF_DIRECTION)), max_size=4),
    st.sampled_from(sorted(DIGITS)),
)
def test_marks_of_direction_and_foreign_digits_change_nothing(
    cents: int, form: str, marks: list[tuple[int, str]], digits: str
) -> None:
    amount = Decimal(cents).scaleb(-2)
    plain = form.format(written(amount, ",", "."))
    text = plain.translate(str.maketrans(DIGITS["Latin"], DIGITS[digits]))
    for place, mark in marks:
        text = text[: place % (len(text) + 1)] + mark + text[place % (len(text) + 1) :]
    found, expected = parse_price(text), parse_price(plain)
    assert isinstance(expected, ParsedPrice)
    assert expected.min == amount
    assert found == expected, ascii(text)


def read(html: str) -> PageFacts:
    return explain_page(
        html.encode("utf-8", "replace"), url="https://shop.example/p/cup", content_type="text/html"
    ).facts


SIBLINGS: Final = [
    "<div class='price'><span>{price}</span><span>{tail}</span></div>",
    "<span class='price'>{price}</span><span class='rating'>{tail}</span>",
    "<p class='price'>{price}<b>{tail}</b></p>",
    "<div class='product-price'>{price}</div><div>{tail}</div>",
    "<td class='price'>{price}</td><td>{tail}</td>",
]


@settings(max_examples=count_examples(200))
@given(
    st.integers(min_value=100, max_value=99_999_99).map(lambda cents: Decimal(cents).scaleb(-2)),
    st.sampled_from(["${}", "€ {}", "{} €", "£{}"]),
    st.sampled_from(["4.5", "12", "250", "20%", "3", "24h", "2026"]),
    st.sampled_from(SIBLINGS),
)
def test_digits_of_neighbours_are_never_part_of_the_price(amount: Decimal, form: str, tail: str, siblings: str) -> None:
    price = form.format(written(amount, ",", "."))
    row = siblings.format(price=price, tail=tail)
    table = f"<table><tr>{row}</tr></table>" if row.startswith("<td") else row
    facts = read(
        f"<html><body><h1>Cup</h1>{table}<button>Add to cart</button><p>A cup to drink from.</p></body></html>"
    )
    assert facts.amount in (amount, None)


PIECES: Final = [
    *(
        "<div>",
        "</div>",
        "<span class=price>",
        "$19.99",
        "€ 5",
        "1,2",
        "<h1>",
        "Cup",
        "</h1>",
        "<del>",
        "<sup>99",
        "<!--",
    ),
    *(
        "-->",
        "<script>",
        "</script>",
        "<script type='application/ld+json'>",
        '{"@type":"Product","offers":{"price":"1e999"}}',
    ),
    *(
        '{"@type":"Product","name":null,"offers":[{"price":["1"]},3]}',
        "<meta itemprop=price content=",
        "'",
        '"',
        ">",
        "\x00",
    ),
    *(
        "&#0;",
        "&#xD800;",
        "\u202e",
        "\ud7ff",
        "<table><tr>",
        "<td>",
        "<svg><style>",
        "<textarea>",
        "<plaintext>",
        "<a href=",
    ),
    *("<button>Add to cart", "<template>", "<select><option>", "<div itemscope itemtype='http://schema.org/Product'>"),
    *(
        "NaN",
        "-5",
        "Infinity $",
        "9" * 40,
        "<i itemprop=price>",
        "javascript:alert(1)",
        "<base href=javascript:1>",
        "\n",
    ),
]


@settings(max_examples=count_examples(150))
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_hostile_markup_is_read_to_a_sane_end(html: str) -> None:
    try:
        reading = explain_page(html.encode("utf-8", "replace"), url="https://shop.example/p/cup", content_type=None)
    except PageUnreadable:
        return
    facts = reading.facts
    for amount in (facts.amount, facts.amount_max, facts.list_amount, *(each.amount for each in reading.candidates)):
        assert amount is None or (amount.is_finite() and 0 <= amount < Decimal(10) ** 15)
    assert facts.amount is None or facts.currency is None or facts.currency in CODES
    for address in (facts.image_url, facts.canonical_url):
        assert address is None or address.startswith(("http://", "https://"))
    places = [(each.path, each.snippet) for each in facts.evidence]
    places += [(each.path, each.snippet) for each in reading.candidates]
    assert all(len(path) <= 500 and len(snippet) <= 500 for path, snippet in places)


@pytest.mark.parametrize(
    "repeated",
    [
        "<div class='price'>$19.99 <del>$25</del></div>",
        '<script type=\'application/ld+json\'>{"@type":"Product","offers":{"price":"5"}}</script>',
        "<div itemscope itemtype='http://schema.org/Product'><b itemprop='price' content='5'></b>",
        "<h1>Cup</h1><button>Add to cart</button>",
        "<p>$1 $2 $3 4,5 6.7 8 9</p><!-- <",
    ],
)
def test_a_huge_page_takes_bounded_time_and_leaves_little_behind(repeated: str) -> None:
    """Two megabytes: what is kept of it does not grow with it."""
    page = f"<h1>Cup</h1>{repeated * (2_000_000 // len(repeated))}".encode()
    started = time.thread_time()
    try:
        reading = explain_page(page, url="https://shop.example/p/cup", content_type="text/html")
    except PageUnreadable:
        return
    assert time.thread_time() - started < 20
    assert len(reading.kept()) < 50_000
    assert sum(len(each.snippet) for each in reading.facts.evidence) < 20_000
