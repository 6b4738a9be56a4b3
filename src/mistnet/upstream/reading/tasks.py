"""What child processes are asked to read, and what they answer. Everything here is sent as bytes, never as code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from mistnet import pricing
from mistnet.domain.crawling import Visited
from mistnet.domain.items import Listing, Unreadable
from mistnet.domain.products import PageFacts

if TYPE_CHECKING:
    from mistnet.upstream.market.shop_file import ShopRules

HEAD: Final = 4
"""So many bytes before each message give its length."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one page may cost: seconds of CPU time, and memory beyond what the process needs by itself."""

    seconds: float
    megabytes: int


class ReadPage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A page of any shop, or the JSON that a shop's own page is made from."""

    url: str
    content_type: str | None
    body: bytes

    def run(self) -> PageFacts:
        return pricing.read_page(self.body, url=self.url, content_type=self.content_type)


class SearchRead(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a shop's search. `problem` says why it is not the page that the shop's file describes."""

    listings: Sequence[Listing] = ()
    unreadable: Sequence[Unreadable] = ()
    next_url: str | None = None
    problem: str | None = None


class ReadSearch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A page of listings, to be read as a file describes it. `rules` is that part of the file, as JSON."""

    rules: str
    url: str
    content_type: str | None
    body: bytes
    now: datetime

    def run(self) -> SearchRead:
        from mistnet.upstream.market.search_pages import read_search  # noqa: PLC0415 (most children read no search)

        return read_search(self.body, _rules_of(self.rules), url=self.url, content_type=self.content_type, now=self.now)


Task: TypeAlias = ReadPage | ReadSearch


class Answered(msgspec.Struct, frozen=True, tag=True):
    """What a task came to, still encoded."""

    result: msgspec.Raw


class GaveUp(msgspec.Struct, frozen=True, tag=True):
    """Why a page cannot be read. `spent` says that the child should not be used again."""

    reason: str
    spent: bool = False


Reply: TypeAlias = Answered | GaveUp


class PageReader(Protocol):
    """Reads what strangers wrote. Raises PageUnreadable for what is beyond the limits."""

    async def page(self, seen: Visited) -> PageFacts: ...

    async def search(self, asked: ReadSearch) -> SearchRead: ...

    async def close(self) -> None: ...


class ReadsHere:
    """Reads in this process, without limits: for pages that are known, as in simulations."""

    async def page(self, seen: Visited) -> PageFacts:
        return page_task(seen).run()

    async def search(self, asked: ReadSearch) -> SearchRead:
        return asked.run()

    async def close(self) -> None:
        """Nothing was opened."""


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(HEAD) + message


def page_task(seen: Visited) -> ReadPage:
    return ReadPage(url=seen.final_url, content_type=seen.content_type, body=seen.body)


@lru_cache(maxsize=64)
def _rules_of(written: str) -> ShopRules:
    from mistnet.upstream.market.shop_file import ShopRules  # noqa: PLC0415 (most children read no search)

    return ShopRules.model_validate_json(written)
