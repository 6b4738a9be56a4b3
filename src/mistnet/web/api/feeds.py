"""Feeds: accounts of Threads that are read again and again."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from pydantic import Field, StringConstraints

from mistnet.social.feeds.model import LONGEST_SECONDS, SHORTEST_SECONDS, Feed, read_feed_handle
from mistnet.social.feeds.store import FeedJob
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import refusals
from mistnet.web.fields import PLAIN, Document, Id, Moment, RequestBody
from mistnet.web.paging import Listing, Pages

router = APIRouter(prefix="/api/feeds", tags=["feeds"])

PLAINLY: Final = {"pattern": r"^@?[A-Za-z0-9_](\.?[A-Za-z0-9_])*$", "maxLength": 30}
WrittenHandle = Annotated[
    str,
    StringConstraints(pattern=PLAIN, min_length=1, max_length=200),
    Field(description="@name, name or https://www.threads.com/@name.", json_schema_extra=PLAINLY),
]
Handle = Annotated[str, Path(pattern=r"^@?[A-Za-z0-9._]{1,30}$", description="A handle of Threads.")]


class FeedsWanted(RequestBody):
    handles: Annotated[list[WrittenHandle], Field(min_length=1, max_length=1_000)]
    every_seconds: Annotated[
        float | None,
        Field(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, description="Look so often; null: as the settings say."),
    ] = None


class FeedPollDocument(Document):
    """A poll that is under way, or that could not be done."""

    id: Id
    state: str
    wait_reason: str | None
    last_error: str | None


class FeedDocument(Document):
    """Until `newest_post_at` and `newest_reply_at` everything has been read; `reason` is why not, if not."""

    id: Id
    platform: str
    handle: str
    user_id: Id | None
    state: str
    reason: str | None
    every_seconds: float | None
    added_at: Moment
    newest_post_at: Moment | None
    newest_reply_at: Moment | None
    polled_at: Moment | None
    posts: int
    job: FeedPollDocument | None


class AddedFeedDocument(Document):
    """`result`: added, known, or again: one that was refused is tried again."""

    result: str
    feed: FeedDocument


class AddedFeedDocuments(Document):
    feeds: list[AddedFeedDocument]


@router.get("", response_model=Listing[FeedDocument], dependencies=READS)
async def list_feeds(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """All feeds, in the order in which they were added."""
    found = await mistnet.feeds.store.list(after=pages.place or 0, limit=pages.one_more)
    polls = await mistnet.feeds.store.jobs([each.id for each in found])
    page = pages.listing(found, lambda feed: feed.id)
    return {**page, "items": [_document(each, polls.get(each.id)) for each in page["items"]]}


@router.post("", response_model=AddedFeedDocuments, dependencies=OPERATES)
async def add_feeds(asked: FeedsWanted, mistnet: Mistnet) -> dict[str, Any]:
    """Read accounts from now on. Workers look each up first, and refuse it with the reason if it cannot be read."""
    wanted = [read_feed_handle(each) for each in asked.handles]
    done = await mistnet.feeds.add(wanted, every_seconds=asked.every_seconds, job_writer=mistnet.job_writer)
    return {"feeds": [{"result": each.result, "feed": _document(each.feed)} for each in done]}


@router.get("/{handle}", response_model=FeedDocument, responses=refusals(404), dependencies=READS)
async def show_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """One feed."""
    return await _shown(mistnet, await mistnet.feeds.store.get(handle.removeprefix("@")))


@router.delete("/{handle}", response_model=FeedDocument, responses=refusals(404), dependencies=OPERATES)
async def remove_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """Stop reading it. What was collected stays."""
    return _document(await mistnet.feeds.remove(handle.removeprefix("@")))


@router.post(
    "/{handle}/poll", response_model=FeedDocument, status_code=202, responses=refusals(404), dependencies=OPERATES
)
async def poll_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """Look at it now. Workers do it; one that is being looked at goes on."""
    (asked,) = await mistnet.feeds.poll([handle.removeprefix("@")], job_writer=mistnet.job_writer)
    return await _shown(mistnet, asked)


async def _shown(mistnet: Mistnet, feed: Feed) -> dict[str, Any]:
    return _document(feed, (await mistnet.feeds.store.jobs([feed.id])).get(feed.id))


def _document(feed: Feed, job: FeedJob | None = None) -> dict[str, Any]:
    return {**{name: getattr(feed, name) for name in feed.__struct_fields__}, "job": job}
