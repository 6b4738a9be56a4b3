"""Requests to follow items are checked in one place, and every problem is told with its field and its value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.governor.model import SourceName
from mistnet.prices.item_validation import PLAIN_FIELDS, field_called, fields_of, item_request_of, problem_text
from mistnet.prices.model import BadItem, ItemRequest

SOURCES = ("ebay", "ebay_api", "shopee", "web")
CENT = "1909-S VDB Lincoln cent"


def request(**given_: Any) -> ItemRequest:
    return item_request_of({"title": CENT, **given_}, sources=SOURCES)


def problems(**given_: Any) -> dict[str, str]:
    with pytest.raises(BadItem) as refused:
        item_request_of({"title": CENT, **given_}, sources=SOURCES)
    assert all(field in str(refused.value) for field, *_ in refused.value.problems[:10])
    return {field: f"{value}|{problem}" for field, value, problem in refused.value.problems}


def test_a_wish_says_what_was_written_in_one_spelling() -> None:
    found = request(
        ref=" coin-7 ",
        year=1909,
        **{"Mint Mark": " S ", "Finish": "RD"},
        exclude="Copy; lot of\nreplica",
        sources="shopee, ebay",
        urls=["https://www.ebay.com/itm/155932418766?_trksid=1", "https://www.ebay.com/itm/155932418766"],
        currency="usd",
        every_hours="24",
    )
    assert found == ItemRequest(
        title=CENT,
        ref="coin-7",
        attributes={"finish": "RD", "mint_mark": "S", "year": "1909"},
        exclude=("copy", "lot of", "replica"),
        sources=(SourceName("ebay"), SourceName("shopee")),
        urls=("https://www.ebay.com/itm/155932418766?_trksid=1",),
        currency="USD",
        every_hours=24.0,
    )


@pytest.mark.parametrize("written", ["mint mark", "Mint-Mark", "MINTMARK", "mint", " mint_mark "])
def test_the_spelling_of_a_column_does_not_matter(written: str) -> None:
    assert field_called(written) == "mint_mark"
    assert request(**{written: "D"}).attributes == {"mint_mark": "D"}


def test_what_is_empty_is_as_if_it_were_not_there() -> None:
    assert request(ref="", year=None, exclude=[], currency="  ", color="", attributes={"a": ""}) == ItemRequest(
        title=CENT
    )


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("title", "   ", "needs a title"),
        ("title", "x" * 501, "501 characters; 500 are the most"),
        ("title", "!?", "no letter and no digit"),
        ("title", "a\x00b", "cannot be shown"),
        ("title", "a\ud800b", "cannot be shown"),
        ("title", ["a"], "write a text or a number"),
        ("ref", "r" * 201, "200 are the most"),
        ("currency", "EURO", "Did you mean 'EUR'?"),
        ("currency", "XXX", "ISO currency code"),
        ("every_hours", 0.09, "from 0.1 (six minutes) to 8760 (a year)"),
        ("every_hours", 8761, "from 0.1"),
        ("every_hours", "nan", "from 0.1"),
        ("every_hours", "soon", "from 0.1"),
        ("sources", "ebay_ap", "Did you mean 'ebay_api'?"),
        ("sources", 7, "write a list"),
        ("urls", "shop.example/a", "with https://"),
        ("urls", "ftp://shop.example/a", "with https://"),
        ("urls", "https://shopee.tw.evil.example/x-i.1.2", "looks like shopee.tw and is not"),
        ("urls", "https://shopee.tw/search?keyword=coin", "a search"),
        ("exclude", ["x" * 101], "100 are the most"),
        ("exclude", ["a;b"], "semicolon"),
        ("attributes", "no object", "write an object"),
        ("attributes", {"a": ["b"]}, ""),
        ("year", {"is": 1909}, "write a text or a number"),
        ("grade", "G" * 301, "300 are the most"),
    ],
)
def test_a_problem_names_field_and_value_and_says_what_to_do(field: str, value: object, said: str) -> None:
    found = problems(**{field: value})
    place = "a" if field == "attributes" and isinstance(value, dict) else field
    assert said in found[place]
    if isinstance(value, str) and value.strip() and "\ud800" not in value:
        assert found[place].startswith(value[:200].strip() if field != "sources" else "ebay_ap")


def test_the_password_in_a_url_is_never_repeated() -> None:
    found = problems(urls=["https://ann:secret@shop.example/a"])["urls"]
    assert "secret" not in found
    assert "user name" in found


def test_all_problems_of_a_wish_are_told_at_once() -> None:
    found = problems(title="", currency="EURO", every_hours=0, sources=["nowhere"], urls=["x"], color={"a": 1})
    assert set(found) == {"title", "currency", "every_hours", "sources", "urls", "color"}


def test_at_most_thirty_attributes_of_bounded_size_are_taken() -> None:
    assert len(request(**{f"a{n}": n for n in range(30)}).attributes) == 30
    assert "at most 30" in problems(**{f"a{n}": n for n in range(31)})["attributes"]
    assert "at most 60" in problems(**{"n" * 61: "v"})["n" * 60]


def test_the_same_attribute_twice_is_told_not_chosen() -> None:
    assert "given twice" in problems(**{"mint mark": "S", "mint_mark": "D"})["mint_mark"]
    assert "give it once" in problems(year=1909, attributes={"Year": 1910})["year"]


def test_columns_of_an_export_are_left_alone() -> None:
    assert request(item_id="7", valuation_estimate="12.50", item_state="active") == ItemRequest(title=CENT)


def test_a_wish_handed_in_as_it_is_stored_is_the_same_wish() -> None:
    one = request(year=1909, exclude=["copy"], sources=["ebay"], urls=["https://shop.example/a;b"], every_hours=0.5)
    assert item_request_of(fields_of(one), sources=SOURCES) == one


@given(st.dictionaries(st.sampled_from([*PLAIN_FIELDS, "year", "color"]), st.text() | st.integers() | st.none()))
def test_whatever_is_written_is_either_a_wish_within_bounds_or_told_in_words(given_: dict[str, Any]) -> None:
    found: ItemRequest | None = None
    refused: list[str] = []
    try:
        found = item_request_of(given_, sources=SOURCES)
    except BadItem as error:
        refused = [problem_text(each) for each in error.problems]
    if found is None:
        assert refused
        assert all(each.encode() for each in refused)
    else:
        assert 1 <= len(found.title) <= 500
        assert item_request_of(fields_of(found), sources=SOURCES) == found
