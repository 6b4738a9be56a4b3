"""Feeds: accounts of Threads that are read again and again; how each stands, and why one cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.governor.model import THREADS_SOURCE
from mistnet.social.errors import BadFeed
from mistnet.social.feeds.model import read_feed_handle
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.pages.accounts import LargestId
from mistnet.web.pages.drawings import RHYTHMS, rhythm_of
from mistnet.web.pages.render import page
from mistnet.web.tokens import Caller

router = APIRouter(include_in_schema=False)
_PAGE: Final = 100
_OFTEN: Final = {"": "as the settings say", **{word: rhythm[0] for word, rhythm in RHYTHMS.items() if word}}
HandlePath = Annotated[str, Path(max_length=100)]


@router.get("/feeds")
async def feeds(
    request: Request, visitor: Reader, app: Mistnet, after: Annotated[int, Query(ge=0, le=LargestId)] = 0
) -> HTMLResponse:
    return await _list(request, visitor, app, after=after)


async def _list(request: Request, visitor: Caller, app: App, *, after: int = 0, **shown: Any) -> HTMLResponse:
    listed = await app.feeds.store.list(after=after, limit=_PAGE)
    polls = await app.feeds.store.jobs([each.id for each in listed])
    return page(
        request,
        "feeds.html",
        visitor,
        rows=[(each, polls.get(each.id), rhythm_of(each.every_seconds or _usual(app))) for each in listed],
        often=_OFTEN,
        has_token=app.feeds.keeper.token is not None,
        source=await app.sources.state(THREADS_SOURCE),
        after=after,
        more=listed[-1].id if len(listed) == _PAGE else None,
        **{"problem": None, "given": {"handle": "", "every": ""}, **shown},
    )


def _usual(app: App) -> float:
    return app.settings.feed_every_seconds


@router.post("/feeds")
async def add(
    request: Request,
    visitor: Operator,
    app: Mistnet,
    handle: Annotated[str, Form(max_length=5_000)] = "",
    every: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Adds feeds by handle or address; one that was refused is tried again."""
    try:
        handles = [read_feed_handle(each) for each in handle.replace(",", " ").split() or [""]]
    except BadFeed as error:
        given = {"handle": handle, "every": every}
        return await _list(request, visitor, app, problem=str(error), given=given, status=400)
    seconds = RHYTHMS.get(every, ("", None))[1]
    done = await app.feeds.add(handles, every_seconds=seconds, job_writer=app.job_writer)
    return RedirectResponse(f"/feeds?did=feed-{_did([each.result for each in done])}", 303)


def _did(results: Sequence[str]) -> str:
    return next(word for word in ("added", "again", "known") if word in results)


@router.post("/feeds/{handle}/poll")
async def poll(_visitor: Operator, app: Mistnet, handle: HandlePath) -> RedirectResponse:
    """Reads it now; a poll that is under way is joined."""
    await app.feeds.poll([handle.replace("\x00", "")], job_writer=app.job_writer)
    return RedirectResponse("/feeds?did=feed-polled", 303)


@router.post("/feeds/{handle}/remove")
async def remove(_visitor: Operator, app: Mistnet, handle: HandlePath) -> RedirectResponse:
    await app.feeds.remove(handle.replace("\x00", ""))
    return RedirectResponse("/feeds?did=feed-removed", 303)
