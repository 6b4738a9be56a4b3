"""Pages of links: the list; one link with the posts that mention it, its target, and its crawls."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse

from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.model import LinkId, LinkKind, LinkState
from mistnet.shops.service import find_links, waiting_links
from mistnet.shops.store.link_pages import COUNTED, LinkFilter, LinkPages
from mistnet.shops.store.mentions import MentionCursor, MentionPages, read_mention_cursor
from mistnet.web.auth import Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound
from mistnet.web.pages.accounts import BeforeId, LargestId
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
_MENTIONS: Final = 20
_CRAWLS: Final = 20
_LEADING: Final = 20
LinkPath = Annotated[int, Path(ge=1, le=LargestId)]
Chosen = Annotated[str, Query(max_length=20)]
BeforePosts = Annotated[str, Query(max_length=500)]


@router.get("/links")
async def links(
    request: Request,
    caller: Reader,
    app: Mistnet,
    lane: Chosen = "",
    state: Chosen = "",
    kind: Chosen = "",
    q: Annotated[str, Query(max_length=500)] = "",
    before: BeforeId = None,
) -> HTMLResponse:
    wanted = LinkFilter(
        lane=lane if lane in CRAWL_LANES else None,
        state=LinkState(state) if state in set(LinkState) else None,
        kind=LinkKind(kind) if kind in set(LinkKind) else None,
        words=q.replace("\x00", ""),
        before=before,
        limit=_PAGE,
    )
    found = await find_links(app, wanted)
    return page(
        request,
        "links.html",
        caller,
        links=found.items,
        waiting=await waiting_links(app),
        more=found.next,
        before=before,
        asked={"lane": wanted.lane or "", "state": wanted.state or "", "kind": wanted.kind or "", "q": q},
        narrowed=wanted.narrows or bool(q.strip()),
        lanes=CRAWL_LANES,
        states=list(LinkState),
        kinds=list(LinkKind),
        counted=COUNTED,
    )


@router.get("/links/{link_id}")
async def link(
    request: Request,
    caller: Reader,
    app: Mistnet,
    link_id: LinkPath,
    before: BeforePosts = "",
    crawls_before: BeforeId = None,
) -> HTMLResponse:
    pages, mentions = LinkPages(app.database), MentionPages(app.database)
    line = await pages.one(LinkId(link_id))
    if line is None:
        raise NotFound(f"link {link_id}")
    crawls = await pages.crawls(line.id, before=crawls_before, limit=_CRAWLS)
    reach = await mentions.reach_of_link(line.id)
    posts = await mentions.page(reach, before=before_of(before), limit=_MENTIONS)
    return page(
        request,
        "link.html",
        caller,
        link=line,
        target=await pages.one(line.leads_to) if line.leads_to else None,
        leading=await pages.leading_here(line.id, limit=_LEADING),
        crawls=crawls.items,
        crawls_before=crawls_before,
        more_crawls=crawls.next,
        mentions=posts.items,
        before=before,
        more=posts.next,
    )


def before_of(written: str) -> MentionCursor | None:
    """A page that begins at anything but a cursor is the first one."""
    try:
        return read_mention_cursor(written)
    except ValueError:
        return None
