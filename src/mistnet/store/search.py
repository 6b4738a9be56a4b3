"""Finds posts by their words: FTS5 on SQLite, a GIN index on PostgreSQL, one query language on both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, bindparam, column, func, literal_column, select, table, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.query import Query, Term, parse
from mistnet.domain.social import Platform, PostId, UserId
from mistnet.store.database import Database
from mistnet.store.tables import WORDS, posts, users

_OF_THE_POST: Final = (
    *("platform", "id", "author_id", "created_at", "text", "url"),
    *("likes", "replies", "reposts", "views"),
)
_INDEX: Final = table("posts_search", column("rowid"))


class FoundPost(msgspec.Struct, frozen=True, kw_only=True):
    """A post with its author's present handle and name."""

    platform: Platform
    id: PostId
    author_id: UserId
    handle: str | None
    name: str | None
    created_at: datetime
    text: str
    url: str | None
    likes: int | None
    replies: int | None
    reposts: int | None
    views: int | None


class PostSearch:
    """Reads. The last id of one page is the `before_id` of the next."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(
        self,
        query: str,
        *,
        author: str | UserId | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        before_id: int | None,
    ) -> Sequence[FoundPost]:
        """Newest id first, of all authors, or of one by handle or id. The span has its beginning in it, its end not."""
        words = parse(query)
        narrowed = _between(select(*(posts.c[name] for name in _OF_THE_POST)), since, until)
        async with self._database.read() as connection:
            if author is not None:
                written_by = tuple_(posts.c.platform, posts.c.author_id)
                own = await holders(connection, author) if isinstance(author, str) else [(Platform.X, author)]
                narrowed = narrowed.where(written_by.in_(own))
            found = [
                FoundPost(**{**row, "platform": Platform(row["platform"])})
                for asked in _questions(self._database.dialect, words, narrowed, before_id)
                for row in (await connection.execute(_with_authors(asked.limit(limit)))).mappings()
            ]
        return sorted(found, key=lambda post: post.id, reverse=True)[:limit]


async def holders(connection: AsyncConnection, handle: str) -> Sequence[tuple[Platform, UserId]]:
    """Who goes by this handle now, as far as we know: on each platform nobody, one, or several."""
    asked = select(users.c.platform, users.c.id).where(
        users.c.platform.in_([*Platform]), users.c.handle_key == handle_key(handle)
    )
    rows = await connection.execute(asked.order_by(users.c.platform, users.c.id))
    return [(Platform(row.platform), UserId(row.id)) for row in rows]


def handle_key(handle: str) -> str:
    return handle.strip().removeprefix("@").lower()


def _between(asked: Select[Any], since: datetime | None, until: datetime | None) -> Select[Any]:
    if since is not None:
        asked = asked.where(posts.c.created_at >= since)
    if until is not None:
        asked = asked.where(posts.c.created_at < until)
    return asked


def _with_authors(asked: Select[Any]) -> Select[Any]:
    """Authors are looked up for the few posts that are shown; a planner that could would begin with them."""
    hits = asked.subquery()
    own = (users.c.platform == hits.c.platform) & (users.c.id == hits.c.author_id)
    return select(hits, users.c.handle, users.c.name).join_from(hits, users, own)


def _questions(dialect: str, words: Query, narrowed: Select[Any], before_id: int | None) -> list[Select[Any]]:
    if dialect == "sqlite":
        return [_on_sqlite(platform, words, narrowed, before_id) for platform in Platform]
    return [_on_postgresql(words, narrowed, before_id)]


def _on_sqlite(platform: Platform, words: Query, narrowed: Select[Any], before_id: int | None) -> Select[Any]:
    """One platform at a time: the index has its posts in the order of their ids, so that no sort is needed."""
    row, on_x = _INDEX.c.rowid, platform is Platform.X
    asked = narrowed.join_from(posts, _INDEX, posts.c.id == (row if on_x else -row)).where(
        literal_column("posts_search").op("MATCH")(bindparam("words", fts5(words))),
        posts.c.platform == platform,
        row > 0 if on_x else row < 0,
    )
    if before_id is not None:
        asked = asked.where(row < before_id if on_x else row > -before_id)
    return asked.order_by(row.desc() if on_x else row.asc())


def _on_postgresql(words: Query, narrowed: Select[Any], before_id: int | None) -> Select[Any]:
    wanted = func.to_tsquery(literal_column("'simple'::regconfig"), bindparam("words", tsquery(words)))
    asked = narrowed.where(literal_column(WORDS).op("@@")(wanted))
    if before_id is not None:
        asked = asked.where(posts.c.id < before_id)
    return asked.order_by(posts.c.id.desc())


def fts5(query: Query) -> str:
    """For MATCH. All that people wrote stands inside quotes, as words without any sign."""
    wanted = " AND ".join(f"({' OR '.join(map(_fts5_term, choice))})" for choice in query.choices)
    return f"({wanted}) NOT ({' OR '.join(map(_fts5_term, query.excluded))})" if query.excluded else wanted


def _fts5_term(term: Term) -> str:
    return f'"{" ".join(term.words)}"' + " *" * term.prefix


def tsquery(query: Query) -> str:
    """For to_tsquery. All that people wrote stands inside quotes."""
    wanted = " & ".join(f"({' | '.join(map(_tsquery_term, choice))})" for choice in query.choices)
    return f"{wanted} & !({' | '.join(map(_tsquery_term, query.excluded))})" if query.excluded else wanted


def _tsquery_term(term: Term) -> str:
    """PostgreSQL keeps `example.com`, `3.14` or `and/or` as one word: such are looked for both whole and in parts."""
    in_parts = _tsquery_parts(term)
    if " ".join(term.words) == term.text:
        return f"({in_parts})"
    return f"({_quoted(term.text)}{':*' * term.prefix} | ({in_parts}))"


def _tsquery_parts(term: Term) -> str:
    *before, last = term.words
    if not term.prefix:
        return _quoted(" ".join(term.words))
    return " <-> ".join([*([_quoted(" ".join(before))] if before else []), f"{_quoted(last)}:*"])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
