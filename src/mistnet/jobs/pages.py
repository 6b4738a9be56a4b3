"""What a page of a sweep means: progress, somebody else's posts, or an end to be suspected. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from mistnet.domain.errors import BrokenAnswer
from mistnet.domain.social import Page, Post, PostId, Unreadable, UserId
from mistnet.domain.sources import X_SOURCE

ENDPOINT = "tweet/advanced_search"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The ids a page was asked for: above the floor, up to the ceiling."""

    floor: PostId = PostId(0)
    ceiling: PostId | None = None

    def __contains__(self, post_id: PostId) -> bool:
        return self.floor < post_id and (self.ceiling is None or post_id <= self.ceiling)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Own posts within the span, and how far down the page reached."""

    posts: Sequence[Post]
    lowest: PostId
    highest: PostId


class Strangers(msgspec.Struct, frozen=True):
    """Nothing but posts of others: the handle is not this account's any more."""


class Emptiness(msgspec.Struct, frozen=True):
    """Nothing, and nothing more promised."""


Verdict: TypeAlias = Progress | Strangers | Emptiness


def query(handle: str, span: Span, *, reposts: bool = False) -> str:
    """`from:` never shows native retweets; a filter shows nothing else. Both bounds are ids."""
    words = [f"from:{handle}"]
    if reposts:
        words.append("filter:nativeretweets")
    if span.floor:
        words.append(f"since_id:{span.floor}")
    if span.ceiling is not None:
        words.append(f"max_id:{span.ceiling}")
    return " ".join(words)


def verdict(page: Page, user_id: UserId, span: Span) -> Verdict:
    """Raises BrokenAnswer for a page that cannot be true: one to ask for again, never an end."""
    shown = [page.gathered.posts[post_id] for post_id in page.own]
    own = [post for post in shown if post.author_id == user_id]
    within = [post for post in own if post.id in span]
    passed = [each.post_id for each in page.gathered.unreadable if each.post_id and each.post_id in span]
    if within or passed:
        reached = [*(post.id for post in within), *passed]
        return Progress(posts=within, lowest=min(reached), highest=max(reached))
    if own:
        raise BrokenAnswer(X_SOURCE, ENDPOINT, f"only posts above the ceiling {span.ceiling}")
    if shown:
        return Strangers()
    if page.gathered.unreadable:
        raise BrokenAnswer(X_SOURCE, ENDPOINT, "nothing on the page can be read")
    if page.has_more:
        raise BrokenAnswer(X_SOURCE, ENDPOINT, "an empty page that claims there is more")
    return Emptiness()


def holes(page: Page, span: Span) -> tuple[list[PostId], list[Span]]:
    """Posts that could not be read: to be had by id where it is legible, else between their neighbours.

    Below the page's last legible post there is no hole: the next page begins there.
    """
    by_id = [each.post_id for each in page.gathered.unreadable if each.post_id]
    between = [_between(each, span) for each in page.gathered.unreadable if not each.post_id and each.below]
    return by_id, list(dict.fromkeys(between))


def _between(hole: Unreadable, span: Span) -> Span:
    ceiling = PostId(hole.above - 1) if hole.above else span.ceiling
    return Span(floor=hole.below or span.floor, ceiling=ceiling)
