"""Decode TwitterAPI.io's payloads into users and posts. Unreadable payloads are returned too, never dropped."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from mistnet.governor.errors import UNREADABLE, IllegiblePayload, read_payload_id
from mistnet.kit.text import web_url
from mistnet.social.model import (
    Detail,
    Gathered,
    LinkMention,
    Media,
    Metrics,
    Post,
    PostId,
    Reference,
    Unreadable,
    User,
    UserId,
    X,
)

_NOTHING = msgspec.Raw(b"null")
MISSING = msgspec.Raw(b"")
"""The value of a key that is missing, as opposed to one that is null."""


class Entity(msgspec.Struct, frozen=True):
    url: str | None = None
    expanded_url: str | None = None


class Entities(msgspec.Struct, frozen=True):
    urls: list[Entity] | None = None


class ProfileBio(msgspec.Struct, frozen=True):
    description: str | None = None


class UserPayload(msgspec.Struct, frozen=True, rename={"handle": "userName", "user_id": "id"}):
    """All three user shapes at once: profile, embedded author, and the snake_case one of follower lists."""

    user_id: str | int
    handle: str | None = None
    screen_name: str | None = None
    name: str | None = None
    description: str | None = None
    profile_bio: ProfileBio | None = None
    location: str | None = None
    url: str | None = None
    profilePicture: str | None = None  # noqa: N815 (upstream's spelling, here and below)
    profile_image_url_https: str | None = None
    coverPicture: str | None = None  # noqa: N815
    profile_banner_url: str | None = None
    isVerified: bool | None = None  # noqa: N815
    isBlueVerified: bool | None = None  # noqa: N815
    verified: bool | None = None
    verifiedType: str | None = None  # noqa: N815
    protected: bool | None = None
    isAutomated: bool | None = None  # noqa: N815
    followers: int | None = None
    followers_count: int | None = None
    following: int | None = None
    following_count: int | None = None
    friends_count: int | None = None
    statusesCount: int | None = None  # noqa: N815
    statuses_count: int | None = None
    mediaCount: int | None = None  # noqa: N815
    media_tweets_count: int | None = None
    favouritesCount: int | None = None  # noqa: N815
    favourites_count: int | None = None
    createdAt: str | None = None  # noqa: N815
    created_at: str | None = None
    unavailable: bool | None = None
    unavailableReason: str | None = None  # noqa: N815
    message: str | None = None


class MediaSize(msgspec.Struct, frozen=True):
    width: int | None = None
    height: int | None = None


class Variant(msgspec.Struct, frozen=True):
    url: str | None = None
    bitrate: int | None = None


class VideoInfo(msgspec.Struct, frozen=True):
    duration_millis: int | None = None
    variants: list[Variant] | None = None


class MediaPayload(msgspec.Struct, frozen=True):
    type: str | None = None
    url: str | None = None
    media_url_https: str | None = None
    media_key: str | None = None
    ext_alt_text: str | None = None
    original_info: MediaSize | None = None
    video_info: VideoInfo | None = None


class ExtendedEntities(msgspec.Struct, frozen=True):
    media: list[MediaPayload] | None = None


class XPostPayload(msgspec.Struct, frozen=True, rename={"post_id": "id"}):
    """A tweet. Retweet, quote and reply are told by what is not null, never by a flag."""

    post_id: str | int
    text: str
    createdAt: str  # noqa: N815
    author: msgspec.Raw
    url: str | None = None
    lang: str | None = None
    conversationId: str | int | None = None  # noqa: N815
    inReplyToId: str | int | None = None  # noqa: N815
    inReplyToUserId: str | int | None = None  # noqa: N815
    retweetCount: int | None = None  # noqa: N815
    replyCount: int | None = None  # noqa: N815
    likeCount: int | None = None  # noqa: N815
    quoteCount: int | None = None  # noqa: N815
    bookmarkCount: int | None = None  # noqa: N815
    viewCount: int | None = None  # noqa: N815
    entities: Entities | None = None
    extendedEntities: ExtendedEntities | None = None  # noqa: N815
    quoted_tweet: msgspec.Raw = _NOTHING
    retweeted_tweet: msgspec.Raw = _NOTHING


class XEnvelope(msgspec.Struct, frozen=True):
    """Any answer, looked at just far enough to know which it is."""

    status: Any = None
    msg: Any = None
    message: Any = None
    detail: Any = None
    error: Any = None
    data: msgspec.Raw = MISSING
    tweets: list[msgspec.Raw] | None = None
    users: list[msgspec.Raw] | None = None
    followers: list[msgspec.Raw] | None = None
    followings: list[msgspec.Raw] | None = None
    has_next_page: bool | None = None
    next_cursor: str | None = None
    recharge_credits: int | None = None
    total_bonus_credits: int | None = None


_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
T = TypeVar("T")

_user = msgspec.json.Decoder(UserPayload, strict=False).decode
_post = msgspec.json.Decoder(XPostPayload, strict=False).decode


def gather_posts(payloads: Iterable[msgspec.Raw], endpoint: str) -> tuple[Gathered, list[PostId]]:
    """Decode a page of posts one by one; the second value is the page's own posts, in its order.

    Quoted and reposted originals and all authors are included. An unreadable post does not affect the others.
    """
    gathered = Gathered(posts={}, users={}, unreadable=[])
    places: list[PostId | Unreadable] = []
    for payload in payloads:
        try:
            places.append(_gather(payload, gathered).id)
        except UNREADABLE as error:
            places.append(_unreadable(payload, endpoint, error))
    for place, each in enumerate(places):
        if isinstance(each, Unreadable):
            # Its readable neighbours tell where in the account's history the post belongs.
            above = next((other for other in places[:place][::-1] if not isinstance(other, Unreadable)), None)
            below = next((other for other in places[place:] if not isinstance(other, Unreadable)), None)
            post_id = None
            with suppress(*UNREADABLE, TypeError, KeyError):  # its id may still be readable
                given = msgspec.json.decode(each.payload)["id"]
                post_id = PostId(read_payload_id(given)) if isinstance(given, str) else None
            gathered.unreadable.append(msgspec.structs.replace(each, post_id=post_id, above=above, below=below))
    return gathered, list(dict.fromkeys(place for place in places if not isinstance(place, Unreadable)))


def gather_users(payloads: Iterable[msgspec.Raw], endpoint: str, detail: Detail) -> Gathered:
    gathered = Gathered(posts={}, users={}, unreadable=[])
    for payload in payloads:
        try:
            user = read_user(payload, detail)
        except UNREADABLE as error:
            gathered.unreadable.append(_unreadable(payload, endpoint, error))
        else:
            gathered.users[user.id] = user
    return gathered


def _unreadable(payload: msgspec.Raw, endpoint: str, error: Exception) -> Unreadable:
    return Unreadable(platform=X, endpoint=endpoint, problem=str(error), payload=bytes(payload))


def _gather(payload: msgspec.Raw, gathered: Gathered, *, nested: bool = False) -> Post:
    """Decode one post and its author, and the originals it quotes or reposts with theirs."""
    decoded = _post(payload)
    author = read_user(decoded.author, Detail.AUTHOR)
    # Originals first: they are kept even if the post around them cannot be read.
    quoted, reposted = _original(decoded.quoted_tweet, gathered), _original(decoded.retweeted_tweet, gathered)
    reply_to, urls = decoded.inReplyToUserId, decoded.entities.urls if decoded.entities else None
    addresses = [(web_url(each.url) or "", web_url(each.expanded_url) or "") for each in urls or ()]
    post = Post(
        platform=X,
        id=PostId(read_payload_id(decoded.post_id)),
        author_id=author.id,
        text=decoded.text,
        created_at=moment(decoded.createdAt),
        lang=decoded.lang or None,
        url=web_url(decoded.url),
        conversation_id=_post_id(decoded.conversationId),
        in_reply_to_id=_post_id(decoded.inReplyToId),
        in_reply_to_user_id=None if reply_to in (None, "") else UserId(read_payload_id(reply_to, "a user's id")),
        quoted=quoted,
        reposted=reposted,
        media=tuple(map(_media_item, decoded.extendedEntities.media or ())) if decoded.extendedEntities else (),
        links=tuple(
            LinkMention(url=shown_as or leads_to, expanded_url=leads_to or None)
            for shown_as, leads_to in addresses
            if shown_as or leads_to
        ),
        metrics=Metrics(
            likes=decoded.likeCount,
            replies=decoded.replyCount,
            reposts=decoded.retweetCount,
            quotes=decoded.quoteCount,
            bookmarks=decoded.bookmarkCount,
            views=decoded.viewCount,
        ),
        nested=nested,
        raw=bytes(payload),
    )
    gathered.users.setdefault(author.id, author)
    # A nested copy lacks fields, such as what it replies to: it must not replace the post itself.
    if not nested or post.id not in gathered.posts:
        gathered.posts[post.id] = post
    return post


def _original(payload: msgspec.Raw, gathered: Gathered) -> Reference | None:
    if bytes(payload) == b"null":
        return None
    original = _gather(payload, gathered, nested=True)
    author = gathered.users[original.author_id]
    return Reference(id=original.id, text=original.text, author_handle=author.handle, media=original.media)


def read_user(payload: msgspec.Raw | bytes, detail: Detail) -> User:
    """Decode any of the three user shapes; the bio of an embedded author is in `profile_bio`."""
    decoded = _user(payload)
    bio = decoded.description or (decoded.profile_bio.description if decoded.profile_bio else None)
    created = decoded.createdAt or decoded.created_at
    gone = (decoded.unavailableReason or decoded.message or "unavailable") if decoded.unavailable else None
    return User(
        platform=X,
        id=UserId(read_payload_id(decoded.user_id)),
        detail=detail,
        handle=decoded.handle or decoded.screen_name or None,
        name=decoded.name,
        # Only a profile says for certain that there is no bio.
        bio=bio if bio is not None else ("" if detail is Detail.PROFILE else None),
        location=decoded.location,
        # The `url` of an embedded author is their page on X, not their website.
        website=None if decoded.url is None or detail is Detail.AUTHOR else web_url(decoded.url) or "",
        avatar_url=web_url(decoded.profilePicture) or web_url(decoded.profile_image_url_https),
        banner_url=web_url(decoded.coverPicture) or web_url(decoded.profile_banner_url),
        verified=_first(decoded.isBlueVerified, decoded.isVerified, decoded.verified),
        verified_kind=decoded.verifiedType,
        protected=decoded.protected,
        automated=decoded.isAutomated,
        followers_count=_first(decoded.followers, decoded.followers_count),
        following_count=_first(decoded.following, decoded.following_count, decoded.friends_count),
        posts_count=_first(decoded.statusesCount, decoded.statuses_count),
        media_count=_first(decoded.mediaCount, decoded.media_tweets_count),
        likes_count=_first(decoded.favouritesCount, decoded.favourites_count),
        created_at=moment(created) if created else None,
        unavailable_reason=gone,
        raw=bytes(payload),
    )


def moment(text: str) -> datetime:
    """`Fri Jul 31 22:22:43 +0000 2026` of posts and authors, or ISO 8601 of profiles."""
    parts = text.split()
    try:
        if len(parts) == 6 and parts[1] in _MONTHS:
            hour, minute, second = map(int, parts[3].split(":"))
            local = datetime(int(parts[5]), _MONTHS[parts[1]], int(parts[2]), hour, minute, second, tzinfo=UTC)
            if parts[4] != "+0000":
                raise IllegiblePayload(f"a time that is not in UTC: {text!r}")
            return local
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError as error:
        raise IllegiblePayload(f"not a time: {text!r}") from error


def _post_id(value: str | int | None) -> PostId | None:
    return None if value is None or value == "" else PostId(read_payload_id(value, "a post's id"))


def _first(*values: T | None) -> T | None:
    return next((value for value in values if value is not None), None)


def _media_item(decoded: MediaPayload) -> Media:
    size, film = decoded.original_info, decoded.video_info
    variants = sorted(film.variants or (), key=lambda variant: -(variant.bitrate or 0)) if film else ()
    return Media(
        kind=decoded.type or "unknown",
        url=web_url(decoded.media_url_https),
        key=decoded.media_key,
        width=size.width if size else None,
        height=size.height if size else None,
        alt_text=decoded.ext_alt_text,
        duration_ms=film.duration_millis if film else None,
        variants=tuple(url for variant in variants if (url := web_url(variant.url))),
        shown_as=web_url(decoded.url),
    )
