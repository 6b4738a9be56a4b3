"""Posts: found by words, author and time, and one of them whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response

from mistnet.social.errors import AmbiguousPost
from mistnet.social.model import Platform, PostId, UserId
from mistnet.social.search_query import LONGEST_QUERY
from mistnet.social.store.account_pages import KnownUser, People, UserVersion
from mistnet.social.store.post_listing import PostListing, PostSpan
from mistnet.social.store.search import PostSearch, find_authors
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet, OnPlatform
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, Flag, Id, Moment, PathId, Who, WrittenMoment, id_or_handle, number_of
from mistnet.web.paging import Listing, Pages, PostPages

router = APIRouter(prefix="/api/posts", tags=["posts"], dependencies=READS)

Author = Annotated[
    str | None,
    Query(pattern=r"^(@?[A-Za-z0-9_]{1,15}|[1-9][0-9]{0,18})$", description="The author's user id or present handle."),
]


class MediaDocument(Document):
    kind: str
    url: str | None
    key: str | None
    width: int | None
    height: int | None
    alt_text: str | None
    duration_ms: int | None
    variants: list[str]


class LinkDocument(Document):
    url: str
    expanded_url: str | None


class PostDocument(Document):
    platform: Platform
    id: Id
    author_id: Id
    handle: str | None
    name: str | None
    text: str
    text_clean: str
    lang: str | None
    url: str | None
    created_at: Moment
    conversation_id: Id | None
    in_reply_to_id: Id | None
    in_reply_to_user_id: Id | None
    quoted_id: Id | None
    reposted_id: Id | None
    referenced_text: str | None
    referenced_text_clean: str | None
    referenced_handle: str | None
    referenced_media: list[MediaDocument]
    likes: int | None
    replies: int | None
    reposts: int | None
    quotes: int | None
    bookmarks: int | None
    views: int | None
    first_seen_at: Moment
    last_updated_at: Moment
    media: list[MediaDocument]
    links: list[LinkDocument]


class PostInFull(PostDocument):
    """With its payload as upstream sent it, if that was asked for."""

    raw: Any = None


@router.get("", response_model=Listing[PostDocument])
async def list_posts(
    mistnet: Mistnet,
    pages: PostPages,
    *,
    q: Annotated[
        str | None,
        Query(max_length=LONGEST_QUERY, pattern=PLAIN, description='Words: a "phrase", begin*, a OR b, -without.'),
    ] = None,
    author: Author = None,
    platform: OnPlatform = None,
    since: Annotated[WrittenMoment | None, Query(description="Written then or later.")] = None,
    until: Annotated[WrittenMoment | None, Query(description="Written before then.")] = None,
    stored_since: Annotated[WrittenMoment | None, Query(description="First stored then or later.")] = None,
    stored_until: Annotated[WrittenMoment | None, Query(description="First stored before then.")] = None,
) -> dict[str, Any]:
    """Posts of every platform, the newest first: by time, then platform, then id."""
    posts, named = PostListing(mistnet.database), _named(author)
    authors = None if named is None else await find_authors(mistnet.database, named, platform)
    span = PostSpan(
        authors=authors,
        platform=platform,
        since=since,
        until=until,
        stored_since=stored_since,
        stored_until=stored_until,
    )
    if q and q.strip():
        found = await PostSearch(mistnet.database).find(q, span, before=pages.place, limit=pages.one_more)
        rows = await posts.some([(each.platform, each.id) for each in found])
    else:
        rows = await posts.page(span, before=pages.place, limit=pages.one_more)
    return pages.listing(rows, lambda post: post.cursor)


@router.get("/{post_id}", response_model=PostInFull, responses=refusals(404))
async def show_post(post_id: PathId, mistnet: Mistnet, platform: OnPlatform = None, raw: Flag = "false") -> Response:
    """One post; with `raw=true` also its payload as upstream sent it."""
    own, posts = PostId(number_of(post_id)), PostListing(mistnet.database)
    found = await posts.some([(each, own) for each in mistnet.platforms if platform in (None, each)])
    if not found:
        raise NotFound(f"post {post_id} here")
    if len(found) > 1:
        raise AmbiguousPost(own, [each for each in mistnet.platforms if each in {post.platform for post in found}])
    shown = PostDocument.model_validate(found[0]).model_dump(mode="json")
    payload = await posts.raw((found[0].platform, own)) if raw == "true" else None
    content = msgspec.json.encode({**shown, "raw": msgspec.Raw(payload) if payload else None})
    return Response(content, media_type="application/json")


def _named(author: str | None) -> str | UserId | None:
    named = id_or_handle(author) if author else None
    return UserId(named) if isinstance(named, int) else named


users_router = APIRouter(prefix="/api/users", tags=["users"], dependencies=READS)

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


@users_router.get("/{who}", response_model=UserDocument, responses=refusals(404))
async def show_user(who: Who, mistnet: Mistnet) -> KnownUser:
    """One user, by id or by his present handle."""
    return await _user(mistnet, who)


@users_router.get("/{who}/versions", response_model=Listing[VersionDocument], responses=refusals(404))
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
