"""Users as upstream told us of them, and what they showed before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastapi import APIRouter

from mistnet.api.auth import READS
from mistnet.api.errors import NotFound, refusals
from mistnet.api.fields import Document, Id, Moment, Who, id_or_handle
from mistnet.api.paging import Listing, Pages
from mistnet.api.parts import Mistnet
from mistnet.domain.social import UserId
from mistnet.store.people import KnownUser, People, UserVersion

router = APIRouter(prefix="/api/users", tags=["users"], dependencies=READS)

_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class UserDocument(Document):
    """Null is what no payload has told yet."""

    id: Id
    handle: str | None
    name: str | None
    bio: str | None
    location: str | None
    website: str | None
    avatar_url: str | None
    banner_url: str | None
    verified: bool | None
    verified_kind: str | None
    protected: bool | None
    automated: bool | None
    followers_count: int | None
    following_count: int | None
    posts_count: int | None
    media_count: int | None
    likes_count: int | None
    created_at: Moment | None
    unavailable_reason: str | None
    detail: str
    first_seen_at: Moment
    last_updated_at: Moment
    profiled_at: Moment | None


class VersionDocument(Document):
    """What a user showed until then."""

    until: Moment
    handle: str | None
    name: str | None
    bio: str | None
    avatar_url: str | None


@router.get("/{who}", response_model=UserDocument, responses=refusals(404))
async def show_user(who: Who, mistnet: Mistnet) -> KnownUser:
    """One user, by id or by his present handle."""
    return await _user(mistnet, who)


@router.get("/{who}/versions", response_model=Listing[VersionDocument], responses=refusals(404))
async def list_versions(who: Who, mistnet: Mistnet, pages: Pages) -> dict[str, Any]:
    """Earlier handles, names, bios and avatars, the latest first."""
    user = await _user(mistnet, who)
    before = None if pages.place is None else _moment(pages.place)
    rows = await People(mistnet.database).versions(user.id, before=before, limit=pages.one_more)
    return pages.listing(rows, _place)


async def _user(mistnet: Mistnet, who: str) -> KnownUser:
    named, people = id_or_handle(who), People(mistnet.database)
    found = await (people.by_id(UserId(named)) if isinstance(named, int) else people.called(named))
    if found is None:
        raise NotFound(f"user {who} here: nothing that was collected told of one")
    return found


def _place(version: UserVersion) -> int:
    return (version.until - _ORIGIN) // timedelta(microseconds=1)


def _moment(place: int) -> datetime:
    """A place that no version can have is after them all."""
    try:
        return _ORIGIN + timedelta(microseconds=place)
    except OverflowError:
        return _LAST
