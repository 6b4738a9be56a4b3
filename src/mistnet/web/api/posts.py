"""Posts: a search by words, author and time, and one post in full. Users and their earlier profiles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from mistnet.kit.view import ListPage
from mistnet.social.errors import AmbiguousPost
from mistnet.social.model import Media, PostId, UserId
from mistnet.social.search_query import LONGEST_QUERY
from mistnet.social.store.account_pages import KnownUser, People, UserVersion
from mistnet.social.store.post_listing import ListedPost, PostListing, PostSearch, PostSpan, find_authors
from mistnet.web.auth import READS
from mistnet.web.dependencies import Mistnet, OnPlatform
from mistnet.web.errors import NotFound, refusals
from mistnet.web.fields import PLAIN, Document, Flag, PathId, Who, WrittenMoment, id_or_handle, number_of
from mistnet.web.paging import NUMBERS, CursorFormat, Listing, PageQuery, PostPages, page_query

router = APIRouter(prefix="/api/posts", tags=["posts"], dependencies=READS)

Author = Annotated[
    str | None,
    Query(pattern=r"^(@?[A-Za-z0-9_]{1,15}|[1-9][0-9]{0,18})$", description="The author's user id or current handle."),
]


class MediaDocument(Document, record=Media, without=("shown_as",)):
    pass


class LinkDocument(Document):
    url: str
    expanded_url: str | None


class PostDocument(Document, record=ListedPost, without=("tracked",)):
    referenced_media: list[MediaDocument]
    media: list[MediaDocument]
    links: list[LinkDocument]


class PostInFull(PostDocument):
    """A post with its payload as the source sent it, if the request has `raw=true`."""

    raw: Any = None


@router.get("", response_model=Listing[PostDocument])
async def list_posts(
    mistnet: Mistnet,
    pages: PostPages,
    *,
    q: Annotated[
        str | None,
        Query(max_length=LONGEST_QUERY, pattern=PLAIN, description='Words, a "phrase", begin*, a OR b, -without.'),
    ] = None,
    author: Author = None,
    platform: OnPlatform = None,
    since: Annotated[WrittenMoment | None, Query(description="Written at this time or later.")] = None,
    until: Annotated[WrittenMoment | None, Query(description="Written before this time.")] = None,
    stored_since: Annotated[WrittenMoment | None, Query(description="First stored at this time or later.")] = None,
    stored_until: Annotated[WrittenMoment | None, Query(description="First stored before this time.")] = None,
) -> dict[str, Any]:
    """Posts of every platform, the newest first: by time, then platform, then id."""
    posts, authors = PostListing(mistnet.database), None
    if author:
        named = id_or_handle(author)
        authors = await find_authors(mistnet.database, UserId(named) if isinstance(named, int) else named, platform)
    span = PostSpan(
        authors=authors,
        platform=platform,
        since=since,
        until=until,
        stored_since=stored_since,
        stored_until=stored_until,
    )
    if q and q.strip():
        # One row too many shows whether another page follows.
        rows = await PostSearch(mistnet.database).find(q, span, before=pages.place, limit=pages.limit + 1)
        return pages.listing(ListPage.cut(rows, pages.limit, lambda post: post.cursor))
    return pages.listing(await posts.page(span, before=pages.place, limit=pages.limit))


@router.get("/{post_id}", response_model=PostInFull, responses=refusals(404))
async def show_post(post_id: PathId, mistnet: Mistnet, platform: OnPlatform = None, raw: Flag = "false") -> Response:
    """One post. With `raw=true` it includes the payload as the source sent it."""
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


users_router = APIRouter(prefix="/api/users", tags=["users"], dependencies=READS)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)  # a made-up cursor: the page begins at the latest version


TIMES: Final = CursorFormat(
    NUMBERS.pattern,
    lambda text: _moment(NUMBERS.read(text)),
    lambda at: NUMBERS.write((at - _EPOCH) // timedelta(microseconds=1)),
)
TimePages = Annotated[PageQuery, Depends(page_query(TIMES))]


class UserDocument(Document, record=KnownUser):
    """A user. Fields that no payload contained are null."""


class VersionDocument(Document, record=UserVersion):
    """The profile that a user had until a time."""


@users_router.get("/{who}", response_model=UserDocument, responses=refusals(404))
async def show_user(who: Who, mistnet: Mistnet) -> KnownUser:
    """One user, by id or current handle."""
    return await _user(mistnet, who)


@users_router.get("/{who}/versions", response_model=Listing[VersionDocument], responses=refusals(404))
async def list_versions(who: Who, mistnet: Mistnet, pages: TimePages) -> dict[str, Any]:
    """Earlier handles, names, bios and avatars, the latest first."""
    user = await _user(mistnet, who)
    versions = await People(mistnet.database).versions(user.id, before=pages.place, limit=pages.limit)
    return pages.listing(versions)


async def _user(mistnet: Mistnet, who: str) -> KnownUser:
    named, people = id_or_handle(who), People(mistnet.database)
    user = await (people.by_id(UserId(named)) if isinstance(named, int) else people.called(named))
    if user is None:
        raise NotFound(f"user {who} here: no collected payload contains one")
    return user
