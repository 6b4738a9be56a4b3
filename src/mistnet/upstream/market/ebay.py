"""Asks eBay: what is for sale by the Browse API, what was sold by Marketplace Insights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode

import msgspec

from mistnet.domain.errors import BrokenAnswer
from mistnet.domain.items import EBAY_API, Answer, Item, Listing, Unreadable
from mistnet.domain.ports import Clock
from mistnet.domain.sources import Errand, SourceName
from mistnet.upstream.market.bookmarks import Bookmark, PageBook
from mistnet.upstream.market.ebay_asking import EbayAsker
from mistnet.upstream.market.ebay_listings import for_sale, sold
from mistnet.upstream.market.wording import query_of

BROWSE: Final = "/buy/browse/v1/item_summary/search"
INSIGHTS: Final = "/buy/marketplace_insights/v1_beta/item_sales/search"
LARGEST_PAGE: Final = 200
ALL_WAYS: Final = "buyingOptions:{FIXED_PRICE|AUCTION|BEST_OFFER}"
"""Unless it is asked for, eBay leaves auctions out."""

_LONGEST_QUERY: Final = 100


class EbayRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set about asking eBay. `listings` is how many are read of each search, at most."""

    listings: int = 200
    sold: bool = False
    filter: str | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One page of either search. What is listed stays raw: one bad element must not spoil the others."""

    item_summaries: Sequence[msgspec.Raw] | None = None
    item_sales: Sequence[msgspec.Raw] | None = None
    total: int | None = None
    next: str | None = None


_page = msgspec.json.Decoder(Page, strict=False).decode


class EbaySource:
    """What eBay says of an item. Where it was asked and how it was refused is the asker's business."""

    def __init__(self, asker: EbayAsker, *, clock: Clock, rules: EbayRules, pages: PageBook | None = None) -> None:
        self._asker = asker
        self._clock = clock
        self._rules = rules
        self._pages = pages

    @property
    def name(self) -> SourceName:
        return EBAY_API

    async def search(self, item: Item, *, errand: Errand, fresh: bool = False) -> Answer:  # noqa: ARG002 (it always is)
        """What is for sale, and what was sold where the settings say that we may ask."""
        mark = Bookmark(self._pages, clock=self._clock, source=self.name, errand=errand)
        listings: list[Listing] = []
        unreadable: list[Unreadable] = []
        for path in (BROWSE, INSIGHTS) if self._rules.sold else (BROWSE,):
            for raw in await self._listed(path, item, errand, mark):
                found = (for_sale if path == BROWSE else sold)(raw, now=self._clock.now())
                if isinstance(found, Unreadable):
                    unreadable.append(found)
                else:
                    listings += found
        await mark.close()
        return Answer(listings=_once(listings), unreadable=unreadable)

    async def _listed(self, path: str, item: Item, errand: Errand, mark: Bookmark) -> Sequence[bytes]:
        """Page after page until there is no more, or as many as the settings want."""
        wanted, size = self._rules.listings, min(self._rules.listings, LARGEST_PAGE)
        listed: list[bytes] = []
        for offset in range(0, wanted, size):
            query = self._query(path, item, size, offset)
            page = await self._page(path, query, offset, errand, mark)
            listed += map(bytes, _elements(page))
            if not _goes_on(page, offset + size):
                break
        return listed[:wanted]

    async def _page(self, path: str, query: Mapping[str, str], offset: int, errand: Errand, mark: Bookmark) -> Page:
        """As this job has read it before, or as eBay tells it now."""
        question = f"{path}?{urlencode(query)}"
        kept = await mark.recall(question)
        if kept is not None:
            return _page(kept.body)
        read = partial(_read, path=path, offset=offset)
        page, body = await self._asker.ask(path, query, read, errand=errand)
        if _goes_on(page, offset + LARGEST_PAGE) or (self._rules.sold and path == BROWSE):
            await mark.keep(question, body)
        return page

    def _query(self, path: str, item: Item, size: int, offset: int) -> Mapping[str, str]:
        filters = [ALL_WAYS] if path == BROWSE else []
        filters += [self._rules.filter] if self._rules.filter else []
        query = {"q": _short(query_of(item)), "limit": str(size), "offset": str(offset)}
        return query | ({"filter": ",".join(filters)} if filters else {})


def _short(query: str) -> str:
    """eBay takes no longer questions; the last word is not asked by half."""
    if len(query) <= _LONGEST_QUERY:
        return query
    return query[: _LONGEST_QUERY + 1].rpartition(" ")[0] or query[:_LONGEST_QUERY]


def _goes_on(page: Page, reached: int) -> bool:
    return bool(page.next) and (page.total is None or reached < page.total)


def _read(body: bytes, *, path: str, offset: int) -> tuple[tuple[Page, bytes], int]:
    """The page, and how many things it lists. An answer without a list is one only where nothing was to be listed."""
    try:
        page = _page(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenAnswer(EBAY_API, endpoint_of(path), str(error)) from error
    count = len(_elements(page))
    if not count and (page.total is None or page.total > offset):
        raise BrokenAnswer(EBAY_API, endpoint_of(path), f"it counts {page.total} listings and lists none")
    return (page, body), count


def _elements(page: Page) -> Sequence[msgspec.Raw]:
    return page.item_summaries or page.item_sales or ()


def endpoint_of(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[1:])


def _once(listings: Iterable[Listing]) -> Sequence[Listing]:
    """A listing that moved from one page to the next while we read is told twice."""
    return list({listing.external_id: listing for listing in listings}.values())
