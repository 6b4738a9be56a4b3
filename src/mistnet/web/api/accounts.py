"""Accounts: which users are tracked, how far each is collected, and what is next. Suggestions of accounts. Feeds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Query
from msgspec.structs import asdict
from pydantic import Field, StringConstraints
from pydantic.json_schema import WithJsonSchema

from mistnet.social.accounts import AccountState, next_limit
from mistnet.social.coverage import Stretch, Sweep, own_posts, reposts
from mistnet.social.errors import BadHandle, NotTracked
from mistnet.social.feeds import LONGEST_SECONDS, SHORTEST_SECONDS, Feed, read_feed_handle
from mistnet.social.jobs import args
from mistnet.social.model import UserId, read_handle
from mistnet.social.store.account_pages import AccountLine, AccountPages
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.feeds import FeedJob
from mistnet.social.store.tracking import (
    LetGo,
    NewSuggestion,
    Refusals,
    RefusedHandle,
    Suggested,
    Suggestion,
    TrackingStore,
)
from mistnet.social.tracking import TrackResult, go_on, repair_sweeps, track_handles
from mistnet.web.auth import OPERATES, READS
from mistnet.web.dependencies import Listing, Mistnet, Pages
from mistnet.web.errors import BadInput, FieldProblem, NotFound, require
from mistnet.web.fields import LARGEST_ID, PLAIN, Document, Flag, RequestBody, Who, document_of, id_or_handle, list_of

router = APIRouter(prefix="/api/accounts", tags=["accounts"])

_HANDLE: Final = r"^@?[A-Za-z0-9_]{1,15}$"
WrittenHandle = Annotated[
    str, Field(max_length=200, description="@name, name or https://x.com/name.", json_schema_extra={"pattern": _HANDLE})
]


class AccountInFull(Document, record=AccountLine):
    """An account with its number of stored posts and its live jobs."""

    stored_posts: int
    live_jobs: dict[str, int]
    next_limit: int


class TrackRequest(RequestBody):
    handles: Annotated[list[WrittenHandle], Field(min_length=1, max_length=1_000)]


class NextStep(Document):
    note: str


class Repaired(Document):
    done: list[str]


_NOT_OF_SWEEPS: Final = ("user_id", "floor", "ceiling", "top", "platform", "floor_at", "ceiling_at", "top_at")


class SweepDocument(Document, record=Sweep, without=_NOT_OF_SWEEPS):
    pass


class CoverageDocument(Document):
    """What is verified, what is being swept, and what is missing."""

    user_id: UserId
    handle: str | None
    state: AccountState
    stored: int
    profile_posts: int | None
    backfilled_at: datetime | None
    reposts_backfilled_at: datetime | None
    suspect_since: datetime | None
    next_look_at: datetime | None
    own_posts: list[Stretch]
    native_retweets: list[Stretch] | None
    live_sweeps: list[SweepDocument]
    gaps: list[SweepDocument]


@router.get("", response_model=Listing[AccountLine], dependencies=READS)
async def list_accounts(
    mistnet: Mistnet,
    pages: Pages,
    search: Annotated[str, Query(max_length=100, pattern=PLAIN, description="Part of a handle or of a name.")] = "",
    state: AccountState | None = None,
) -> dict[str, Any]:
    """All accounts that are or were tracked, by user id."""
    accounts = AccountPages(mistnet.database)
    return pages.listing(await accounts.list(words=search, state=state, after=pages.place or 0, limit=pages.limit))


@router.post("", response_model=list_of(TrackResult, "accounts"), dependencies=OPERATES)
async def track(request: TrackRequest, mistnet: Mistnet) -> dict[str, Any]:
    """Track accounts: collect all their posts, the conversations around them, and the people in those."""
    handles = read_handles(request.handles)
    return {"accounts": await track_handles(mistnet, [NewSuggestion(handle=each) for each in handles])}


@router.get("/{who}", response_model=AccountInFull, dependencies=READS)
async def show_account(who: Who, mistnet: Mistnet) -> Mapping[str, Any]:
    """One account, by its user id or handle."""
    found = await account_of(mistnet, who)
    accounts = AccountPages(mistnet.database)
    return {
        **asdict(found),
        "stored_posts": await accounts.stored_posts(found.user_id),
        "live_jobs": await accounts.live_jobs(found.user_id),
        "next_limit": next_limit(found.fetch),
    }


@router.delete("/{who}", response_model=document_of(LetGo), dependencies=OPERATES)
async def untrack(
    who: Who, mistnet: Mistnet, reason: Annotated[str, Query(max_length=500, pattern=PLAIN)] = "untracked by API"
) -> object:
    """Stop collecting an account. What was collected stays."""
    tracking_store = TrackingStore(mistnet.database, mistnet.job_writer)
    gone = await tracking_store.untrack(id_or_handle(who), reason, now=mistnet.database.clock.now())
    if not gone.known:
        raise NotTracked(who)
    return gone


@router.post("/{who}/catch-up", status_code=202, response_model=NextStep, dependencies=OPERATES)
async def catch_up(who: Who, mistnet: Mistnet) -> dict[str, str]:
    """Collect an account now: its new posts, or the rest of its history."""
    found = await account_of(mistnet, who)
    if found.state is AccountState.UNTRACKED:
        raise NotTracked(who)
    notes = await go_on(mistnet, TrackingStore(mistnet.database, mistnet.job_writer), [found.user_id])
    return {"note": notes[found.user_id]}


@router.post("/{who}/repair", response_model=Repaired, dependencies=OPERATES)
async def repair(who: Who, mistnet: Mistnet) -> dict[str, list[str]]:
    """Retry failed sweeps, and start missing ones."""
    found = await account_of(mistnet, who)
    progress = await Coverage(mistnet.database).account_by_id(found.user_id)
    return {"done": await repair_sweeps(mistnet, progress) if progress else []}


@router.get("/{who}/coverage", response_model=CoverageDocument, dependencies=READS)
async def coverage(who: Who, mistnet: Mistnet) -> Mapping[str, Any]:
    """Which parts of an account's history are stored, and which are not."""
    found = await account_of(mistnet, who)
    progress = require(await Coverage(mistnet.database).account_by_id(found.user_id), f"account {who}")
    now = mistnet.database.clock.now()
    return {
        **asdict(progress),
        "profile_posts": progress.posts_count,
        "own_posts": own_posts(progress, now),
        "native_retweets": reposts(progress, now) if mistnet.settings.x_reposts else None,
        "live_sweeps": [each for each in progress.sweeps if each.alive],
        "gaps": progress.gaps,
    }


async def account_of(mistnet: Mistnet, who: str) -> AccountLine:
    """The account that a path names."""
    named, accounts = id_or_handle(who), AccountPages(mistnet.database)
    account = await (accounts.account(named) if isinstance(named, int) else accounts.account_called(named))
    if account is not None:
        return account
    refused = None if isinstance(named, int) else await Refusals(mistnet.database).of_handle(named)
    if refused is not None:
        raise NotFound(f"account {who}: it was refused at {refused.refused_at:%Y-%m-%d %H:%M} UTC, {refused.reason}")
    raise NotFound(f"account {who}; track it with POST /api/accounts")


def read_handles(written: list[str]) -> list[str]:
    """The handles in a request. Each invalid one is reported with its position."""
    handles: list[str] = []
    problems: list[FieldProblem] = []
    for position, each in enumerate(written):
        try:
            handles.append(read_handle(each))
        except BadHandle as error:
            problems.append(FieldProblem(field=f"handles.{position}", problem=str(error)))
    if problems:
        raise BadInput(problems)
    return handles


suggestions_router = APIRouter(prefix="/api/suggestions", tags=["accounts"])

Label = Annotated[str, StringConstraints(pattern=PLAIN, max_length=500)]
LabelName = Annotated[str, StringConstraints(pattern=PLAIN, min_length=1, max_length=100)]
_LABELS: Final = {
    "type": "object",
    "propertyNames": {"pattern": PLAIN, "minLength": 1, "maxLength": 100},
    "additionalProperties": {"type": "string", "pattern": PLAIN, "maxLength": 500},
    "maxProperties": 50,
}


class SuggestRequest(RequestBody):
    """Handles to suggest. Wallet and labels are stored with each of them."""

    handles: Annotated[list[WrittenHandle], Field(min_length=1, max_length=1_000)]
    wallet: Annotated[str, StringConstraints(pattern=PLAIN, max_length=500)] | None = None
    labels: Annotated[dict[LabelName, Label], Field(max_length=50), WithJsonSchema(_LABELS)] = Field(
        default_factory=dict
    )


class SuggestionDocument(Document, record=Suggestion, without=("deleted_at",)):
    """A suggestion. Once accepted or refused, it has a reason and a time."""

    labels: dict[str, Any]
    closed_at: datetime | None


@suggestions_router.get("/refused", response_model=list_of(RefusedHandle, "refused"), dependencies=READS)
async def list_refused(mistnet: Mistnet, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> dict[str, Any]:
    """Handles that could not be tracked, with the reason, the latest first."""
    return {"refused": await Refusals(mistnet.database).list(limit)}


@suggestions_router.get("", response_model=Listing[SuggestionDocument], dependencies=READS)
async def list_suggestions(
    mistnet: Mistnet,
    pages: Pages,
    only_open: Annotated[Flag, Query(alias="open", description="Only those without an outcome.")] = "false",
) -> dict[str, Any]:
    """Suggestions and their outcomes, the latest first."""
    page = await AccountPages(mistnet.database).suggestions(
        live_only=only_open == "true", before=pages.place or LARGEST_ID, limit=pages.limit
    )
    items = [
        {**asdict(each), "labels": msgspec.json.decode(each.labels), "closed_at": each.deleted_at}
        for each in page.items
    ]
    return {**pages.listing(page), "items": items}


@suggestions_router.post("", response_model=list_of(Suggested, "suggestions"), dependencies=OPERATES)
async def suggest(request: SuggestRequest, mistnet: Mistnet) -> dict[str, Any]:
    """Suggest accounts. A worker looks each up, and tracks it or refuses it with the reason."""
    new = [
        NewSuggestion(handle=each, wallet=request.wallet, labels=request.labels)
        for each in read_handles(request.handles)
    ]
    tracking_store = TrackingStore(mistnet.database, mistnet.job_writer)
    return {"suggestions": await tracking_store.suggest(new, job=args.suggestion, now=mistnet.database.clock.now())}


feeds_router = APIRouter(prefix="/api/feeds", tags=["feeds"])

_FEED_HANDLE: Final = {"pattern": r"^@?[A-Za-z0-9_](\.?[A-Za-z0-9_])*$", "maxLength": 30}
FeedHandle = Annotated[
    str,
    StringConstraints(pattern=PLAIN, min_length=1, max_length=200),
    Field(description="@name, name or https://www.threads.com/@name.", json_schema_extra=_FEED_HANDLE),
]
Handle = Annotated[str, Path(pattern=r"^@?[A-Za-z0-9._]{1,30}$", description="A handle of Threads.")]


class NewFeeds(RequestBody):
    handles: Annotated[list[FeedHandle], Field(min_length=1, max_length=1_000)]
    every_seconds: Annotated[
        float | None,
        Field(
            ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, description="Seconds between polls; null: `feed_every_seconds`."
        ),
    ] = None


class FeedDocument(Document, record=Feed):
    """Everything until `newest_post_at` and `newest_reply_at` has been read. `reason` says why a feed is refused."""

    job: FeedJob | None


class AddedFeedDocument(Document):
    """`result`: added, known (it is a feed already), or again (a refused feed is tried again)."""

    result: str
    feed: FeedDocument


class AddedFeeds(Document):
    feeds: list[AddedFeedDocument]


@feeds_router.get("", response_model=Listing[FeedDocument], dependencies=READS)
async def list_feeds(mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """All feeds, in the order in which they were added."""
    page = await mistnet.feeds.store.page(after=pages.place or 0, limit=pages.limit)
    polls = await mistnet.feeds.store.jobs([each.id for each in page.items])
    return {**pages.listing(page), "items": [_document(each, polls.get(each.id)) for each in page.items]}


@feeds_router.post("", response_model=AddedFeeds, dependencies=OPERATES)
async def add_feeds(request: NewFeeds, mistnet: Mistnet) -> dict[str, Any]:
    """Poll accounts from now on. Workers look each one up first, and refuse it with the reason if it cannot be read."""
    handles = [read_feed_handle(each) for each in request.handles]
    done = await mistnet.feeds.store.add(handles, every_seconds=request.every_seconds, job_writer=mistnet.job_writer)
    return {"feeds": [{"result": each.result, "feed": _document(each.feed)} for each in done]}


@feeds_router.get("/{handle}", response_model=FeedDocument, dependencies=READS)
async def show_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """One feed."""
    return await _with_job(mistnet, await mistnet.feeds.store.get(handle.removeprefix("@")))


@feeds_router.delete("/{handle}", response_model=FeedDocument, dependencies=OPERATES)
async def remove_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """Stop polling a feed. Collected posts stay."""
    return _document(await mistnet.feeds.store.remove(handle.removeprefix("@")))


@feeds_router.post("/{handle}/poll", response_model=FeedDocument, status_code=202, dependencies=OPERATES)
async def poll_feed(handle: Handle, mistnet: Mistnet) -> dict[str, Any]:
    """Poll a feed now. If a poll is under way, it continues."""
    (feed,) = await mistnet.feeds.store.poll([handle.removeprefix("@")], job_writer=mistnet.job_writer)
    return await _with_job(mistnet, feed)


async def _with_job(mistnet: Mistnet, feed: Feed) -> dict[str, Any]:
    return _document(feed, (await mistnet.feeds.store.jobs([feed.id])).get(feed.id))


def _document(feed: Feed, job: FeedJob | None = None) -> dict[str, Any]:
    return {**asdict(feed), "job": job}
