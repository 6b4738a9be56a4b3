"""eBay: what is for sale with the Browse API, what was sold with Marketplace Insights."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from mistnet.governor.errors import (
    UNREADABLE,
    BadRequest,
    BrokenAnswer,
    NotPermitted,
    RateLimited,
    SourceDown,
    SourceRefused,
    reading_answer,
)
from mistnet.governor.grants import repeat_if_unanswered
from mistnet.governor.model import CallPurpose, Gate, SourceName
from mistnet.kit.clock import Clock
from mistnet.kit.errors import SettingsError
from mistnet.kit.text import redact, shorten, web_url
from mistnet.kit.transport import HttpAnswer, HttpRequest, Transport, Unanswered, retry_after
from mistnet.prices.model import EBAY_API, Item, PriceAnswer, PriceListing, UnreadableListing
from mistnet.settings import Settings
from mistnet.shops.model import PriceKind
from mistnet.sources.price_answers import (
    IllegibleAmount,
    PageCursor,
    PageCursors,
    count,
    currency,
    exact,
    moment,
    query_of,
)

FIXED_PRICE: Final = "FIXED_PRICE"
BEST_OFFER: Final = "BEST_OFFER"
AUCTION: Final = "AUCTION"
_KEPT: Final = 20_000


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a listing that are used, from the Browse API and Marketplace Insights."""

    item_id: str
    title: str
    item_web_url: str
    price: Mapping[str, Any] | None = None
    current_bid_price: Mapping[str, Any] | None = None
    bid_count: Any = None
    buying_options: Sequence[str] = ()
    condition: str | None = None
    item_end_date: str | None = None
    last_sold_price: Mapping[str, Any] | None = None
    last_sold_date: str | None = None


_summary = msgspec.json.Decoder(Summary, float_hook=exact).decode


def read_for_sale(raw: bytes, *, now: datetime) -> Sequence[PriceListing] | UnreadableListing:
    """An auction with a fixed price yields two listings: the asking price, and the bid or opening price."""
    try:
        summary = _summary(raw)
        if summary.item_end_date is not None and moment(summary.item_end_date) < now:
            raise IllegibleAmount(f"it ended at {summary.item_end_date} and is for sale no more")
        is_auction = AUCTION in summary.buying_options
        at_once = {FIXED_PRICE, BEST_OFFER} & set(summary.buying_options)
        found: list[PriceListing] = []
        if summary.price is not None and at_once and not (is_auction and FIXED_PRICE not in at_once):
            suffix = ":buy_it_now" if is_auction else ""
            found.append(_listing(summary, PriceKind.ASK, summary.price, now, suffix=suffix))
        if is_auction:
            bids, bid = count(summary.bid_count) if summary.bid_count is not None else 0, summary.current_bid_price
            # Without bids, eBay's current bid is the seller's opening price.
            opening = summary.price if bid is None and FIXED_PRICE not in at_once else bid
            if bids:
                found.append(_listing(summary, PriceKind.BID, bid, now, bids=bids))
            elif opening is not None:
                found.append(_listing(summary, PriceKind.ASK, opening, now, bids=0))
    except UNREADABLE as error:
        return UnreadableListing(problem=str(error), payload=raw[:_KEPT])
    return found or UnreadableListing(problem="neither a price nor a bid is told", payload=raw[:_KEPT])


def read_sold(raw: bytes, *, now: datetime) -> Sequence[PriceListing] | UnreadableListing:
    """One listing may be sold many times: each sale is a separate observation."""
    try:
        summary = _summary(raw)
        at = moment(summary.last_sold_date)
        if at > now:
            raise IllegibleAmount(f"it was sold at {summary.last_sold_date!r}, which is still to come")
        return [_listing(summary, PriceKind.SOLD, summary.last_sold_price, at, suffix=f":sold:{at:%Y%m%dT%H%M%S}")]
    except UNREADABLE as error:
        return UnreadableListing(problem=str(error), payload=raw[:_KEPT])


def _listing(
    summary: Summary,
    kind: PriceKind,
    price: Mapping[str, Any] | None,
    at: datetime,
    *,
    suffix: str = "",
    bids: int | None = None,
) -> PriceListing:
    if price is None:
        raise IllegibleAmount(f"no {kind} price is told")
    url = web_url(summary.item_web_url)
    if not summary.item_id.strip() or not summary.title.strip() or not url:
        raise IllegibleAmount("its itemId or title is empty, or its itemWebUrl is no address of a page")
    return PriceListing(
        kind=kind,
        amount=exact(price.get("value")),
        currency=currency(price.get("currency")),
        title=summary.title.strip(),
        url=url,
        observed_at=at,
        external_id=f"{summary.item_id.strip()}{suffix}",
        condition=summary.condition or None,
        bid_count=bids,
    )


T = TypeVar("T")

TOKENS: Final = "/identity/v1/oauth2/token"
SCOPE: Final = "https://api.ebay.com/oauth/api_scope"
SOLD_SCOPE: Final = f"{SCOPE}/buy.marketplace.insights"
REFUSED_WAIT: Final = timedelta(hours=1)
_EARLY: Final = timedelta(minutes=5)
_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = 86_400
_OK: Final = 200
_TOO_EARLY: Final = (408, 425)
_SOLD_WORD: Final = "item_sales"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """An application's id and secret at eBay, and the scopes of its tokens."""

    client_id: str
    client_secret: str
    marketplace: str = "EBAY_US"
    sold: bool = False

    def __repr__(self) -> str:
        return f"Credentials(marketplace={self.marketplace!r})"

    @property
    def basic(self) -> str:
        return base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()

    @property
    def scopes(self) -> str:
        return f"{SCOPE} {SOLD_SCOPE}" if self.sold else SCOPE


def credentials_of(settings: Settings) -> Credentials:
    if settings.ebay_client_id is None or settings.ebay_client_secret is None:
        lacking = "ebay_client_secret" if settings.ebay_client_id else "ebay_client_id"
        raise SettingsError(lacking, "settings", "eBay gives out tokens for a name and its secret: set both, or none")
    return Credentials(
        client_id=settings.ebay_client_id.get_secret_value(),
        client_secret=settings.ebay_client_secret.get_secret_value(),
        marketplace=settings.ebay_marketplace,
        sold=settings.ebay_sold,
    )


class EbayToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token and when it expires. It is kept in memory only and sent only to eBay."""

    text: str
    until: datetime

    def __repr__(self) -> str:
        return f"Token(until={self.until.isoformat()})"


class GivenToken(msgspec.Struct, frozen=True, kw_only=True):
    access_token: str
    expires_in: float


class EbayErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error of eBay, in one of two shapes."""

    errors: Sequence[Mapping[str, object]] = ()
    error: str | None = None
    error_description: str | None = None


_given = msgspec.json.Decoder(GivenToken, strict=False).decode
_complaint = msgspec.json.Decoder(EbayErrorBody, strict=False).decode


class EbayAsker:
    """All calls of one process to eBay. Each passes the governor, including those for tokens."""

    def __init__(
        self,
        transport: Transport,
        *,
        gate: Gate,
        clock: Clock,
        credentials: Credentials,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._gate = gate
        self._clock = clock
        self._credentials = credentials
        self._sleep = sleep
        self._token: EbayToken | None = None
        self._fetching = asyncio.Lock()

    async def ask(
        self,
        path: str,
        query: Mapping[str, str],
        read: Callable[[bytes], tuple[T, int]],
        *,
        purpose: CallPurpose,
    ) -> T:
        """Return what `read` decodes from the answer. A token that eBay no longer accepts is replaced once."""
        for last in (False, True):
            token = await self._current_token(purpose)
            headers = {
                "Authorization": f"Bearer {token.text}",
                "X-EBAY-C-MARKETPLACE-ID": self._credentials.marketplace,
                "Accept": "application/json",
            }
            request = HttpRequest(path=path, query=query, headers=headers)
            call = partial(self._call, request, read, purpose, forgive=() if last else (401,))
            found = await repeat_if_unanswered(call, self._sleep)
            if found is not None:
                return found
            if self._token is token:  # another call may have replaced it already
                self._token = None
        raise AssertionError("the last try returns or raises")

    async def _current_token(self, purpose: CallPurpose) -> EbayToken:
        """One token for all calls of this process, replaced a while before it expires."""
        # The lock makes concurrent calls wait for one token instead of fetching one each.
        async with self._fetching:
            if self._token is not None and self._token.until > self._clock.now():
                return self._token
            # From before the call: a token must never be thought valid for too long.
            asked_at = self._clock.now()
            request = HttpRequest(
                path=TOKENS,
                query={},
                headers={"Authorization": f"Basic {self._credentials.basic}", "Accept": "application/json"},
                form={"grant_type": "client_credentials", "scope": self._credentials.scopes},
            )
            given = await repeat_if_unanswered(partial(self._call, request, _read_token, purpose), self._sleep)
            assert given is not None  # noqa: S101 (no status is forgiven here)
            # Bounded, because a date must not overflow.
            lasts = timedelta(seconds=min(max(given.expires_in, 0.0), _LONGEST_WAIT * 365))
            # A token that is valid for a few minutes only is used for half of them.
            self._token = EbayToken(text=given.access_token, until=asked_at + max(lasts - _EARLY, lasts / 2))
            return self._token

    async def _call(
        self,
        request: HttpRequest,
        read: Callable[[bytes], tuple[T, int]],
        purpose: CallPurpose,
        *,
        forgive: Sequence[int] = (),
    ) -> T | None:
        """Return what `read` decodes from the answer, or None if its status is in `forgive`."""
        endpoint = endpoint_of(request.path)
        async with self._gate.call(endpoint, most=0, purpose=purpose) as call:
            try:
                answer = await self._transport.send(request)
            except Unanswered as error:
                raise SourceDown(EBAY_API, self._clean(str(error), request)) from None  # its cause may show headers
            # Settled like a success: the breaker must not count a token that was revoked.
            if answer.status in forgive:
                call.settle(items=0, credits_due=0)
                return None
            if answer.status != _OK:
                raise self._refusal(answer, endpoint, request)
            found, items = read(answer.body)
            call.settle(items=items, credits_due=0)
            return found

    def _refusal(self, answer: HttpAnswer, endpoint: str, request: HttpRequest) -> Exception:
        """The typed error for a status other than 200."""
        now, status = self._clock.now(), answer.status
        words: list[object] = []
        with suppress(*UNREADABLE):
            found = _complaint(answer.body)
            first = found.errors[0] if found.errors else {}
            words = [first.get(name) for name in ("errorId", "message", "longMessage")]
            words += [found.error, found.error_description]
        said = ", ".join(str(each) for each in words if each) or answer.body[:300].decode("utf-8", "replace")
        problem = shorten(self._clean(said, request), 300)
        if status == 429:
            wait = retry_after(answer.headers, now, longest=timedelta(seconds=_LONGEST_WAIT))
            return RateLimited(EBAY_API, now + (_WAIT if wait is None else max(wait, timedelta(seconds=1))))
        if status == 403 and _SOLD_WORD in endpoint:
            advice = f"{problem}; eBay must grant Marketplace Insights, or turn `ebay_sold` off"
            return NotPermitted(EBAY_API, endpoint, advice, status=status)
        if status == 401 and request.path != TOKENS:
            # Not a refusal of the key: eBay refuses credentials at the token endpoint, and may revoke a token any time.
            return SourceDown(EBAY_API, f"it does not know a token that it gave out ({problem})", status=status)
        if status in (401, 403) or (request.path == TOKENS and status == 400):
            advice = "it refuses ebay_client_id and ebay_client_secret"
            if "scope" in problem.lower():
                advice = "it does not grant what `ebay_sold` needs: turn that off, or apply for Marketplace Insights"
            return SourceRefused(EBAY_API, now + REFUSED_WAIT, f"{advice} ({problem})", status=status)
        if status >= 500 or status in _TOO_EARLY:
            return SourceDown(EBAY_API, f"{status} {problem}", status=status)
        return BadRequest(EBAY_API, endpoint, status, problem)

    def _clean(self, text: str, request: HttpRequest) -> str:
        """Mask what we sent: an error may repeat it."""
        sent = [value.partition(" ")[2] for name, value in request.headers.items() if name == "Authorization"]
        return redact(text, [*sent, self._credentials.client_secret, *([self._token.text] if self._token else [])])


def _read_token(body: bytes) -> tuple[GivenToken, int]:
    try:
        given = _given(body)
    except UNREADABLE:
        raise BrokenAnswer(EBAY_API, "oauth2/token", "no token is in it") from None  # its cause may show the token
    if not given.access_token:
        raise BrokenAnswer(EBAY_API, "oauth2/token", "the token is empty")
    return given, 1


BROWSE: Final = "/buy/browse/v1/item_summary/search"
INSIGHTS: Final = "/buy/marketplace_insights/v1_beta/item_sales/search"
LARGEST_PAGE: Final = 200
ALL_WAYS: Final = "buyingOptions:{FIXED_PRICE|AUCTION|BEST_OFFER}"
"""eBay leaves auctions out unless they are requested."""

_LONGEST_QUERY: Final = 100


class EbayRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of eBay searches. `listings` is how many are read from each search, at most."""

    listings: int = 200
    sold: bool = False
    filter: str | None = None


class EbayPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One page of either search. Listings stay raw, so that an unreadable one does not affect the others."""

    item_summaries: Sequence[msgspec.Raw] | None = None
    item_sales: Sequence[msgspec.Raw] | None = None
    total: int | None = None
    next: str | None = None


_page = msgspec.json.Decoder(EbayPage, strict=False).decode


class EbaySource:
    """Searches eBay for an item. Tokens and errors are left to `EbayAsker`."""

    def __init__(self, asker: EbayAsker, *, clock: Clock, rules: EbayRules, pages: PageCursors | None = None) -> None:
        self._asker = asker
        self._clock = clock
        self._rules = rules
        self._pages = pages

    @property
    def name(self) -> SourceName:
        return EBAY_API

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:  # noqa: ARG002 (it always is)
        """What is for sale, and what was sold if `ebay_sold` is on."""
        mark = PageCursor(self._pages, clock=self._clock, source=self.name, purpose=purpose)
        wanted, size = self._rules.listings, min(self._rules.listings, LARGEST_PAGE)
        query_text = query_of(item)
        if len(query_text) > _LONGEST_QUERY:  # eBay refuses longer ones; cut it between words if possible
            query_text = query_text[: _LONGEST_QUERY + 1].rpartition(" ")[0] or query_text[:_LONGEST_QUERY]
        listings: list[PriceListing] = []
        unreadable: list[UnreadableListing] = []
        for path in (BROWSE, INSIGHTS) if self._rules.sold else (BROWSE,):
            filters = [each for each in (ALL_WAYS if path == BROWSE else None, self._rules.filter) if each]
            listed: list[bytes] = []
            for offset in range(0, wanted, size):
                query = {"q": query_text, "limit": str(size), "offset": str(offset)}
                query |= {"filter": ",".join(filters)} if filters else {}
                page = await self._page(path, query, offset, purpose, mark)
                listed += map(bytes, _elements(page))
                if not _has_more(page, offset + size):
                    break
            for raw in listed[:wanted]:
                found = (read_for_sale if path == BROWSE else read_sold)(raw, now=self._clock.now())
                if isinstance(found, UnreadableListing):
                    unreadable.append(found)
                else:
                    listings += found
        await mark.close()
        # A listing may appear twice: it moves from one page to the next while we read.
        once = {listing.external_id: listing for listing in listings}
        return PriceAnswer(listings=list(once.values()), unreadable=unreadable)

    async def _page(
        self, path: str, query: Mapping[str, str], offset: int, purpose: CallPurpose, mark: PageCursor
    ) -> EbayPage:
        """The page that this job has read before, or else the current one from eBay."""
        question = f"{path}?{urlencode(query)}"
        kept = await mark.recall(question)
        if kept is not None:
            return _page(kept.body)

        def read(body: bytes) -> tuple[tuple[EbayPage, bytes], int]:
            """A page without listings is valid only if no more were expected."""
            with reading_answer(EBAY_API, endpoint_of(path)):
                page = _page(body)
            count = len(_elements(page))
            if not count and (page.total is None or page.total > offset):
                raise BrokenAnswer(EBAY_API, endpoint_of(path), f"it counts {page.total} listings and lists none")
            return (page, body), count

        page, body = await self._asker.ask(path, query, read, purpose=purpose)
        # A retried job needs the pages before the one that failed; after the last one none can fail.
        if _has_more(page, offset + LARGEST_PAGE) or (self._rules.sold and path == BROWSE):
            await mark.keep(question, body)
        return page


def _has_more(page: EbayPage, reached: int) -> bool:
    return bool(page.next) and (page.total is None or reached < page.total)


def _elements(page: EbayPage) -> Sequence[msgspec.Raw]:
    return page.item_summaries or page.item_sales or ()


def endpoint_of(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[1:])
