"""Decode the payloads of Threads into users and posts. Unreadable payloads are returned too, never dropped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from mistnet.governor.errors import UNREADABLE, IllegiblePayload, read_payload_id
from mistnet.kit.text import web_url
from mistnet.shops import links as link_rules
from mistnet.shops.model import LinkPlace
from mistnet.social.model import (
    THREADS,
    Detail,
    Gathered,
    LinkMention,
    Media,
    Post,
    PostId,
    Reference,
    Unreadable,
    User,
    UserId,
)

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


_KINDS: Final = {"IMAGE": "photo", "VIDEO": "video", "AUDIO": "audio"}

_post = msgspec.json.Decoder(ThreadsPostPayload, strict=False).decode
_profile = msgspec.json.Decoder(ProfilePayload, strict=False).decode
_thing = msgspec.json.Decoder(ThreadsReference, strict=False).decode
_encode = msgspec.json.Encoder().encode


def user_id_of(handle: str) -> UserId:
    """Threads returns no ids of other users: a hash of the handle stands for one. It is negative, as no real id is."""
    digest = hashlib.sha256(handle.lower().encode()).digest()
    return UserId(-1 - (int.from_bytes(digest[:8]) >> 2))


def gather_posts(
    payloads: Iterable[msgspec.Raw], endpoint: str, *, author: str | None = None
) -> tuple[Gathered, list[PostId], frozenset[PostId]]:
    """Decode posts one by one, with their authors. Also returns the page's own posts in order, and those with replies.

    `author` is the handle whose posts were requested: some payloads do not name it. An unreadable post does not
    affect the others.
    """
    gathered = Gathered(posts={}, users={}, unreadable=[])
    own: dict[PostId, None] = {}
    answered: set[PostId] = set()
    for payload in payloads:
        try:
            post, has_replies = _gather(payload, gathered, author=author)
        except UNREADABLE as error:
            post_id = None
            with suppress(*UNREADABLE):  # its id may still be readable
                post_id = _id_in(_thing(payload))
            problem, raw = str(error), bytes(payload)
            gathered.unreadable.append(
                Unreadable(platform=THREADS, endpoint=endpoint, problem=problem, payload=raw, post_id=post_id)
            )
            continue
        own[post.id] = None
        if has_replies:
            answered.add(post.id)
    return gathered, list(own), frozenset(answered)


def _gather(
    payload: msgspec.Raw, gathered: Gathered, *, author: str | None = None, nested: bool = False
) -> tuple[Post, bool]:
    decoded = _post(payload)
    writer = _author(decoded, author)
    # Originals first: they are kept even if the post around them cannot be read.
    quoted, reposted = _original(decoded.quoted_post, gathered), _original(decoded.reposted_post, gathered)
    own_id = PostId(read_payload_id(decoded.post_id))
    root, parent = _id_in(decoded.root_post), _id_in(decoded.replied_to)
    # Links outside the text: the attached one, and those of an attached text. A link appears once per place.
    links = [(LinkPlace.ATTACHMENT, web_url(decoded.link_attachment_url))]
    if attached := decoded.text_attachment:
        inside = [each.url for each in link_rules.find_urls(attached.plaintext or "")]
        links += [(LinkPlace.TEXT_ATTACHMENT, each) for each in (web_url(attached.link_attachment_url), *inside)]
    post = Post(
        platform=THREADS,
        id=own_id,
        author_id=writer.id,
        text=decoded.text or "",
        created_at=moment(decoded.timestamp),
        url=web_url(decoded.permalink),
        conversation_id=root or (own_id if parent is None else None),
        in_reply_to_id=parent,
        quoted=quoted,
        reposted=reposted,
        media=tuple(_media(decoded)),
        links=tuple(LinkMention(url=link, place=place) for place, link in dict.fromkeys(links) if link),
        nested=nested,
        raw=bytes(payload),
    )
    gathered.users.setdefault(writer.id, writer)
    if not nested or post.id not in gathered.posts:
        gathered.posts[post.id] = post
    return post, decoded.has_replies is not False


def _original(payload: msgspec.Raw, gathered: Gathered) -> Reference | None:
    """Usually only an id; a whole post if more fields were requested."""
    if bytes(payload) == b"null":
        return None
    found = _thing(payload).id
    if found is None:
        return None
    try:
        original, _ = _gather(payload, gathered, nested=True)
    except (msgspec.ValidationError, IllegiblePayload):
        return Reference(id=PostId(read_payload_id(found)))
    handle = gathered.users[original.author_id].handle
    return Reference(id=original.id, text=original.text, author_handle=handle, media=original.media)


def _author(decoded: ThreadsPostPayload, asked: str | None) -> User:
    handle = decoded.username or asked
    if not handle:
        raise IllegiblePayload("no author is named")
    known = {
        "username": handle,
        "is_verified": decoded.is_verified,
        "profile_picture_url": decoded.profile_picture_url,
    }
    return User(
        platform=THREADS,
        id=user_id_of(handle),
        detail=Detail.AUTHOR,
        handle=handle,
        avatar_url=web_url(decoded.profile_picture_url),
        verified=decoded.is_verified,
        raw=_encode({name: value for name, value in known.items() if value is not None}),
    )


def _id_in(thing: ThreadsReference | None) -> PostId | None:
    return None if thing is None or thing.id in (None, "") else PostId(read_payload_id(thing.id))


def _media(decoded: ThreadsPostPayload) -> Iterator[Media]:
    children = decoded.children.data if decoded.children else None
    for child in children or ():
        yield Media(
            kind=_KINDS.get(child.media_type or "", "unknown"),
            url=web_url(child.media_url),
            key=None if child.id is None else str(child.id),
            alt_text=child.alt_text,
        )
    if not children and decoded.media_type in _KINDS:
        yield Media(kind=_KINDS[decoded.media_type], url=web_url(decoded.media_url), alt_text=decoded.alt_text)
    if gif_url := web_url(decoded.gif_url):
        yield Media(kind="animated_gif", url=gif_url)


def read_profile(payload: bytes) -> User:
    """The token's own profile, or a public one."""
    decoded = _profile(payload)
    if not decoded.username:
        raise IllegiblePayload("a profile without a username")
    bio = decoded.threads_biography if decoded.threads_biography is not None else decoded.biography
    return User(
        platform=THREADS,
        id=user_id_of(decoded.username),
        detail=Detail.PROFILE,
        handle=decoded.username,
        name=decoded.name,
        bio=bio if bio is not None else "",
        avatar_url=web_url(decoded.threads_profile_picture_url) or web_url(decoded.profile_picture_url),
        verified=decoded.is_verified,
        followers_count=decoded.follower_count,
        raw=payload,
    )


def moment(text: str) -> datetime:
    """`2024-09-12T23:17:39+0000`."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise IllegiblePayload(f"a time without its zone: {text!r}")
        return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise IllegiblePayload(f"not a time: {text!r}") from error
