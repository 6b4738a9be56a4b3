"""The one order of posts: by the time they were written, then platform and id."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Tuple, literal, tuple_

from mistnet.social.model import PLATFORM_NAME, Platform, PostId
from mistnet.social.tables import posts

POST_CURSOR: Final = rf"^(0|[1-9][0-9]{{0,16}})\.{PLATFORM_NAME}\.[1-9][0-9]{{0,18}}$"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_ID: Final = 2**63 - 1


class PostCursor(msgspec.Struct, frozen=True, order=True):
    """A place in the order of posts. Ids alone give none: those of two platforms do not compare."""

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
