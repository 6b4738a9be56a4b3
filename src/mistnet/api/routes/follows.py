"""Who follows whom: both lists of a user, how they changed, and the syncs that read them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query

from mistnet.api.auth import READS, Operator
from mistnet.api.errors import refusals
from mistnet.api.fields import Document, Flag, Given, Id, Moment, Who, id_or_handle
from mistnet.api.paging import Listing, Pages
from mistnet.api.parts import Mistnet
from mistnet.desk.following import ask_for_syncs, known_subject, subject_of
from mistnet.domain.follows import Cause, FollowKind, Side, SyncMode
from mistnet.domain.social import UserId
from mistnet.store.follow_listing import Follows

router = APIRouter(prefix="/api/users", tags=["follows"])

_LARGEST_ID: Final = 2**63 - 1
Ended = Annotated[Flag, Query(description="Those who were there once, and are no more.")]


class FollowDocument(Document):
    """One user on a list. `doubted`: a sync did not see him, and no other has confirmed that he is gone."""

    user_id: Id
    handle: str | None
    name: str | None
    first_seen_at: Moment
    last_seen_at: Moment
    doubted: bool
    ended_at: Moment | None


class FollowEventDocument(Document):
    """A change, when it was seen, and its cause as far as that is known."""

    id: Id
    follower_id: Id
    follower_handle: str | None
    followed_id: Id
    followed_handle: str | None
    kind: FollowKind
    cause: Cause
    at: Moment
    ingest_id: Id | None


class SyncRequest(Given):
    side: Literal["followers", "followings", "both"] = "both"
    mode: Literal["incremental", "full"] = "incremental"


class AskedDocument(Document):
    """`created` is false if the same sync was asked for already and is still alive."""

    side: Side
    created: bool


class SyncsAsked(Document):
    user_id: Id
    mode: SyncMode
    syncs: list[AskedDocument]


@router.get("/{who}/followers", response_model=Listing[FollowDocument], dependencies=READS, responses=refusals(404))
async def list_followers(who: Who, mistnet: Mistnet, pages: Pages, ended: Ended = "false") -> dict[str, Any]:
    """Who follows a user, by id."""
    return await _page(mistnet, who, pages, Side.FOLLOWERS, ended=ended == "true")


@router.get("/{who}/followings", response_model=Listing[FollowDocument], dependencies=READS, responses=refusals(404))
async def list_followings(who: Who, mistnet: Mistnet, pages: Pages, ended: Ended = "false") -> dict[str, Any]:
    """Whom a user follows, by id."""
    return await _page(mistnet, who, pages, Side.FOLLOWINGS, ended=ended == "true")


@router.get(
    "/{who}/follow-events", response_model=Listing[FollowEventDocument], dependencies=READS, responses=refusals(404)
)
async def list_follow_events(who: Who, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """How both lists of a user changed, the latest first."""
    subject = await known_subject(mistnet, who)
    before = _LARGEST_ID if pages.place is None else pages.place
    rows = await Follows(mistnet.database).events(subject.user_id, before=before, limit=pages.one_more)
    return pages.listing(rows, lambda row: row.id)


@router.post("/{who}/follow-sync", status_code=202, response_model=SyncsAsked, responses=refusals(404))
async def sync_follows(who: Who, asked: SyncRequest, mistnet: Mistnet, visitor: Operator) -> dict[str, Any]:
    """Read one or both lists of a user. Workers do it; one sync of a list at a time, shared by all who ask.

    Nobody need be stored yet: a handle is looked up where a key for X is set. Only a full sync finds who left.
    """
    named = id_or_handle(who)
    find = subject_of if mistnet.settings.x_api_key else known_subject
    user_id = UserId(named) if isinstance(named, int) else (await find(mistnet, f"@{named}")).user_id
    sides = list(Side) if asked.side == "both" else [Side(asked.side)]
    mode = SyncMode(asked.mode)
    syncs = await ask_for_syncs(mistnet, user_id, sides, mode, asked_by=visitor.name)
    return {"user_id": user_id, "mode": mode, "syncs": syncs}


async def _page(mistnet: Mistnet, who: str, pages: Pages, side: Side, *, ended: bool) -> dict[str, Any]:
    subject = await known_subject(mistnet, who)
    rows = await Follows(mistnet.database).page(
        subject.user_id, side, ended=ended, after=pages.place or 0, limit=pages.one_more
    )
    return pages.listing(rows, lambda row: row.user_id)
