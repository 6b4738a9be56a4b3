"""The sentence that `status` begins with, and what it says needs an operator."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mistnet.cli.output import Grid, plain
from mistnet.cli.screen import explain_wait
from mistnet.cli.status import KindStatus, SpentToday, Status, needs_of, summary
from mistnet.queue.model import JobState, KindName, Lane
from mistnet.queue.store.inspect import WaitGroup
from mistnet.social.store.tracking import Collected

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)


def status(**changes: Any) -> Status:
    given: dict[str, Any] = {
        "at": NOW,
        "database": "sqlite:///birds.db",
        "kinds": [],
        "waits": [],
        "workers": [],
        "gaps": {},
        "collected": Collected(posts=4_862, accounts={"active": 10, "protected": 1}, complete=9, suggested=0),
        "spent_today": SpentToday(credits=84_000, cap=200_000),
        "needs": [],
    }
    return Status(**{**given, **changes})


def kind(name: str, state: JobState = JobState.PENDING, due: int = 1) -> KindStatus:
    return KindStatus(
        kind=KindName(name),
        states={state: 1},
        due=due,
        parked=0,
        oldest_due_at=NOW,
        next_due_at=None,
        paused=None,
        done_last_minute=0,
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "4,862 posts of 11 accounts, 9 complete; $0.84 of $2.00 today; nothing needs you."),
        (
            {"needs": ["one", "two"], "spent_today": SpentToday(credits=0, cap=None)},
            "4,862 posts of 11 accounts, 9 complete; $0.00 spent today; 2 things need you.",
        ),
        (
            {"collected": Collected(posts=0, accounts={}, complete=0, suggested=1), "needs": ["one"]},
            "0 posts; 1 profile to look up; $0.84 of $2.00 today; 1 thing needs you.",
        ),
        (
            {"collected": Collected(posts=0, accounts={}, complete=0, suggested=0)},
            (
                "Nothing is collected yet: `mistnet track HANDLE` adds an account; "
                "$0.84 of $2.00 today; nothing needs you."
            ),
        ),
    ],
)
def test_the_first_line_says_what_is_collected_what_it_cost_and_what_is_needed(
    changes: dict[str, Any], sentence: str
) -> None:
    assert summary(status(**changes)) == sentence


def test_work_without_a_key_or_a_worker_needs_an_operator() -> None:
    waiting = status(kinds=[kind("backfill")])
    assert [each.partition(":")[0] for each in needs_of(waiting, has_key=False)] == [
        "work waits for a key for X, and none is set here",
        "work is due and no worker is running",
    ]
    assert list(needs_of(status(kinds=[kind("materialize", due=0)]), has_key=False)) == []


def test_failed_jobs_need_an_operator_once_for_each_kind() -> None:
    failed = status(gaps={KindName("walk"): {JobState.DEAD: 2, JobState.FAILED: 1}})
    assert list(needs_of(failed, has_key=True)) == ["3 walk jobs failed: `mistnet jobs dead --kind walk` says why"]


@pytest.mark.parametrize(
    ("ahead", "due", "said"),
    [
        (600, 0, "Waits 600 s: x is paused: the key is refused."),
        (600, 1, None),
        (0, 0, None),
    ],
)
def test_the_screen_of_up_says_what_all_work_waits_for(ahead: float, due: int, said: str | None) -> None:
    later = NOW + timedelta(seconds=ahead)
    wait = WaitGroup(
        kind=KindName("walk"),
        lane=Lane("x"),
        reason="x is paused: the key is refused",
        jobs=3,
        next_due_at=later,
    )
    assert explain_wait(status(kinds=[kind("walk", due=due)], waits=[wait])) == said


def test_numbers_stand_at_the_right_and_a_brief_table_leaves_empty_columns_out() -> None:
    rows = [("walk", 5, None, "1,234", "in 5m"), ("backfill", 12_345, None, "7", "now")]
    grid = Grid(columns=("kind", "jobs", "empty", "posts", "due"), rows=rows, brief=True)
    assert plain(grid) == "kind       jobs  posts  due\nwalk          5  1,234  in 5m\nbackfill  12345      7  now"
