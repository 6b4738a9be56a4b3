"""What the log tells of the work: accounts and runs by name, each job only at DEBUG, faults with all that is known."""

import asyncio
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from loguru import logger

from mistnet.cli import command
from mistnet.operations.monitoring import ProgressLog, run_report
from mistnet.operations.runs.model import Run, RunAccount, RunId, RunStatus, RunStep
from mistnet.queue.journal import Journal
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import JobId, JobState, KindName, Lane, Lease, Settlement, WorkerName, Write
from mistnet.social.accounts import AccountState, AccountStateChange, SuggestionClosed, Swept
from mistnet.social.model import Post, PostId, UserId, X
from tests.support import START, TurnedClock, finished_run

ANN = UserId(11)
OLD = PostId(1_050_118_621_198_921_728)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    logger.remove()


def lease(kind: str = "backfill", args: str = '{"user_id": 11}', **about: Any) -> Lease:
    known: dict[str, Any] = {"key": "11", "attempts": 4, "max_attempts": 5, "run_at": START, "created_at": START}
    return Lease(
        id=JobId(7),
        fence=1,
        worker=WorkerName("w"),
        kind=KindName(kind),
        lane=Lane("x"),
        args=args,
        alone=False,
        **{**known, **about},
    )


def settled(state: JobState, *writes: Write, error: str | None = None, **about: Any) -> Settlement:
    return Settlement(lease=lease(**about), state=state, run_at=START, attempts=0, error=error, writes=writes)


def page(*ids: int) -> list[Write]:
    return [Post(platform=X, id=PostId(each), author_id=ANN, text="", created_at=START, raw=b"{}") for each in ids]


class Work:
    """A journal with its progress log, and what both have written."""

    def __init__(self, stream: io.StringIO, *, level: str = "INFO", style: Any = "json") -> None:
        command.set_up_log(style=style, level=level, stream=stream)
        self._stream, self.clock = stream, TurnedClock()
        self.progress = ProgressLog(self.clock)
        self.progress.know({ANN: "ann"})
        self._journal = Journal(
            worker=WorkerName("w"), metrics=EngineMetrics(), on_end=lambda _: None, observer=self.progress
        )

    def settle(self, *settlements: Settlement) -> Sequence[dict[str, Any]]:
        begun = len(self._stream.getvalue())
        self._journal.settled([(each, 0.5) for each in settlements], START)
        return [json.loads(line) for line in self._stream.getvalue()[begun:].splitlines()]


def test_each_job_is_a_line_only_at_debug_and_its_note_is_a_sentence(stream: io.StringIO) -> None:
    assert Work(stream).settle(settled(JobState.SUCCEEDED)) == []
    (line,) = Work(stream, level="DEBUG").settle(settled(JobState.RETRYABLE, error="x is down: 503"))
    assert (line["level"], line["note"], line["key"], line["account"]) == ("WARNING", "x is down: 503", "11", "@ann")


def test_a_failure_is_told_with_its_key_its_account_and_its_stack(stream: io.StringIO) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: it broke'
    (line,) = Work(stream).settle(settled(JobState.DEAD, error=trace))
    assert line["level"] == "ERROR"
    assert line["message"].startswith("job 7 backfill of @ann is dead after attempt 5: ValueError: it broke")
    assert (line["key"], line["account"], line["stack"]) == ("11", "@ann", trace)


def test_a_stack_stands_below_its_line_in_a_text_log(stream: io.StringIO) -> None:
    work = Work(stream, style="text")
    work._journal.settled([(settled(JobState.DEAD, error="Traceback:\n  a \x1b[31m\nValueError: b"), 0.1)], START)
    first, *stack = stream.getvalue().splitlines()
    assert "ValueError: b" in first
    assert stack == ["  Traceback:", "    a \N{REPLACEMENT CHARACTER}[31m", "  ValueError: b"]


def test_progress_is_told_by_account_now_and_then_and_at_the_end(stream: io.StringIO) -> None:
    work = Work(stream)
    reached = Swept(platform=X, user_id=ANN, oldest=PostId(1), found=2)
    (first,) = work.settle(settled(JobState.PENDING, *page(1, 2), reached))
    assert first["message"] == f"@ann: 2 more posts, back to {START:%Y-%m-%d}"
    assert (first["account"], first["posts"]) == ("@ann", 2)
    assert work.settle(settled(JobState.PENDING, *page(3, 4), reached)) == []
    work.clock.turn(seconds=11)
    (later,) = work.settle(settled(JobState.PENDING, *page(5), reached))
    assert later["message"] == "@ann: 3 more posts"
    assert work.settle(settled(JobState.PENDING, *page(7), reached)) == []
    (ended,) = work.settle(settled(JobState.SUCCEEDED, Swept(platform=X, user_id=ANN, backfilled=True)))
    assert ended["message"] == "@ann: 1 more post; its past is complete"
    reposts = Swept(platform=X, user_id=ANN, reposts_backfilled=True)
    (ended,) = work.settle(settled(JobState.SUCCEEDED, *page(6), reposts, kind="reposts"))
    assert ended["message"] == "@ann: 1 more post; its native retweets are complete"


def test_a_look_that_finds_nothing_new_is_no_news(stream: io.StringIO) -> None:
    work, looked = Work(stream), Swept(platform=X, user_id=ANN, newest=OLD, found=0)
    assert work.settle(settled(JobState.SUCCEEDED, looked, kind="catch_up")) == []
    found = Swept(platform=X, user_id=ANN, newest=OLD, found=1)
    (line,) = work.settle(settled(JobState.SUCCEEDED, *page(9), found, kind="catch_up"))
    assert line["message"] == "@ann: 1 new post"


def test_who_is_tracked_refused_or_gone_is_told_by_name(stream: io.StringIO) -> None:
    work = Work(stream)
    taken = SuggestionClosed(platform=X, handle="bea", accepted=True, user_id=UserId(12))
    refused = SuggestionClosed(platform=X, handle="cy", accepted=False, reason="no account of that name")
    gone = AccountStateChange(platform=X, user_id=UserId(12), state=AccountState.SUSPENDED, reason="spam")
    lines = work.settle(settled(JobState.SUCCEEDED, taken, refused, gone, kind="suggestion", args='{"handle": "bea"}'))
    assert [line["message"] for line in lines] == [
        "@bea is tracked",
        "@cy is refused: no account of that name",
        "@bea is suspended: spam",
    ]


def test_the_report_of_a_run_is_told_once_when_its_last_account_is_done(stream: io.StringIO) -> None:
    command.set_up_log(style="json", level="INFO", stream=stream)
    runs = [msgspec.structs.replace(finished_run(), finished_at=None, status=RunStatus.RUNNING), *[finished_run()] * 2]

    async def read(_: str) -> Run:
        return runs.pop(0)

    async def told() -> Sequence[str]:
        progress = ProgressLog(TurnedClock(), read_run=read)
        for status in (RunStatus.RUNNING, RunStatus.COMPLETED, RunStatus.COMPLETED, RunStatus.FAILED):
            step = RunStep(run_id=RunId("r"), position=0, status=status)
            progress.settled(settled(JobState.SUCCEEDED, step, kind="scrape", args="{}"))
            await progress.close()
        return [json.loads(line)["message"] for line in stream.getvalue().splitlines()]

    assert asyncio.run(told()) == [run_report(finished_run())]
    assert runs == []


def test_a_finished_run_is_reported_in_one_line() -> None:
    accounts = [
        RunAccount(position=0, handle="ann", status=RunStatus.COMPLETED, total=5, new=4, skipped=1),
        RunAccount(position=1, handle="cy", status=RunStatus.FAILED, reason="its posts are protected"),
    ]
    run = finished_run(*accounts, seconds=31)
    assert run_report(run) == (
        "run r is completed after 31 s: 5 posts of 2 accounts, 4 new, 1 skipped, 0 unreadable; "
        "1 account failed: @cy (its posts are protected)"
    )
