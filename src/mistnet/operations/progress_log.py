"""Tells the log how accounts and runs get on, by name: what the lines of single jobs do not say."""

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
from mistnet.operations.runs.model import Run, RunId, RunStatus, RunStep
from mistnet.queue.model import Lease, Settlement
from mistnet.social.accounts import AccountStateChange, SuggestionClosed, Swept
from mistnet.social.coverage.model import SweepKind, moment_of
from mistnet.social.fetch_sizes import Fetched
from mistnet.social.model import Platform, Post, User, UserId

EVERY: Final = timedelta(seconds=10)
"""How often an account that is being swept is told of, at most."""


class _Named(msgspec.Struct, frozen=True):
    """Whom the args of a job name, if they name a user."""

    user_id: int | None = None
    handle: str | None = None


class ProgressLog:
    """One per process. Hears of every settled job after its writes are stored."""

    def __init__(self, clock: Clock, *, read_run: Callable[[str], Awaitable[Run | None]] | None = None) -> None:
        self._clock = clock
        self._read_run = read_run
        self._handles: dict[UserId, str] = {}
        self._untold: dict[tuple[UserId, str], int] = {}
        self._told_at: dict[tuple[UserId, str], datetime] = {}
        self._reported: set[RunId] = set()
        self._reports: set[asyncio.Task[None]] = set()

    def know(self, handles: Mapping[UserId, str]) -> None:
        self._handles.update(handles)

    def account_of(self, lease: Lease) -> str | None:
        """The account a job is about, as people call it."""
        named = _named(lease)
        if named.handle:
            return f"@{named.handle}"
        return self._name(UserId(named.user_id)) if named.user_id is not None else None

    def settled(self, settlement: Settlement) -> None:
        named = _named(settlement.lease)
        if named.user_id is not None:
            self._learn(UserId(named.user_id), settlement)
        for write in settlement.writes:
            match write:
                case Swept():
                    self._swept(write, settlement)
                case SuggestionClosed(handle=handle, accepted=accepted, user_id=user_id, reason=reason):
                    if user_id is not None:
                        self._handles[user_id] = handle
                    fate = "is tracked" if accepted else f"is refused: {reason or 'no reason given'}"
                    _tell(f"@{handle} {fate}", account=f"@{handle}")
                case AccountStateChange(user_id=user_id, state=state, reason=reason):
                    why = f": {reason}" if reason else ""
                    _tell(f"{self._name(user_id)} is {state}{why}", account=self._name(user_id))
                case RunStep(run_id=run_id) if write.status not in (RunStatus.PENDING, RunStatus.RUNNING):
                    self._look_at_run(run_id)
                case _:
                    pass

    def report(self, run: Run) -> None:
        """Once for each run that this process sees finished."""
        if run.finished and run.id not in self._reported:
            self._reported.add(run.id)
            _tell(run_report(run), run_id=run.id, status=str(run.status), **{n: run.report[n] for n in _COUNTS})

    async def close(self) -> None:
        """Waits for reports that are under way."""
        await asyncio.gather(*self._reports)

    def _learn(self, own: UserId, settlement: Settlement) -> None:
        """What a page says of the account itself: its handle, and how many posts of its own came."""
        key = (own, str(settlement.lease.kind))
        for write in settlement.writes:
            match write:
                case User(platform=Platform.X, id=user_id, handle=str(handle)) if user_id == own:
                    self._handles[own] = handle
                case Post(platform=Platform.X, author_id=author) if author == own and not write.nested:
                    self._untold[key] = self._untold.get(key, 0) + 1
                case _:
                    pass

    def _swept(self, swept: Swept, settlement: Settlement) -> None:
        kind = str(settlement.lease.kind)
        key, now = (swept.user_id, kind), self._clock.now()
        if kind == SweepKind.CATCH_UP:
            new = next((each.new for each in settlement.writes if isinstance(each, Fetched)), swept.found or 0)
            self._forget(key)
            if new:
                self._account(swept.user_id, counted(new, "new post"), new)
        elif swept.backfilled or swept.reposts_backfilled:
            posts = self._forget(key)
            end = "its past is complete" if swept.backfilled else "its native retweets are complete"
            self._account(swept.user_id, f"{counted(posts, 'more post')}; {end}" if posts else end, posts)
        elif swept.oldest is not None and now - self._told_at.get(key, now - EVERY) >= EVERY:
            posts = self._forget(key)
            self._told_at[key] = now
            back = f"back to {moment_of(swept.oldest):%Y-%m-%d}"
            self._account(swept.user_id, f"{counted(posts, 'more post')}, {back}", posts)

    def _forget(self, key: tuple[UserId, str]) -> int:
        self._told_at.pop(key, None)
        return self._untold.pop(key, 0)

    def _account(self, user_id: UserId, said: str, posts: int) -> None:
        name = self._name(user_id)
        _tell(f"{name}: {said}", account=name, posts=posts)

    def _name(self, user_id: UserId) -> str:
        handle = self._handles.get(user_id)
        return f"@{handle}" if handle else f"user {user_id}"

    def _look_at_run(self, run_id: RunId) -> None:
        if self._read_run:
            looking = asyncio.get_running_loop().create_task(self._report_if_over(run_id, self._read_run))
            self._reports.add(looking)
            looking.add_done_callback(self._reports.discard)

    async def _report_if_over(self, run_id: RunId, read: Callable[[str], Awaitable[Run | None]]) -> None:
        try:
            run = await read(run_id)
        except DatabaseError as error:
            logger.warning("the report of run {run_id} cannot be read: {problem}", run_id=run_id, problem=str(error))
            return
        if run:
            self.report(run)


_COUNTS: Final = ("total", "new", "skipped", "failed")


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


_NAMED: Final = 5


def _named(lease: Lease) -> _Named:
    try:
        return msgspec.json.decode(lease.args, type=_Named)
    except msgspec.MsgspecError:  # a plugin's args may call other things by these names
        return _Named()


def _tell(line: str, **facts: object) -> None:
    logger.bind(**facts).info(line)


__all__ = ["ProgressLog", "run_report"]
