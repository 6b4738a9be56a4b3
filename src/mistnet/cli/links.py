"""Commands for links: list them, show one, find those of older posts, request visits."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from msgspec.structs import asdict

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import BeforeOption, FileOption, LimitOption, PlatformOption, named_links, read_platform
from mistnet.cli.output import Grid, at, document, next_page
from mistnet.cli.search import moment
from mistnet.kit.errors import SettingsError, did_you_mean
from mistnet.kit.text import counted, read_number
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.errors import LinkNotFound
from mistnet.shops.model import LinkId, LinkKind, LinkState, bounded
from mistnet.shops.service import find_links, hints_of, waiting_links
from mistnet.shops.store.crawls import call_for_links, call_for_new
from mistnet.shops.store.link_pages import COUNTED, LinkFilter, LinkLine, LinkPages
from mistnet.shops.store.links import LinkWriter, Scanned, scan
from mistnet.shops.store.mentions import Mentioning, MentionPages

_SHOWN: Final = 20


def known_lane(given: str) -> str:
    if given not in CRAWL_LANES:
        known = ", ".join(CRAWL_LANES)
        raise typer.BadParameter(f"there is no lane {given!r}.{did_you_mean(given, CRAWL_LANES)} Known lanes: {known}")
    return given


LaneOption = Annotated[
    str | None,
    typer.Option("--lane", metavar="|".join(CRAWL_LANES), parser=known_lane, help="Only this lane."),
]


@shared_options
async def list_links(
    invocation: Invocation,
    *,
    lane: LaneOption = None,
    state: Annotated[
        LinkState | None, typer.Option("--state", metavar="|".join(LinkState), help="Only links in this state.")
    ] = None,
    kind: Annotated[
        LinkKind | None, typer.Option("--kind", metavar="|".join(LinkKind), help="Only links of this kind.")
    ] = None,
    words: Annotated[str, typer.Option("--words", metavar="TEXT", help="Only those whose URL has this.")] = "",
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show links that were found in posts, the newest first. Each canonical URL is one link."""
    wanted = LinkFilter(lane=lane, state=state, kind=kind, words=words, before=before, limit=limit)
    async with open_app(invocation.settings) as app:
        found = await find_links(app, wanted)
        waiting = await waiting_links(app)
    grid = Grid(
        columns=("id", "lane", "kind", "state", "mentions", "url", "why"),
        rows=[_row(each) for each in found.items],
        empty="no links yet; `mistnet links scan` finds those of posts collected before",
    )
    shown = document(
        links=[_fields(each) for each in found.items], next_before=_text(found.next), waiting_links=waiting
    )
    invocation.out.show(shown, grid, *next_page(found.next), *hints_of(waiting))


@shared_options
async def show(
    invocation: Invocation,
    link: Annotated[str, typer.Argument(metavar="ID|URL", help="The link's id, or its URL in any form.")],
) -> None:
    """Show one link: what it names, how its visits went, who posted it."""
    async with open_app(invocation.settings) as app:
        found = await link_called(app, link)
        pages, posts = LinkPages(app.database), MentionPages(app.database)
        visits = await pages.crawls(found.id, limit=_SHOWN)
        leading = await pages.leading_here(found.id, limit=_SHOWN)
        mentions = await posts.page(await posts.reach_of_link(found.id), limit=_SHOWN)
    head = f"link {found.id}: {found.url_norm} ({found.kind} on {found.lane}, {found.state})"
    leads = [f"leads to link {found.leads_to}"] if found.leads_to else []
    about = [f"product {found.product_id}: {found.title or ''}"] if found.product_id else []
    visit_grid = Grid(
        title="visits, the latest first",
        columns=("when (UTC)", "outcome", "status", "why"),
        rows=[
            (at(each.at), each.outcome, str(each.http_status or ""), (each.problem or "")[:100])
            for each in visits.items
        ],
        empty="not visited yet",
    )
    mention_grid = Grid(
        title="posts",
        columns=("post", "by", "when (UTC)", "as posted"),
        rows=[
            (
                *(str(each.post_id), f"@{each.handle}" if each.handle else str(each.author_id), at(each.created_at)),
                " ".join(url.url for url in each.urls)[:120],
            )
            for each in mentions.items
        ],
        empty="no stored post mentions it",
    )
    shown = document(
        link=_fields(found),
        visits=visits.items,
        short_links=[{"id": str(each.id), "url": each.url_norm} for each in leading],
        posts=[_mention_fields(each) for each in mentions.items],
    )
    invocation.out.show(shown, head, *leads, *about, visit_grid, mention_grid)


@shared_options
async def scan_posts(
    invocation: Invocation,
    *,
    platform: PlatformOption = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", parser=moment, metavar="TIME", help="Only posts first seen since then (ISO 8601)."),
    ] = None,
) -> None:
    """Find the links of posts that were collected before. May be interrupted and run again at any time."""
    done = Scanned(posts=0, links=0, mentions=0)
    async with open_app(invocation.settings) as app:
        writer = LinkWriter(app.job_writer, app.crawling.lanes)
        only = read_platform(platform, app.platforms)
        async for done in scan(app.database, writer, platform=only, since=since, shops=app.shops):
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{counted(done.posts, 'post')}")
    new = f"{counted(done.links, 'new link')}, {counted(done.mentions, 'new mention')}"
    said = f"{counted(done.posts, 'post')} read: {new}"
    invocation.out.show(document(posts=done.posts, links=done.links, mentions=done.mentions), said)


@shared_options
async def crawl(
    invocation: Invocation,
    named: Annotated[list[str] | None, typer.Argument(metavar="[ID|URL]...", help="Ids or URLs of links.")] = None,
    *,
    source: FileOption = None,
    lane: LaneOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="How many at most.")] = 1_000,
) -> None:
    """Queue visits of links: those named, or those found while their lane was not crawled. Workers make them."""
    async with open_app(invocation.settings) as app:
        if named or source:
            ids = [(await link_called(app, each)).id for each in named_links(named, source)]
            requested = await call_for_links(app.database, app.job_writer, ids)
        else:
            lanes = [lane] if lane else list(app.crawling.lanes)
            if not lanes:
                raise SettingsError("crawl_lanes", "settings", "no lane is crawled: set it, or pass --lane")
            requested = await call_for_new(app.database, app.job_writer, lanes=lanes, limit=limit)
    said = f"{counted(requested.created, 'visit')} queued for {counted(requested.links, 'link')}"
    invocation.out.show(document(links=requested.links, created=requested.created), said)


async def link_called(app: App, given: str) -> LinkLine:
    pages = LinkPages(app.database)
    if (number := read_number(given)) is not None:
        found = await pages.one(LinkId(number))
    else:
        name = link_rules.canonical_link(given, app.shops)
        link_id = None if isinstance(name, link_rules.RefusedUrl) else await pages.called(bounded(name.url_norm))
        found = await pages.one(link_id) if link_id is not None else None
    if found is None:
        raise LinkNotFound(given)
    return found


def _row(line: LinkLine) -> Sequence[str]:
    count = f"{COUNTED:,}+" if line.mentions >= COUNTED else f"{line.mentions:,}"
    why = (line.problem or "")[:60]
    return str(line.id), line.lane, line.kind, line.state, count, line.url_norm[:120], why


def _fields(line: LinkLine) -> dict[str, Any]:
    return {**asdict(line), "leads_to": _text(line.leads_to), "product_id": _text(line.product_id)}


def _mention_fields(line: Mentioning) -> dict[str, Any]:
    return {
        "platform": line.platform,
        "post_id": str(line.post_id),
        "author_id": str(line.author_id),
        "handle": line.handle,
        "created_at": line.created_at,
        "urls": [{"url": each.url, "place": each.place} for each in line.urls],
    }


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
