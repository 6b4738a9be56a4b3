"""Whether a long run stays flat is judged by the slope of its last half."""

import math
from collections.abc import Callable
from pathlib import Path

from tests.retention import RETENTION
from tests.steady.judging import Judgement, Limit, Sample, judge, slope_of, table_of
from tests.steady.play import LIMITS, TABLES, limit_of, process_measures

DAY = 24 * 60
RSS = LIMITS["memory (MB)"]


def run(measure: Callable[[float], float], *, minutes: int = DAY) -> list[Sample]:
    """A sample a minute; the measure is given the hours since the start."""
    return [Sample(seconds=60 * n, values={"it": measure(n / 60)}) for n in range(minutes)]


def verdict(measure: Callable[[float], float], limit: Limit = RSS, *, minutes: int = DAY) -> Judgement:
    return judge("it", run(measure, minutes=minutes), limit)


def test_the_slope_is_that_of_the_line_through_the_points() -> None:
    assert slope_of([(0, 1), (1, 3), (2, 5)]) == 2
    assert slope_of([(5, 1), (5, 3)]) == 0


def test_a_leak_of_four_megabytes_an_hour_is_found_in_a_day() -> None:
    found = verdict(lambda hours: 150 + 4 * hours)
    assert not found.flat
    assert round(found.per_hour, 6) == 4


def test_a_fast_leak_is_found_in_a_minute() -> None:
    samples = [Sample(seconds=3 * n, values={"it": 150 + 3 * n}) for n in range(20)]
    assert not judge("it", samples, RSS).flat


def test_a_warm_up_that_ends_is_no_leak() -> None:
    assert verdict(lambda hours: 150 - 40 * math.exp(-hours)).flat


def test_what_goes_up_and_down_is_flat() -> None:
    assert verdict(lambda hours: 1_000 + 1_000 * (hours % 1), LIMITS["rows of calls"]).flat
    assert verdict(lambda hours: 150 + 5 * math.sin(hours)).flat


def test_what_shrinks_is_flat() -> None:
    assert verdict(lambda hours: 300 - hours).flat


def test_a_table_that_is_not_pruned_grows() -> None:
    assert not verdict(lambda hours: 1_000 * hours, LIMITS["rows of calls"]).flat


def test_descriptors_that_are_never_closed_are_found() -> None:
    assert not verdict(lambda hours: 50 + 3 * hours, LIMITS["descriptors"]).flat


def test_too_few_samples_are_shown_and_not_judged() -> None:
    found = verdict(lambda hours: 1_000 * hours, minutes=10)
    assert (found.judged, found.flat) == (False, True)
    assert "not judged" in table_of([found])


def test_the_report_begins_with_what_grows() -> None:
    lines = table_of([verdict(lambda _: 1.0), verdict(lambda hours: 100 * hours)]).splitlines()
    assert lines[1].endswith("GROWS")
    assert lines[2].endswith("flat")


def test_rows_are_judged_of_every_table_that_is_pruned_and_only_when_there_was_time_to_prune() -> None:
    assert set(TABLES) == set(RETENTION)
    pruned = {name for name, each in RETENTION.items() if each.setting}
    assert {name for name in TABLES if limit_of(f"rows of {name}", hours=24)} == pruned
    assert {name for name in TABLES if limit_of(f"rows of {name}", hours=1)} == set()
    assert limit_of("memory (MB)", hours=1) is RSS


def test_a_process_is_measured_by_what_the_kernel_says_of_it(tmp_path: Path) -> None:
    with (tmp_path / "it.db").open("w") as file:
        found = process_measures("self", database=tmp_path / "it.db")
        assert file
    assert found["memory (MB)"] > 1
    assert found["descriptors"] > 1
    assert found["connections"] == 1
