"""Feeds: accounts of Threads that are polled, their state, and why one was refused."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.governor.model import THREADS_SOURCE
from mistnet.social.errors import BadFeed
from mistnet.social.feeds import read_feed_handle
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.pages.accounts import LargestId
from mistnet.web.pages.drawings import RHYTHMS, rhythm_of
from mistnet.web.pages.render import page
from mistnet.web.tokens import Caller

router = APIRouter(include_in_schema=False)
_PAGE: Final = 100
_OFTEN: Final = {"": "as in the settings", **{word: rhythm[0] for word, rhythm in RHYTHMS.items() if word}}
HandlePath = Annotated[str, Path(max_length=100)]


@router.get("/feeds")
async def feeds(
    request: Request, caller: Reader, app: Mistnet, after: Annotated[int, Query(ge=0, le=LargestId)] = 0
) -> HTMLResponse:
    return await _list(request, caller, app, after=after)


async def _list(request: Request, caller: Caller, app: App, *, after: int = 0, **shown: Any) -> HTMLResponse:
    listed = await app.feeds.store.list(after=after, limit=_PAGE)
    polls = await app.feeds.store.jobs([each.id for each in listed])
    usual = app.settings.feed_every_seconds
    return page(
        request,
        "feeds.html",
        caller,
        rows=[(each, polls.get(each.id), rhythm_of(each.every_seconds or usual)) for each in listed],
        often=_OFTEN,
        has_token=app.feeds.keeper.token is not None,
        source=await app.sources.state(THREADS_SOURCE),
        after=after,
        more=listed[-1].id if len(listed) == _PAGE else None,
        **{"problem": None, "given": {"handle": "", "every": ""}, **shown},
    )


@router.post("/feeds")
async def add(
    request: Request,
    caller: Operator,
    app: Mistnet,
    handle: Annotated[str, Form(max_length=5_000)] = "",
    every: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Add feeds by handle or URL. Refused ones are tried again."""
    try:
        handles = [read_feed_handle(each) for each in handle.replace(",", " ").split() or [""]]
    except BadFeed as error:
        given = {"handle": handle, "every": every}
        return await _list(request, caller, app, problem=str(error), given=given, status=400)
    seconds = RHYTHMS.get(every, ("", None))[1]
    done = await app.feeds.add(handles, every_seconds=seconds, job_writer=app.job_writer)
    results = {each.result for each in done}
    word = next(each for each in ("added", "again", "known") if each in results)
    return RedirectResponse(f"/feeds?did=feed-{word}", 303)


@router.post("/feeds/{handle}/poll")
async def poll(_caller: Operator, app: Mistnet, handle: HandlePath) -> RedirectResponse:
    """Poll a feed now. A poll that is under way continues."""
    await app.feeds.poll([handle.replace("\x00", "")], job_writer=app.job_writer)
    return RedirectResponse("/feeds?did=feed-polled", 303)


@router.post("/feeds/{handle}/remove")
async def remove(_caller: Operator, app: Mistnet, handle: HandlePath) -> RedirectResponse:
    await app.feeds.remove(handle.replace("\x00", ""))
    return RedirectResponse("/feeds?did=feed-removed", 303)
