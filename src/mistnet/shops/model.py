"""Links, products and crawls: values, rules and errors."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NewType, Protocol, TypeVar

import msgspec

from mistnet.governor.model import CallPurpose
from mistnet.kit.errors import Nonexistent, UsageError
from mistnet.queue.errors import Permanent
from mistnet.queue.model import Args, JobId, KindName, Lane, NewJob, Write
from mistnet.social.model import PartOfPost

if TYPE_CHECKING:
    from mistnet.shops.shop import Shop

LinkId = NewType("LinkId", int)


class LinkKind(StrEnum):
    """What a link names. A short link must be followed; a code can only be read by the shop's own app.

    `blocked` is a login or CAPTCHA page, `dead` a shop's error page. `refused` is never visited: a host that only looks
    like a shop's, a user name before the host, no web address.
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
    """A link under its canonical name, `url_norm`, which is its key. What is fetched can be another URL."""

    url_norm: str
    host: str
    shop: Shop
    kind: LinkKind
    region: str | None = None
    shop_id: str | None = None
    item_id: str | None = None
    variant: str | None = None


class LinkTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a short link or a post leads: the URL as found, its canonical name, and a title found beside it."""

    url: str
    canonical: Canonical
    title: str | None = None


class Mention(LinkTarget, frozen=True, kw_only=True):
    """One link of one post, as it was posted. A code has the title that the shop's app wrote beside it."""

    place: LinkPlace


class PostLinks(PartOfPost, frozen=True, kw_only=True):
    """All links of one post. New links get their row and their crawl job in the same transaction."""

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
    """What an amount means: an asking price, a bid, or the price of a sale."""

    ASK = "ask"
    BID = "bid"
    SOLD = "sold"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where one value was read: a path such as `json-ld:offers.price`, the snippet, and the confidence (0 to 1)."""

    field: str
    path: str
    snippet: str
    confidence: float


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One amount or a range. A currency is an ISO code, or None if it is unknown."""

    amount: Decimal
    amount_max: Decimal | None = None
    currency: str | None = None


class PageVerdict(StrEnum):
    """What a page is. A page that keeps readers out is never one without a price."""

    OFFER = "offer"
    NO_PRICE = "no_price"
    BLOCKED = "blocked"
    GONE = "gone"


class PageKind(StrEnum):
    """What a page is about. Only a product, its variants and an auction are one thing for sale."""

    PRODUCT = "product"
    VARIANTS = "variants"
    AUCTION = "auction"
    LIST = "list"
    SEARCH = "search"
    HOME = "home"
    ARTICLE = "article"
    CART = "cart"
    LOGIN = "login"
    BLOCKED = "blocked"
    GONE = "gone"
    UNKNOWN = "unknown"

    @property
    def sells_one_thing(self) -> bool:
        return self in (PageKind.PRODUCT, PageKind.VARIANTS, PageKind.AUCTION)


class PageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one page, each with its evidence.

    `confidence` (0 to 1) and `doubt` are those of the price. `details` are what else the page says of the product and
    its offer, as text: `condition`, `seller`, `unit_price`, `shipping`, `gtin`, `mpn`, `rating`, `period` ...
    `reading` is what the price was chosen from, as JSON to be stored with the offer.
    """

    verdict: PageVerdict
    reason: str | None = None
    page_kind: PageKind = PageKind.UNKNOWN
    confidence: float | None = None
    doubt: str | None = None
    details: Mapping[str, str] = {}
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
    reading: bytes | None = None


T = TypeVar("T")

CRAWL: Final = KindName("crawl")
KEY_BYTES: Final = 2_000
"""Index keys are limited to about this size. A longer URL is named by its beginning and its hash."""


class CrawlArgs(Args, frozen=True):
    """Which link. `looks` counts visits of this job whose price was doubted; `seen` is the content hash of the last.

    A job with `seen` checks a price again, so it never uses a cached page.
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
    """The hash of what makes an offer. Counts are left out: they change with every sale."""
    kept = (facts.amount, facts.amount_max, facts.list_amount, facts.currency, facts.kind, facts.availability)
    # 10, 10.0 and 1E+1 are one amount.
    plain = (f"{each.normalize():f}" if isinstance(each, Decimal) else each for each in kept)
    return hashlib.sha256("|".join("" if each is None else str(each) for each in plain).encode()).hexdigest()[:32]


class CrawlOutcome(StrEnum):
    """The result of a visit."""

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
    """What settings say of reading pages."""

    second_look: timedelta = timedelta(minutes=10)
    keep_pages: bool = False
    shopee_api: Literal["item", "pdp"] = "item"


class LinkAtHand(msgspec.Struct, frozen=True, kw_only=True):
    """What a crawl needs to know of its link."""

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
    """The identity of a product: two pages with the same platform, region, shop and item show the same thing."""

    platform: Shop
    region: str
    shop_id: str
    item_id: str
    url: str


class Crawled(Write, frozen=True, kw_only=True):
    """One visit: its record, the link's new state, and what the page says of a product."""

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
    """The response of one URL, after all redirects. `unread` says why its body was not read."""

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
    """What to do with a redirect: follow it, stop and note its target, or refuse it."""

    FOLLOW = "follow"
    STOP = "stop"
    REFUSE = "refuse"


class Web(Protocol):
    """Fetches pages, within the limits of politeness and safety."""

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
        """`read` is called while the governor still watches the call, so what it raises counts against the source.

        `fresh` bypasses the cache.
        """
        ...


class CachedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A cached response, and until when it is fresh."""

    key: str
    source: str
    stored_at: datetime
    fresh_until: datetime
    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes


class AnswerBook(Protocol):
    """The HTTP cache that all workers share."""

    async def get(self, key: str) -> CachedAnswer | None: ...

    async def put(self, answer: CachedAnswer) -> None: ...

    async def refresh(self, key: str, *, fresh_until: datetime) -> None: ...


class HostBook(Protocol):
    """When each host may be visited next, by any worker."""

    async def claim(self, host: str, *, now: datetime, delay: float) -> datetime | None:
        """Claim the next visit. Returns None if it was claimed, else when to try again."""
        ...

    async def leave_alone(self, host: str, *, until: datetime) -> None: ...


class LinkNotFound(UsageError):
    """No link has this id or URL."""

    def __init__(self, given: str) -> None:
        super().__init__(f"there is no link {given[:200]!r}; `mistnet links list` lists the known ones")
        self.given = given


class ProductNotFound(Nonexistent, UsageError):
    """No product has this id or URL."""

    def __init__(self, given: str) -> None:
        super().__init__(f"there is no product {given[:200]!r}; `mistnet products list` lists the known ones")
        self.given = given


class OfferNotFound(Nonexistent, UsageError):
    """No offer has this id."""

    def __init__(self, offer_id: int) -> None:
        super().__init__(f"there is no offer {offer_id}; `mistnet products show` lists those of a product")
        self.offer_id = offer_id


class BadShop(UsageError):
    """The file that describes shops has a mistake."""

    def __init__(self, file: object, shop: str | None, key: str | None, problem: str) -> None:
        place = ": ".join(part for part in (str(file), f"shop {shop}" if shop else None, key) if part)
        super().__init__(f"{place}: {problem}")
        self.file, self.shop, self.key, self.problem = str(file), shop, key, problem


class CrawlRefused(Permanent):
    """A page that mistnet does not fetch, or does not read to its end."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url[:200]} is not fetched: {reason}")
        self.url, self.reason = url, reason


class PageUnreadable(Permanent):
    """A page that takes too much time or memory to read, or breaks its reader. A retry would end the same way."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the page cannot be read: {reason}")
        self.reason = reason


class UnsafeAddress(CrawlRefused):
    """A URL that leads, or could lead, to an address that is not public (SSRF)."""
