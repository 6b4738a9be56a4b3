"""The rhythm: a day's credits are met and never exceeded, and go where they end most waiting."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistnet.operations.schedule.store import HOURS
from mistnet.operations.schedule.ticks import (
    DayBudget,
    IdleAccount,
    PostingRate,
    choose_due,
    delay_per_credit,
    learn_rate,
    make_rate,
)
from mistnet.social.model import UserId
from tests.examples import count_examples

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
LOOK = 15.0

rates = st.floats(0.001, 50.0)
days = st.lists(rates, min_size=HOURS, max_size=HOURS)
accounts = st.lists(days, min_size=1, max_size=6)


def even(rate: float) -> PostingRate:
    return make_rate([rate] * HOURS)


def a_day(paces: list[PostingRate], budget: float, *, look: float = LOOK, minutes: int = 1) -> Counter[int]:
    """How often each account is looked at in a simulated day, by its place in the list."""
    looked = {place: MIDNIGHT - timedelta(hours=3) for place in range(len(paces))}
    looks: Counter[int] = Counter()
    for minute in range(0, 24 * 60, minutes):
        now = MIDNIGHT + timedelta(minutes=minute)
        watched = [IdleAccount(UserId(place), each, looked[place]) for place, each in enumerate(paces)]
        for user_id in choose_due(watched, DayBudget(left=budget - look * looks.total(), look=look), now):
            looks[user_id] += 1
            looked[user_id] = now
    return looks


@given(rates=days, since=st.floats(0, 24), hours=st.floats(0, 80))
def test_delay_is_the_waiting_of_all_unseen_posts(rates: list[float], since: float, hours: float) -> None:
    begin = MIDNIGHT + timedelta(hours=since)
    steps = 2000
    width = hours / steps
    middles = [since + (step + 0.5) * width for step in range(steps)]
    by_hand = sum(rates[int(at % HOURS)] * width * (since + hours - at) for at in middles)
    assert make_rate(rates).delay(begin, begin + timedelta(hours=hours)) == pytest.approx(by_hand, rel=0.02, abs=0.02)


@settings(max_examples=count_examples(40))
@given(paces=accounts, budget=st.floats(1, 3000))
def test_a_day_never_costs_more_than_its_budget(paces: list[list[float]], budget: float) -> None:
    looks = a_day([make_rate(each) for each in paces], budget, minutes=5)
    assert LOOK * looks.total() <= budget


@settings(max_examples=count_examples(30))
@given(paces=accounts, looks_each=st.floats(5, 60))
def test_the_budget_is_used_up(paces: list[list[float]], looks_each: float) -> None:
    budget = LOOK * looks_each * len(paces)
    looks = a_day([make_rate(each) for each in paces], budget, minutes=5)
    assert LOOK * looks.total() >= 0.9 * budget - LOOK * len(paces)


@settings(max_examples=count_examples(30))
@given(base=days, more=st.lists(st.floats(0, 20), min_size=HOURS, max_size=HOURS), budget=st.floats(100, 3000))
def test_a_busier_account_is_looked_at_at_least_as_often(base: list[float], more: list[float], budget: float) -> None:
    busier = make_rate([rate + extra for rate, extra in zip(base, more, strict=True)])
    looks = a_day([busier, make_rate(base)], budget, minutes=5)
    assert looks[0] >= looks[1]


@settings(max_examples=count_examples(20))
@given(paces=accounts, budget=st.floats(100, 2000), factor=st.sampled_from([0.25, 0.5, 2.0, 16.0]))
def test_neither_the_unit_of_money_nor_the_unit_of_posts_matters(
    paces: list[list[float]], budget: float, factor: float
) -> None:
    """Factors are powers of two, so that no rounding can tip a scale."""
    as_it_is = a_day([make_rate(each) for each in paces], budget, minutes=15)
    dearer = a_day([make_rate(each) for each in paces], budget * factor, look=LOOK * factor, minutes=15)
    assert dearer == as_it_is
    chattier = a_day([make_rate([rate * factor**2 for rate in each]) for each in paces], budget, minutes=15)
    assert chattier == as_it_is


def test_looks_follow_the_root_of_the_rate() -> None:
    """Four times the posts, twice the looks: what the closed form says of steady rates."""
    looks = a_day([even(4.0), even(1.0)], budget=LOOK * 300)
    assert looks[0] / looks[1] == pytest.approx(2.0, rel=0.05)


def test_the_worth_of_a_credit_in_closed_form() -> None:
    paces, budget = [even(4.0), even(1.0), even(0.25)], 15 * 400.0
    expected = (sum(sqrt(LOOK * rate / 2) * HOURS for rate in (4.0, 1.0, 0.25)) / budget) ** 2
    assert delay_per_credit(paces, DayBudget(left=budget, look=LOOK), 0.0) == pytest.approx(expected)


def test_an_account_is_looked_at_no_more_than_once_a_minute() -> None:
    now = MIDNIGHT + timedelta(hours=1)
    rich = DayBudget(left=1e9, look=LOOK)
    assert choose_due([IdleAccount(UserId(1), even(1000), now - timedelta(seconds=59))], rich, now) == []
    assert choose_due([IdleAccount(UserId(1), even(1000), now - timedelta(seconds=60))], rich, now) == [1]


def test_the_quietest_account_is_looked_at_once_a_day_if_the_budget_allows() -> None:
    paces = [even(20.0), even(0.00001)]
    assert a_day(paces, budget=LOOK * 100)[1] == 1


def test_where_the_budget_does_not_allow_it_the_busiest_go_first() -> None:
    paces = [even(0.01), even(5.0), even(0.01), even(0.01)]
    looks = a_day(paces, budget=LOOK * 2)
    assert looks[1] >= 1
    assert looks.total() <= 2


def test_the_last_credits_go_to_the_accounts_that_wait_for_most_posts() -> None:
    now = MIDNIGHT + timedelta(hours=23)
    some = [IdleAccount(UserId(n), even(rate), now - timedelta(hours=2)) for n, rate in enumerate((1.0, 9.0, 4.0))]
    assert choose_due(some, DayBudget(left=10_000, look=LOOK), now) == [1, 2, 0]
    assert choose_due(some, DayBudget(left=2 * LOOK, look=LOOK), now) == [1, 2]


def test_what_was_overspent_is_saved_later() -> None:
    """The same account at the same hour: less left, fewer looks."""
    now = MIDNIGHT + timedelta(hours=12)
    poor = delay_per_credit([even(1.0)], DayBudget(left=300, look=LOOK), 12.0)
    rich = delay_per_credit([even(1.0)], DayBudget(left=600, look=LOOK), 12.0)
    assert poor == pytest.approx(4 * rich)
    assert (
        choose_due([IdleAccount(UserId(1), even(1.0), now - timedelta(hours=2))], DayBudget(left=0, look=LOOK), now)
        == []
    )


def test_looks_go_where_it_is_day() -> None:
    sleeper = make_rate([0.01] * 12 + [5.0] * 12)
    looked, looks = MIDNIGHT, Counter[bool]()
    for minute in range(24 * 60):
        now = MIDNIGHT + timedelta(minutes=minute)
        if choose_due(
            [IdleAccount(UserId(1), sleeper, looked)], DayBudget(left=LOOK * (48 - looks.total()), look=LOOK), now
        ):
            looked = now
            looks[now.hour >= 12] += 1
    assert looks[True] > 10 * looks[False]


def test_posts_that_looks_will_find_are_paid_from_the_same_purse() -> None:
    plain = delay_per_credit([even(1.0)], DayBudget(left=1000, look=LOOK), 0.0)
    with_posts = delay_per_credit([even(1.0)], DayBudget(left=1000, look=LOOK, post=15), 0.0)
    assert with_posts > plain


def test_an_account_that_never_wrote_is_expected_to_write_some_day() -> None:
    silent = learn_rate([0] * HOURS, 28)
    assert 0 < silent.posts[HOURS] < 0.05
    assert min(silent.rates) == max(silent.rates)


def test_a_pace_keeps_the_number_of_posts_and_the_shape_of_the_day() -> None:
    counts = [0] * 8 + [10] * 12 + [0] * 4
    found = learn_rate(counts, 28)
    assert found.posts[HOURS] == pytest.approx(sum(counts) / 28, rel=0.01)
    assert found.rates[14] > 5 * found.rates[2] > 0


def test_a_few_posts_at_one_hour_do_not_make_a_habit() -> None:
    once = learn_rate([0] * 9 + [2] + [0] * 14, 28)
    assert once.rates[9] < 5 * once.rates[21]
