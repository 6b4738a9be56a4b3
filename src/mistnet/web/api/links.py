"""Links that were found in posts: where they lead, who linked them, and how their crawls went."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import CrawlOutcome, LinkId, LinkKind, LinkPlace, LinkState
from mistnet.shops.service import find_links
from mistnet.shops.store.link_pages import Before, LinkFilter, LinkLine, LinkPages, MentionPage, MentionPages
from mistnet.social.model import Platform
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import LARGEST_ID, PLAIN, Document, Id, Moment, OneOf, PathId, number_of
from mistnet.web.paging import RUN_CURSOR, Listing, PageLimit, Pages, cursor_of

_BYTES = 8


class VerbatimDocument(Document):
    """A link as it was posted, and where in the post it stood."""

    link_id: Id
    url: str
    place: LinkPlace


class MentionDocument(Document):
    """One post that mentions a link, with every form in which it does."""

    platform: Platform
    post_id: Id
    author_id: Id
    handle: str | None
    name: str | None
    text: str
    post_url: str | None
    created_at: Moment
    seen_at: Moment
    urls: list[VerbatimDocument]


class MentionPaging:
    """A page of posts; its cursor holds a place for each platform."""

    def __init__(self, limit: int, cursor: str | None) -> None:
        self.limit = limit
        self.before = None if cursor is None else _read(cursor)

    def listing(self, page: MentionPage) -> dict[str, Any]:
        return {"items": page.posts, "next": None if page.next is None else mentions_cursor(page.next)}


def mentions_cursor(before: Before) -> str:
    raw = before.x.to_bytes(_BYTES) + before.threads.to_bytes(_BYTES)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read(cursor: str) -> Before:
    raw = base64.urlsafe_b64decode(cursor + "==")
    x, threads = (int.from_bytes(part) for part in (raw[:_BYTES], raw[_BYTES:]))
    return Before(x=min(x, LARGEST_ID), threads=min(threads, LARGEST_ID))


async def _pages(
    limit: PageLimit = 50,
    cursor: Annotated[
        str | None, Query(pattern=RUN_CURSOR, description="Where the page begins: `next` of the page before.")
    ] = None,
) -> MentionPaging:
    return MentionPaging(limit, cursor)


Mentions = Annotated[MentionPaging, Depends(_pages)]

router = APIRouter(prefix="/api/links", tags=["links"], dependencies=READS)

LaneWord = Annotated[str, OneOf(CRAWL_LANES)]
_CRAWLS = 20
_LEADING = 50


class LinkDocument(Document):
    """One link under its canonical form. `mentions` counts posts, 1000 at most."""

    id: Id
    url_norm: str
    url: str
    host: str
    lane: str
    platform: str
    kind: LinkKind
    state: LinkState
    region: str | None
    shop_id: str | None
    item_id: str | None
    leads_to: Id | None
    product_id: Id | None
    title: str | None
    problem: str | None
    first_seen_at: Moment
    crawled_at: Moment | None
    mentions: int


class CrawlDocument(Document):
    """One visit and what came of it. `kept`: the page itself is stored."""

    id: Id
    at: Moment
    outcome: CrawlOutcome
    http_status: int | None
    final_url: str | None
    bytes: int | None
    duration_ms: int | None
    content_hash: str | None
    problem: str | None
    product_id: Id | None
    offer_id: Id | None
    job_id: Id | None
    kept: bool


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
    page = await find_links(mistnet, wanted)
    return {"items": page.links, "next": None if page.next is None else cursor_of(page.next)}


@router.get("/{link_id}", response_model=LinkInFull, responses=refusals(404))
async def show_link(link_id: PathId, mistnet: Mistnet) -> dict[str, Any]:
    """One link with where it leads and its latest crawls."""
    pages = LinkPages(mistnet.database)
    line = await _known(pages, link_id)
    fields = {name: getattr(line, name) for name in line.__struct_fields__}
    return {
        **fields,
        "target": await pages.one(line.leads_to) if line.leads_to else None,
        "leading_here": await pages.leading_here(line.id, limit=_LEADING),
        "crawls": await pages.crawls(line.id, limit=_CRAWLS),
    }


@router.get("/{link_id}/crawls", response_model=Listing[CrawlDocument], responses=refusals(404))
async def list_crawls(link_id: PathId, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Every visit to one link, the latest first."""
    store = LinkPages(mistnet.database)
    line = await _known(store, link_id)
    return pages.listing(await store.crawls(line.id, before=pages.place, limit=pages.one_more), lambda crawl: crawl.id)


@router.get("/{link_id}/mentions", response_model=Listing[MentionDocument], responses=refusals(404))
async def list_mentions(link_id: PathId, mistnet: Mistnet, pages: Mentions) -> dict[str, Any]:
    """Who linked it and when, the newest post first; posts whose short link leads to it too."""
    line = await _known(LinkPages(mistnet.database), link_id)
    store = MentionPages(mistnet.database)
    reach = await store.reach_of_link(line.id)
    return pages.listing(await store.page(reach, before=pages.before, limit=pages.limit))


async def _known(pages: LinkPages, link_id: str) -> LinkLine:
    found = await pages.one(LinkId(number_of(link_id)))
    if found is None:
        raise NotFound(f"link {link_id}")
    return found
