"""What is true of Threads: the answers an oracle compares a collector's feeds with."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mistnet.sim.clock import to_ms
from mistnet.sim.threads_world import ThreadsPost, ThreadsWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTruth:
    """Everything a feed must bring: posts, the author's own replies below them, and what both quote or repeat.

    `gone` are those of the latter that nobody is shown. `links` has the links of each post, by their place.
    """

    handle: str
    posts: tuple[int, ...]
    replies: tuple[int, ...]
    originals: tuple[int, ...]
    gone: tuple[int, ...]
    links: Mapping[int, Mapping[str, str]]

    @property
    def all_posts(self) -> set[int]:
        return {*self.posts, *self.replies, *self.originals}


class ThreadsTruth:
    def __init__(self, threads: ThreadsWorld) -> None:
        self._threads = threads

    def accounts(self, at: datetime) -> list[str]:
        """Handles whose feeds can be read."""
        now_ms = to_ms(at)
        stars = self._threads.world.stars
        return [self._threads.handle(star.index, now_ms) for star in stars if self._threads.is_open(star.index, now_ms)]

    def closed(self, at: datetime) -> list[str]:
        now_ms = to_ms(at)
        stars = self._threads.world.stars
        return [
            self._threads.handle(star.index, now_ms) for star in stars if not self._threads.is_open(star.index, now_ms)
        ]

    def feed(self, handle: str, at: datetime) -> FeedTruth | None:
        now_ms = to_ms(at)
        person = self._threads.holder(handle, now_ms)
        if person is None:
            return None
        posts = self._threads.roots(person.index, now_ms)
        replies = self._threads.replies_of(person.index, now_ms)
        shown, gone = self._originals([*posts, *replies], now_ms)
        return FeedTruth(
            handle=self._threads.handle(person.index, now_ms),
            posts=tuple(post.id for post in posts),
            replies=tuple(post.id for post in replies),
            originals=tuple(shown),
            gone=tuple(gone),
            links={post.id: dict(post.links) for post in [*posts, *replies] if post.links},
        )

    def _originals(self, posts: list[ThreadsPost], now_ms: int) -> tuple[list[int], list[int]]:
        named = sorted({each for post in posts for each in (post.quoted, post.reposted) if each})
        found = {each: self._threads.post(each) for each in named}
        shown = [each for each, post in found.items() if post and self._threads.is_shown(post, now_ms)]
        return shown, [each for each in named if each not in shown]
