"""How well a listing fits an item: words, attributes, and what rules it out."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.prices.matching import LEAST, match_listing, points_of
from mistnet.prices.model import ItemRequest, PriceListing
from mistnet.shops.model import PriceKind

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
CENT = ItemRequest(title="Lincoln wheat cent VDB", attributes={"year": "1909", "mint_mark": "S", "grade": "MS-65"})


def listing(title: str = "1909-S VDB Lincoln wheat cent MS65", **about: Any) -> PriceListing:
    told: dict[str, Any] = {"kind": PriceKind.ASK, "amount": Decimal("812.50"), "currency": "USD"}
    return PriceListing(**{**told, "title": title, "url": "https://shop.example/1", "observed_at": AT, **about})


def strength(title: str, request: ItemRequest = CENT, **about: Any) -> float:
    return match_listing(request, listing(title, **about)).strength


def test_the_very_thing_fits_wholly() -> None:
    assert strength("1909-S VDB Lincoln wheat cent MS65") == 1.0
    assert strength("LINCOLN  Wheat Cent 1909 S vdb PCGS MS 65 red") == 1.0


def test_what_a_title_leaves_unsaid_weighs_less_than_what_it_says() -> None:
    said, unsaid = strength("1909-S VDB Lincoln wheat cent MS65"), strength("1909-S VDB Lincoln wheat cent")
    assert LEAST <= unsaid < said


@pytest.mark.parametrize(
    ("title", "why"),
    [
        ("1910-S VDB Lincoln wheat cent MS65", "its year is 1910, not 1909"),
        ("1909-D VDB Lincoln wheat cent MS65", "its mint mark is d, not s"),
        ("1909-S VDB Lincoln wheat cent VF20", "its grade is vf20, not ms-65"),
    ],
)
def test_another_year_mint_or_grade_is_another_thing(title: str, why: str) -> None:
    found = match_listing(CENT, listing(title))
    assert not found.fits
    assert found.why == why


def test_what_the_listing_states_of_itself_goes_before_its_title() -> None:
    found = match_listing(CENT, listing("Lincoln wheat cent VDB", attributes={"year": "1910"}))
    assert found.why == "its year is 1910, not 1909"
    assert match_listing(CENT, listing("Lincoln wheat cent VDB", attributes={"year": "1909", "mint_mark": "S"})).fits


@pytest.mark.parametrize(
    "title",
    [
        "1909-S VDB Lincoln wheat cent MS65 COPY",
        "Replica 1909-S VDB Lincoln wheat cent MS65",
        "Lot of 1909-S VDB Lincoln wheat cents MS65",
        "1909-S VDB Lincoln wheat cent MS65 box only",
        "1909-S VDB Lincoln wheat cent MS65 仿品",
    ],
)
def test_copies_lots_and_empty_boxes_are_ruled_out(title: str) -> None:
    found = match_listing(CENT, listing(title))
    assert (found.strength, found.fits) == (0.0, False)
    assert str(found.why).startswith("it says ")


def test_a_word_within_another_rules_nothing_out() -> None:
    request = ItemRequest(title="Copyright law handbook")
    assert match_listing(request, listing("Copyright law handbook")).fits
    assert match_listing(ItemRequest(title="Fakenham silver spoon"), listing("Fakenham silver spoon")).fits


def test_a_word_of_the_item_itself_rules_nothing_out_unless_it_is_excluded() -> None:
    title = "Set of 6 wine glasses"
    assert match_listing(ItemRequest(title=title), listing(title)).fits
    assert not match_listing(ItemRequest(title=title, exclude=("set of",)), listing(title)).fits


def test_excluded_words_rule_a_listing_out() -> None:
    request = ItemRequest(title="Lincoln cent", exclude=("cleaned", "空盒"))
    assert match_listing(request, listing("Lincoln cent, Cleaned")).why == "it says 'cleaned'"
    assert match_listing(request, listing("Lincoln cent空盒")).why == "it says '空盒'"
    assert match_listing(request, listing("Lincoln cent, uncleaned")).fits


def test_numbers_in_a_title_count_double() -> None:
    request = ItemRequest(title="Canon EF 50mm lens")
    assert strength("Canon EF lens", request) == 0.6
    assert strength("Nikon EF 50mm lens", request) == 0.8


@pytest.mark.parametrize(
    ("wanted", "title", "why"),
    [
        ("Canon EF 50mm lens", "Canon EF 85mm lens", "it says 85mm, not 50mm"),
        ("iPhone 15 128GB", "Apple iPhone 15 256 GB black", "it says 256gb, not 128gb"),
        ("iPhone 15 128 GB", "Apple iPhone 15 128GB or 256GB", None),
        ("Silver bar 1oz", "Silver bar 1 oz with box", None),
        ("Silver bar 1oz", "Silver bar 10oz", "it says 10oz, not 1oz"),
        ("Lego 10497", "Lego 10497 1254pcs", None),
        ("1996-W silver eagle", "1996 W Silver Eagle", None),
    ],
)
def test_another_size_is_another_thing_unless_both_are_to_be_had(wanted: str, title: str, why: str | None) -> None:
    found = match_listing(ItemRequest(title=wanted), listing(title))
    assert found.why == why
    assert found.fits == (why is None)


def test_accents_and_plurals_make_no_other_word() -> None:
    assert strength("Pokemon card, rare", ItemRequest(title="Pokémon cards")) == 1.0
    assert strength("Réplicas of a vase", ItemRequest(title="A vase")) == 0.0
    assert strength("Cafetière à piston", ItemRequest(title="cafetiere piston")) == 1.0
    assert strength("glass vase", ItemRequest(title="glas vase")) == 0.5
    assert strength("คอนโด", ItemRequest(title="คอนโด")) == 1.0


def test_titles_without_blanks_are_compared_two_signs_at_a_time() -> None:
    request = ItemRequest(title="袁世凱銀元")
    assert strength("民國三年袁世凱銀元一枚", request) == 1.0
    assert strength("袁世凱開國紀念幣", request) == 0.5
    assert strength("孫中山開國紀念幣", request) == 0.0


def test_a_listing_the_item_itself_names_needs_no_comparing_but_is_no_copy_either() -> None:
    assert match_listing(CENT, listing("anything at all", strength=1.0)).strength == 1.0
    assert not match_listing(CENT, listing("anything, a replica", strength=1.0)).fits
    assert match_listing(CENT, listing("anything", strength=7.0)).strength == 1.0


@given(
    st.text(max_size=60),
    st.text(max_size=60),
    st.dictionaries(st.sampled_from(["year", "grade", "x"]), st.text(max_size=9)),
)
def test_strength_is_a_share_whatever_is_compared(wanted: str, title: str, attributes: dict[str, str]) -> None:
    found = match_listing(ItemRequest(title=wanted, attributes=attributes), listing(title))
    assert 0.0 <= found.strength <= 1.0
    assert (
        found == match_listing(ItemRequest(title=wanted.upper(), attributes=attributes), listing(title))
        or not wanted.isascii()
    )


def test_only_listings_that_fit_become_points() -> None:
    (kept,) = points_of(CENT, [listing(external_id="7"), listing("Lincoln cent copy"), listing("A teapot")])
    assert (kept.dedupe_key, kept.match_strength, kept.doubt) == ("ext_7", 1.0, None)


@pytest.mark.parametrize(("bids", "kind"), [(None, PriceKind.ASK), (0, PriceKind.ASK), (1, PriceKind.BID)])
def test_an_auction_without_bids_asks_its_opening_price(bids: int | None, kind: PriceKind) -> None:
    (kept,) = points_of(CENT, [listing(kind=PriceKind.BID, bid_count=bids)])
    assert kept.kind is kind
    (asked,) = points_of(CENT, [listing(kind=kind, bid_count=bids)])
    assert kept.dedupe_key == asked.dedupe_key


@pytest.mark.parametrize(
    "about",
    [
        {"amount": Decimal("NaN")},
        {"amount": Decimal("Infinity")},
        {"amount": Decimal(-1)},
        {"amount": Decimal("1E+30")},
        {"currency": "$"},
    ],
)
def test_what_is_no_price_becomes_no_point(about: dict[str, Any]) -> None:
    assert points_of(CENT, [listing(**about)]) == []


@pytest.mark.parametrize(("amount", "currency"), [("812.505", "USD"), ("99999", "USD"), ("1280.5", "TWD")])
def test_an_amount_that_looks_invented_is_a_point_that_is_doubted(amount: str, currency: str) -> None:
    (kept,) = points_of(CENT, [listing(amount=Decimal(amount), currency=currency)])
    assert kept.doubt
