"""Search a shop that a file describes: fill in its URL, follow its pages, read its listings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlsplit

from mistnet.governor.errors import BadRequest, BrokenAnswer, SourceDown, SourcePaused, SourceRefused
from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.clock import Clock
from mistnet.prices.model import Item, ItemRequest, PriceAnswer, PriceListing, UnreadableListing
from mistnet.shops.model import Hop, PageVisit, Web
from mistnet.sources.price_answers import PageCursor, PageCursors, query_of
from mistnet.sources.reading import PageReader, ReadSearch, SearchRead
from mistnet.sources.shopfile.config import PLACES, ShopRules

SEARCH: Final = "search"
REFUSED_WAIT: Final = timedelta(hours=1)
NO_SECRET_WAIT: Final = timedelta(minutes=5)
_OK: Final = 200
_KEY_REFUSED: Final = (401, 402, 403)
_TRY_LATER: Final = (408, 425)
_AT: Final = "page-url"
"""The header under which a cached page keeps its final URL."""


class ConfiguredShop:
    """Searches one shop of the file and raises typed errors. It does not know the jobs that it is called for."""

    def __init__(
        self,
        name: SourceName,
        rules: ShopRules,
        *,
        web: Web,
        reader: PageReader,
        clock: Clock,
        pages: PageCursors | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._rules = rules
        self._web = web
        self._reader = reader
        # Written once: every page carries it to the process that reads it.
        self._written_rules = rules.model_dump_json()
        self._clock = clock
        self._pages = pages
        self._environment = os.environ if environment is None else environment

    @property
    def name(self) -> SourceName:
        return self._name

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:  # noqa: ARG002 (it always is)
        """Read page after page, until there is no more or the file's limit is reached."""
        missing = [variable for variable in self._rules.secret_headers.values() if not self._environment.get(variable)]
        if missing:
            problem = f"the environment has no {missing[0]}, which its secret_headers need; set it"
            raise SourcePaused(self.name, self._clock.now() + NO_SECRET_WAIT, problem)
        mark = PageCursor(self._pages, clock=self._clock, source=self.name, purpose=purpose)
        listings: dict[object, PriceListing] = {}
        unreadable: list[UnreadableListing] = []
        url: str | None = fill_url(self._rules.url, item)
        seen: set[str] = set()
        # A shop whose last page links to an earlier one must not be read in a circle.
        while url is not None and url not in seen and len(seen) < self._rules.pages:
            seen.add(url)
            page = await self._page(url, purpose, mark)
            for listing in page.listings:
                content = (listing.url, listing.title, listing.amount, listing.kind, listing.observed_at)
                listings.setdefault(listing.external_id or content, listing)
            unreadable += page.unreadable
            url = page.next_url
        await mark.close()
        return PriceAnswer(listings=list(listings.values()), unreadable=unreadable)

    async def _page(self, url: str, purpose: CallPurpose, mark: PageCursor) -> SearchRead:
        """The page that this job has read before, or else the current one from the shop."""
        kept = await mark.recall(url)
        if kept is not None:
            at = kept.headers.get(_AT, url)
            return await self._read(
                PageVisit(url=url, final_url=at, status=kept.status, headers=kept.headers, body=kept.body, cached=True)
            )
        seen, page = await self._web.visit(
            url, lane=self.name, what=SEARCH, hop=self._hop, read=self._read, purpose=purpose
        )
        if page.next_url is not None:
            await mark.keep(url, seen.body, {"content-type": seen.content_type or "", _AT: seen.final_url})
        return page

    def _hop(self, before: str, after: str) -> Hop:
        """Secret headers go only to the host that the file names, and never from https to http."""
        old, new = urlsplit(before), urlsplit(after)
        if not self._rules.secret_headers or (new.hostname == old.hostname and new.scheme in (old.scheme, "https")):
            return Hop.FOLLOW
        return Hop.REFUSE

    async def _read(self, visited: PageVisit) -> SearchRead:
        if visited.status != _OK:
            raise self._refusal(visited)
        if visited.unread:
            raise BrokenAnswer(self.name, SEARCH, visited.unread)
        page = await self._reader.search(
            ReadSearch(
                rules=self._written_rules,
                url=visited.final_url,
                content_type=visited.content_type,
                body=visited.body,
                now=self._clock.now(),
            )
        )
        if page.problem is not None:
            raise BrokenAnswer(self.name, SEARCH, page.problem)
        return page

    def _refusal(self, visited: PageVisit) -> Exception:
        """The typed error for a status other than 200 (the web client handles 429)."""
        status, until = visited.status, self._clock.now() + REFUSED_WAIT
        if status in _KEY_REFUSED and self._rules.secret_headers:
            names = ", ".join(sorted(self._rules.secret_headers.values()))
            return SourceRefused(self.name, until, f"it refuses what {names} holds (status {status})", status=status)
        if status in _KEY_REFUSED:
            problem = f"it blocks us with status {status}: lower its rate_per_minute, or give it secret_headers"
            return SourceDown(self.name, problem, status=status)
        if status >= 500 or status in _TRY_LATER:
            return SourceDown(self.name, f"status {status}", status=status)
        return BadRequest(self.name, SEARCH, status, "fix its `url` in the file that `price_sources` names")


def fill_url(template: str, item: ItemRequest) -> str:
    """The URL with an item's values in its placeholders, each percent-encoded."""
    values = {name: item.attributes.get(name, "") for name in PLACES}
    values |= {"title": item.title, "query": query_of(item)}
    return template.format_map({name: quote(value, safe="") for name, value in values.items()})
