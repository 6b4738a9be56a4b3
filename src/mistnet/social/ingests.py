"""Ingests: explicit requests to a source, and the events that record what each returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NewType, TypeAlias, TypeVar

import msgspec

from mistnet.kit.errors import MistnetError, UsageError
from mistnet.kit.text import redact
from mistnet.kit.transport import Exchange
from mistnet.queue.errors import Permanent, Temporary
from mistnet.queue.model import Args, Done, Fail, Job, JobId, Outcome, Retry, Snooze, Write
from mistnet.social.model import Platform, Post, User

IngestId = NewType("IngestId", int)

BODY_LIMIT: Final = 4_000
_HEADER_LIMIT: Final = 500
_MOST_LISTED: Final = 100
# More than is kept: a character takes up to four bytes, and what is redacted gets shorter.
_READ: Final = 4 * BODY_LIMIT
_SECRET_HEADERS: Final = ("auth", "cookie", "key", "token", "secret")


class IngestKind(StrEnum):
    USERS_BY_IDS = "users_by_ids"
    POSTS_BY_IDS = "posts_by_ids"
    FOLLOWERS_SYNC = "followers_sync"
    FOLLOWINGS_SYNC = "followings_sync"
    POSTS_SYNC = "posts_sync"
    WEBHOOK = "webhook"


class IngestStatus(StrEnum):
    IN_PROGRESS = "in_progress"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"


class Ingest(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one ingest. Its ids need not exist: it may have failed because they do not."""

    id: IngestId
    platform: Platform
    kind: IngestKind
    status: IngestStatus
    subject_id: int | None
    mode: str | None
    asked_by: str
    job_id: JobId | None
    started_at: datetime
    finished_at: datetime | None
    calls: int
    items: int
    plausible: bool | None
    endpoint: str | None
    http_status: int | None
    problem: str | None
    exchange: Exchange | None = None


class IngestBegun(Write, frozen=True, kw_only=True):
    """A job starts an ingest. While a job's ingest is open, starting it again changes nothing.

    So a job of several steps writes this at each step, and a revived job gets a new ingest.
    `ids` are the requested ids, if they are not only the subject.
    """

    platform: Platform
    kind: IngestKind
    job_id: JobId
    asked_by: str
    subject_id: int | None = None
    mode: str | None = None
    ids: Sequence[int] = ()


class IngestAdvanced(Write, frozen=True, kw_only=True):
    """One step of a job's open ingest: the calls and items it adds, and the problem if it is retried."""

    job_id: JobId
    calls: int = 0
    items: int = 0
    problem: str | None = None
    exchange: Exchange | None = None


class IngestEnded(Write, frozen=True, kw_only=True):
    """The end of a job's open ingest. Calls and items are those of the last step."""

    job_id: JobId
    status: IngestStatus
    calls: int = 0
    items: int = 0
    plausible: bool | None = None
    problem: str | None = None
    exchange: Exchange | None = None


def traced(writes: Iterable[Write], *, ingest_id: IngestId | None = None, job_id: JobId | None = None) -> list[Write]:
    """Let users and posts refer to the ingest that fetched them, or to its job."""
    named = {"ingest_id": ingest_id, "ingest_job_id": job_id}
    return [msgspec.structs.replace(each, **named) if isinstance(each, (User, Post)) else each for each in writes]


def exchange_of(
    endpoint: str, *, status: int | None, headers: Mapping[str, str], body: bytes, secrets: Iterable[str]
) -> Exchange:
    """The part of a response that may be stored: no secrets, and not too long."""
    hidden = tuple(secrets)
    shown = {
        name.lower(): redact(value, hidden)[:_HEADER_LIMIT]
        for name, value in headers.items()
        if not any(word in name.lower() for word in _SECRET_HEADERS)
    }
    # Databases refuse NUL in text.
    text = redact(body[:_READ].decode("utf-8", "replace"), hidden).replace("\x00", "\N{SYMBOL FOR NULL}")
    return Exchange(endpoint=endpoint, status=status, headers=shown, body=text[:BODY_LIMIT])


class IngestNotFound(UsageError):
    """No ingest event has this id."""

    def __init__(self, ingest_id: IngestId) -> None:
        super().__init__(f"there is no ingest {ingest_id}; `mistnet hydrate events` shows the latest")
        self.ingest_id = ingest_id


class NotReturned(MistnetError):
    """A strict request could not be met in full: the source lacks some ids."""

    def __init__(
        self, source: str, what: str, missing: Sequence[int], *, asked: int, problem: str | None = None
    ) -> None:
        listed = ", ".join(map(str, missing[:_MOST_LISTED]))
        more = f" and {len(missing) - _MOST_LISTED} more" if len(missing) > _MOST_LISTED else ""
        unread = f" (some of the answer could not be read: {problem})" if problem else ""
        super().__init__(
            f"{source} does not return {len(missing)} of {asked} {what}: {listed}{more}{unread}. Nothing was written; "
            f"leave these out, or use --background, which settles each id alone"
        )
        self.source, self.what, self.missing, self.asked, self.problem = source, what, tuple(missing), asked, problem


What: TypeAlias = Literal["users", "posts"]


class Hydrated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a hydration: ids that were stored already, ids that were fetched, calls, and its ingest.

    Without missing ids there is no call and no ingest.
    """

    what: What
    present: Sequence[int]
    fetched: Sequence[int]
    calls: int
    ingest_id: IngestId | None = None


A = TypeVar("A", bound=Args)
JOB = "job"


def recorded(
    handle: Callable[[Job[A]], Awaitable[Outcome]], begun: Callable[[Job[A]], IngestBegun]
) -> Callable[[Job[A]], Awaitable[Outcome]]:
    """Wrap a handler of several steps: its ingest stays open during retries and keeps the source's response."""

    async def run(job: Job[A]) -> Outcome:
        try:
            return _with_writes(await handle(job), lambda own: traced(own, job_id=job.id))
        except Temporary as error:
            advanced = IngestAdvanced(
                job_id=job.id, calls=int(error.exchange is not None), problem=str(error), exchange=error.exchange
            )
            # An outcome can carry the ingest's record; an error that is raised could not.
            return Retry(str(error), writes=[begun(job), advanced])
        except Permanent as error:
            return Fail(str(error), [begun(job), _ended_badly(job, error)])

    return run


def one_call(
    platform: Platform, kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int], came: Collection[int]
) -> list[Write]:
    """One event for one call that serves a batch. Missing items are settled by their own jobs."""
    found = [each for each in asked if each in came]
    lacking = len(asked) - len(found)
    problem = f"upstream does not return {lacking} of {len(asked)}" if lacking else None
    ended = IngestEnded(job_id=jobs[0].id, status=IngestStatus.SUCCESS, calls=1, items=len(found), problem=problem)
    return [_begun(platform, kind, jobs, asked), ended]


def failed_call(
    platform: Platform, kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int], error: Temporary | Permanent
) -> list[Outcome]:
    """A fault of the whole batch. Its event is written with the first job."""
    writes = [_begun(platform, kind, jobs, asked), _ended_badly(jobs[0], error)]
    if isinstance(error, Permanent):
        return [Fail(str(error), writes), *(Fail(str(error)) for _ in jobs[1:])]
    return [Retry(str(error), writes=writes), *(Retry(str(error)) for _ in jobs[1:])]


def with_event(outcomes: Sequence[Outcome], writes: Sequence[Write]) -> list[Outcome]:
    """Add the event to the first outcome that can write. Users and posts of all outcomes refer to it."""
    job_id = next((each.job_id for each in writes if isinstance(each, IngestBegun)), None)
    changed = [_with_writes(each, lambda own: traced(own, job_id=job_id)) for each in outcomes]
    for place, outcome in enumerate(changed):
        if isinstance(outcome, (Done, Fail, Retry)):
            changed[place] = _with_writes(outcome, lambda own: [*writes, *own])
            break
    return changed


def _with_writes(outcome: Outcome, change: Callable[[Sequence[Write]], Sequence[Write]]) -> Outcome:
    if isinstance(outcome, Snooze):
        return outcome
    return msgspec.structs.replace(outcome, writes=change(outcome.writes))


def _begun(platform: Platform, kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int]) -> IngestBegun:
    return IngestBegun(platform=platform, kind=kind, job_id=jobs[0].id, asked_by=JOB, mode="background", ids=asked)


def _ended_badly(job: Job[A], error: Temporary | Permanent) -> IngestEnded:
    return IngestEnded(
        job_id=job.id,
        status=IngestStatus.ERROR,
        calls=int(error.exchange is not None),
        problem=str(error),
        exchange=error.exchange,
    )
