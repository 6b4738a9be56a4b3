"""Reads posts: lists by author and time, conversations, single posts, and posts that contain the words of a search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.json import decode
from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Executable,
    Row,
    Select,
    Tuple,
    and_,
    bindparam,
    column,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    table,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from mistnet.kit.database import Database, Store
from mistnet.kit.statements import run
from mistnet.kit.view import ListPage, columns_of
from mistnet.social.model import PLATFORM_NAME, LinkMention, Media, Metrics, Platform, PostId, UserId, X
from mistnet.social.search_query import SearchQuery, fts5, parse, tsquery
from mistnet.social.tables import WORDS, accounts, posts, users

PostKey = tuple[Platform, PostId]
POST_CURSOR: Final = rf"^(0|[1-9][0-9]{{0,16}})\.{PLATFORM_NAME}\.[1-9][0-9]{{0,18}}$"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_ID: Final = 2**63 - 1


class PostCursor(msgspec.Struct, frozen=True, order=True):
    """A place in the order of posts: by the time they were written, then platform and id.

    Ids alone give no order: those of two platforms do not compare.
    """

    created_at: datetime
    platform: Platform
    id: PostId

    def __str__(self) -> str:
        return f"{(self.created_at - _EPOCH) // timedelta(microseconds=1)}.{self.platform}.{self.id}"


def read_cursor(written: str) -> PostCursor:
    """A cursor from its text. Raises ValueError for any other text."""
    if not re.fullmatch(POST_CURSOR, written):
        raise ValueError("it must be the cursor that the page before gave, such as 1772366400000000.x.2028123456789")
    microseconds, platform, post_id = written.split(".")
    at = _EPOCH + timedelta(microseconds=int(microseconds))
    return PostCursor(at, Platform(platform), PostId(min(int(post_id), _LARGEST_ID)))


_KEY: Final = (posts.c.created_at, posts.c.platform, posts.c.id)
OLDEST_FIRST: Final = _KEY
NEWEST_FIRST: Final = tuple(column.desc() for column in _KEY)


def older_than(cursor: PostCursor) -> ColumnElement[bool]:
    return tuple_(*_KEY) < _values(cursor)


def newer_than(cursor: PostCursor) -> ColumnElement[bool]:
    return tuple_(*_KEY) > _values(cursor)


def _values(cursor: PostCursor) -> Tuple:
    given: tuple[Any, ...] = (cursor.created_at, cursor.platform, cursor.id)
    return tuple_(*(literal(value, column.type) for value, column in zip(given, _KEY, strict=True)))


class _PostAsWritten(Metrics, frozen=True):
    """What was written. The counts come after these fields, as all that may be left out do."""

    platform: Platform
    id: PostId
    author_id: UserId
    handle: str | None
    name: str | None
    text: str
    text_clean: str
    lang: str | None
    url: str | None
    created_at: datetime
    conversation_id: PostId | None
    in_reply_to_id: PostId | None
    in_reply_to_user_id: UserId | None
    quoted_id: PostId | None
    reposted_id: PostId | None
    referenced_text: str | None
    referenced_text_clean: str | None
    referenced_handle: str | None


class ListedPost(_PostAsWritten, frozen=True, kw_only=True):
    """A post with its author's current handle and name. `tracked`: its author's posts are or were collected."""

    first_seen_at: datetime
    last_updated_at: datetime
    referenced_media: Sequence[Media] = ()
    media: Sequence[Media] = ()
    links: Sequence[LinkMention] = ()
    tracked: bool = False

    @property
    def cursor(self) -> PostCursor:
        return PostCursor(self.created_at, self.platform, self.id)


class PostSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Which posts to list. The beginning of a span of time belongs to it, its end does not."""

    authors: Sequence[tuple[Platform, UserId]] | None = None
    platform: Platform | None = None
    since: datetime | None = None
    until: datetime | None = None
    stored_since: datetime | None = None
    stored_until: datetime | None = None


class PostListing(Store):
    """Reads posts, newest first. The cursor of the last post of one page is the `before` of the next."""

    async def page(self, span: PostSpan, *, before: PostCursor | None, limit: int) -> ListPage[ListedPost]:
        query = narrow_posts(_POSTS, span).order_by(*NEWEST_FIRST).limit(limit + 1)
        if before is not None:
            query = query.where(older_than(before))
        if span.authors is None:
            return ListPage.cut(await self._fetch(query), limit, lambda post: post.cursor)
        # One query for each author: an index has the posts of one author in order, and none has those of several.
        found = [
            post
            for platform, author in span.authors
            for post in await self._fetch(query.where(posts.c.platform == platform, posts.c.author_id == author))
        ]
        newest = sorted(found, key=lambda post: post.cursor, reverse=True)
        return ListPage.cut(newest, limit, lambda post: post.cursor)

    async def some(self, keys: Sequence[PostKey]) -> Sequence[ListedPost]:
        """The posts with these keys, as far as they are stored."""
        if not keys:
            return []
        ids: dict[Platform, list[PostId]] = {}
        for platform, post_id in keys:
            ids.setdefault(platform, []).append(post_id)
        # One condition for each platform: with pairs of values, no index of SQLite serves the lookup.
        wanted = [and_(posts.c.platform == platform, posts.c.id.in_(own)) for platform, own in ids.items()]
        return await self._fetch(_POSTS.where(or_(*wanted)).order_by(*NEWEST_FIRST))

    async def raw(self, key: PostKey) -> bytes | None:
        """The payload of a post, as the source sent it."""
        query = select(posts.c.raw).where(posts.c.platform == key[0], posts.c.id == key[1])
        payload = await self._database.fetch_value(query)
        return None if payload is None else bytes(payload)

    async def latest(self, limit: int) -> Sequence[ListedPost]:
        """The posts that were stored last."""
        own = select(posts.c.platform, posts.c.id).order_by(posts.c.first_seen_at.desc()).limit(limit).subquery()
        query = _WITH_TRACKED.join(own, (own.c.platform == posts.c.platform) & (own.c.id == posts.c.id))
        return await self._fetch(query.order_by(posts.c.first_seen_at.desc(), *NEWEST_FIRST))

    async def conversation(
        self, platform: Platform, conversation_id: PostId, *, after: PostCursor | None, limit: int
    ) -> ListPage[ListedPost]:
        """Oldest first: the cursor of the last post of one page is the `after` of the next."""
        query = _WITH_TRACKED.where(posts.c.platform == platform, posts.c.conversation_id == conversation_id)
        if after is not None:
            query = query.where(newer_than(after))
        rows = await self._fetch(query.order_by(*OLDEST_FIRST).limit(limit + 1))
        return ListPage.cut(rows, limit, lambda post: post.cursor)

    async def _fetch(self, query: Select[Any]) -> list[ListedPost]:
        found: list[ListedPost] = []
        for row in await self._database.fetch_rows(query):
            lists = {name: decode(row[name], type=items) if row[name] else () for name, items in _LISTS.items()}
            found.append(ListedPost(**{**row, **lists, "tracked": bool(row["tracked"])}))
        return found


def narrow_posts(query: Select[Any], span: PostSpan) -> Select[Any]:
    """Limit a query to the posts of the span, by any author."""
    bounds = (
        (span.platform, posts.c.platform.__eq__),
        (span.since, posts.c.created_at.__ge__),
        (span.until, posts.c.created_at.__lt__),
        (span.stored_since, posts.c.first_seen_at.__ge__),
        (span.stored_until, posts.c.first_seen_at.__lt__),
    )
    return query.where(*(compare(value) for value, compare in bounds if value is not None))


_LISTS: Final = {"media": list[Media], "referenced_media": list[Media], "links": list[LinkMention]}
_COLUMNS: Final = (*columns_of(ListedPost, posts), users.c.handle, users.c.name)
_OF_AUTHOR: Final = (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id)
_POSTS: Final = select(*_COLUMNS, literal(False).label("tracked")).join(users, _OF_AUTHOR)
_WITH_TRACKED: Final = (
    select(*_COLUMNS, accounts.c.user_id.is_not(None).label("tracked"))
    .join(users, _OF_AUTHOR)
    .outerjoin(accounts, (accounts.c.platform == users.c.platform) & (accounts.c.user_id == users.c.id))
)


INDEX: Final = table("posts_search", column("rowid"))
"""The full-text index of SQLite. Its rows are numbered by SEARCH_ROWS."""

SEARCH_ROWS: Final = table("posts_search_rows", column("row_number"), column("platform"), column("post_id"))
IS_ROW_OF_POST: Final = and_(SEARCH_ROWS.c.platform == posts.c.platform, SEARCH_ROWS.c.post_id == posts.c.id)
_FEW: Final = 2_000
"""Up to this many matches are looked up and sorted. Beyond, looking at the latest posts finds the newest sooner."""

_SPARE, _WIDER = 4, 8
"""The first window should hold four times the matches wanted; each is eight times as long as the one before."""


class PostSearch(Store):
    """Finds posts. The cursor of the last post of one page is the `before` of the next."""

    async def find(
        self, query: str, span: PostSpan, *, before: PostCursor | None = None, limit: int
    ) -> ListPage[ListedPost]:
        """The newest first, of all authors or of some."""
        # One row too many shows whether another page follows.
        words, most = parse(query), limit + 1
        async with self._database.read() as connection:
            if self._database.dialect == "postgresql":
                found = await _search_windows(connection, words, span, before, most)
            else:
                one_too_many = select(INDEX.c.rowid).where(_matches(words)).offset(_FEW).limit(1)
                few = (await connection.execute(one_too_many)).first() is None
                found = (await connection.execute(sqlite_search(words, span, before, few=few).limit(most))).all()
        # Authors are looked up for these few posts alone: in one query, a planner could begin with the users.
        listed = await PostListing(self._database).some([(Platform(row.platform), PostId(row.id)) for row in found])
        return ListPage.cut(listed, limit, lambda post: post.cursor)


async def find_authors(
    database: Database, author: str | UserId, platform: Platform | None = None
) -> Sequence[tuple[Platform, UserId]]:
    """The users with a current handle or an id, on one platform or on all."""
    async with database.read() as connection:
        if isinstance(author, str):
            return [each for each in await holders(connection, author) if platform in (None, each[0])]
        platforms = [platform] if platform else await stored_platforms(connection)
    return [(each, author) for each in platforms]


async def stored_platforms(connection: AsyncConnection) -> Sequence[Platform]:
    """The platforms of which anything is stored, X first: ids and handles without a platform mean X."""
    found = (await run(connection, "stored_platforms")).scalars()
    return sorted(map(Platform, found), key=lambda each: (each != X, each))


async def holders(connection: AsyncConnection, handle: str) -> Sequence[tuple[Platform, UserId]]:
    """The users with this current handle. A platform can have several: handles change hands."""
    asked = select(users.c.platform, users.c.id).where(users.c.handle_key == handle_key(handle))
    rows = await connection.execute(asked.order_by(users.c.platform, users.c.id))
    return [(Platform(row.platform), UserId(row.id)) for row in rows]


def handle_key(handle: str) -> str:
    return handle.strip().removeprefix("@").lower()


def _keys_in(span: PostSpan, before: PostCursor | None) -> Select[Any]:
    asked = narrow_posts(select(posts.c.platform, posts.c.id, posts.c.created_at), span)
    if span.authors is not None:
        own = [and_(posts.c.platform == platform, posts.c.author_id == each) for platform, each in span.authors]
        asked = asked.where(or_(*own) if own else false())
    return asked if before is None else asked.where(older_than(before))


def sqlite_search(words: SearchQuery, span: PostSpan, before: PostCursor | None, *, few: bool) -> Select[Any]:
    asked = _keys_in(span, before)
    if few:
        found = INDEX.join(SEARCH_ROWS, SEARCH_ROWS.c.row_number == INDEX.c.rowid).join(posts, IS_ROW_OF_POST)
        return asked.select_from(found).where(_matches(words)).order_by(*NEWEST_FIRST)
    # Posts in their order, each looked up among the matches: the newest come first, and the rest need not be sorted.
    return asked.where(has_words("sqlite", words)).order_by(*NEWEST_FIRST)


async def _search_windows(
    connection: AsyncConnection, words: SearchQuery, span: PostSpan, before: PostCursor | None, limit: int
) -> Sequence[Row[Any]]:
    """Search the latest span of time that should hold enough matches, and longer ones if it does not.

    PostgreSQL's index of words has no order: all posts with a common word, which can be millions, would be sorted.
    """
    asked = postgresql_search(words, span, before)
    (planned,) = (await connection.execute(_Explain(asked))).scalar_one()
    estimate: int = planned["Plan"]["Plan Rows"]
    share = _SPARE * limit / max(estimate, 1)
    if estimate > _FEW:
        # Only conditions that the index has in front: with others, one end of it could be far from the first match.
        author = span.authors if span.authors and len(span.authors) == 1 else ()
        own = [and_(posts.c.platform == platform, posts.c.author_id == each) for platform, each in author]
        ends = select(func.min(posts.c.created_at), func.max(posts.c.created_at)).where(*own)
        first, last = (await connection.execute(ends)).one()
        begin = max(filter(None, (first, span.since)), default=_EPOCH)
        end = min(filter(None, (last, span.until, before and before.created_at)), default=begin)
        while share < 1 and begin < end:
            within = asked.where(posts.c.created_at >= end - (end - begin) * share)
            found = list(await connection.execute(newest_of(within, limit)))
            if len(found) == limit:
                return found
            share *= _WIDER
    return list(await connection.execute(newest_of(asked, limit)))


def postgresql_search(words: SearchQuery, span: PostSpan, before: PostCursor | None) -> Select[Any]:
    return _keys_in(span, before).where(has_words("postgresql", words))


def newest_of(asked: Select[Any], limit: int) -> Select[Any]:
    # OFFSET 0 makes the planner search by words and time. Otherwise it reads posts by time until enough match.
    hits = asked.offset(0).subquery()
    return select(hits).order_by(hits.c.created_at.desc(), hits.c.platform.desc(), hits.c.id.desc()).limit(limit)


class _Explain(Executable, ClauseElement):
    """Asks PostgreSQL how it would run a statement, and how many rows it expects."""

    inherit_cache = False

    def __init__(self, statement: Select[Any]) -> None:
        self.statement = statement


@compiles(_Explain, "postgresql")
def _explain(element: _Explain, compiler: SQLCompiler, **options: Any) -> str:
    return f"EXPLAIN (FORMAT JSON) {compiler.process(element.statement, **options)}"


def matches_words(dialect: str, query: str) -> ColumnElement[bool]:
    """Whether a post matches a search, as a condition for queries in any order."""
    words = parse(query)
    if dialect != "postgresql":
        return has_words(dialect, words)
    found = posts.alias("found")
    # OFFSET 0 makes the planner search the index first.
    hits = select(found.c.platform, found.c.id).where(has_words(dialect, words)).offset(0).subquery("hits")
    return tuple_(posts.c.platform, posts.c.id).in_(select(hits.c.platform, hits.c.id))


def has_words(dialect: str, words: SearchQuery) -> ColumnElement[bool]:
    """The same as the index is asked: for each post on SQLite, for the one table of posts on PostgreSQL."""
    if dialect == "postgresql":
        wanted = func.to_tsquery(literal_column("'simple'::regconfig"), bindparam("words", tsquery(words)))
        return literal_column(WORDS).op("@@")(wanted)
    own_row = select(SEARCH_ROWS.c.row_number).where(IS_ROW_OF_POST).correlate(posts).scalar_subquery()
    return own_row.in_(select(INDEX.c.rowid).where(_matches(words)))


def _matches(words: SearchQuery) -> Any:
    return literal_column("posts_search").op("MATCH")(bindparam("words", fts5(words)))
