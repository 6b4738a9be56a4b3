"""Runs: posts of some accounts that somebody asked for together, and the report of what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NewType

import msgspec

from mistnet.operations.errors import BadRun, CapTooLow
from mistnet.queue.model import Args, KindName, NewJob, Write
from mistnet.social.errors import BadHandle, BadHandles
from mistnet.social.model import Platform, PostId, UserId, read_handle

RunId = NewType("RunId", str)

SCRAPE: Final = KindName("scrape")
"""The kind of its jobs, and of the run."""

DEFAULT_LIMIT: Final = 100
LEAST_LIMIT, LARGEST_LIMIT = 1, 1000
MOST_ACCOUNTS: Final = 1000
LARGEST_CREDITS: Final = 2**53
PAGE_CREDITS: Final = 300
"""What a page of posts costs at most."""


class RunStatus(StrEnum):
    """How far a run, or one account of it, is."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


UNFINISHED: Final = (RunStatus.PENDING, RunStatus.RUNNING)


class RunAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One account of a run. Of `total` posts, `new` were not stored when the run began, `failed` are unreadable."""

    position: int
    handle: str
    status: RunStatus
    total: int = 0
    new: int = 0
    skipped: int = 0
    failed: int = 0
    reason: str | None = None
    user_id: UserId | None = None

    @property
    def report(self) -> Mapping[str, Any]:
        counts = {"total": self.total, "new": self.new, "skipped": self.skipped, "failed": self.failed}
        return {"username": self.handle, "status": str(self.status), **counts, "reason": self.reason}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asked for, and how it goes."""

    id: RunId
    status: RunStatus
    asked_by: str
    post_limit: int
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    accounts: Sequence[RunAccount]

    @property
    def finished(self) -> bool:
        return self.status not in UNFINISHED

    @property
    def failed_accounts(self) -> int:
        return sum(each.status is RunStatus.FAILED for each in self.accounts)

    @property
    def report(self) -> Mapping[str, Any]:
        """All accounts together, then one by one."""
        names = ("total", "new", "skipped", "failed")
        sums = {name: sum(getattr(each, name) for each in self.accounts) for name in names}
        return {**sums, "accounts": [each.report for each in self.accounts]}

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The report, once there is nothing more to come."""
        return self.report if self.finished else None


class RunStep(Write, frozen=True, kw_only=True):
    """One page of a run's account. Which of its posts are new is found out as it is written."""

    run_id: RunId
    position: int
    status: RunStatus
    platform: Platform = Platform.X
    posts: Sequence[PostId] = ()
    failed: int = 0
    reason: str | None = None
    user_id: UserId | None = None
    summarize: bool = False


class ScrapeArgs(Args, frozen=True):
    """One account of a run: how many posts are wanted, how many were counted, and where the next page begins.

    `max_credits` is its share of what the run may cost, of which `spent` are.
    """

    run_id: RunId
    position: int
    handle: str
    limit: int
    user_id: UserId | None = None
    ceiling: PostId | None = None
    counted: int = 0
    suspected: bool = False
    max_credits: int | None = None
    spent: int = 0
    found: int = 0
    known: int = 0
    """Of the `found` posts, how many were stored already."""


def scrape_job(run_id: RunId, position: int, handle: str, limit: int, max_credits: int | None = None) -> NewJob:
    args = ScrapeArgs(run_id=run_id, position=position, handle=handle, limit=limit, max_credits=max_credits)
    return NewJob(kind=SCRAPE, key=f"{run_id}:{position}", args=args)


def outcome_of(accounts: Sequence[RunAccount]) -> RunStatus:
    """What a run is when these are its accounts: failed only if all of them are."""
    found = {each.status for each in accounts}
    if found & set(UNFINISHED):
        return RunStatus.PENDING if found == {RunStatus.PENDING} else RunStatus.RUNNING
    return RunStatus.COMPLETED if RunStatus.COMPLETED in found else RunStatus.FAILED


def read_handles(written: str) -> list[str]:
    """Handles with commas between, each once. Raises BadHandles, which tells what is wrong with each."""
    handles: dict[str, str] = {}
    problems: list[BadHandle] = []
    for each in (part.strip() for part in written.split(",")):
        try:
            handle = read_handle(each) if each else ""
        except BadHandle as error:
            problems.append(error)
        else:
            handles.setdefault(handle.lower(), handle)
    handles.pop("", None)
    if problems:
        raise BadHandles(problems)
    return list(handles.values())


def _problem_of(handle: str) -> BadHandle | None:
    try:
        plain = read_handle(handle)
    except BadHandle as error:
        return error
    return None if plain == handle else BadHandle(handle, "it is not a bare handle")


def share_of(max_credits: int | None, accounts: int) -> int | None:
    """What each account of a run may cost, so that all together never cost more than the run may.

    Raises CapTooLow if that buys not even a page of each.
    """
    if max_credits is None:
        return None
    if max_credits < (least := accounts * PAGE_CREDITS):
        raise CapTooLow(least, accounts)
    return max_credits // accounts


def require_startable(handles: Sequence[str], limit: int) -> None:
    """Raises BadRun or BadHandles for what no run can be made of."""
    if not handles:
        raise BadRun("usernames", "name at least one account, as in alice,bob")
    if len(handles) > MOST_ACCOUNTS:
        raise BadRun("usernames", f"at most {MOST_ACCOUNTS:,} accounts, not {len(handles):,}: make several runs")
    if problems := [each for each in map(_problem_of, handles) if each]:
        raise BadHandles(problems)
    if not LEAST_LIMIT <= limit <= LARGEST_LIMIT:
        raise BadRun("limit", f"must be between {LEAST_LIMIT} and {LARGEST_LIMIT:,}, not {limit:,}")
