"""Slots: the same for everybody, counted exactly, and crontab lines read as cron reads them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.operations.schedule.groups import Crontab, Due, Interval

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)  # a Sunday
QUARTER = Interval(timedelta(minutes=15))

moments = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
spans = st.timedeltas(timedelta(seconds=1), timedelta(days=2))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_intervals_are_counted_from_the_epoch() -> None:
    assert QUARTER.after(NOON) == NOON + timedelta(minutes=15)
    assert QUARTER.after(NOON - timedelta(seconds=1)) == NOON
    assert Interval(timedelta(hours=7)).after(datetime(1970, 1, 1, tzinfo=UTC)) == at("1970-01-01 07:00")


def test_without_a_tick_before_the_latest_slot_is_due() -> None:
    assert QUARTER.due(None, NOON + timedelta(minutes=20)) == Due(NOON + timedelta(minutes=15))
    assert Crontab("30 3 * * *").due(None, NOON) == Due(at("2026-03-01 03:30"))
    assert Crontab("0 0 1 1 *").due(None, NOON) == Due(at("2026-01-01 00:00"))


def test_a_slot_is_due_once() -> None:
    assert QUARTER.due(NOON, NOON) is None
    assert QUARTER.due(NOON, NOON + timedelta(minutes=14, seconds=59)) is None
    assert QUARTER.due(NOON, NOON + timedelta(minutes=15)) == Due(NOON + timedelta(minutes=15))
    assert Crontab("0 * * * *").due(NOON, NOON + timedelta(minutes=59)) is None


def test_missed_slots_become_one() -> None:
    assert QUARTER.due(NOON, NOON + timedelta(hours=1, minutes=1)) == Due(NOON + timedelta(hours=1), missed=3)
    assert Crontab("*/20 * * * *").due(NOON, NOON + timedelta(hours=2)) == Due(NOON + timedelta(hours=2), missed=5)


def test_a_last_tick_of_another_rhythm_counts_from_where_it_was() -> None:
    odd = NOON + timedelta(minutes=7)
    assert QUARTER.due(odd, NOON + timedelta(minutes=16)) == Due(NOON + timedelta(minutes=15))


def test_a_clock_that_was_set_back_makes_nothing_due() -> None:
    assert QUARTER.due(NOON + timedelta(hours=1), NOON) is None
    assert Crontab("* * * * *").due(NOON + timedelta(hours=1), NOON) is None


@given(start=moments, every=spans, steps=st.lists(st.timedeltas(timedelta(0), timedelta(days=9)), max_size=12))
def test_ticks_and_what_they_stand_for_cover_every_slot_once(
    start: datetime, every: timedelta, steps: list[timedelta]
) -> None:
    slots = Interval(every)
    first = slots.due(None, start)
    assert first is not None
    last, covered, now = first.at, 1, start
    for step in steps:
        now += step
        if found := slots.due(last, now):
            covered += 1 + found.missed
            assert last < found.at <= now
            last = found.at
    assert (last - first.at) // every + 1 == covered
    assert slots.after(now) == last + every


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("0 9 * * 1", "2026-03-01 12:00", "2026-03-02 09:00"),  # Monday
        ("0 9 * * 0", "2026-03-01 12:00", "2026-03-08 09:00"),  # Sunday
        ("0 9 * * 7", "2026-03-01 12:00", "2026-03-08 09:00"),
        ("0 9 * * sun", "2026-03-01 12:00", "2026-03-08 09:00"),
        ("0 9 * * 1-5", "2026-03-06 12:00", "2026-03-09 09:00"),  # from Friday to Monday
        ("0 9 * * fri-mon", "2026-03-02 12:00", "2026-03-06 09:00"),
        ("0 9 * * */2", "2026-03-01 12:00", "2026-03-03 09:00"),  # Sunday, Tuesday, Thursday, Saturday
        ("0 0 13 * 5", "2026-03-01 12:00", "2026-03-06 00:00"),  # the 13th or a Friday
        ("0 0 13 * 5", "2026-03-12 12:00", "2026-03-13 00:00"),
        ("15 3 29 2 *", "2026-03-01 12:00", "2028-02-29 03:15"),
    ],
)
def test_a_crontab_line_is_read_as_cron_reads_it(line: str, after: str, expected: str) -> None:
    assert Crontab(line).after(at(after)) == at(expected)


@pytest.mark.parametrize(
    "line", ["", "* * * *", "60 * * * *", "* * * * 8", "* * * * moonday", "a b c d e", "0 0 * * 1/0"]
)
def test_a_line_that_is_none_says_so(line: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Crontab(line)


@given(start=moments, hours=st.integers(0, 100))
def test_cron_ticks_cover_every_slot_once(start: datetime, hours: int) -> None:
    slots = Crontab("*/30 * * * *")
    found = slots.due(start, start + timedelta(hours=hours))
    assert (0 if found is None else found.missed + 1) == 2 * hours
