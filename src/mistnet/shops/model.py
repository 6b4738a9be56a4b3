"""Links, products and crawls: values and rules."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NewType, Protocol, TypeVar

import msgspec

from mistnet.governor.model import CallPurpose
from mistnet.queue.model import Args, JobId, KindName, Lane, NewJob, Write
from mistnet.social.model import PartOfPost

if TYPE_CHECKING:
    from mistnet.shops.shop import Shop

LinkId = NewType("LinkId", int)


class LinkKind(StrEnum):
    """What a link names. A short link must be followed; a code can only be read by the shop's own app.

    `blocked` and `dead` are where shops send strangers and old links: a log-in or captcha page, an error page.
    `refused` is never visited: a host that only looks like a shop's, a user name before the host, no web address.
    """

    ITEM = "item"
    CATALOGUE = "catalogue"
    SHOP = "shop"
    SEARCH = "search"
    SHORT = "short"
    CODE = "code"
    BLOCKED = "blocked"
    DEAD = "dead"
    PAGE = "page"
    REFUSED = "refused"


class LinkState(StrEnum):
    NEW = "new"
    CRAWLED = "crawled"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    BLOCKED = "blocked"
    GONE = "gone"
    FAILED = "failed"


class LinkPlace(StrEnum):
    """Where in a post a link was found."""

    TEXT = "text"
    ENTITY = "entity"
    ATTACHMENT = "attachment"
    TEXT_ATTACHMENT = "text_attachment"
    QUOTED = "quoted"


class Canonical(msgspec.Struct, frozen=True, kw_only=True):
    """A link under its one name. `url_norm` is the key; what is fetched is `url` (see `fetchable`)."""

    url_norm: str
    host: str
    shop: Shop
    kind: LinkKind
    region: str | None = None
    shop_id: str | None = None
    item_id: str | None = None
    variant: str | None = None


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """One link of one post, as it was posted. A code comes with the title the shop's app wrote beside it."""

    url: str
    place: LinkPlace
    canonical: Canonical
    title: str | None = None


class PostLinks(PartOfPost, frozen=True, kw_only=True):
    """All links of one post. Links not known yet get their row and their one crawl job in the same transaction."""

    mentions: Sequence[Mention]


ProductId = NewType("ProductId", int)
OfferId = NewType("OfferId", int)


class Availability(StrEnum):
    IN_STOCK = "in_stock"
    OUT_OF_STOCK = "out_of_stock"
    PREORDER = "preorder"
    BACKORDER = "backorder"
    LIMITED = "limited"
    DISCONTINUED = "discontinued"


class PriceKind(StrEnum):
    """What an amount means: a price asked, a bid made, a sale closed."""

    ASK = "ask"
    BID = "bid"
    SOLD = "sold"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where one value was read: a path such as `json-ld:offers.price`, the snippet, how sure we are (0 to 1)."""

    field: str
    path: str
    snippet: str
    confidence: float


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One amount or a span of amounts. A currency is an ISO code, or None where nothing tells it."""

    amount: Decimal
    amount_max: Decimal | None = None
    currency: str | None = None


class PageVerdict(StrEnum):
    """What a page turned out to be. A block is never "no price"."""

    OFFER = "offer"
    NO_PRICE = "no_price"
    BLOCKED = "blocked"
    GONE = "gone"


class PageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that one page told, each value with its evidence."""

    verdict: PageVerdict
    reason: str | None = None
    title: str | None = None
    brand: str | None = None
    sku: str | None = None
    image_url: str | None = None
    canonical_url: str | None = None
    amount: Decimal | None = None
    amount_max: Decimal | None = None
    list_amount: Decimal | None = None
    currency: str | None = None
    kind: PriceKind = PriceKind.ASK
    availability: Availability | None = None
    sold_count: int | None = None
    rating_count: int | None = None
    bid_count: int | None = None
    evidence: Sequence[Evidence] = ()


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


class CrawlRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set about reading pages."""

    second_look: timedelta = timedelta(minutes=10)
    keep_pages: bool = False
    shopee_api: Literal["item", "pdp"] = "item"


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


class PageVisit(msgspec.Struct, frozen=True, kw_only=True):
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
        read: Callable[[PageVisit], Awaitable[T]],
        purpose: CallPurpose,
        fresh: bool = False,
    ) -> tuple[PageVisit, T]:
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
