"""The demo's picture fits every terminal, whatever people have written."""

from datetime import UTC, datetime, timedelta
from typing import get_args, get_type_hints

import msgspec
import pytest
from rich.cells import cell_len

from mistnet.cli import demo, sim
from mistnet.cli.screen import Picture, ScreenAccount, draw, progress_line, shorten, steady
from mistnet.cli.status import KindStatus
from mistnet.operations.overview import Arrival, Totals
from mistnet.queue.model import JobId, JobState, KindName
from mistnet.sim.faults import PRESETS
from mistnet.sim.language import HOSTILE_TEXTS
from mistnet.sim.people import SIZES
from mistnet.sim.service import Tier
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import AccountProgress, Sweep, SweepKind
from mistnet.social.model import PostId, UserId

NOW = datetime(2026, 10, 1, tzinfo=UTC)
DASHBOARD = "http://127.0.0.1:65535"
URL = "sqlite:////tmp/mistnet-demo-abcdefgh/demo.db"
COMMANDS = [f"export MISTNET_DATABASE_URL={URL}", "mistnet status --watch", "mistnet coverage", "mistnet search coin"]


def progress(place: int) -> AccountProgress:
    return AccountProgress(
        user_id=UserId(place),
        handle=f"somebody_long_{place}"[:15],
        state=AccountState.ACTIVE,
        state_reason=None,
        tracked_at=NOW,
        born_at=NOW - timedelta(days=4000),
        oldest_post_at=NOW - timedelta(days=1000),
        oldest_post_id=PostId(1),
        stored=123_456,
    )


def picture() -> Picture:
    collected = [
        ScreenAccount(
            handle=f"somebody_long_{n}"[:15], state="active", posts=123_456, progress=progress(n), doing="back"
        )
        for n in range(11)
    ]
    outcomes = [
        ScreenAccount(handle="locked", state="protected", doing="its posts are protected"),
        ScreenAccount(handle="gone", state="refused", doing="unavailable: suspended"),
        ScreenAccount(handle="nobody", state="refused", doing="there is no account of that name"),
    ]
    states = {JobState.PENDING: 123, JobState.RUNNING: 45, JobState.FAILED: 678}
    kinds = ("suggestion", "backfill", "reposts", "walk", "hydrate_user", "hydrate_post", "catch_up", "relook")
    return Picture(
        program="mistnet demo",
        title="collecting a simulated world",
        explained="Looks up profiles, sweeps histories backward, follows replies to their roots.",
        seconds=3_599,
        posts_per_second=1_234.5,
        now=NOW,
        totals=Totals(posts=123_456, native_retweets=1, users=12_345, gone_posts=1, gone_users=1, products=7),
        threads_walked=12_345,
        money="1,234,567 credits ($12.35)",
        accounts=[*collected, *outcomes],
        kinds=[
            KindStatus(
                kind=KindName(name),
                states=states,
                due=1,
                parked=0,
                oldest_due_at=None,
                next_due_at=None,
                paused=None,
                done_last_minute=12_345,
            )
            for name in kinds
        ],
        arrivals=[
            Arrival(id=PostId(n), handle="somebody_long_1", tracked=True, text=said, created_at=NOW)
            for n, said in enumerate(HOSTILE_TEXTS)
        ],
        commands=COMMANDS,
        address=DASHBOARD,
    )


@pytest.mark.parametrize(("width", "height"), [(79, 23), (119, 39), (109, 30), (200, 80), (60, 15), (40, 10), (20, 3)])
def test_the_picture_has_no_more_lines_than_there_is_room_for_and_each_is_one_line(width: int, height: int) -> None:
    lines = draw(picture(), width=width, height=height)
    assert len(lines) <= height
    assert all(cell_len(line.plain) <= width for line in lines)
    assert all("\n" not in line.plain and "\r" not in line.plain and "\x1b" not in line.plain for line in lines)


@pytest.mark.parametrize(("width", "height"), [(79, 23), (119, 39)])
def test_on_common_terminals_everything_has_its_place(width: int, height: int) -> None:
    shown = "\n".join(line.plain for line in draw(picture(), width=width, height=height))
    places = ("59:59", "123,456 posts", "walk", "posts arriving", "<script>", "@nobody", "@locked", "@gone")
    for part in (*places, URL, DASHBOARD):
        assert part in shown
    assert "somebody_long_1" in shown
    assert all(cell_len(line) <= width for line in shown.splitlines() if "mistnet" in line)


def test_a_long_database_address_is_wrapped_and_not_cut() -> None:
    shown = draw(picture(), width=40, height=60)
    assert URL in "".join(line.plain.strip() for line in shown)


def test_text_of_unsure_width_is_made_steady() -> None:
    assert steady("a\u202eb\u200bc\nd\x1b[31me\ufe0f") == "abc d\ufffd[31me"
    assert steady("e\u0301") == "\u00e9"
    assert all(cell_len(shorten(steady(text), 30)) <= 30 for text in HOSTILE_TEXTS)
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
    assert shorten("日本語日本語", 6) == "日本…"


def test_the_choices_are_those_of_the_simulator() -> None:
    serve, shown = sim.serve, demo.demo
    assert set(get_args(get_type_hints(serve)["size"])) == set(SIZES)
    assert set(get_args(get_type_hints(shown)["size"])) <= set(SIZES)
    assert set(get_args(get_type_hints(serve)["tier"])) == set(Tier)
    for command in (serve, shown):
        assert set(get_args(get_type_hints(command)["faults"])) == set(PRESETS)


@pytest.mark.parametrize(
    ("environment", "platform", "there"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "1"}, "linux", False),
        ({}, "darwin", True),
    ],
)
def test_a_browser_opens_only_where_the_person_is(environment: dict[str, str], platform: str, there: bool) -> None:
    assert demo.has_screen(environment, platform) is there


def test_an_account_says_how_far_its_history_is() -> None:
    backfill = Sweep(job_id=JobId(1), user_id=UserId(1), kind=SweepKind.BACKFILL, state=JobState.RUNNING)
    on_its_way = msgspec.structs.replace(progress(1), sweeps=[backfill])
    told = progress_line(on_its_way, on_its_way.handle or "")
    assert told.doing == f"back to {NOW - timedelta(days=1000):%Y-%m-%d}"
    abandoned = progress_line(progress(1), progress(1).handle or "")
    assert "missing" in abandoned.doing
