"""Search: the posts that a query finds at a given time, newest first."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import merge
from itertools import islice

from mistnet.sim.clock import first_id_at
from mistnet.sim.posts import DOOMED, HIDDEN, KIND, DraftKind
from mistnet.sim.render import Renderer
from mistnet.sim.world import SimPost, World

TERM = re.compile(r'-?"[^"]*"|\S+')
WITHIN = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Retweets(StrEnum):
    """Native retweets are left out unless requested."""

    LEFT_OUT = "left out"
    ONLY = "only"
    TOO = "too"


@dataclass(slots=True, kw_only=True)
class SimQuery:
    authors: list[str] = field(default_factory=list)
    to: str | None = None
    conversation: int | None = None
    words: list[str] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)
    ceiling: int | None = None  # inclusive
    floor: int = 0  # exclusive
    retweets: Retweets = Retweets.LEFT_OUT
    replies: bool | None = None  # None: both
    media: bool | None = None
    links: bool | None = None
    quotes: bool | None = None
    language: str | None = None
    least_likes: int = 0

    @property
    def reads_text(self) -> bool:
        wanted = (self.media, self.links, self.language)
        return bool(self.words or self.unwanted or self.least_likes) or any(each is not None for each in wanted)

    def lower(self, ceiling: int) -> None:
        self.ceiling = ceiling if self.ceiling is None else min(self.ceiling, ceiling)

    def lift(self, floor: int) -> None:
        self.floor = max(self.floor, floor)


def parse(text: str, now_ms: int) -> SimQuery:
    query = SimQuery()
    for term in TERM.findall(text.replace("(", " ").replace(")", " ")):
        # Unknown operators are searched as words.
        wanted = not term.startswith("-")
        name, _, given = term.removeprefix("-").partition(":")
        name = name.lower()
        if name in {"filter", "include"} and given:
            _filter(query, given.lower(), wanted=wanted, only=name == "filter")
        elif name in BY_NUMBER and given.isdecimal():
            BY_NUMBER[name](query, int(given))
        elif name in BY_NAME and given:
            BY_NAME[name](query, given.removeprefix("@"))
        elif name == "within_time" and re.fullmatch(r"\d+[smhd]", given):
            query.lift(first_id_at(now_ms - int(given[:-1]) * WITHIN[given[-1]] * 1000) - 1)
        elif term not in {"OR", "AND"}:
            (query.words if wanted else query.unwanted).append(term.removeprefix("-").strip('"').lower())
    return query


BY_NUMBER: dict[str, Callable[[SimQuery, int], None]] = {
    "max_id": SimQuery.lower,
    "since_id": SimQuery.lift,
    "since_time": lambda query, seconds: query.lift(first_id_at(seconds * 1000) - 1),
    "until_time": lambda query, seconds: query.lower(first_id_at(seconds * 1000) - 1),
    "conversation_id": lambda query, root: setattr(query, "conversation", root),
    "min_faves": lambda query, likes: setattr(query, "least_likes", likes),
}
BY_NAME: dict[str, Callable[[SimQuery, str], None]] = {
    "from": lambda query, handle: query.authors.append(handle),
    "to": lambda query, handle: setattr(query, "to", handle),
    "lang": lambda query, code: setattr(query, "language", code),
}


def _filter(query: SimQuery, what: str, *, wanted: bool, only: bool) -> None:
    match what:
        case "nativeretweets" | "retweets" if wanted:
            query.retweets = Retweets.ONLY if only else Retweets.TOO
        case "replies" if only:
            query.replies = wanted
        case "media" if only:
            query.media = wanted
        case "links" if only:
            query.links = wanted
        case "quote" if only:
            query.quotes = wanted
        case _:  # other operators have no effect, as upstream
            return


MOST_READ = 20_000  # posts examined for one page of a search by words

Found = tuple[int, int, int]  # id, author, mark


class Search:
    def __init__(self, world: World, renderer: Renderer) -> None:
        self._world, self._renderer = world, renderer

    def newest(self, query: SimQuery, now_ms: int, limit: int) -> list[Found]:
        candidates = self._candidates(query, now_ms)
        # A word that no post contains would otherwise read the whole world.
        if query.reads_text:
            candidates = islice(candidates, MOST_READ)
        matches = (found for found in candidates if self._passes(query, found, now_ms))
        return list(islice(matches, limit))

    def above(self, query: SimQuery, now_ms: int, limit: int) -> list[Found]:
        """The posts just above the ceiling of a search by author: the end of the previous page."""
        person = self._world.holder(query.authors[0], now_ms) if query.authors else None
        if person is None or query.ceiling is None or not self._world.searchable(person.index, now_ms):
            return []
        timeline = self._world.timeline(person.index, now_ms)
        places = range(bisect_right(timeline.ids, query.ceiling), timeline.until(now_ms))
        rising = ((timeline.ids[place], person.index, timeline.marks[place]) for place in places)
        return list(islice((each for each in rising if self._passes(query, each, now_ms)), limit))[::-1]

    def _candidates(self, query: SimQuery, now_ms: int) -> Iterator[Found]:
        if query.authors:
            named = {self._world.holder(handle, now_ms) for handle in query.authors}
            return self._walk([person.index for person in named if person], query, now_ms)
        if (root := query.conversation) is not None:
            everything = sorted((root, *self._world.descendants(root, now_ms)), reverse=True)
            ceiling = first_id_at(now_ms + 1) if query.ceiling is None else query.ceiling
            posts = (self._world.post(each) for each in everything if query.floor < each <= ceiling)
            seen = (post for post in posts if post and self._world.searchable(post.author, now_ms))
            return ((post.id, post.author, post.mark) for post in seen)
        if query.to is not None:
            person = self._world.holder(query.to, now_ms)
            return self._walk(self._world.references.fans(person.index) if person else [], query, now_ms)
        return self._walk(range(len(self._world.people)), query, now_ms)

    def _walk(self, authors: Iterable[int], query: SimQuery, now_ms: int) -> Iterator[Found]:
        walks = [self._down(author, query, now_ms) for author in authors if self._world.searchable(author, now_ms)]
        return walks[0] if len(walks) == 1 else merge(*walks, reverse=True)

    def _down(self, author: int, query: SimQuery, now_ms: int) -> Iterator[Found]:
        timeline = self._world.timeline(author, now_ms)
        ids, marks = timeline.ids, timeline.marks
        top = timeline.until(now_ms) if query.ceiling is None else bisect_right(ids, query.ceiling)
        bottom = bisect_left(ids, query.floor + 1)
        for place in range(min(top, timeline.until(now_ms)) - 1, bottom - 1, -1):
            yield ids[place], author, marks[place]

    def _passes(self, query: SimQuery, found: Found, now_ms: int) -> bool:
        post_id, author, mark = found
        kind = mark & KIND
        if mark & HIDDEN or (mark & DOOMED and self._world.deleted_at_ms(post_id, mark) <= now_ms):
            return False
        if (
            (
                query.retweets is not Retweets.TOO
                and (kind == DraftKind.RETWEET) is not (query.retweets is Retweets.ONLY)
            )
            or (query.replies is not None and (kind == DraftKind.REPLY) is not query.replies)
            or (query.quotes is not None and (kind == DraftKind.QUOTE) is not query.quotes)
        ):
            return False
        # The post itself is made only where a condition needs it: most searches are by author alone.
        reads_root = query.conversation is not None and (query.to is not None or bool(query.authors))
        if not (query.reads_text or reads_root or query.to is not None):
            return True
        post = self._world.post_at(author, post_id, mark)
        if reads_root and self._world.root_of(post) != query.conversation:
            return False
        if query.to is not None:
            person = self._world.holder(query.to, now_ms)
            if person is None or post.parent is None or post.parent.user_id != person.id:
                return False
        return not query.reads_text or self._reads(query, post, now_ms)

    def _reads(self, query: SimQuery, post: SimPost, now_ms: int) -> bool:
        content = self._renderer.writer.content(post)
        text = content.text.lower()
        return (
            all(word in text for word in query.words)
            and not any(word in text for word in query.unwanted)
            and (query.language is None or query.language == content.language)
            and (query.media is None or query.media is bool(content.media))
            and (query.links is None or query.links is bool(content.urls))
            and self._renderer.likes(post, now_ms) >= query.least_likes
        )
