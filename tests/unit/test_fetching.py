"""The limit of a round learns from the rounds before: default, doubling, falling back, and a smoothed rate."""

from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.social.accounts import FetchRules, FetchStats, after, next_limit
from tests.support import START

RULES = FetchRules()
limits = st.one_of(st.none(), st.integers(1, 1000))


@st.composite
def fetches(draw: st.DrawFn) -> tuple[int, int, int | None]:
    fetched = draw(st.integers(0, 2000))
    return fetched, draw(st.integers(0, fetched)), draw(limits)


def told(*given_fetches: tuple[int, int, int | None], at: datetime = START) -> FetchStats:
    stats = FetchStats()
    for fetched, new, limit in given_fetches:
        stats = after(stats, fetched=fetched, new=new, limit=limit, at=at)
    return stats


histories = st.lists(fetches(), max_size=12).map(lambda each: told(*each))


def test_an_account_without_history_gets_the_default() -> None:
    assert next_limit(FetchStats()) == 100


def test_the_rules_are_those_that_were_asked_for() -> None:
    assert (RULES.default, RULES.least, RULES.most) == (100, 10, 300)
    assert (RULES.alpha, RULES.margin, RULES.empties) == (0.3, 1.2, 3)


@pytest.mark.parametrize(("limit", "doubled"), [(100, 200), (200, 300), (300, 300), (10, 20), (3, 10), (None, 200)])
def test_a_limit_full_of_new_posts_doubles_up_to_the_most(limit: int | None, doubled: int) -> None:
    full = limit or 100
    assert next_limit(told((full, full, limit))) == doubled


def test_new_posts_that_do_not_fill_the_limit_do_not_double_it() -> None:
    """A catch-up asks above the newest post: all it finds is new, however little that is."""
    assert next_limit(told((40, 40, 100))) == 48  # ceil(40 * 1.2)


def test_three_empty_fetches_in_a_row_fall_to_the_least_and_one_or_two_do_not() -> None:
    busy, empty = (150, 150, 300), (0, 0, 300)
    assert [next_limit(told(busy, *[empty] * times)) for times in range(4)] == [180, 126, 89, 10]


def test_one_new_post_ends_a_row_of_empty_fetches() -> None:
    stats = told((5, 0, 10), (5, 0, 10), (5, 0, 10), (5, 1, 10))
    assert stats.consecutive_empty_fetches == 0


def test_else_the_limit_is_the_smoothed_number_of_new_posts_with_a_margin() -> None:
    stats = told((50, 50, 100), (100, 80, 100))
    assert stats.avg_new_rate == pytest.approx((0.3 * 80 + 0.7 * 50) / RULES.most)
    assert next_limit(stats) == 71  # ceil(59 * 1.2)


def test_a_steady_account_comes_to_a_steady_limit_by_the_average() -> None:
    stats, decided = FetchStats(), []
    for _ in range(12):
        limit = next_limit(stats)
        stats = after(stats, fetched=50, new=50, limit=limit, at=START)
        decided.append(limit)
    assert decided == [100, *[60] * 11]


def test_a_fetch_is_remembered_as_it_was() -> None:
    stats = told((100, 50, 100), (7, 3, 60))
    assert stats == FetchStats(
        last_fetch_at=START,
        last_fetched_count=7,
        last_new_count=3,
        total_fetches=2,
        avg_new_rate=stats.avg_new_rate,
        consecutive_empty_fetches=0,
        last_limit=60,
    )
    assert stats.avg_new_rate == pytest.approx((0.3 * 3 + 0.7 * 50) / RULES.most)


@given(stats=histories)
def test_the_limit_stays_within_its_bounds_whatever_happened(stats: FetchStats) -> None:
    assert RULES.least <= next_limit(stats) <= RULES.most


@given(stats=histories, fetch=fetches())
def test_the_rate_stays_between_none_and_all(stats: FetchStats, fetch: tuple[int, int, int | None]) -> None:
    fetched, new, limit = fetch
    assert 0.0 <= after(stats, fetched=fetched, new=new, limit=limit, at=START).avg_new_rate <= 1.0


@given(stats=histories, more=st.integers(0, 1000), limit=st.integers(1, 1000))
def test_a_full_limit_always_doubles_whatever_came_before(stats: FetchStats, more: int, limit: int) -> None:
    grown = next_limit(after(stats, fetched=limit + more, new=limit + more, limit=limit, at=START))
    assert grown == min(max(2 * limit, RULES.least), RULES.most)


@given(stats=histories, counts=st.lists(st.integers(0, 2000), min_size=3, max_size=6))
def test_empty_fetches_always_end_at_the_least(stats: FetchStats, counts: list[int]) -> None:
    for fetched in counts:
        stats = after(stats, fetched=fetched, new=0, limit=next_limit(stats), at=START)
    assert stats.consecutive_empty_fetches >= len(counts)
    assert next_limit(stats) == RULES.least


@given(
    fetched=st.integers(1, 2000),
    rates=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
)
def test_a_higher_rate_never_lowers_the_limit(fetched: int, rates: list[float]) -> None:
    stats = FetchStats(last_fetched_count=fetched, last_new_count=0, total_fetches=4, last_limit=100)
    low, high = (next_limit(msgspec.structs.replace(stats, avg_new_rate=rate)) for rate in rates)
    assert low <= high
