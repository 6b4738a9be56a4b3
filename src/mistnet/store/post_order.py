"""The order of posts in SQL: `posts_created_at` and `posts_author_time` have it, so that a page needs no sort."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Tuple, literal, tuple_

from mistnet.domain.post_order import PostCursor
from mistnet.store.tables import posts

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
