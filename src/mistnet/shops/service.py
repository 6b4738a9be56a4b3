"""What an operator does with links: find them, and learn which ones wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mistnet.kit.text import are, counted
from mistnet.kit.view import ListPage
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import Canonical, LinkId, bounded
from mistnet.shops.store.crawls import count_new
from mistnet.shops.store.link_pages import LinkFilter, LinkLine, LinkPages

if TYPE_CHECKING:
    from mistnet.app import App


async def find_links(app: App, filters: LinkFilter) -> ListPage[LinkLine]:
    """The links that pass a filter. A whole URL as its words means one link, in any form of it."""
    pages, known = LinkPages(app.database), await named_link(app, filters.words)
    if known is None:
        return await pages.list(filters)
    one = await pages.one(known)
    return ListPage(items=[one] if one else [], next=None)


async def named_link(app: App, words: str) -> LinkId | None:
    """The stored link that words name by a whole URL, in any form of it."""
    if not words.strip().lower().startswith(("https://", "http://")):
        return None
    name = link_rules.canonical_link(words.strip(), app.shops)
    return await LinkPages(app.database).called(bounded(name.url_norm)) if isinstance(name, Canonical) else None


class WaitingLinks(msgspec.Struct, frozen=True, kw_only=True):
    """New links on lanes that are not crawled here."""

    links: int
    lanes: Sequence[str]

    @property
    def problem(self) -> str:
        """What waits and why, up to the name of the setting."""
        lanes = " and ".join([", ".join(self.lanes[:-1]), self.lanes[-1]] if len(self.lanes) > 1 else self.lanes)
        lane = "the lane" if len(self.lanes) == 1 else "the lanes"
        wait = "waits" if self.links == 1 else "wait"
        return f"{counted(self.links, 'link')} {wait}: {lane} {lanes} {are(len(self.lanes))} not in"

    @property
    def example(self) -> str:
        return f"MISTNET_CRAWL_LANES={','.join(self.lanes)}"

    def __str__(self) -> str:
        return f"{self.problem} `crawl_lanes`. Set {self.example} for the workers; `mistnet links crawl` visits these."


async def waiting_links(app: App) -> WaitingLinks | None:
    """None if all lanes that have new links are crawled."""
    found = await count_new(app.database, lanes=[lane for lane in CRAWL_LANES if lane not in app.crawling.lanes])
    return WaitingLinks(links=sum(found.values()), lanes=sorted(found)) if found else None


def hints_of(waiting: WaitingLinks | None) -> list[str]:
    return [str(waiting)] if waiting else []
