"""A valuation is a function of its points and the rates: robust, and honest about what it rests on."""

import random
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mistnet.governor.model import SourceName
from mistnet.prices.model import ItemId, PointId, PointLine, Valuation
from mistnet.prices.valuation import SHOWN, DatedRate, Rates, in_units, rank, value_points
from mistnet.shops.model import PriceKind
from tests.examples import count_examples

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DOCS = (Path(__file__).parents[2] / "docs" / "valuations.md").read_text(encoding="utf-8")
RATES = Rates([DatedRate(base="EUR", quote="USD", day=date(2026, 2, 20), rate=Decimal("1.1"))])


def point(nr: int, amount: str | Decimal, **about: Any) -> PointLine:
    told: dict[str, Any] = {
        "kind": PriceKind.ASK,
        "currency": "USD",
        "title": "A cent",
        "url": "https://shop.example/1",
        "observed_at": AT,
        "match_strength": 1.0,
        "dedupe_key": f"ext_{nr}",
        "source": SourceName("ebay_api"),
        "item_id": ItemId(1),
        "first_seen_at": AT,
        "last_seen_at": AT,
        "times_seen": 1,
    }
    return PointLine(**{**told, "id": PointId(nr), "amount": Decimal(amount), **about})


def worth(points: Sequence[PointLine], currency: str | None = None, rates: Rates = RATES) -> Valuation:
    found = value_points(points, currency=currency, rates=rates)
    assert found is not None
    return found


AMOUNTS = st.decimals("0.01", "1000000", places=2)
POINTS = st.lists(
    st.builds(
        lambda nr, amount, kind, days, strength, currency, doubt, source: point(
            nr,
            amount,
            kind=kind,
            observed_at=AT - timedelta(days=days),
            match_strength=strength,
            currency=currency,
            doubt=doubt,
            source=source,
        ),
        st.integers(1, 10**6),
        AMOUNTS,
        st.sampled_from(PriceKind),
        st.floats(0, 2_000),
        st.floats(0, 1),
        st.sampled_from(["USD", "USD", "USD", "EUR", "JPY"]),
        st.sampled_from([None, None, None, "two looks minutes apart disagree"]),
        st.sampled_from([SourceName("ebay_api"), SourceName("shopee")]),
    ),
    max_size=40,
    unique_by=lambda each: each.id,
)


@given(POINTS, st.randoms(), st.sampled_from([None, "USD", "EUR"]))
def test_the_order_in_which_points_came_does_not_matter(
    points: list[PointLine], chance: random.Random, currency: str | None
) -> None:
    shuffled = points[:]
    chance.shuffle(shuffled)
    assert value_points(points, currency=currency, rates=RATES) == value_points(
        shuffled, currency=currency, rates=RATES
    )


@given(POINTS, st.randoms())
def test_not_even_the_ids_they_got_matter_but_for_how_they_are_named(
    points: list[PointLine], chance: random.Random
) -> None:
    ids = [each.id for each in points]
    chance.shuffle(ids)
    renamed = [msgspec.structs.replace(each, id=new) for each, new in zip(points, ids, strict=True)]
    one, other = value_points(points, currency=None, rates=RATES), value_points(renamed, currency=None, rates=RATES)
    assert (one is None) == (other is None)
    if one and other:
        new = {each.id: again.id for each, again in zip(points, renamed, strict=True)}
        assert [new[each.point_id] for each in one.carriers] == [each.point_id for each in other.carriers]
        assert [new[each.point_id] for each in one.left_out] == [each.point_id for each in other.left_out]
        assert msgspec.structs.replace(one, carriers=[], left_out=[]) == msgspec.structs.replace(
            other, carriers=[], left_out=[]
        )


@given(POINTS, st.sampled_from([None, "USD", "EUR"]))
def test_a_valuation_lies_among_what_carries_it_and_every_point_is_accounted_for(
    points: list[PointLine], currency: str | None
) -> None:
    found = value_points(points, currency=currency, rates=RATES)
    assume(found is not None)
    assert found is not None
    amounts = [each.amount for each in found.carriers]
    assert min(amounts) <= found.low <= found.estimate <= found.high <= max(amounts)
    assert 0 <= found.confidence <= 1
    named = [*(each.point_id for each in found.carriers), *(each.point_id for each in found.left_out)]
    assert sorted(named) == sorted(each.id for each in points)
    assert (found.points, found.points_left_out) == (len(found.carriers), len(found.left_out))
    assert abs(sum(each.weight for each in found.carriers) - 1) < 1e-4


@given(st.lists(AMOUNTS, min_size=1, max_size=30), st.integers(2, 1_000))
def test_prices_that_are_so_many_times_as_high_make_a_value_so_many_times_as_high(
    amounts: list[Decimal], times: int
) -> None:
    one = worth([point(nr, each) for nr, each in enumerate(amounts)])
    many = worth([point(nr, each * times) for nr, each in enumerate(amounts)])
    for name in ("estimate", "low", "high"):
        assert abs(getattr(many, name) - getattr(one, name) * times) <= Decimal("0.01") * times
    assert {each.point_id for each in one.left_out} == {each.point_id for each in many.left_out}


@given(
    st.lists(st.decimals("95", "105", places=2), min_size=6, max_size=30),
    st.lists(st.sampled_from(["0.5", "9", "1000", "250000"]), min_size=1, max_size=2),
)
def test_outliers_are_named_and_move_nothing(usual: list[Decimal], odd: list[str]) -> None:
    points = [point(nr, each) for nr, each in enumerate(usual, 1)]
    far = [point(1_000 + nr, each) for nr, each in enumerate(odd)]
    found, alone = worth([*points, *far]), worth(points)
    assert {each.point_id for each in found.left_out} == {each.id for each in far}
    assert all(each.why.startswith("outlier: ") and each.amount for each in found.left_out)
    assert (found.estimate, found.low, found.high) == (alone.estimate, alone.low, alone.high)


def test_three_points_are_too_few_to_leave_out_an_outlier() -> None:
    found = worth([point(1, "10"), point(2, "11"), point(3, "900")])
    assert found.left_out == []
    assert found.estimate == 11


def test_a_sale_weighs_more_than_a_wish_and_a_wish_more_than_a_bid() -> None:
    points = [point(1, "100", kind=PriceKind.SOLD), point(2, "130"), point(3, "70", kind=PriceKind.BID, bid_count=3)]
    found = worth(points)
    assert found.estimate == 100
    assert [each.point_id for each in found.carriers] == [1, 2, 3]


def test_what_is_old_weighs_half_for_each_ninety_days() -> None:
    old = point(1, "10", observed_at=AT - timedelta(days=90))
    assert [round(each.weight, 3) for each in worth([old, point(2, "20")]).carriers] == [0.667, 0.333]


def test_what_fits_well_weighs_more() -> None:
    found = worth([point(1, "10", match_strength=0.5), point(2, "20", match_strength=1.0)])
    assert found.estimate == 20
    assert [round(each.weight, 1) for each in found.carriers] == [0.8, 0.2]


def test_exactly_between_two_points_it_is_their_mean() -> None:
    assert worth([point(1, "10"), point(2, "10.01")]).estimate == Decimal("10.00")
    assert worth([point(1, "10"), point(2, "12")]).estimate == Decimal("11.00")


def test_more_points_that_agree_make_it_surer_and_sales_most() -> None:
    few = worth([point(nr, "100") for nr in range(2)])
    many = worth([point(nr, "100") for nr in range(12)])
    sold = worth([point(nr, "100", kind=PriceKind.SOLD) for nr in range(12)])
    apart = worth([point(nr, str(60 + 8 * nr)) for nr in range(12)])
    assert few.confidence < many.confidence < sold.confidence <= 1
    assert apart.confidence < many.confidence


def test_points_in_other_currencies_are_converted_and_say_by_which_rate() -> None:
    found = worth([point(1, "110"), point(2, "100", currency="EUR")], "USD")
    assert found.estimate == 110
    assert {each.point_id: each.rate for each in found.carriers} == {1: None, 2: "EUR/USD 1.1 of 2026-02-20"}


def test_a_point_without_a_rate_is_left_out_by_name() -> None:
    found = worth([point(1, "110"), point(2, "9000", currency="JPY")], "USD")
    assert [(each.point_id, each.why) for each in found.left_out] == [
        (2, "no rate from JPY to USD is known for 2026-03-01")
    ]


def test_an_amount_too_small_for_the_currency_is_left_out_by_name() -> None:
    rates = Rates([DatedRate(base="USD", quote="VND", day=AT.date(), rate=Decimal(25_000))])
    found = worth([point(1, "110"), point(2, "3", currency="VND")], "USD", rates)
    assert [each.why for each in found.left_out] == ["3 VND is less than the smallest unit of USD"]


def test_the_currency_of_most_points_is_taken_where_none_is_wanted() -> None:
    points = [point(1, "10", currency="EUR"), point(2, "12", currency="EUR"), point(3, "13")]
    assert worth(points).currency == "EUR"
    assert worth([point(1, "10", currency="EUR"), point(3, "13")]).currency == "EUR"


def test_points_that_are_doubted_or_free_carry_nothing() -> None:
    points = [point(1, "110"), point(2, "0"), point(3, "99", doubt="it is a placeholder")]
    found = worth(points)
    assert (found.points, found.points_left_out) == (1, 2)
    assert {each.point_id: each.why for each in found.left_out} == {
        2: "an amount of 0 is not a price",
        3: "it is a placeholder",
    }


def test_where_no_point_can_carry_it_there_is_no_valuation() -> None:
    assert value_points([], currency="USD", rates=RATES) is None
    assert value_points([point(1, "0")], currency=None, rates=RATES) is None
    assert value_points([point(1, "10", currency="JPY")], currency="USD", rates=RATES) is None


def test_of_thousands_of_points_the_hundred_heaviest_are_named_and_all_are_counted() -> None:
    chance = random.Random(5)
    usual = [point(nr, str(100 + chance.randrange(-10, 10)), match_strength=0.5 + nr / 20_000) for nr in range(5_000)]
    odd = [point(10_000 + nr, "5000") for nr in range(30)]
    unknown = [point(20_000 + nr, "500", currency="JPY") for nr in range(300)]
    doubted = [point(30_000 + nr, "99", doubt="a placeholder") for nr in range(200)]
    found = worth([*usual, *odd, *unknown, *doubted], "USD")
    assert (found.points, found.points_left_out) == (5_000, 530)
    assert len(found.carriers) == len(found.left_out) == SHOWN
    assert [each.point_id for each in found.carriers] == list(range(4_999, 4_899, -1))
    assert {each.point_id for each in found.left_out[:30]} == {each.id for each in odd}
    assert len(msgspec.json.encode(found)) < 40_000


def test_an_estimate_below_the_smallest_unit_is_not_rounded_away() -> None:
    assert worth([point(1, "0.001")]).estimate == Decimal("0.001")
    assert in_units(Decimal("0.001"), "USD") == 0


RANKED = st.builds(
    lambda amount, strength, hours, doubt, title, bids: point(
        1,
        amount,
        match_strength=strength,
        observed_at=AT - timedelta(hours=hours),
        doubt=doubt,
        title=title,
        bid_count=bids,
    ),
    st.sampled_from(["1.0", "1.00", "2"]),
    st.sampled_from([0.5, 0.9]),
    st.integers(0, 2),
    st.sampled_from([None, "odd"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, 0, 2]),
)


@settings(max_examples=count_examples(100))
@given(st.lists(RANKED, min_size=1, max_size=12), st.randoms())
def test_the_strongest_telling_wins_whatever_the_order(told: list[PointLine], chance: random.Random) -> None:
    winner = max(told, key=rank)
    chance.shuffle(told)
    kept = told[0]
    for each in told[1:]:
        kept = max(kept, each, key=rank)
    assert repr(kept) == repr(winner)
    assert winner.match_strength == max(each.match_strength for each in told)
    rivals = [each for each in told if each.match_strength == winner.match_strength]
    believed = [each for each in rivals if each.doubt is None] or rivals
    assert winner.observed_at == max(each.observed_at for each in believed)


def test_the_example_in_the_docs_is_true() -> None:
    newest = datetime(2026, 11, 1, 12, tzinfo=UTC)

    def seen(nr: int, kind: PriceKind, amount: str, currency: str, fits: float, days: int) -> PointLine:
        at = newest - timedelta(days=days)
        return point(nr, amount, kind=kind, currency=currency, match_strength=fits, observed_at=at)

    row = r"^\| (\d) \| (\w+) \| ([\d,]+) ([A-Z]{3}) \| ([\d.]+) \| (\d+) \|[^|]*\|[^|]*\| ([^|]*) \|$"
    told = re.findall(row, DOCS, re.MULTILINE)
    points = [
        seen(int(nr), PriceKind(kind), amount.replace(",", ""), currency, float(fits), int(days))
        for nr, kind, amount, currency, fits, days, _ in told
    ]
    rates = Rates([DatedRate(base="EUR", quote="USD", day=date(2026, 9, 14), rate=Decimal("1.08"))])
    found = worth(points, "USD", rates)
    shares = {str(each.point_id): f"{each.weight:.1%}".replace("%", " %") for each in found.carriers}
    shares |= {str(each.point_id): each.why for each in found.left_out}
    assert {nr: share for nr, *_, share in told} == shares
    assert (found.estimate, found.low, found.high) == (Decimal("842.40"), Decimal(650), Decimal(900))
    assert (found.confidence, found.points, found.points_left_out) == (0.42, 5, 2)
