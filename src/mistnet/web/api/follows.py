"""Users and their earlier profiles; who follows whom, how that changed, and the syncs that read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from mistnet.graph.follows.listing import Follows
from mistnet.graph.follows.model import FollowChange, FollowLine, Side, SyncMode
from mistnet.operations.runs.model import LARGEST_CREDITS
from mistnet.social.model import UserId
from mistnet.social.store.account_pages import KnownUser, People, UserVersion
from mistnet.sources.x.follows import RequestedSync, ask_for_syncs, known_subject, subject_of
from mistnet.web.auth import READS, Operator
from mistnet.web.dependencies import NUMBERS, CursorFormat, Listing, Mistnet, PageQuery, Pages, page_query
from mistnet.web.errors import refusals, require
from mistnet.web.fields import Document, Flag, Integral, RequestBody, Who, document_of, id_or_handle

router = APIRouter(prefix="/api/users", tags=["follows"])

Ended = Annotated[Flag, Query(description="Users who have left the list.")]


class FollowListing(Listing[FollowLine]):
    """One page of a list. `known_since`: when the list was first read in full; null: not yet."""

    known_since: datetime | None


class FollowEventListing(Listing[FollowChange]):
    """One page of changes. Users who were on a list when it was first read in full are not changes."""

    followers_known_since: datetime | None
    followings_known_since: datetime | None


class SyncRequest(RequestBody):
    side: Literal["followers", "followings", "both"] = "both"
    mode: Literal["incremental", "full"] = "incremental"
    confirm: Annotated[
        bool, Field(description="Also if it is likely to cost more than the setting `confirm_credits`.")
    ] = False
    max_credits: (
        Annotated[int, Field(ge=1, le=LARGEST_CREDITS), Integral, Field(description="Stop when this much is spent.")]
        | None
    ) = None


class SyncsAsked(Document):
    user_id: UserId
    mode: SyncMode
    syncs: list[RequestedSync]


@router.get("/{who}/followers", response_model=FollowListing, dependencies=READS)
async def list_followers(who: Who, mistnet: Mistnet, pages: Pages, ended: Ended = "false") -> dict[str, Any]:
    """The users who follow a user, by id."""
    return await _page(mistnet, who, pages, Side.FOLLOWERS, ended=ended == "true")


@router.get("/{who}/followings", response_model=FollowListing, dependencies=READS)
async def list_followings(who: Who, mistnet: Mistnet, pages: Pages, ended: Ended = "false") -> dict[str, Any]:
    """The users whom a user follows, by id."""
    return await _page(mistnet, who, pages, Side.FOLLOWINGS, ended=ended == "true")


async def _page(mistnet: Mistnet, who: str, pages: Pages, side: Side, *, ended: bool) -> dict[str, Any]:
    subject = await known_subject(mistnet, who)
    stored = Follows(mistnet.database)
    page = await stored.page(subject.user_id, side, ended=ended, after=pages.place or 0, limit=pages.limit)
    return {**pages.listing(page), "known_since": (await stored.known_since(subject.user_id)).get(side)}


@router.get("/{who}/follow-events", response_model=FollowEventListing, dependencies=READS)
async def list_follow_events(who: Who, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """How both lists of a user changed, the latest first."""
    subject = await known_subject(mistnet, who)
    stored = Follows(mistnet.database)
    page = await stored.events(subject.user_id, before=pages.place, limit=pages.limit)
    known = await stored.known_since(subject.user_id)
    return {**pages.listing(page), **{f"{side}_known_since": known.get(side) for side in Side}}


@router.post("/{who}/follow-sync", status_code=202, response_model=SyncsAsked, responses=refusals(409))
async def sync_follows(who: Who, body: SyncRequest, mistnet: Mistnet, caller: Operator) -> dict[str, Any]:
    """Read one or both lists of a user. Workers do it. Each list has one live sync, which later requests share.

    The user need not be stored: a handle is looked up if a key for X is set. Only a full sync finds who left.
    A sync that is likely to cost more than `confirm_credits` is refused unless `confirm` or `max_credits` is given.
    """
    named = id_or_handle(who)
    find = subject_of if mistnet.settings.x_api_key else known_subject
    user_id = named if isinstance(named, int) else (await find(mistnet, f"@{named}")).user_id
    mode = SyncMode(body.mode)
    syncs = await ask_for_syncs(
        mistnet,
        user_id,
        list(Side) if body.side == "both" else [Side(body.side)],
        mode,
        asked_by=caller.name,
        confirmed=body.confirm,
        max_credits=body.max_credits,
    )
    return {"user_id": user_id, "mode": mode, "syncs": syncs}


users_router = APIRouter(prefix="/api/users", tags=["users"], dependencies=READS)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(cursor: str) -> datetime:
    """The time in a cursor of versions."""
    try:
        return _EPOCH + timedelta(microseconds=NUMBERS.read(cursor))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)  # a made-up cursor: the page begins at the latest version


TIMES: Final = CursorFormat(
    NUMBERS.pattern, read_time, lambda at: NUMBERS.write((at - _EPOCH) // timedelta(microseconds=1))
)
TimePages = Annotated[PageQuery, Depends(page_query(TIMES))]


@users_router.get("/{who}", response_model=document_of(KnownUser))
async def show_user(who: Who, mistnet: Mistnet) -> KnownUser:
    """One user, by id or current handle."""
    return await find_user(mistnet, who)


@users_router.get("/{who}/versions", response_model=Listing[UserVersion])
async def list_versions(who: Who, mistnet: Mistnet, pages: TimePages) -> dict[str, Any]:
    """Earlier handles, names, bios and avatars, the latest first."""
    user = await find_user(mistnet, who)
    versions = await People(mistnet.database).versions(user.id, before=pages.place, limit=pages.limit)
    return pages.listing(versions)


async def find_user(mistnet: Mistnet, who: str) -> KnownUser:
    named, people = id_or_handle(who), People(mistnet.database)
    user = await (people.by_id(named) if isinstance(named, int) else people.called(named))
    return require(user, f"user {who} here: no collected payload contains one")
