"""Dependencies of routes: parts of the service, a platform, a page of a list. Async: FastAPI runs others in threads."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request
from pydantic import Field

from mistnet.app import App
from mistnet.kit.view import ListPage, Place
from mistnet.operations.health import HealthCheck, QueueGauges
from mistnet.social.model import PLATFORM_NAME, Platform
from mistnet.social.store.post_listing import POST_CURSOR, read_cursor
from mistnet.web.errors import BadInput, FieldProblem
from mistnet.web.fields import Document, Whole, document_of


def part(name: str) -> Callable[..., Awaitable[Any]]:
    """A dependency: the part of the service that `application.bind` keeps under this name."""

    async def part_of(request: Request) -> Any:
        return getattr(request.app.state, name)

    return part_of


Mistnet = Annotated[App, Depends(part("mistnet"))]
Gauges = Annotated[QueueGauges, Depends(part("gauges"))]
Checks = Annotated[HealthCheck, Depends(part("health"))]


async def read_platform(
    mistnet: Mistnet,
    platform: Annotated[
        str | None, Query(pattern=f"^{PLATFORM_NAME}$", description="The name of a platform, such as x.")
    ] = None,
) -> Platform | None:
    """The platforms are those whose sources this app has, so the schema alone cannot check the name."""
    if platform is not None and platform not in mistnet.platforms:
        known = " or ".join(f"'{each}'" for each in mistnet.platforms)
        raise BadInput([FieldProblem(field="platform", problem=f"Input should be {known}")])
    return None if platform is None else Platform(platform)


OnPlatform = Annotated[Platform | None, Depends(read_platform)]


T = TypeVar("T")
# 16 bytes in 22 characters, of which the last holds only two bits.
RUN_CURSOR: Final = r"^[A-Za-z0-9_-]{21}[AQgw]$"
PageLimit = Annotated[int, Field(ge=1, le=200), Whole, Query(description="How many at most.")]


class Listing(Document, Generic[T]):
    """One page. `next` is the cursor of the next page, or null on the last one."""

    items: list[T]
    next: str | None

    def __class_getitem__(cls, listed: Any) -> Any:
        """`Listing[Record]` lists the documents of records."""
        is_record = isinstance(listed, type) and issubclass(listed, msgspec.Struct)
        return super().__class_getitem__(document_of(listed) if is_record else listed)


class CursorFormat(NamedTuple):
    """How the place where a page begins is written as text. The pattern admits what `write` can return."""

    pattern: str
    read: Callable[[str], Place]
    write: Callable[[Place], str]


class PageQuery:
    """The page that a request asks for."""

    def __init__(self, limit: int, cursor: str | None, kind: CursorFormat) -> None:
        self.limit = limit
        self.place: Place | None = None if cursor is None else kind.read(cursor)
        self._write = kind.write

    def listing(self, page: ListPage[Any]) -> dict[str, Any]:
        """The response for a page."""
        return {"items": page.items, "next": None if page.next is None else self._write(page.next)}


def page_query(kind: CursorFormat) -> Callable[..., Awaitable[PageQuery]]:
    """A dependency: the parameters `limit` and `cursor` of a list."""

    async def query(
        limit: PageLimit = 50,
        cursor: str | None = Query(
            None, pattern=kind.pattern, description="Where the page begins: `next` of the page before."
        ),
    ) -> PageQuery:
        return PageQuery(limit, cursor, kind)

    return query


def encode(place: bytes) -> str:
    # Without padding: = would have to be escaped in URLs.
    return base64.urlsafe_b64encode(place).decode().rstrip("=")


def decode(cursor: str) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def cursor_of(place: int) -> str:
    return encode(place.to_bytes(8))


def place_of(cursor: str) -> int:
    return int.from_bytes(decode(cursor))


# A number without a sign: the first character is below 32, the last of the 11 holds only four bits.
NUMBERS: Final = CursorFormat(r"^[A-Za-f][A-Za-z0-9_-]{9}[AEIMQUYcgkosw048]$", place_of, cursor_of)
POSTS: Final = CursorFormat(POST_CURSOR, read_cursor, str)
UUIDS: Final = CursorFormat(
    RUN_CURSOR, lambda text: str(UUID(bytes=decode(text))), lambda place: encode(UUID(place).bytes)
)

Pages = Annotated[PageQuery, Depends(page_query(NUMBERS))]
"""For lists in the order of a number."""
PostPages = Annotated[PageQuery, Depends(page_query(POSTS))]
RunPages = Annotated[PageQuery, Depends(page_query(UUIDS))]
