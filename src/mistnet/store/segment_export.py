"""Writes the members of a segment out, page by page, in the formats of every other export."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from io import BytesIO
from typing import Any, Final

from mistnet.domain.segments import Member, Segment, What
from mistnet.store.export import FORMATS, Field, Format, ForSpreadsheets, Shape, Target, instant
from mistnet.store.segments import Segments

_PAGE: Final = 1_000
_OF_USERS: Final = ("platform", "user_id", "handle", "name", "since")
_OF_POSTS: Final = ("platform", "post_id", "author_handle", "author_name", "text", "since")


async def export_members(
    store: Segments, segment: Segment, format_: Format, target: Target, *, as_of: datetime | None = None
) -> int:
    """All members now, or as they were at a time before, in the order in which they came. Answers how many."""
    rows = 0
    with FORMATS[format_]("members", _fields(segment), target) as write:
        async with aclosing(_pages(store, segment, as_of)) as pages:
            async for page in pages:
                write(page)
                rows += len(page)
    return rows


async def stream_members(
    store: Segments, segment: Segment, format_: Format, *, as_of: datetime | None = None, safe_cells: bool = False
) -> AsyncGenerator[bytes, None]:
    """The same, a page at a time."""
    held = BytesIO()
    with FORMATS[format_]("members", _fields(segment), ForSpreadsheets(held) if safe_cells else held) as write:
        async with aclosing(_pages(store, segment, as_of)) as pages:
            async for page in pages:
                write(page)
                yield held.getvalue()
                held.seek(0)
                held.truncate()
    yield held.getvalue()


async def _pages(
    store: Segments, segment: Segment, as_of: datetime | None
) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
    place = 0
    while page := await store.members(segment.name, as_of_=as_of, after=place, limit=_PAGE):
        yield [_row(each, segment.what) for each in page]
        place = page[-1].place


def _fields(segment: Segment) -> Sequence[Field]:
    names = _OF_USERS if segment.what is What.USERS else _OF_POSTS
    return [Field(name, Shape.TEXT, None) for name in names]


def _row(member: Member, what: What) -> Sequence[Any]:
    people = [member.handle, member.name]
    if what is What.USERS:
        return [str(member.platform), str(member.user_id), *people, instant(member.since)]
    return [str(member.platform), str(member.post_id), *people, member.text, instant(member.since)]
