"""Plots: one axis with round labels, bars for what there is, and nothing at all where there is nothing to draw."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from mistnet.web.pages.plots import bar_plot, line_plot, month_edges

DAY = timedelta(days=1)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def words(amount: float) -> str:
    return f"{amount:,.0f}"


def days(count: int) -> list[datetime]:
    return [BEGIN + place * DAY for place in range(count + 1)]


def test_nothing_is_drawn_without_an_amount_and_no_line_from_one_reading() -> None:
    assert bar_plot(days(3), [0, 0, 0], words) is None
    assert line_plot([BEGIN], [5], "users") is None
    assert line_plot([], [], "users") is None


def test_a_bar_stands_where_its_time_is_and_is_as_high_as_its_amount() -> None:
    plot = bar_plot(days(4), [10, 0, 5, 0.01], words)
    assert plot is not None
    assert [round(bar.x + bar.width / 2, 1) for bar in plot.bars] == [12.5, 62.5, 87.5]
    assert plot.bars[0].height == pytest.approx(2 * plot.bars[1].height, rel=0.01)
    assert plot.bars[2].height == 1.5  # a small amount stays visible
    assert plot.bars[1].told == "03 Jan 2026: 5"
    assert [tick.text for tick in plot.rules] == ["5", "10"]


def test_a_cap_is_drawn_where_it_leaves_room_for_the_amounts() -> None:
    near, far = (bar_plot(days(2), [1, 2], words, cap=cap) for cap in (4, 400))
    assert near is not None
    assert far is not None
    assert near.cap is not None
    assert near.cap > near.bars[1].height
    assert far.cap is None


@pytest.mark.parametrize("seconds", [120, 3_600, 86_400, 31 * 86_400, 200 * 86_400, 900 * 86_400, 20 * 365 * 86_400])
def test_every_span_has_a_few_moments_in_their_order(seconds: int) -> None:
    plot = line_plot([BEGIN, BEGIN + timedelta(seconds=seconds)], [1_000_000, 1_000_050], "users")
    assert plot is not None
    places = [tick.at for tick in plot.moments]
    assert 1 <= len(places) <= 9
    assert all(one < other for one, other in pairwise(places))
    assert len({tick.text for tick in plot.moments}) == len(places)
    assert plot.rules
    assert len({tick.text for tick in plot.rules}) == len(plot.rules)


def test_a_level_line_is_drawn_in_the_middle() -> None:
    plot = line_plot([BEGIN, BEGIN + DAY], [60, 60], "users")
    assert plot is not None
    assert plot.line == "M0.0 50.0H100.0V50.0"
    assert plot.told == "2 counts 01 Jan 2026: from 60 to 60 users"


def test_a_long_history_has_quarters_and_covers_its_whole_span() -> None:
    short = month_edges(datetime(2025, 11, 20, tzinfo=UTC), datetime(2026, 2, 3, tzinfo=UTC))
    assert [f"{each:%Y-%m}" for each in short] == ["2025-11", "2025-12", "2026-01", "2026-02", "2026-03"]
    begin, end = datetime(2008, 2, 29, tzinfo=UTC), datetime(2026, 2, 3, tzinfo=UTC)
    edges = month_edges(begin, end)
    assert edges[0] <= begin < edges[1]
    assert edges[-2] <= end < edges[-1]
    assert {each.month for each in edges} == {1, 4, 7, 10}
