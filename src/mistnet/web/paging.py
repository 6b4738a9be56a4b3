"""Lists in pages: each names where the next begins, so that nothing is shown twice or left out while rows come in."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import UUID

from fastapi import Depends, Query
from pydantic import Field

from mistnet.kit.view import Page
from mistnet.social.post_order import POST_CURSOR, read_cursor
from mistnet.web.fields import Document, Whole

T = TypeVar("T")
ID_CURSOR: Final = r"^[A-Za-f][A-Za-z0-9_-]{9}[AEIMQUYcgkosw048]$"
RUN_CURSOR: Final = r"^[A-Za-z0-9_-]{21}[AQgw]$"
_ABOUT: Final = "Where the page begins: `next` of the page before."

PageLimit = Annotated[int, Field(ge=1, le=200), Whole, Query(description="How many at most.")]


class Listing(Document, Generic[T]):
    """One page. `next` is the cursor of the page after it; null: there is none."""

    items: list[T]
    next: str | None


class Paging:
    """A page of rows that are ordered by a number."""

    def __init__(self, limit: int, cursor: str | None) -> None:
        self.limit = limit
        self.place = None if cursor is None else place_of(cursor)

    @property
    def one_more(self) -> int:
        """A row too many tells that there is a next page."""
        return self.limit + 1

    def listing(self, rows: Sequence[Any], place: Callable[[Any], int]) -> dict[str, Any]:
        shown = rows[: self.limit]
        more = len(rows) > self.limit
        return {"items": shown, "next": cursor_of(place(shown[-1])) if more else None}


class PostPaging:
    """A page of posts, which are ordered by time, platform and id."""

    def __init__(self, limit: int, cursor: str | None) -> None:
        self.limit = limit
        self.place = None if cursor is None else read_cursor(cursor)

    @property
    def one_more(self) -> int:
        return self.limit + 1

    def listing(self, rows: Sequence[Any]) -> dict[str, Any]:
        shown = rows[: self.limit]
        more = len(rows) > self.limit
        return {"items": shown, "next": str(shown[-1].cursor) if more else None}


class RunPaging:
    """A page of runs, whose ids are UUIDs that sort by time."""

    def __init__(self, limit: int, cursor: str | None) -> None:
        self.limit = limit
        self.before = None if cursor is None else str(UUID(bytes=_bytes(cursor)))

    def listing(self, page: Page[Any]) -> dict[str, Any]:
        return {"items": page.items, "next": _text(UUID(page.next).bytes) if page.next else None}


def cursor_of(place: int) -> str:
    return _text(place.to_bytes(8))


def place_of(cursor: str) -> int:
    return int.from_bytes(_bytes(cursor))


def _text(place: bytes) -> str:
    return base64.urlsafe_b64encode(place).decode().rstrip("=")


def _bytes(cursor: str) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


async def _pages(
    limit: PageLimit = 50, cursor: Annotated[str | None, Query(pattern=ID_CURSOR, description=_ABOUT)] = None
) -> Paging:
    return Paging(limit, cursor)


async def _post_pages(
    limit: PageLimit = 50, cursor: Annotated[str | None, Query(pattern=POST_CURSOR, description=_ABOUT)] = None
) -> PostPaging:
    return PostPaging(limit, cursor)


async def _run_pages(
    limit: PageLimit = 50, cursor: Annotated[str | None, Query(pattern=RUN_CURSOR, description=_ABOUT)] = None
) -> RunPaging:
    return RunPaging(limit, cursor)


Pages = Annotated[Paging, Depends(_pages)]
PostPages = Annotated[PostPaging, Depends(_post_pages)]
RunPages = Annotated[RunPaging, Depends(_run_pages)]
