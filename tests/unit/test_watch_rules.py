"""The rules of price watches: nothing is told that one look alone saw, and nothing is told twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.prices.model import BadWatch, ItemId, LeftOut, PointId, Valuation
from mistnet.prices.watches import (
    MOST_ASKED,
    Cleared,
    Confirmed,
    Observation,
    PriceWatch,
    Suspected,
    Suspended,
    Unchanged,
    Verdict,
    WatchId,
    WatchKind,
    WatchRequest,
    WatchSide,
    find_lost_points,
    judge,
    payload,
    percent_between,
    require_valid,
    stock,
)
from mistnet.queue.events import EventKind
from mistnet.shops.model import Availability, ProductId
from tests.support import START

PAUSE = timedelta(minutes=10)
STEP = timedelta(minutes=4)
IN, OUT = Availability.IN_STOCK, Availability.OUT_OF_STOCK


def watch(kind: WatchKind = WatchKind.CHANGED, **about: Any) -> PriceWatch:
    lines: dict[WatchKind, dict[str, Any]] = {
        WatchKind.CHANGED: {"percent": 10.0},
        WatchKind.BELOW: {"target": Decimal(90), "currency": "TWD"},
        WatchKind.BACK_IN_STOCK: {},
    }
    given_ = {"product_id": ProductId(1), **lines[kind], **about}
    return PriceWatch(id=WatchId(1), kind=kind, added_at=START, **given_)


def look(amount: object = 100, at: float = 0, **about: Any) -> Observation:
    """`at` is in minutes."""
    told: dict[str, Any] = {"currency": "TWD", "availability": IN, **about}
    return Observation(at=START + timedelta(minutes=at), amount=Decimal(str(amount)), **told)


def after(held: PriceWatch, verdict: Verdict) -> PriceWatch:
    """As the store writes it down."""
    match verdict:
        case Suspended(problem):
            return msgspec.structs.replace(held, problem=problem)
        case Suspected(seen):
            return msgspec.structs.replace(held, suspected=seen, problem=None)
        case Cleared(known):
            return msgspec.structs.replace(held, known=known, suspected=None, problem=None)
        case Confirmed(_, second, _):
            return msgspec.structs.replace(held, known=second, suspected=None, problem=None)
        case Unchanged():
            return held


@dataclass
class Course:
    """A watch through many looks, with everything that was told on the way."""

    held: PriceWatch
    told: list[tuple[EventKind, Observation, Observation]] = field(default_factory=list)
    asked: int = 0

    def see(self, *looks: Observation) -> Course:
        for each in looks:
            verdict = judge(self.held, each, pause=PAUSE)
            if isinstance(verdict, Suspected):
                self.asked += verdict.ask
            if isinstance(verdict, Confirmed) and verdict.event:
                self.told.append((verdict.event, verdict.first, verdict.second))
            self.held = after(self.held, verdict)
        return self

    @property
    def kinds(self) -> list[EventKind]:
        return [kind for kind, _, _ in self.told]


def known(kind: WatchKind = WatchKind.CHANGED, first: Observation | None = None, **about: Any) -> Course:
    """A watch whose price two looks agreed on."""
    seen = first or look(100)
    later = msgspec.structs.replace(seen, at=seen.at + PAUSE)
    course = Course(watch(kind, **about)).see(seen, later)
    assert course.held.known is not None
    course.told.clear()
    course.asked = 0
    return course


def test_a_change_is_told_when_a_second_look_sees_the_same() -> None:
    course = known().see(look(120, 30))
    assert course.kinds == []
    assert course.asked == 1
    course.see(look(120, 40))
    ((kind, first, second),) = course.told
    assert kind is EventKind.PRICE_CHANGED
    assert (first.at, second.at) == (START + timedelta(minutes=30), START + timedelta(minutes=40))
    assert course.see(look(120, 50), look(120, 60)).kinds == [EventKind.PRICE_CHANGED], "once"


@pytest.mark.parametrize(("amount", "crosses"), [(110, False), ("110.01", True), (90, False), ("89.99", True)])
def test_a_change_of_exactly_so_many_percent_is_not_more(amount: object, crosses: bool) -> None:
    assert bool(known().see(look(amount, 30), look(amount, 60)).told) is crosses


def test_a_second_look_before_the_pause_is_over_does_not_count() -> None:
    course = known().see(look(120, 30), look(120, 31), look(120, 39))
    assert course.told == []
    assert course.asked == 1, "the one that was asked for is on its way"
    assert course.see(look(120, 40)).kinds == [EventKind.PRICE_CHANGED]


def test_a_second_look_that_sees_the_old_price_ends_the_suspicion() -> None:
    course = known().see(look(120, 30), look(100, 40))
    assert course.held.suspected is None
    assert course.told == []
    assert course.see(look(120, 50)).told == [], "that is a first look again"


def test_a_price_that_is_another_at_every_look_is_never_told_and_asks_for_few_looks() -> None:
    course = known().see(*(look(120 + n, 30 + 10 * n) for n in range(20)))
    assert course.told == []
    assert course.asked == MOST_ASKED
    assert course.see(look(139, 300)).kinds == [EventKind.PRICE_CHANGED], "the usual looks go on deciding"


def test_slow_creeping_is_measured_from_what_was_told_last() -> None:
    prices = [101, 103, 105, 107, 109, 111, 111]
    course = known().see(*(look(price, 30 + 10 * n) for n, price in enumerate(prices)))
    ((_, first, _),) = course.told
    assert first.amount == 111
    assert course.held.known is not None
    assert course.held.known.amount == 111


def test_a_first_price_is_no_change_and_itself_needs_two_looks() -> None:
    course = Course(watch()).see(look(130, 0), look(100, 10), look(100, 20))
    assert course.told == []
    assert course.held.known is not None
    assert course.held.known.amount == 100


def test_a_thing_that_was_free_changes_by_any_price() -> None:
    course = known(first=look(0)).see(look(5, 30), look(5, 40))
    assert course.kinds == [EventKind.PRICE_CHANGED]
    assert percent_between(Decimal(0), Decimal(5)) is None


def test_a_target_is_told_once_until_the_price_was_above_it_again() -> None:
    course = known(WatchKind.BELOW)
    course.see(look(80, 30), look(80, 40), look(70, 50), look(70, 60), look(89, 70))
    assert course.kinds == [EventKind.PRICE_BELOW_TARGET]
    course.see(look(95, 80), look(80, 90), look(80, 100))
    assert len(course.told) == 1, "one look above the target is not believed either"
    course.see(look(95, 110), look(95, 120), look(80, 130), look(80, 140))
    assert course.kinds == [EventKind.PRICE_BELOW_TARGET] * 2


def test_a_price_at_the_target_is_not_below_it() -> None:
    assert known(WatchKind.BELOW).see(look(90, 30), look(90, 40)).told == []


def test_a_price_that_is_below_its_target_from_the_start_is_told() -> None:
    assert Course(watch(WatchKind.BELOW)).see(look(80, 0), look(80, 10)).kinds == [EventKind.PRICE_BELOW_TARGET]


@pytest.mark.parametrize("before", [Availability.OUT_OF_STOCK, Availability.DISCONTINUED])
@pytest.mark.parametrize("now", [Availability.IN_STOCK, Availability.LIMITED, Availability.PREORDER])
def test_what_could_not_be_had_and_can_is_back_in_stock(before: Availability, now: Availability) -> None:
    course = known(WatchKind.BACK_IN_STOCK, look(availability=before))
    assert course.see(look(at=30, availability=now), look(at=40, availability=IN)).kinds == [
        EventKind.PRICE_BACK_IN_STOCK
    ]


def test_one_look_that_saw_nothing_left_does_not_make_the_next_a_return() -> None:
    course = known(WatchKind.BACK_IN_STOCK).see(look(at=30, availability=OUT), look(at=40), look(at=50), look(at=60))
    assert course.told == []


@pytest.mark.parametrize("word", [None, Availability.BACKORDER])
def test_a_back_order_or_no_word_tells_nothing_of_stock(word: Availability | None) -> None:
    assert stock(word) is None
    course = known(WatchKind.BACK_IN_STOCK, look(availability=OUT))
    course.see(look(at=30), look(at=35, availability=word))
    assert course.held.suspected is not None, "neither for nor against"
    assert course.see(look(at=40)).kinds == [EventKind.PRICE_BACK_IN_STOCK]


def test_another_currency_suspends_a_watch_and_says_so() -> None:
    course = known().see(look(4, 30, currency="USD"), look(4, 40, currency="USD"), look(4, 50, currency=None))
    assert course.told == []
    assert course.held.standing == "suspended"
    assert "TWD is watched" in str(course.held.problem)
    course.see(look(100, 60))
    assert (course.held.standing, course.held.problem) == ("watching", None)


def test_a_target_is_compared_in_its_own_currency_alone() -> None:
    course = Course(watch(WatchKind.BELOW)).see(look(80, 0, currency="USD"), look(80, 10, currency="USD"))
    assert course.told == []
    assert "USD" in str(course.held.problem)


def test_a_look_that_comes_late_neither_confirms_nor_refutes() -> None:
    course = known().see(look(120, 30))
    for late in (look(120, 30), look(120, 20), look(100, 29), look(100, 5)):
        assert isinstance(judge(course.held, late, pause=timedelta()), Unchanged)


def test_an_automatic_watch_learns_its_first_price_without_asking() -> None:
    course = Course(watch(automatic=True)).see(look(100, 0))
    assert course.asked == 0
    course.see(look(100, 60), look(120, 120))
    assert course.asked == 1


def test_an_estimate_agrees_within_a_share_and_a_page_exactly() -> None:
    things: list[tuple[dict[str, Any], int]] = [({"product_id": None, "item_id": ItemId(5)}, 1), ({}, 0)]
    for thing, told in things:
        assert len(known(**thing).see(look(120, 30), look(121, 40)).told) == told
        assert known(**thing).see(look(120, 30), look(130, 40)).told == []


def test_points_that_lost_their_rate_are_named() -> None:
    worth = Valuation(
        estimate=Decimal(120),
        low=Decimal(120),
        high=Decimal(120),
        currency="TWD",
        points=1,
        confidence=0.5,
        newest_at=START,
        left_out=[
            LeftOut(point_id=PointId(1), why="no rate from USD to TWD is known for 2026-03-01"),
            LeftOut(point_id=PointId(2), why="outlier: 9 times what most ask", amount=Decimal(900)),
        ],
    )
    assert "no rate from" in str(find_lost_points({PointId(1), PointId(2)}, worth))
    assert find_lost_points({PointId(2), PointId(3)}, worth) is None


def test_an_event_has_ids_and_amounts_as_strings_and_the_times_of_both_looks() -> None:
    course = known().see(look("80.50", 30))
    verdict = judge(course.held, look("80.50", 40), pause=PAUSE)
    assert isinstance(verdict, Confirmed)
    told = payload(course.held, verdict, {"title": "A cup", "url": "https://shop.example/1", "source": "web"})
    assert told["watch_id"] == "1"
    assert told["product_id"] == "1"
    assert told["item_id"] is None
    assert (told["before"], told["after"], told["currency"], told["percent"]) == ("100", "80.50", "TWD", "-19.50")
    assert told["second_look_at"] - told["first_look_at"] == PAUSE
    assert (told["source"], told["title"]) == ("web", "A cup")


def test_any_two_amounts_can_be_told() -> None:
    assert percent_between(Decimal("0.001"), Decimal(10**40)) == Decimal(10**45 - 100)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"kind": WatchKind.CHANGED, "percent": 5.0}, "a product or an item"),
        ({"kind": WatchKind.CHANGED, "product_id": 1, "item_id": 1, "percent": 5.0}, "a product or an item"),
        ({"kind": WatchKind.CHANGED, "product_id": 1}, "the percentage"),
        ({"kind": WatchKind.CHANGED, "product_id": 1, "percent": float("nan")}, "the percentage"),
        ({"kind": WatchKind.CHANGED, "product_id": 1, "percent": float("inf")}, "the percentage"),
        ({"kind": WatchKind.BELOW, "product_id": 1, "currency": "TWD"}, "the amount below"),
        ({"kind": WatchKind.BELOW, "product_id": 1, "target": Decimal(-1), "currency": "TWD"}, "the amount below"),
        ({"kind": WatchKind.BELOW, "product_id": 1, "target": Decimal(9)}, "the currency of"),
        ({"kind": WatchKind.BELOW, "product_id": 1, "target": Decimal(9), "currency": "twd"}, "the currency of"),
        ({"kind": WatchKind.BACK_IN_STOCK, "item_id": 1}, "and no stock"),
        ({"kind": WatchKind.BACK_IN_STOCK, "product_id": 1, "percent": 5.0}, "a percentage only"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_what_is_missing(wanted: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadWatch, match=problem):
        require_valid(WatchRequest(**wanted))


AMOUNTS = st.sampled_from([70, 80, 89, 90, 95, 100, 105, 111, 120, 150])
WORDS = st.sampled_from([None, IN, OUT, Availability.LIMITED, Availability.BACKORDER, Availability.DISCONTINUED])
GAPS = st.integers(1, 12)
KINDS = st.sampled_from(list(WatchKind))


@st.composite
def courses(draw: st.DrawFn) -> Sequence[Observation]:
    """Looks one after the other, whatever they see."""
    at, seen = 0, []
    for amount, word, gap, currency in draw(
        st.lists(st.tuples(AMOUNTS, WORDS, GAPS, st.sampled_from(["TWD", "TWD", "TWD", "USD"])), max_size=40)
    ):
        at += gap * 4
        seen.append(look(amount, at, availability=word, currency=currency))
    return seen


@given(KINDS, courses())
def test_no_event_without_two_looks_that_agree(kind: WatchKind, looks: Sequence[Observation]) -> None:
    course = Course(watch(kind))
    for each in looks:
        before, told = course.held, len(course.told)
        course.see(each)
        assert len(course.told) <= told + 1
        for _, first, second in course.told[told:]:
            assert second == each
            assert any(_as(first) == _as(past) for past in looks), "it was a look"
            assert second.at - first.at >= PAUSE
            assert before.suspected is not None
            if kind is WatchKind.BACK_IN_STOCK:
                assert stock(first.availability) is stock(second.availability) is WatchSide.AVAILABLE
            else:
                assert (first.amount, first.currency) == (second.amount, second.currency)
            between = [past for past in looks if first.at < past.at < second.at and _compares(kind, past)]
            assert all(_same_side(kind, past, second) for past in between), "nothing spoke against it in between"


def _as(seen: Observation) -> tuple[object, ...]:
    return seen.at, seen.amount, seen.currency, seen.availability


def _compares(kind: WatchKind, seen: Observation) -> bool:
    if kind is WatchKind.BACK_IN_STOCK:
        return stock(seen.availability) is not None
    return seen.currency == "TWD"


def _same_side(kind: WatchKind, past: Observation, second: Observation) -> bool:
    if kind is WatchKind.BACK_IN_STOCK:
        return stock(past.availability) is stock(second.availability)
    return past.amount == second.amount


@given(KINDS, courses())
def test_the_same_crossing_is_never_told_twice(kind: WatchKind, looks: Sequence[Observation]) -> None:
    course = Course(watch(kind)).see(*looks)
    for (_, _, one), (_, _, other) in zip(course.told, course.told[1:], strict=False):
        if kind is WatchKind.CHANGED:
            assert one.currency == other.currency
            assert percent_of(one, other) > 10
        else:
            between = [seen for seen in looks if one.at < seen.at < other.at and _compares(kind, seen)]
            away = [seen for seen in between if not _same_line(kind, seen, other)]
            assert any(later.at - first.at >= PAUSE for first in away for later in away), "it was away, by two looks"


def percent_of(one: Observation, other: Observation) -> Decimal:
    assert one.amount is not None
    assert other.amount is not None
    return abs(other.amount - one.amount) * 100 / one.amount


def _same_line(kind: WatchKind, seen: Observation, other: Observation) -> bool:
    if kind is WatchKind.BACK_IN_STOCK:
        return stock(seen.availability) is stock(other.availability)
    assert seen.amount is not None
    return seen.amount < 90


PLATEAUS = st.lists(st.tuples(AMOUNTS, st.sampled_from([IN, OUT]), st.integers(2, 5)), min_size=1, max_size=12)


def lasting(plateaus: Iterable[tuple[int, Availability, int]], *, flicker: bool) -> list[Observation]:
    """Prices that stay for some looks each. A flicker is one look at an amount that never comes again."""
    at, seen = START, []
    for number, (amount, word, count) in enumerate(plateaus):
        for turn in range(count):
            at += PAUSE
            seen.append(Observation(at=at, amount=Decimal(amount), currency="TWD", availability=word))
            if flicker and turn == 0:
                at += STEP
                odd = Decimal(3 + number) / 7
                other = IN if word is OUT else OUT
                seen.append(Observation(at=at, amount=odd, currency="TWD", availability=other))
                for _ in range(2):  # the truth again, often enough for a first and a second look
                    at += PAUSE
                    seen.append(Observation(at=at, amount=Decimal(amount), currency="TWD", availability=word))
    return seen


def truth(
    kind: WatchKind, plateaus: Iterable[tuple[int, Availability, int]]
) -> list[tuple[Decimal | None, Availability | None]]:
    """What an observer who knows everything would report: worked out from the prices that lasted, not from looks."""
    told, base, side = list[tuple[Decimal | None, Availability | None]](), 0, ""
    for amount, word, _ in plateaus:
        match kind:
            case WatchKind.CHANGED:
                if base and abs(amount - base) * 100 <= 10 * base:
                    continue
                if base:
                    told.append((Decimal(amount), word))
                base = amount
            case WatchKind.BELOW:
                now = "below" if amount < 90 else "above"
                if now == "below" != side:
                    told.append((Decimal(amount), word))
                side = now
            case WatchKind.BACK_IN_STOCK:
                now = "in" if word is IN else "out"
                if now == "in" and side == "out":
                    told.append((Decimal(amount), word))
                side = now
    return told


@given(KINDS, PLATEAUS, st.booleans())
def test_each_lasting_crossing_is_told_exactly_once(
    kind: WatchKind, plateaus: Sequence[tuple[int, Availability, int]], flicker: bool
) -> None:
    course = Course(watch(kind)).see(*lasting(plateaus, flicker=flicker))
    assert [(second.amount, second.availability) for _, _, second in course.told] == truth(kind, plateaus)


@given(KINDS, courses(), st.randoms(use_true_random=False))
def test_looks_that_are_written_late_change_nothing(kind: WatchKind, looks: Sequence[Observation], chance: Any) -> None:
    """Two workers may write in another order than they looked in: what is older than what is known is left alone."""
    straight, mixed = Course(watch(kind)), Course(watch(kind))
    straight.see(*looks)
    for place, each in enumerate(looks):
        mixed.see(each)
        newest = max(filter(None, (mixed.held.known, mixed.held.suspected)), key=lambda one: one.at, default=None)
        if place and newest is not None:
            past = chance.choice(looks[:place])
            if past.at <= newest.at:
                mixed.see(past)
    assert mixed.told == straight.told
    assert mixed.held == straight.held


def test_a_watch_that_is_new_waits_for_a_first_look() -> None:
    assert watch().standing == "waiting"
    assert Course(watch()).see(look()).held.standing == "unconfirmed"
    assert known().held.standing == "watching"
