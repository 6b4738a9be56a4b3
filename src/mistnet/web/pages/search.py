"""Search: posts by words, author and time."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from mistnet.kit.errors import UsageError
from mistnet.social.search_query import parse, pattern
from mistnet.social.store.post_listing import PostSearch, PostSpan, find_authors, read_cursor
from mistnet.web.auth import Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.pages.accounts import PostPlace
from mistnet.web.pages.render import marked, page

router = APIRouter(include_in_schema=False)
_PAGE: Final = 25
Words = Annotated[str, Query(max_length=500)]


@router.get("/search")
async def search(
    request: Request,
    caller: Reader,
    app: Mistnet,
    q: Words = "",
    author: Annotated[str, Query(max_length=100)] = "",
    since: Annotated[str, Query(max_length=10)] = "",
    until: Annotated[str, Query(max_length=10)] = "",
    before: PostPlace = None,
) -> HTMLResponse:
    asked = {"q": q, "author": author, "since": since, "until": until}
    found: list[Any] = []
    problem = None
    if q.strip():
        try:
            found = [
                *await PostSearch(app.database).find(
                    q.replace("\x00", ""),
                    PostSpan(
                        authors=await find_authors(app.database, author.replace("\x00", "")) if author else None,
                        since=_day(since),
                        until=_day(until, later=1),
                    ),
                    before=read_cursor(before) if before else None,
                    limit=_PAGE,
                )
            ]
        except (UsageError, ValueError) as error:
            problem = str(error)
    return page(
        request,
        "search.html",
        caller,
        status=400 if problem else 200,
        asked=asked,
        found=[(post, marked(post.text, pattern(parse(q)))) for post in found],
        problem=problem,
        before=before,
        more=found[-1].cursor if len(found) == _PAGE else None,
    )


def _day(written: str, later: int = 0) -> datetime | None:
    """The beginning of a day (UTC), or of a later one."""
    if not written.strip():
        return None
    try:
        return datetime.combine(date.fromisoformat(written.strip()) + timedelta(days=later), time(), UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{written!r} is not a day. Write it like 2027-01-31") from None
