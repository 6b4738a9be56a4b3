"""The payloads of TwitterAPI.io. Every field may be missing or null; unknown fields stay in the raw bytes."""

from __future__ import annotations

from typing import Any

import msgspec

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
