"""Log the progress of accounts and runs by name, which the lines of single jobs do not show."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from loguru import logger

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError
from mistnet.kit.text import counted
from mistnet.operations.runs.model import COUNTS, UNFINISHED, Run, RunId, RunStatus, RunStep
from mistnet.queue.model import Lease, Settlement
from mistnet.social.accounts import AccountStateChange, Fetched, SuggestionClosed, Swept
from mistnet.social.coverage import SweepKind
from mistnet.social.model import Post, User, UserId

# The shortest time between two lines about the same sweep.
_EVERY: Final = timedelta(seconds=10)
_NAMED: Final = 5


class _Subject(msgspec.Struct, frozen=True):
    """The user that the args of a job name, if they name one."""

    user_id: UserId | None = None
    handle: str | None = None


class ProgressLog:
    """One per process. Receives every settled job after its writes are stored."""

    def __init__(self, clock: Clock, *, read_run: Callable[[str], Awaitable[Run | None]] | None = None) -> None:
        self._clock = clock
        self._read_run = read_run
        self._handles: dict[UserId, str] = {}
        self._posts: dict[tuple[UserId, str], int] = {}
        self._logged_at: dict[tuple[UserId, str], datetime] = {}
        self._reported: set[RunId] = set()
        self._reports: set[asyncio.Task[None]] = set()

    def know(self, handles: Mapping[UserId, str]) -> None:
        self._handles.update(handles)

    def account_of(self, lease: Lease) -> str | None:
        """The account that a job is about, by its handle if that is known."""
        subject = _subject_of(lease)
        if subject.handle:
            return f"@{subject.handle}"
        return self._name(subject.user_id) if subject.user_id is not None else None

    def settled(self, settlement: Settlement) -> None:
        self._count(settlement)
        for write in settlement.writes:
            match write:
                case Swept():
                    self._log_sweep(write, settlement)
                case SuggestionClosed(handle=handle, accepted=accepted, user_id=user_id, reason=reason):
                    if user_id is not None:
                        self._handles[user_id] = handle
                    result = "is tracked" if accepted else f"is refused: {reason or 'no reason given'}"
                    _log(f"@{handle} {result}", account=f"@{handle}")
                case AccountStateChange(user_id=user_id, state=state, reason=reason):
                    why = f": {reason}" if reason else ""
                    _log(f"{self._name(user_id)} is {state}{why}", account=self._name(user_id))
                case RunStep(run_id=run_id) if self._read_run and write.status not in UNFINISHED:
                    # Reading the run takes a query, and this method must not wait: it runs between settlements.
                    task = asyncio.get_running_loop().create_task(self._read_and_report(run_id, self._read_run))
                    self._reports.add(task)
                    task.add_done_callback(self._reports.discard)
                case _:
                    pass

    def report(self, run: Run) -> None:
        """Log the report of a finished run, once in this process."""
        if run.finished and run.id not in self._reported:
            self._reported.add(run.id)
            _log(run_report(run), run_id=run.id, status=str(run.status), **{name: run.report[name] for name in COUNTS})

    async def close(self) -> None:
        """Wait for reports that are being read."""
        await asyncio.gather(*self._reports)

    def _count(self, settlement: Settlement) -> None:
        """Take the account's handle and the number of its own posts from what a page brought."""
        own = _subject_of(settlement.lease).user_id
        if own is None:
            return
        key = (own, str(settlement.lease.kind))
        for write in settlement.writes:
            match write:
                case User(id=user_id, handle=str(handle)) if user_id == own:
                    self._handles[own] = handle
                case Post(author_id=author) if author == own and not write.nested:
                    self._posts[key] = self._posts.get(key, 0) + 1
                case _:
                    pass

    def _log_sweep(self, swept: Swept, settlement: Settlement) -> None:
        kind = str(settlement.lease.kind)
        key, now = (swept.user_id, kind), self._clock.now()
        if kind == SweepKind.CATCH_UP:
            self._take(key)
            new = next((each.new for each in settlement.writes if isinstance(each, Fetched)), swept.found or 0)
            if new:
                self._log_account(swept.user_id, counted(new, "new post"), new)
        elif swept.backfilled or swept.reposts_backfilled:
            posts = self._take(key)
            end = "its past is complete" if swept.backfilled else "its native retweets are complete"
            self._log_account(swept.user_id, f"{counted(posts, 'more post')}; {end}" if posts else end, posts)
        elif swept.oldest is not None and now - self._logged_at.get(key, now - _EVERY) >= _EVERY:
            posts = self._take(key)
            self._logged_at[key] = now
            reached = (each for each in settlement.writes if isinstance(each, Post) and each.id == swept.oldest)
            back = "".join(f", back to {each.created_at:%Y-%m-%d}" for each in reached)
            self._log_account(swept.user_id, counted(posts, "more post") + back, posts)

    def _take(self, key: tuple[UserId, str]) -> int:
        """The posts of a sweep since its last line. Counting begins again at zero."""
        self._logged_at.pop(key, None)
        return self._posts.pop(key, 0)

    def _log_account(self, user_id: UserId, progress: str, posts: int) -> None:
        name = self._name(user_id)
        _log(f"{name}: {progress}", account=name, posts=posts)

    def _name(self, user_id: UserId) -> str:
        handle = self._handles.get(user_id)
        return f"@{handle}" if handle else f"user {user_id}"

    async def _read_and_report(self, run_id: RunId, read: Callable[[str], Awaitable[Run | None]]) -> None:
        try:
            run = await read(run_id)
        except DatabaseError as error:
            logger.warning("the report of run {run_id} cannot be read: {problem}", run_id=run_id, problem=str(error))
            return
        if run:
            self.report(run)


def run_report(run: Run) -> str:
    """A finished run in one line."""
    report = run.report
    took = (run.finished_at or run.updated_at) - run.created_at
    counts = f"{report['new']:,} new, {report['skipped']:,} skipped, {report['failed']:,} unreadable"
    posts = f"{counted(report['total'], 'post')} of {counted(len(run.accounts), 'account')}"
    line = f"run {run.id} is {run.status} after {took.total_seconds():.0f} s: {posts}, {counts}"
    failed = [each for each in run.accounts if each.status is RunStatus.FAILED]
    if not failed:
        return line
    named = ", ".join(f"@{each.handle} ({each.reason or 'no reason given'})" for each in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED:,} more" if len(failed) > _NAMED else ""
    return f"{line}; {counted(len(failed), 'account')} failed: {named}{more}"


def _subject_of(lease: Lease) -> _Subject:
    try:
        return msgspec.json.decode(lease.args, type=_Subject)
    except msgspec.MsgspecError:  # a plugin's args may use these names for something else
        return _Subject()


def _log(line: str, **facts: object) -> None:
    logger.bind(**facts).info(line)
