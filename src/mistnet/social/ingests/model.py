"""Ingests: explicit requests to a source, what each returned, and the response if it failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NewType, TypeAlias

import msgspec

from mistnet.kit.errors import MistnetError, UsageError
from mistnet.kit.text import redact
from mistnet.kit.transport import Exchange
from mistnet.queue.model import JobId, Write
from mistnet.social.model import Platform, Post, User

IngestId = NewType("IngestId", int)

BODY_LIMIT: Final = 4_000
_HEADER_LIMIT: Final = 500
_MOST_LISTED: Final = 100
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
