"""Writes links: one row per canonical URL, one mention per place in a post, one crawl job per new link."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.merged import Part, insert_part
from mistnet.kit.statements import insert_of, insert_rows, run
from mistnet.kit.types import moment, storable
from mistnet.queue.store.enqueue import JobWriter
from mistnet.shops import links as link_rules
from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.model import LinkId, LinkKind, LinkState, LinkTarget, PostLinks, bounded, crawl
from mistnet.shops.tables import links, post_links
from mistnet.social.model import LinkMention, Media, Platform, Post, PostId, Reference
from mistnet.social.store.post_listing import stored_platforms
from mistnet.social.tables import posts

_ADD_MENTION: Final = "ON CONFLICT (platform, post_id, link_id, place) DO NOTHING RETURNING 1"
_MENTION: Final = ("platform", "post_id", "link_id", "place", "nr", "url", "seen_at")

NOT_CRAWLED: Final = {
    LinkKind.CODE: "a code that only the shop's own app can read",
    LinkKind.SHOP: "a shop, not an item",
    LinkKind.SEARCH: "a search, not an item",
    LinkKind.BLOCKED: "a shop's login or CAPTCHA page",
    LinkKind.DEAD: "a shop's error page",
    LinkKind.REFUSED: "not followed",
}
"""Kinds of links that are not visited, and what they name instead of an item."""


class LinksAdded(msgspec.Struct, frozen=True, kw_only=True):
    """How many links and mentions are new."""

    links: int = 0
    mentions: int = 0


def links_in(post: Post, shops: ShopCatalog = CATALOG) -> Iterator[PostLinks]:
    """The links of a post, for the same transaction as the post. A post without links costs no statement."""
    if mentions := link_rules.links_to_keep(post, shops):
        yield PostLinks(platform=post.platform, post_id=post.id, mentions=mentions)


class LinkWriter:
    """Writes links. Only links on lanes that are crawled get a crawl job."""

    def __init__(self, job_writer: JobWriter, lanes: Iterable[str]) -> None:
        self._job_writer = job_writer
        self._lanes = frozenset(lanes)

    async def write_post_links(
        self, connection: AsyncConnection, given: Sequence[PostLinks], now: datetime
    ) -> LinksAdded:
        """Idempotent: a post that is written again keeps each of its mentions once."""
        if not given:
            return LinksAdded()
        targets = {bounded(each.canonical.url_norm): each for post in given for each in post.mentions}
        known = await ids_of(connection, targets)
        ids = known | await self._add_missing(connection, targets, known, now)
        rows = _mentions_of(given, ids, moment(connection.dialect.name, now))
        written = await insert_rows(connection, post_links, rows, _ADD_MENTION, names=_MENTION)
        return LinksAdded(links=len(ids) - len(known), mentions=len(written))

    async def parts(
        self, connection: AsyncConnection, given: Sequence[PostLinks], now: datetime
    ) -> Sequence[Part] | None:
        """What `write_post_links` does, as a part of one statement, if all links are stored."""
        names = {bounded(each.canonical.url_norm) for post in given for each in post.mentions}
        ids = await ids_of(connection, names)
        if len(ids) < len(names):
            return None
        return [insert_part(connection, post_links, _mentions_of(given, ids, now), _ADD_MENTION, names=_MENTION)]

    async def ensure(
        self, connection: AsyncConnection, targets: Mapping[str, LinkTarget], now: datetime
    ) -> dict[str, LinkId]:
        """The ids of these links by name. New links get their row and their crawl job."""
        known = await ids_of(connection, targets)
        return known | await self._add_missing(connection, targets, known, now)

    async def _add_missing(
        self, connection: AsyncConnection, targets: Mapping[str, LinkTarget], known: Mapping[str, LinkId], now: datetime
    ) -> dict[str, LinkId]:
        new = sorted(set(targets) - known.keys())  # in the same order for all writers, or two of them could deadlock
        if not new:
            return {}
        adding = insert_of(connection.dialect.name)(links).on_conflict_do_nothing()
        values = [_link_row(name, targets[name], now) for name in new]
        rows = await connection.execute(adding.returning(links.c.id, links.c.url_norm), values)
        added = {row.url_norm: LinkId(row.id) for row in rows}
        own = [(name, targets[name].canonical) for name in sorted(added)]
        crawls = [
            crawl(added[name], name, about.shop.lane)
            for name, about in own
            if about.kind not in NOT_CRAWLED and about.shop.lane in self._lanes
        ]
        await self._job_writer.write(connection, crawls, now)
        if len(added) < len(new):  # another writer added them at the same moment
            added |= await ids_of(connection, [name for name in new if name not in added])
        return added


def _mentions_of(given: Sequence[PostLinks], ids: Mapping[str, LinkId], seen_at: Any) -> list[tuple[Any, ...]]:
    """In the order of their keys for all writers, or two of them could deadlock."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for post in given:
        for nr, each in enumerate(post.mentions):
            key = (str(post.platform), post.post_id, ids[bounded(each.canonical.url_norm)], str(each.place))
            rows[key] = (*key, nr, storable(each.url), seen_at)
    return [rows[key] for key in sorted(rows)]


async def ids_of(connection: AsyncConnection, names: Collection[str]) -> dict[str, LinkId]:
    """The ids of the names that are stored."""
    rows = await run(connection, "links_called", {"names": list(names)})
    return {row.url_norm: LinkId(row.id) for row in rows}


def _link_row(name: str, target: LinkTarget, now: datetime) -> dict[str, Any]:
    about = target.canonical
    why = NOT_CRAWLED.get(about.kind)  # with the title that was posted beside it
    return {
        "url_norm": name,
        "url": storable(target.url),
        "host": about.host,
        "lane": about.shop.lane,
        "platform": about.shop.name,
        "kind": about.kind,
        "state": LinkState.UNRESOLVED if about.kind in NOT_CRAWLED else LinkState.NEW,
        "problem": f"{why}: {storable(target.title)}" if why and target.title else why,
        "region": about.region,
        "shop_id": about.shop_id,
        "item_id": about.item_id,
        "first_seen_at": now,
    }


AT_ONCE: Final = 500
_LOWEST: Final = -(2**63)
_COLUMNS: Final = (
    *("id", "author_id", "text", "created_at", "quoted_id", "reposted_id"),
    *("referenced_text", "referenced_media", "media", "links"),
)
_mentions = msgspec.json.Decoder(list[LinkMention]).decode
_media = msgspec.json.Decoder(list[Media]).decode


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a scan: posts read so far, and what they added."""

    posts: int
    links: int
    mentions: int


async def scan(
    database: Database,
    writer: LinkWriter,
    *,
    platform: Platform | None = None,
    since: datetime | None = None,
    shops: ShopCatalog = CATALOG,
) -> AsyncIterator[Scanned]:
    """Find the links of every stored post, or of those first seen since then. Yields the progress after each part.

    Links that are stored are not written again, so an interrupted scan can simply be started again.
    """
    seen = new_links = mentions = 0
    async with database.read() as connection:
        platforms = [platform] if platform else await stored_platforms(connection)
    for each in platforms:
        query = select(*(posts.c[name] for name in _COLUMNS)).where(posts.c.platform == each)
        if since is not None:
            query = query.where(posts.c.first_seen_at >= since)
        last = _LOWEST
        # In parts, each in its own transaction: the posts of one platform may be millions.
        while rows := await database.fetch_rows(query.where(posts.c.id > last).order_by(posts.c.id).limit(AT_ONCE)):
            found = [links for row in rows for links in links_in(_post(row, each), shops)]
            async with database.transaction() as connection:
                added = await writer.write_post_links(connection, found, database.clock.now())
            seen, last = seen + len(rows), rows[-1]["id"]
            new_links, mentions = new_links + added.links, mentions + added.mentions
            yield Scanned(posts=seen, links=new_links, mentions=mentions)


def _post(row: Mapping[Any, Any], platform: Platform) -> Post:
    """The parts of a post that its links need."""
    reference = None
    if referred := row["reposted_id"] or row["quoted_id"]:
        pictures = _media(row["referenced_media"]) if row["referenced_media"] else ()
        reference = Reference(id=PostId(referred), text=row["referenced_text"], media=pictures)
    return Post(
        platform=platform,
        **{name: row[name] for name in ("id", "author_id", "text", "created_at")},
        quoted=None if row["reposted_id"] else reference,
        reposted=reference if row["reposted_id"] else None,
        media=_media(row["media"]) if row["media"] else (),
        links=_mentions(row["links"]) if row["links"] else (),
        raw=b"",
    )
