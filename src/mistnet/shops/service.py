"""Finds the links somebody asks for: by what is known of them, or the one that a whole URL is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mistnet.kit.text import are, counted
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import CRAWL_LANES, ShopCatalog
from mistnet.shops.model import Canonical, bounded
from mistnet.shops.store.crawls import count_new
from mistnet.shops.store.link_pages import LinkFilter, LinkPage, LinkPages

if TYPE_CHECKING:
    from mistnet.app import App


async def find_links(app: App, wanted: LinkFilter) -> LinkPage:
    """The links that pass a filter. A whole URL as its words means one link, in any form of it."""
    pages, name = LinkPages(app.database), _name_of(wanted.words, app.shops)
    known = await pages.called(name) if name else None
    if known is None:
        return await pages.list(wanted)
    one = await pages.one(known)
    return LinkPage(links=[one] if one else [], next=None)


def _name_of(words: str, shops: ShopCatalog) -> str | None:
    given = words.strip()
    if not given.lower().startswith(("https://", "http://")):
        return None
    named = link_rules.canonical_link(given, shops)
    return bounded(named.url_norm) if isinstance(named, Canonical) else None


class WaitingLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Links that were found on lanes which are not crawled here."""

    links: int
    lanes: Sequence[str]

    @property
    def told(self) -> str:
        """What waits, up to the name of the setting."""
        lanes = " and ".join([", ".join(self.lanes[:-1]), self.lanes[-1]] if len(self.lanes) > 1 else self.lanes)
        lane = "the lane" if len(self.lanes) == 1 else "the lanes"
        wait = "waits" if self.links == 1 else "wait"
        return f"{counted(self.links, 'link')} {wait}: {lane} {lanes} {are(len(self.lanes))} not in"

    @property
    def example(self) -> str:
        return f"MISTNET_CRAWL_LANES={','.join(self.lanes)}"

    def __str__(self) -> str:
        return f"{self.told} `crawl_lanes`. Set {self.example} for the workers; `mistnet links crawl` visits these."


async def waiting_links(app: App) -> WaitingLinks | None:
    """None where every link that was found is or will be visited."""
    found = await count_new(app.database, lanes=[lane for lane in CRAWL_LANES if lane not in app.crawling.lanes])
    return WaitingLinks(links=sum(found.values()), lanes=sorted(found)) if found else None


def hints_of(waiting: WaitingLinks | None) -> list[str]:
    return [str(waiting)] if waiting else []
