"""Runs: the newest posts of several accounts, requested together, and the report of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NewType

import msgspec

from mistnet.kit.errors import Conflict, Nonexistent, UsageError
from mistnet.queue.model import Args, KindName, NewJob, Write
from mistnet.social.errors import BadHandle, BadHandles
from mistnet.social.model import Platform, PostId, UserId, X, read_handle

RunId = NewType("RunId", str)

SCRAPE: Final = KindName("scrape")
"""The kind of a run, and of its jobs."""

DEFAULT_LIMIT: Final = 100
LEAST_LIMIT, LARGEST_LIMIT = 1, 1000
MOST_ACCOUNTS: Final = 1000
LARGEST_CREDITS: Final = 2**53
PAGE_CREDITS: Final = 300
"""The highest price of a page of posts."""

COUNTS: Final = ("total", "new", "skipped", "failed")


class RunStatus(StrEnum):
    """The state of a run, or of one of its accounts."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


UNFINISHED: Final = (RunStatus.PENDING, RunStatus.RUNNING)


class RunAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One account of a run. Of `total` posts, `new` were not stored when the run started, `failed` are unreadable."""

    position: int
    handle: str
    user_id: UserId | None = None
    status: RunStatus
    total: int = 0
    new: int = 0
    skipped: int = 0
    failed: int = 0
    reason: str | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its accounts."""

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
        """The counts of all accounts together, then of each."""
        accounts = [
            {
                "username": each.handle,
                "status": str(each.status),
                **{name: getattr(each, name) for name in COUNTS},
                "reason": each.reason,
            }
            for each in self.accounts
        ]
        return {**{name: sum(getattr(each, name) for each in self.accounts) for name in COUNTS}, "accounts": accounts}

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The report of a finished run. It does not change any more."""
        return self.report if self.finished else None


class RunStep(Write, frozen=True, kw_only=True):
    """One page of an account of a run. Its writer counts how many of the posts are new."""

    run_id: RunId
    position: int
    status: RunStatus
    platform: Platform = X
    posts: Sequence[PostId] = ()
    failed: int = 0
    reason: str | None = None
    user_id: UserId | None = None
    summarize: bool = False


class ScrapeArgs(Args, frozen=True):
    """One account of a run: how many posts to fetch, how many were counted, and where the next page begins.

    `max_credits` is the account's share of the run's cap, `spent` what it has used of it.
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
    """How many of the `found` posts were stored before."""


def scrape_job(run_id: RunId, position: int, handle: str, limit: int, max_credits: int | None = None) -> NewJob:
    args = ScrapeArgs(run_id=run_id, position=position, handle=handle, limit=limit, max_credits=max_credits)
    return NewJob(kind=SCRAPE, key=f"{run_id}:{position}", args=args)


def outcome_of(accounts: Sequence[RunAccount]) -> RunStatus:
    """The status of a run with these accounts. It has failed only if all of them have."""
    statuses = {each.status for each in accounts}
    if statuses & set(UNFINISHED):
        return RunStatus.PENDING if statuses == {RunStatus.PENDING} else RunStatus.RUNNING
    return RunStatus.COMPLETED if RunStatus.COMPLETED in statuses else RunStatus.FAILED


def read_handles(text: str) -> list[str]:
    """Parse handles with commas between, each once. Raises BadHandles, which describes every bad one."""
    handles: dict[str, str] = {}
    problems: list[BadHandle] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            handle = read_handle(part)
        except BadHandle as error:
            problems.append(error)
        else:
            handles.setdefault(handle.lower(), handle)
    if problems:
        raise BadHandles(problems)
    return list(handles.values())


def share_of(max_credits: int | None, accounts: int) -> int | None:
    """The cap of each account of a run. The sum of all shares never exceeds the cap of the run.

    Raises CapTooLow if a share does not pay for a page.
    """
    if max_credits is None:
        return None
    if max_credits < (least := accounts * PAGE_CREDITS):
        raise CapTooLow(least, accounts)
    return max_credits // accounts


def require_startable(handles: Sequence[str], limit: int) -> None:
    """Raises BadRun or BadHandles if no run can be made of this."""
    if not handles:
        raise BadRun("usernames", "name at least one account, as in alice,bob")
    if len(handles) > MOST_ACCOUNTS:
        raise BadRun("usernames", f"at most {MOST_ACCOUNTS:,} accounts, not {len(handles):,}: start several runs")
    problems: list[BadHandle] = []
    for handle in handles:
        try:
            if read_handle(handle) != handle:
                problems.append(BadHandle(handle, "it is not a bare handle"))
        except BadHandle as error:
            problems.append(error)
    if problems:
        raise BadHandles(problems)
    if not LEAST_LIMIT <= limit <= LARGEST_LIMIT:
        raise BadRun("limit", f"must be between {LEAST_LIMIT} and {LARGEST_LIMIT:,}, not {limit:,}")


class BadRun(UsageError):
    """A run cannot be made of this request. `field` is the part that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class CapTooLow(Conflict, BadRun):
    """The credits of a run do not pay for one page of each of its accounts."""

    def __init__(self, least: int, accounts: int) -> None:
        of_each = "the price of a page" if accounts == 1 else f"the price of a page of each of {accounts:,} accounts"
        super().__init__("max_credits", f"must be at least {least:,}, {of_each}")
        self.least, self.accounts = least, accounts


class RunInProgress(Conflict, UsageError):
    """Another run is unfinished, and only one may run at a time."""

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(
            f"the run {run_id} {state}; `mistnet runs show {run_id}` shows its progress, "
            f"`mistnet runs cancel {run_id}` or `POST /api/runs/{run_id}/cancel` ends it"
        )
        self.run_id = run_id


class NeedsConfirmation(Conflict, UsageError):
    """An operation will probably cost more than `confirm_credits`."""

    def __init__(self, credits_due: int, confirm_credits: int) -> None:
        super().__init__(
            f"this will probably cost {credits_due:,} credits (US$ {credits_due / 100_000:,.2f}), more than the "
            f"{confirm_credits:,} of the setting `confirm_credits`. Confirm it: --yes on the command line, "
            f'"confirm": true in a request'
        )
        self.credits_due, self.confirm_credits = credits_due, confirm_credits


class RunNotFound(Nonexistent, UsageError):
    """There is no such run, or it was deleted."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"there is no run {run_id[:80]!r}; finished runs are kept for `run_hours`. See `mistnet runs list`"
        )
        self.run_id = run_id
