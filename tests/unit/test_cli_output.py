"""What commands print: JSON, plain columns, and nothing that could steer a terminal."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.cli.output import Grid, fit, last_line, plain, span, to_json
from mistnet.kit.text import printable


class Thing(msgspec.Struct):
    id: int
    job_id: int
    fence: int
    at: datetime
    args: msgspec.Raw


def test_ids_are_strings_times_are_utc_and_args_stay_as_they_were() -> None:
    thing = Thing(id=2**60, job_id=7, fence=3, at=datetime(2027, 1, 2, 3, tzinfo=UTC), args=msgspec.Raw(b'{"id": 5}'))
    assert json.loads(to_json({"things": [thing]}))["things"] == [
        {"id": str(2**60), "job_id": "7", "fence": 3, "at": "2027-01-02T03:00:00Z", "args": {"id": 5}}
    ]


def test_times_of_other_zones_are_told_in_utc() -> None:
    tokyo = datetime.fromisoformat("2027-01-02T03:00:00+09:00")
    assert json.loads(to_json({"at": tokyo})) == {"at": "2027-01-01T18:00:00Z"}


def test_plain_columns_line_up() -> None:
    grid = Grid(title="birds", columns=("name", "n"), rows=[("wren", "1"), ("goldfinch", "22")])
    assert plain(grid) == "birds\nname        n\nwren        1\ngoldfinch  22"


@pytest.mark.parametrize(
    ("widths", "numbers", "room", "fitted"),
    [
        ([5, 30, 8], {0}, 50, [5, 30, 8]),
        ([5, 60, 40], {0}, 65, [5, 30, 30]),
        ([5, 90, 8], {0}, 33, [5, 20, 8]),
        ([12, 19, 19], {0}, 32, [12, 10, 10]),
        ([30, 30], {0, 1}, 40, [20, 20]),
        ([3, 3, 3], {0}, 4, [1, 1, 2]),
    ],
)
def test_long_texts_give_way_first_and_numbers_last(
    widths: list[int], numbers: set[int], room: int, fitted: list[int]
) -> None:
    assert fit(widths, [place not in numbers for place in range(len(widths))], room) == fitted


def test_a_grid_without_rows_says_so() -> None:
    assert plain(Grid(columns=("name",), rows=[], empty="no birds")) == "no birds"


class Bird(msgspec.Struct):
    name: str
    seen: bool
    seen_at: datetime
    song: str | None = None


def test_a_column_shows_the_field_of_its_name_unless_a_cell_is_given() -> None:
    bird = Bird(name="wren", seen=True, seen_at=datetime(2027, 1, 2, 3, tzinfo=UTC))
    grid = Grid.of([bird], "bird, seen (UTC), song, ", bird="name", untitled=lambda each: each.name.upper())
    assert plain(grid) == "bird  seen (UTC)           song\nwren  2027-01-02 03:00:00        WREN"


def test_a_column_without_field_and_cell_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="colour"):
        Grid.of([Bird(name="wren", seen=True, seen_at=datetime(2027, 1, 2, 3, tzinfo=UTC))], "name, colour")


def test_a_cell_cannot_break_out_of_its_line() -> None:
    assert "\n" not in plain(Grid(columns=("error",), rows=[("one\ntwo\r\nthree",)])).removeprefix("error\n")


@given(st.text())
def test_no_text_can_steer_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ord(letter) < 32 and letter not in "\t\n" for letter in shown)
    assert "\x7f" not in shown
    shown.encode()


@pytest.mark.parametrize(
    ("seconds", "said"), [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_durations_are_said_as_people_say_them(seconds: int, said: str) -> None:
    assert span(timedelta(seconds=seconds)) == said


def test_the_last_line_of_an_error_is_shown_and_cut() -> None:
    assert last_line("Traceback\n  File\nValueError: no\n") == "ValueError: no"
    assert last_line(None) == ""
    assert len(last_line("x" * 500)) == 100
