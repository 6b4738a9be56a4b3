"""Feeds: accounts of Threads that are polled."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from msgspec.structs import asdict
from pydantic import Field, StringConstraints

from mistnet.kit.view import ListPage
from mistnet.social.feeds import LONGEST_SECONDS, SHORTEST_SECONDS, Feed, read_feed_handle
from mistnet.social.store.feeds import FeedJob
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import refusals
from mistnet.web.fields import PLAIN, Document, RequestBody
from mistnet.web.paging import Listing, Pages

router = APIRouter(prefix="/api/feeds", tags=["feeds"])

_HANDLE: Final = {"pattern": r"^@?[A-Za-z0-9_](\.?[A-Za-z0-9_])*$", "maxLength": 30}
WrittenHandle = Annotated[
    str,
    StringConstraints(pattern=PLAIN, min_length=1, max_length=200),
    Field(description="@name, name or https://www.threads.com/@name.", json_schema_extra=_HANDLE),
]
Handle = Annotated[str, Path(pattern=r"^@?[A-Za-z0-9._]{1,30}$", description="A handle of Threads.")]


class NewFeeds(RequestBody):
    handles: Annotated[list[WrittenHandle], Field(min_length=1, max_length=1_000)]
    every_seconds: Annotated[
        float | None,
        Field(
            ge=SHORTEST_SECONDS,
            le=LONGEST_SECONDS,
            description="Seconds between polls; null: `feed_every_seconds`.",
        ),
    ] = None


class FeedPollDocument(Document, record=FeedJob):
    """A poll that is under way, or that failed."""

    state: str


class FeedDocument(Document, record=Feed):
    """Everything until `newest_post_at` and `newest_reply_at` has been read. `reason` says why a feed is refused."""

    platform: str
    state: str
    job: FeedPollDocument | None


class AddedFeedDocument(Document):
    """`result`: added, known (it is a feed already), or again (a refused feed is tried again)."""

    result: str
    feed: FeedDocument


class AddedFeedDocuments(Document):
    feeds: list[AddedFeedDocument]


@router.get("", response_model=Listing[FeedDocument], dependencies=READS)
async def list_feeds(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """All feeds, in the order in which they were added."""
    # One row too many shows whether another page follows.
    rows = await mistnet.feeds.store.list(after=pages.place or 0, limit=pages.limit + 1)
    page = ListPage.cut(rows, pages.limit, lambda feed: feed.id)
    polls = await mistnet.feeds.store.jobs([each.id for each in page.items])
    return {**pages.listing(page), "items": [_document(each, polls.get(each.id)) for each in page.items]}


@router.post("", response_model=AddedFeedDocuments, dependencies=OPERATES)
async def add_feeds(request: NewFeeds, mistnet: Mistnet) -> dict[str, Any]:
    """Poll accounts from now on. Workers look each one up first, and refuse it with the reason if it cannot be read."""
    handles = [read_feed_handle(each) for each in request.handles]
    done = await mistnet.feeds.add(handles, every_seconds=request.every_seconds, job_writer=mistnet.job_writer)
    return {"feeds": [{"result": each.result, "feed": _document(each.feed)} for each in done]}


@router.get("/{handle}", response_model=FeedDocument, responses=refusals(404), dependencies=READS)
async def show_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """One feed."""
    return await _with_job(mistnet, await mistnet.feeds.store.get(handle.removeprefix("@")))


@router.delete("/{handle}", response_model=FeedDocument, responses=refusals(404), dependencies=OPERATES)
async def remove_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """Stop polling a feed. Collected posts stay."""
    return _document(await mistnet.feeds.remove(handle.removeprefix("@")))


@router.post(
    "/{handle}/poll", response_model=FeedDocument, status_code=202, responses=refusals(404), dependencies=OPERATES
)
async def poll_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """Poll a feed now. If a poll is under way, it continues."""
    (feed,) = await mistnet.feeds.poll([handle.removeprefix("@")], job_writer=mistnet.job_writer)
    return await _with_job(mistnet, feed)


async def _with_job(mistnet: Mistnet, feed: Feed) -> dict[str, Any]:
    return _document(feed, (await mistnet.feeds.store.jobs([feed.id])).get(feed.id))


def _document(feed: Feed, job: FeedJob | None = None) -> dict[str, Any]:
    return {**asdict(feed), "job": job}
