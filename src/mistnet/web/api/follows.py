"""Who follows whom: both lists of a user, how they changed, and the syncs that read them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from mistnet.graph.follows.listing import Follows
from mistnet.graph.follows.model import Cause, FollowKind, Side, SyncMode
from mistnet.operations.runs.model import LARGEST_CREDITS
from mistnet.social.model import UserId
from mistnet.sources.x.follows import ask_for_syncs, known_subject, subject_of
from mistnet.web.auth import READS, Operator
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import refusals
from mistnet.web.fields import Document, Flag, Id, Integral, Moment, RequestBody, Who, id_or_handle
from mistnet.web.paging import Listing, Pages

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


class FollowListing(Listing[FollowDocument]):
    """One page of a list. `known_since`: when it was first read to its end; null: not yet."""

    known_since: Moment | None


class FollowEventListing(Listing[FollowEventDocument]):
    """One page of changes. Who was on a list when it was first read to its end is no change."""

    followers_known_since: Moment | None
    followings_known_since: Moment | None


class SyncRequest(RequestBody):
    side: Literal["followers", "followings", "both"] = "both"
    mode: Literal["incremental", "full"] = "incremental"
    confirm: Annotated[
        bool, Field(description="Also if it is likely to cost more than the setting `confirm_credits`.")
    ] = False
    max_credits: (
        Annotated[
            int, Field(ge=1, le=LARGEST_CREDITS), Integral, Field(description="Stop when so many credits are spent.")
        ]
        | None
    ) = None


class AskedDocument(Document):
    """`created` is false if the same sync was asked for already and is still alive."""

    side: Side
    created: bool


class SyncsAsked(Document):
    user_id: Id
    mode: SyncMode
    syncs: list[AskedDocument]


@router.get("/{who}/followers", response_model=FollowListing, dependencies=READS, responses=refusals(404))
async def list_followers(who: Who, mistnet: Mistnet, pages: Pages, ended: Ended = "false") -> dict[str, Any]:
    """Who follows a user, by id."""
    return await _page(mistnet, who, pages, Side.FOLLOWERS, ended=ended == "true")


@router.get("/{who}/followings", response_model=FollowListing, dependencies=READS, responses=refusals(404))
async def list_followings(who: Who, mistnet: Mistnet, pages: Pages, ended: Ended = "false") -> dict[str, Any]:
    """Whom a user follows, by id."""
    return await _page(mistnet, who, pages, Side.FOLLOWINGS, ended=ended == "true")


@router.get("/{who}/follow-events", response_model=FollowEventListing, dependencies=READS, responses=refusals(404))
async def list_follow_events(who: Who, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """How both lists of a user changed, the latest first."""
    subject = await known_subject(mistnet, who)
    before = _LARGEST_ID if pages.place is None else pages.place
    stored = Follows(mistnet.database)
    rows = await stored.events(subject.user_id, before=before, limit=pages.one_more)
    known = await stored.known_since(subject.user_id)
    since = {f"{side}_known_since": known.get(side) for side in Side}
    return {**pages.listing(rows, lambda row: row.id), **since}


@router.post("/{who}/follow-sync", status_code=202, response_model=SyncsAsked, responses=refusals(404, 409))
async def sync_follows(who: Who, asked: SyncRequest, mistnet: Mistnet, visitor: Operator) -> dict[str, Any]:
    """Read one or both lists of a user. Workers do it; one sync of a list at a time, shared by all who ask.

    The user need not be stored yet: a handle is looked up where a key for X is set. Only a full sync finds who left.
    What is likely to cost more than `confirm_credits` is refused unless `confirm` or `max_credits` is given.
    """
    named = id_or_handle(who)
    find = subject_of if mistnet.settings.x_api_key else known_subject
    user_id = UserId(named) if isinstance(named, int) else (await find(mistnet, f"@{named}")).user_id
    sides = list(Side) if asked.side == "both" else [Side(asked.side)]
    mode = SyncMode(asked.mode)
    syncs = await ask_for_syncs(
        mistnet,
        user_id,
        sides,
        mode,
        asked_by=visitor.name,
        confirmed=asked.confirm,
        max_credits=asked.max_credits,
    )
    return {"user_id": user_id, "mode": mode, "syncs": syncs}


async def _page(mistnet: Mistnet, who: str, pages: Pages, side: Side, *, ended: bool) -> dict[str, Any]:
    subject = await known_subject(mistnet, who)
    stored = Follows(mistnet.database)
    rows = await stored.page(subject.user_id, side, ended=ended, after=pages.place or 0, limit=pages.one_more)
    known = (await stored.known_since(subject.user_id)).get(side)
    return {**pages.listing(rows, lambda row: row.user_id), "known_since": known}
