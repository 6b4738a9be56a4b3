"""Finds posts by their words: FTS5 on SQLite, a GIN index on PostgreSQL, one query language on both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Select, and_, bindparam, column, false, func, literal_column, or_, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import run
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.search_query import SearchQuery, SearchTerm, parse
from mistnet.social.store.post_listing import (
    NEWEST_FIRST,
    ListedPost,
    PostCursor,
    PostListing,
    PostSpan,
    narrow_posts,
    older_than,
)
from mistnet.social.tables import WORDS, posts, users

INDEX: Final = table("posts_search", column("rowid"))
"""The full-text index of SQLite. Its rows are numbered by SEARCH_ROWS."""

SEARCH_ROWS: Final = table("posts_search_rows", column("row_number"), column("platform"), column("post_id"))
IS_ROW_OF_POST: Final = and_(SEARCH_ROWS.c.platform == posts.c.platform, SEARCH_ROWS.c.post_id == posts.c.id)
_FEW: Final = 2_000
"""Up to this many matches are looked up and sorted. Beyond, scanning posts in order finds the newest sooner."""


class PostSearch:
    """Finds posts. The cursor of the last post of one page is the `before` of the next."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(
        self, query: str, span: PostSpan, *, before: PostCursor | None = None, limit: int
    ) -> Sequence[ListedPost]:
        """The newest first, of all authors or of some."""
        words = parse(query)
        async with self._database.read() as connection:
            few = False
            if self._database.dialect == "sqlite":
                one_too_many = select(INDEX.c.rowid).where(_matches(words)).offset(_FEW).limit(1)
                few = (await connection.execute(one_too_many)).first() is None
            asked = _question(self._database.dialect, words, span, before, few=few)
            keys = [(Platform(row.platform), PostId(row.id)) for row in await connection.execute(asked.limit(limit))]
        # Authors are looked up for these few posts alone: in one query, a planner could begin with the users.
        return await PostListing(self._database).some(keys)


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


def _question(dialect: str, words: SearchQuery, span: PostSpan, before: PostCursor | None, *, few: bool) -> Select[Any]:
    asked = narrow_posts(select(posts.c.platform, posts.c.id, posts.c.created_at), span)
    if span.authors is not None:
        own = [and_(posts.c.platform == platform, posts.c.author_id == each) for platform, each in span.authors]
        asked = asked.where(or_(*own) if own else false())
    if before is not None:
        asked = asked.where(older_than(before))
    if dialect == "postgresql":
        # OFFSET 0 makes the planner search the index first. Otherwise it reads posts by time until enough match.
        wanted = func.to_tsquery(literal_column("'simple'::regconfig"), bindparam("words", tsquery(words)))
        hits = asked.where(literal_column(WORDS).op("@@")(wanted)).offset(0).subquery()
        return select(hits).order_by(hits.c.created_at.desc(), hits.c.platform.desc(), hits.c.id.desc())
    if few:
        found = INDEX.join(SEARCH_ROWS, SEARCH_ROWS.c.row_number == INDEX.c.rowid).join(posts, IS_ROW_OF_POST)
        return asked.select_from(found).where(_matches(words)).order_by(*NEWEST_FIRST)
    # Posts in their order, each looked up among the matches: the newest come first, and the rest need not be sorted.
    matches = select(INDEX.c.rowid).where(_matches(words))
    own_row = select(SEARCH_ROWS.c.row_number).where(IS_ROW_OF_POST).scalar_subquery()
    return asked.where(own_row.in_(matches)).order_by(*NEWEST_FIRST)


def _matches(words: SearchQuery) -> Any:
    return literal_column("posts_search").op("MATCH")(bindparam("words", fts5(words)))


def fts5(query: SearchQuery) -> str:
    """The query for MATCH. All user input is inside quotes, as words without punctuation."""
    wanted = " AND ".join(f"({' OR '.join(map(_fts5_term, choice))})" for choice in query.choices)
    return f"({wanted}) NOT ({' OR '.join(map(_fts5_term, query.excluded))})" if query.excluded else wanted


def _fts5_term(term: SearchTerm) -> str:
    return f'"{" ".join(term.words)}"' + " *" * term.prefix


def tsquery(query: SearchQuery) -> str:
    """The query for to_tsquery. All user input is inside quotes."""
    wanted = " & ".join(f"({' | '.join(map(_tsquery_term, choice))})" for choice in query.choices)
    return f"{wanted} & !({' | '.join(map(_tsquery_term, query.excluded))})" if query.excluded else wanted


def _tsquery_term(term: SearchTerm) -> str:
    """PostgreSQL indexes `example.com`, `3.14` or `and/or` as one word. The query searches for it and for its parts."""
    *before, last = term.words
    in_parts = _quoted(" ".join(term.words))
    if term.prefix:
        in_parts = " <-> ".join([*([_quoted(" ".join(before))] if before else []), f"{_quoted(last)}:*"])
    if " ".join(term.words) == term.text:
        return f"({in_parts})"
    return f"({_quoted(term.text)}{':*' * term.prefix} | ({in_parts}))"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
