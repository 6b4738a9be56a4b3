"""Links that were found in posts: where they lead, who linked them, and how their crawls went."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from msgspec.structs import asdict

from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import LinkId, LinkKind, LinkState
from mistnet.shops.service import find_links
from mistnet.shops.store.link_pages import CrawlLine, LinkFilter, LinkLine, LinkPages
from mistnet.shops.store.mentions import MENTION_CURSOR, Mentioning, MentionPages, Verbatim, read_mention_cursor
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, Id, OneOf, PathId, number_of
from mistnet.web.paging import CursorFormat, Listing, PageQuery, Pages, page_query

MENTIONS: Final = CursorFormat(MENTION_CURSOR, read_mention_cursor, str)
Mentions = Annotated[PageQuery, Depends(page_query(MENTIONS))]
LaneWord = Annotated[str, OneOf(CRAWL_LANES)]
_CRAWLS: Final = 20
_LEADING: Final = 50

router = APIRouter(prefix="/api/links", tags=["links"], dependencies=READS)


class VerbatimDocument(Document, record=Verbatim):
    """A link as it was posted, and where in the post it stood."""


class MentionDocument(Document, record=Mentioning, without=("tracked", "conversation_id")):
    """One post that mentions a link, with every form in which it does."""

    urls: list[VerbatimDocument]


class LinkDocument(Document, record=LinkLine, without=("content_hash",)):
    """One link under its canonical form. `mentions` counts posts, 1000 at most."""

    leads_to: Id | None


class CrawlDocument(Document, record=CrawlLine):
    """One visit and what came of it. `kept`: the page itself is stored."""


class LinkInFull(LinkDocument):
    """With its latest crawls, and the links that turned out to lead here."""

    target: LinkDocument | None
    leading_here: list[LinkDocument]
    crawls: list[CrawlDocument]


@router.get("", response_model=Listing[LinkDocument])
async def list_links(
    mistnet: Mistnet,
    pages: Pages,
    lane: Annotated[LaneWord | None, Query(description="Only links that are crawled on this lane.")] = None,
    state: Annotated[LinkState | None, Query(description="Only links in this state.")] = None,
    kind: Annotated[LinkKind | None, Query(description="Only links that name such a thing.")] = None,
    q: Annotated[
        str,
        Query(max_length=500, pattern=PLAIN, description="Only URLs with this in them; a whole URL finds its link."),
    ] = "",
) -> dict[str, Any]:
    """Links, the newest first. With `q` a page may be short and still have a `next`."""
    wanted = LinkFilter(lane=lane, state=state, kind=kind, words=q, before=pages.place, limit=pages.limit)
    return pages.listing(await find_links(mistnet, wanted))


@router.get("/{link_id}", response_model=LinkInFull, responses=refusals(404))
async def show_link(link_id: PathId, mistnet: Mistnet) -> dict[str, Any]:
    """One link with where it leads and its latest crawls."""
    store = LinkPages(mistnet.database)
    line = await _known(store, link_id)
    return {
        **asdict(line),
        "target": await store.one(line.leads_to) if line.leads_to else None,
        "leading_here": await store.leading_here(line.id, limit=_LEADING),
        "crawls": (await store.crawls(line.id, limit=_CRAWLS)).items,
    }


@router.get("/{link_id}/crawls", response_model=Listing[CrawlDocument], responses=refusals(404))
async def list_crawls(link_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Every visit to one link, the latest first."""
    store = LinkPages(mistnet.database)
    line = await _known(store, link_id)
    return pages.listing(await store.crawls(line.id, before=pages.place, limit=pages.limit))


@router.get("/{link_id}/mentions", response_model=Listing[MentionDocument], responses=refusals(404))
async def list_mentions(link_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """Who linked it and when, the newest post first; posts whose short link leads to it too."""
    line = await _known(LinkPages(mistnet.database), link_id)
    store = MentionPages(mistnet.database)
    reach = await store.reach_of_link(line.id)
    return pages.listing(await store.page(reach, before=pages.place, limit=pages.limit))


async def _known(store: LinkPages, link_id: str) -> LinkLine:
    found = await store.one(LinkId(number_of(link_id)))
    if found is None:
        raise NotFound(f"link {link_id}")
    return found
