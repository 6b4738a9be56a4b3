"""Users and posts as rows of the tables, written out by hand as a plain script would."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from mistnet.social.model import Detail, Post, User
from mistnet.social.search_query import search_text

USER = (
    *("platform", "id", "handle", "handle_key", "name", "bio", "location", "website", "avatar_url", "banner_url"),
    *("verified", "verified_kind", "protected", "automated", "followers_count", "following_count", "posts_count"),
    *("media_count", "likes_count", "created_at", "unavailable_reason", "detail", "raw", "first_seen_at"),
    *("last_updated_at", "profiled_at"),
)
POST = (
    *("platform", "id", "author_id", "text", "text_clean", "search_text", "lang", "url", "created_at"),
    *("conversation_id", "in_reply_to_id", "in_reply_to_user_id", "quoted_id", "reposted_id", "referenced_text"),
    *("referenced_handle", "referenced_media", "media", "links", "likes", "replies", "reposts", "quotes"),
    *("bookmarks", "views", "nested", "raw", "first_seen_at", "last_updated_at"),
)
Row = tuple[Any, ...]
When = Callable[[datetime], Any]

_encode = msgspec.json.Encoder().encode


def user_row(user: User, now: Any, when: When) -> Row:
    return (
        *("x", user.id, user.handle, user.handle.lower() if user.handle else None, user.name, user.bio),
        *(user.location, user.website, user.avatar_url, user.banner_url, user.verified, user.verified_kind),
        *(user.protected, user.automated, user.followers_count, user.following_count, user.posts_count),
        *(user.media_count, user.likes_count, when(user.created_at) if user.created_at else None),
        *(user.unavailable_reason, str(user.detail), user.raw.decode(), now, now),
        now if user.detail is Detail.PROFILE else None,
    )


def post_row(post: Post, now: Any, when: When) -> Row:
    clean = post.text_clean
    shown = post.reposted or post.quoted
    counts = post.metrics
    return (
        *("x", post.id, post.author_id, post.text, clean, search_text(clean), post.lang, post.url),
        *(when(post.created_at), post.conversation_id, post.in_reply_to_id, post.in_reply_to_user_id),
        *(post.quoted.id if post.quoted else None, post.reposted.id if post.reposted else None),
        *(shown.text if shown else None, shown.author_handle if shown else None),
        *(_json(shown.media if shown else ()), _json(post.media), _json(post.links)),
        *(counts.likes, counts.replies, counts.reposts, counts.quotes, counts.bookmarks, counts.views),
        *(post.nested, post.raw.decode(), now, now),
    )


def _json(values: Any) -> str | None:
    return _encode(values).decode() if values else None


def insert(table: str, columns: tuple[str, ...], places: list[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(places)}) ON CONFLICT DO NOTHING"
