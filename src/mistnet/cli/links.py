"""Commands for links and products: list and show them, find links of older posts, request visits, export offers."""

import sys
from datetime import datetime
from typing import Annotated, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import (
    BeforeOption,
    FileOption,
    LimitOption,
    PlatformOption,
    argument,
    flag,
    moment,
    option,
    read_links,
    read_platform,
)
from mistnet.cli.output import Grid, Output, at, document, next_page
from mistnet.cli.write_out import ForceOption, FormatOption, OutputOption, OutputTarget, SafeOption, write_out
from mistnet.kit.errors import SettingsError, did_you_mean
from mistnet.kit.export import Target
from mistnet.kit.text import counted, money, read_number
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import CATALOG, CRAWL_LANES
from mistnet.shops.model import LinkId, LinkKind, LinkNotFound, LinkState, ProductId, ProductNotFound, bounded
from mistnet.shops.store.crawls import call_for_links, call_for_new, call_for_products
from mistnet.shops.store.link_pages import COUNTED, LinkFilter, LinkLine, LinkPages, find_links, hints_of, waiting_links
from mistnet.shops.store.links import LinkWriter, Scanned, scan
from mistnet.shops.store.mentions import MentionPages
from mistnet.shops.store.product_pages import Asks, ProductFilter, ProductLine, ProductPages, export_offers

_SHOWN: Final = 20


def known_lane(given: str) -> str:
    if given not in CRAWL_LANES:
        known = ", ".join(CRAWL_LANES)
        raise typer.BadParameter(f"there is no lane {given!r}.{did_you_mean(given, CRAWL_LANES)} Known lanes: {known}")
    return given


LaneOption = Annotated[str | None, option("--lane", "|".join(CRAWL_LANES), "Only this lane.", parser=known_lane)]


@app_command
async def list_links(
    app: App,
    out: Output,
    *,
    lane: LaneOption = None,
    state: Annotated[LinkState | None, option("--state", "|".join(LinkState), "Only links in this state.")] = None,
    kind: Annotated[LinkKind | None, option("--kind", "|".join(LinkKind), "Only links of this kind.")] = None,
    words: Annotated[str, option("--words", "TEXT", "Only those whose URL has this.")] = "",
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show links that were found in posts, the newest first. Each canonical URL is one link."""
    wanted = LinkFilter(lane=lane, state=state, kind=kind, words=words, before=before, limit=limit)
    found = await find_links(app, wanted)
    waiting = await waiting_links(app)
    grid = Grid.of(
        found.items,
        "id, lane, kind, state, mentions, url, why",
        mentions=lambda each: f"{COUNTED:,}+" if each.mentions >= COUNTED else f"{each.mentions:,}",
        url=lambda each: each.url_norm[:120],
        why=lambda each: (each.problem or "")[:60],
        empty="no links yet; `mistnet links scan` finds those of posts collected before",
    )
    shown = document(links=found.items, next_before=found.next, waiting_links=waiting)
    out.show(shown, grid, *next_page(found.next), *hints_of(waiting))


@app_command
async def show_link(
    app: App,
    out: Output,
    link: Annotated[str, argument("ID|URL", "The link's id, or its URL in any form.")],
) -> None:
    """Show one link: what it names, how its visits went, who posted it."""
    found = await find_link(app, link)
    pages, posts = LinkPages(app.database), MentionPages(app.database)
    visits = await pages.crawls(found.id, limit=_SHOWN)
    leading = await pages.leading_here(found.id, limit=_SHOWN)
    mentions = await posts.page(await posts.reach_of_link(found.id), limit=_SHOWN)
    head = f"link {found.id}: {found.url_norm} ({found.kind} on {found.lane}, {found.state})"
    leads = [f"leads to link {found.leads_to}"] if found.leads_to else []
    about = [f"product {found.product_id}: {found.title or ''}"] if found.product_id else []
    visit_grid = Grid.of(
        visits.items,
        "when (UTC), outcome, status, why",
        when="at",
        status=lambda each: each.http_status or None,
        why=lambda each: (each.problem or "")[:100],
        heading="visits, the latest first",
        empty="not visited yet",
    )
    mention_grid = Grid.of(
        mentions.items,
        "post, by, when (UTC), as posted",
        post="post_id",
        by=lambda each: f"@{each.handle}" if each.handle else each.author_id,
        when="created_at",
        as_posted=lambda each: " ".join(url.url for url in each.urls)[:120],
        heading="posts",
        empty="no stored post mentions it",
    )
    shown = document(
        link=found,
        visits=visits.items,
        short_links=[{"id": each.id, "url": each.url_norm} for each in leading],
        posts=[
            {
                **{name: getattr(each, name) for name in ("platform", "post_id", "author_id", "handle", "created_at")},
                "urls": [{"url": url.url, "place": url.place} for url in each.urls],
            }
            for each in mentions.items
        ],
    )
    out.show(shown, head, *leads, *about, visit_grid, mention_grid)


@app_command
async def scan_posts(
    app: App,
    out: Output,
    *,
    platform: PlatformOption = None,
    since: Annotated[
        datetime | None, option("--since", "TIME", "Only posts first seen since then (ISO 8601).", parser=moment)
    ] = None,
) -> None:
    """Find the links of posts that are already stored. May be interrupted and run again at any time."""
    done = Scanned(posts=0, links=0, mentions=0)
    writer = LinkWriter(app.job_writer, app.crawling.lanes)
    only = read_platform(platform, app.platforms)
    async for done in scan(app.database, writer, platform=only, since=since, shops=app.shops):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{counted(done.posts, 'post')}")
    new = f"{counted(done.links, 'new link')}, {counted(done.mentions, 'new mention')}"
    out.show(done, f"{counted(done.posts, 'post')} read: {new}")


@app_command
async def crawl(
    app: App,
    out: Output,
    named: Annotated[list[str] | None, argument("[ID|URL]...", "Ids or URLs of links.")] = None,
    *,
    source: FileOption = None,
    lane: LaneOption = None,
    limit: Annotated[int, option("--limit", "N", "How many at most.", min=1, max=100_000)] = 1_000,
) -> None:
    """Queue visits of links: those named, or those found while their lane was not crawled. Workers make them."""
    if named or source:
        ids = [(await find_link(app, each)).id for each in read_links(named, source)]
        requested = await call_for_links(app.database, app.job_writer, ids)
    else:
        lanes = [lane] if lane else list(app.crawling.lanes)
        if not lanes:
            raise SettingsError("crawl_lanes", "settings", "no lane is crawled: set it, or pass --lane")
        requested = await call_for_new(app.database, app.job_writer, lanes=lanes, limit=limit)
    said = f"{counted(requested.created, 'visit')} queued for {counted(requested.links, 'link')}"
    out.show(document(links=requested.links, created=requested.created), said)


async def find_link(app: App, given: str) -> LinkLine:
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


_PAGE: Final = 1_000
_LINKS: Final = 20

Named = Annotated[str, argument("ID|URL", "The product's id, or any URL of it.")]


@app_command
async def list_products(
    app: App,
    out: Output,
    *,
    shop: Annotated[str | None, option("--shop", "|".join(CATALOG.names), "Only products of this shop.")] = None,
    asks: Annotated[Asks | None, option("--asks", "|".join(Asks), "Only those with a price, without, or gone.")] = None,
    words: Annotated[str, option("--words", "TEXT", "Only those whose title or URL has this.")] = "",
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show products with their current prices, the newest first."""
    require_shop(app, shop)
    wanted = ProductFilter(shop=shop, asks=asks, words=words, before=before, limit=limit)
    found = await ProductPages(app.database).list(wanted)
    waiting = await waiting_links(app)
    grid = Grid.of(
        found.items,
        "id, shop, price, availability, title, last seen (UTC)",
        shop="platform",
        price=lambda each: "gone" if each.gone_at else money(each.amount, each.currency, each.amount_max),
        title=lambda each: (each.title or each.url)[:80],
        empty="no products yet: they appear once links to shops are visited",
    )
    shown = document(products=found.items, next_before=found.next, waiting_links=waiting)
    out.show(shown, grid, *next_page(found.next), *hints_of(waiting))


@app_command
async def show_product(
    app: App,
    out: Output,
    product: Named,
    *,
    limit: Annotated[int, option("--limit", "N", "How many offers at most.", min=1, max=1000)] = 20,
) -> None:
    """Show a product: its offers over time with their evidence, and the links that name it."""
    found = await find_product(app, product)
    offers = (await ProductPages(app.database).offers(found.id, limit=limit)).items
    links = await LinkPages(app.database).of_product(found.id, limit=_LINKS)
    head = f"product {found.id}: {found.title or found.url}"
    gone = [f"gone since {at(found.gone_at)} UTC"] if found.gone_at else []
    grid = Grid.of(
        offers,
        "observed (UTC), last seen (UTC), seen, price, list price, sold, read from, doubt",
        seen="times_seen",
        price=lambda each: money(each.amount, each.currency, each.amount_max),
        list_price=lambda each: money(each.list_amount, each.currency),
        sold=lambda each: None if each.sold_count is None else f"{each.sold_count:,}",
        read_from="path",
        heading="offers, the latest first",
        empty="no offer yet",
    )
    mentioned = Grid.of(links, "id, state, mentions, url", url="url_norm", heading="links")
    shown = document(
        product=found,
        offers=offers,
        links=[{"id": each.id, "url": each.url_norm, "state": each.state} for each in links],
    )
    out.show(shown, head, found.url, *gone, grid, mentioned)


@shared_options
async def refresh(
    invocation: Invocation,
    named: Annotated[list[str] | None, argument("[ID|URL]...", "Ids or URLs of products.")] = None,
    *,
    source: FileOption = None,
    every: Annotated[bool, flag("--all", "All products that are not gone.")] = False,
    shop: Annotated[
        str | None, option("--shop", "|".join(CATALOG.names), "With --all: only those of this shop.")
    ] = None,
) -> None:
    """Queue new visits of products. Workers make them, at each shop's rate."""
    if bool(named or source) == every:
        raise typer.BadParameter("name products, or pass --all")
    async with open_app(invocation.settings) as app:
        require_shop(app, shop)
        if every:
            pages, ids, before = ProductPages(app.database), list[ProductId](), None
            while True:
                page = await pages.list(ProductFilter(shop=shop, before=before, limit=_PAGE))
                ids += [each.id for each in page.items if each.gone_at is None]
                if (before := page.next) is None:
                    break
        else:
            ids = [(await find_product(app, each)).id for each in read_links(named, source)]
        requested = await call_for_products(app.database, app.job_writer, ids)
    said = f"{counted(requested.created, 'visit')} queued for {counted(len(ids), 'product')}"
    already = requested.links - requested.created
    more = f"; {already:,} {'was' if already == 1 else 'were'} queued already" if already else ""
    shown = document(products=len(ids), links=requested.links, created=requested.created)
    invocation.out.show(shown, said + more)


@shared_options
async def export_products(
    invocation: Invocation,
    *,
    format_: FormatOption = None,
    output: OutputOption = None,
    doubted: Annotated[bool, flag("--doubted", "Include doubted offers.")] = False,
    safe: SafeOption = False,
    force: ForceOption = False,
) -> None:
    """Export all offers, each with its product. Amounts are exact, as text."""

    place = OutputTarget.of(format_, output, force=force, safe=safe)

    async def offers(app: App, target: Target) -> int:
        return await export_offers(app.database, place.format, target, doubted=doubted)

    await write_out(invocation, place, offers, what="offers")


def require_shop(app: App, name: str | None) -> None:
    """Plugins bring shops, so a name is checked once they are loaded."""
    if name is not None and name not in app.shops.names:
        known = ", ".join(map(repr, app.shops.names))
        raise typer.BadParameter(f"{name!r} is not one of {known}.", param_hint="'--shop'")


async def find_product(app: App, given: str) -> ProductLine:
    """By its id, or by any URL of it that was found in a post."""
    pages = ProductPages(app.database)
    if (number := read_number(given)) is not None:
        found = await pages.one(ProductId(number))
    else:
        links, name = LinkPages(app.database), link_rules.canonical_link(given, app.shops)
        link_id = None if isinstance(name, link_rules.RefusedUrl) else await links.called(bounded(name.url_norm))
        link = await links.one(link_id) if link_id is not None else None
        # A short link's product is that of the link it leads to.
        while link and link.leads_to is not None:
            link = await links.one(link.leads_to)
        found = await pages.one(link.product_id) if link and link.product_id else None
    if found is None:
        raise ProductNotFound(given)
    return found
