"""eBay as a price source: what is for sale with the Browse API, what was sold with Marketplace Insights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from mistnet.governor.errors import UNREADABLE, BrokenAnswer, reading_answer
from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.clock import Clock
from mistnet.kit.text import web_url
from mistnet.prices.model import EBAY_API, Item, PriceAnswer, PriceListing, UnreadableListing
from mistnet.shops.model import PriceKind
from mistnet.sources.ebay.client import EbayAsker, endpoint_of
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
