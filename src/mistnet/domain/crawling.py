"""Visits to linked pages: what is asked for, what came back, and what is written of it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, Protocol, TypeVar

import msgspec

from mistnet.domain.jobs import Args, JobId, KindName, Lane, NewJob, Write
from mistnet.domain.links import Canonical, LinkId, LinkKind, LinkState, Shop
from mistnet.domain.products import PageFacts, ProductId
from mistnet.domain.sources import Errand

T = TypeVar("T")

CRAWL: Final = KindName("crawl")
KEY_BYTES: Final = 2_000
"""No index takes longer keys than about this; a longer URL is named by its beginning and its hash."""


class CrawlArgs(Args, frozen=True):
    """Which link. `looks` counts visits of this job whose price was doubted, `seen` is what the last of them saw.

    With `seen` it is a second look, which never takes a remembered page.
    """

    link_id: LinkId
    looks: int = 0
    seen: str | None = None


def crawl(link_id: LinkId, url_norm: str, lane: str) -> NewJob:
    """One live job per canonical URL."""
    return NewJob(kind=CRAWL, key=bounded(url_norm), lane=Lane(lane), args=CrawlArgs(link_id=link_id))


def bounded(url_norm: str) -> str:
    raw = url_norm.encode()
    if len(raw) <= KEY_BYTES:
        return url_norm
    start = raw[: KEY_BYTES - 80].decode("utf-8", "ignore")
    return f"{start}#sha256={hashlib.sha256(raw).hexdigest()}"


def content_hash(facts: PageFacts) -> str:
    """Over what an offer means. Counts are not part of it: they move with every sale."""
    kept = (facts.amount, facts.amount_max, facts.list_amount, facts.currency, facts.kind, facts.availability)
    shown = "|".join("" if each is None else str(each) for each in map(_plain, kept))
    return hashlib.sha256(shown.encode()).hexdigest()[:32]


def _plain(value: object) -> object:
    """10, 10.0 and 1E+1 are one amount."""
    return f"{value.normalize():f}" if isinstance(value, Decimal) else value


class CrawlOutcome(StrEnum):
    """What a visit came to."""

    OFFER = "offer"
    UNCHANGED = "unchanged"
    DOUBTED = "doubted"
    NO_PRICE = "no_price"
    RESOLVED = "resolved"
    BLOCKED = "blocked"
    GONE = "gone"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    FAILED = "failed"


class LinkAtHand(msgspec.Struct, frozen=True, kw_only=True):
    """A link as a crawl needs to know it."""

    id: LinkId
    url_norm: str
    url: str
    host: str
    lane: str
    shop: Shop
    kind: LinkKind
    state: LinkState
    region: str | None = None
    shop_id: str | None = None
    item_id: str | None = None
    product_id: ProductId | None = None


class ProductName(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two pages show the same thing: who sells, where, in which shop, under which number."""

    platform: Shop
    region: str
    shop_id: str
    item_id: str
    url: str


class LinkTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a short link or a post leads: the URL as it was told, its one name, and a title told beside it."""

    url: str
    canonical: Canonical
    title: str | None = None


class Crawled(Write, frozen=True, kw_only=True):
    """One visit: its record, the link's new state, and what it tells of a product."""

    link_id: LinkId
    job_id: JobId | None
    outcome: CrawlOutcome
    state: LinkState
    http_status: int | None = None
    final_url: str | None = None
    size: int | None = None
    seconds: float | None = None
    problem: str | None = None
    body: bytes | None = None
    product: ProductName | None = None
    facts: PageFacts | None = None
    doubt: str | None = None
    target: LinkTarget | None = None
    cached: bool = False


class Visited(msgspec.Struct, frozen=True, kw_only=True):
    """What one URL answered, after all hops. `unread` says why its body was left alone."""

    url: str
    final_url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float = 0.0
    hops: Sequence[str] = ()
    unread: str | None = None
    cached: bool = False

    @property
    def content_type(self) -> str | None:
        return self.headers.get("content-type")


class Hop(StrEnum):
    """What is done with a redirect: gone along with, taken note of, or declined."""

    FOLLOW = "follow"
    STOP = "stop"
    REFUSE = "refuse"


class Web(Protocol):
    """The way to any page, as far as it may be gone."""

    async def visit(
        self,
        url: str,
        *,
        lane: str,
        what: str,
        hop: Callable[[str, str], Hop],
        read: Callable[[Visited], Awaitable[T]],
        errand: Errand,
        fresh: bool = False,
    ) -> tuple[Visited, T]:
        """`read` judges the answer while its source is still being governed: what it raises counts there.

        `fresh` asks the host itself, whatever is remembered.
        """
        ...


class CachedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it is kept, and until when it needs no asking again."""

    key: str
    source: str
    stored_at: datetime
    fresh_until: datetime
    status: int
    headers: Mapping[str, str]
    body: bytes


class AnswerBook(Protocol):
    """Answers that all workers share."""

    async def get(self, key: str) -> CachedAnswer | None: ...

    async def put(self, answer: CachedAnswer) -> None: ...

    async def refresh(self, key: str, *, fresh_until: datetime) -> None: ...


class HostBook(Protocol):
    """When each host may be visited next, by any worker."""

    async def claim(self, host: str, *, now: datetime, delay: float) -> datetime | None:
        """Takes the next visit; answers None if it was had, else when to come back."""
        ...

    async def leave_alone(self, host: str, *, until: datetime) -> None: ...
