"""The payloads of the Threads API. Every field may be missing or null; unknown fields stay in the raw bytes."""

from __future__ import annotations

import msgspec

NOTHING = msgspec.Raw(b"null")
MISSING = msgspec.Raw(b"")
"""The value of a key that is missing, as opposed to one that is null."""

POLL_FIELDS = (
    "poll_attachment{option_a,option_b,option_c,option_d,option_a_votes_percentage,option_b_votes_percentage,"
    "option_c_votes_percentage,option_d_votes_percentage,total_votes,expiration_timestamp}"
)
POST_FIELDS = (
    *("id", "media_product_type", "media_type", "media_url", "gif_url", "permalink", "username", "text", "timestamp"),
    *("shortcode", "thumbnail_url", "children{id,media_type,media_url,thumbnail_url,alt_text}", "is_quote_post"),
    *("quoted_post", "reposted_post", "has_replies", "alt_text", "link_attachment_url", POLL_FIELDS),
    *("text_attachment{plaintext,link_attachment_url}", "text_entities", "location_id", "topic_tag"),
    *("reply_audience", "is_spoiler_media", "is_verified", "profile_picture_url"),
)
REPLY_FIELDS = (*POST_FIELDS, "is_reply", "is_reply_owned_by_me", "root_post", "replied_to", "hide_status")
OWN_FIELDS = (*POST_FIELDS, "owner", "ghost_post_status", "ghost_post_expiration_timestamp")
OWN_PROFILE_FIELDS = ("id", "username", "name", "threads_profile_picture_url", "threads_biography", "is_verified")


class ThreadsReference(msgspec.Struct, frozen=True):
    """An object of which only the id is returned."""

    id: str | int | None = None


class ChildPayload(msgspec.Struct, frozen=True):
    id: str | int | None = None
    media_type: str | None = None
    media_url: str | None = None
    thumbnail_url: str | None = None
    alt_text: str | None = None


class Children(msgspec.Struct, frozen=True):
    data: list[ChildPayload] | None = None


class TextAttachment(msgspec.Struct, frozen=True):
    plaintext: str | None = None
    link_attachment_url: str | None = None


class ThreadsPostPayload(msgspec.Struct, frozen=True, rename={"post_id": "id"}):
    """A post, a reply, or a repost. The posts it quotes or repeats come as an id, or as a whole post."""

    post_id: str | int
    timestamp: str
    username: str | None = None
    text: str | None = None
    media_type: str | None = None
    media_url: str | None = None
    gif_url: str | None = None
    thumbnail_url: str | None = None
    alt_text: str | None = None
    permalink: str | None = None
    children: Children | None = None
    quoted_post: msgspec.Raw = NOTHING
    reposted_post: msgspec.Raw = NOTHING
    has_replies: bool | None = None
    link_attachment_url: str | None = None
    text_attachment: TextAttachment | None = None
    root_post: ThreadsReference | None = None
    replied_to: ThreadsReference | None = None
    is_verified: bool | None = None
    profile_picture_url: str | None = None


class ProfilePayload(msgspec.Struct, frozen=True, rename={"user_id": "id"}):
    """Both profile shapes: the token's own, and that of a public account, which has no id."""

    user_id: str | int | None = None
    username: str | None = None
    name: str | None = None
    threads_profile_picture_url: str | None = None
    profile_picture_url: str | None = None
    threads_biography: str | None = None
    biography: str | None = None
    is_verified: bool | None = None
    follower_count: int | None = None


class Cursors(msgspec.Struct, frozen=True):
    before: str | None = None
    after: str | None = None


class ThreadsPaging(msgspec.Struct, frozen=True):
    """`next` is a URL with the access token in it: only that it is there counts."""

    cursors: Cursors | None = None
    next: str | None = None


class ErrorPayload(msgspec.Struct, frozen=True):
    message: str | None = None
    type: str | None = None
    code: int | None = None
    error_subcode: int | None = None
    error_user_title: str | None = None
    error_user_msg: str | None = None
    is_transient: bool | None = None


class ThreadsEnvelope(msgspec.Struct, frozen=True):
    """A page, or an error in either of its two shapes."""

    data: msgspec.Raw = MISSING
    paging: ThreadsPaging | None = None
    error: ErrorPayload | None = None
    error_message: str | None = None
    error_code: int | None = None


class TokenPayload(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float | None = None


class TokenFacts(msgspec.Struct, frozen=True):
    """What is known of a token. Times are seconds since 1970; 0 is never."""

    is_valid: bool | None = None
    issued_at: float | None = None
    expires_at: float | None = None
    scopes: list[str] | None = None


class TokenFactsEnvelope(msgspec.Struct, frozen=True):
    data: TokenFacts | None = None
