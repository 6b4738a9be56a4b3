"""A world from a seed: people, posts, threads and follows, all of it a function of the seed and the time."""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mistnet.sim.clock import WORLD_START_AT, to_ms
from mistnet.sim.follows import SimFollows
from mistnet.sim.numbers import DAY_MS, HOUR_MS, Draw, PostIds, SimCache, first_id_at, mix, time_of
from mistnet.sim.people import FOREVER_MS, SIZES, Person, SimAccountState, WorldSize, populate
from mistnet.sim.posts import (
    DOOMED,
    HIDDEN,
    KIND,
    MOST_KEPT,
    PLANTED,
    Draft,
    DraftKind,
    Drafts,
    References,
    RepliedPost,
)
from mistnet.sim.stories import Planted, Stories, tell

ROOTS_KEPT = 500_000


class Fate(StrEnum):
    """Whether a lookup by id shows a post, and if not, why."""

    SHOWN = "shown"
    UNKNOWN = "unknown"
    DELETED = "deleted"
    PROTECTED = "protected"
    SUSPENDED = "suspended"


@dataclass(slots=True)
class Timeline:
    ids: "array[int]"
    marks: bytearray
    drafted: int

    def until(self, now_ms: int) -> int:
        """How many of the posts exist by then."""
        return bisect_left(self.ids, first_id_at(now_ms + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPost:
    id: int
    author: int
    kind: DraftKind
    mark: int
    parent: RepliedPost | None = None
    original: int | None = None
    planted: Planted | None = None

    @property
    def at_ms(self) -> int:
        return time_of(self.id)


class World:
    """Everybody and everything. In a restless one many are suspended, go or take another name as time goes on.

    In a quiet one the last star has written nothing yet, and the one before it never retweets.
    """

    def __init__(
        self,
        seed: int = 7,
        size: WorldSize | str = "tiny",
        start_at: datetime = WORLD_START_AT,
        *,
        restless: bool = False,
        quiet: bool = False,
    ) -> None:
        self.seed = seed
        self.size = SIZES[size] if isinstance(size, str) else size
        self.start_at = start_at
        start_ms = to_ms(start_at)
        self.people: list[Person] = populate(seed, self.size, start_ms, restless=restless, quiet=quiet)
        self.ids = PostIds(seed)
        self._drafts = Drafts(seed, self.ids, self.people, start_ms)
        self.references = References(seed, self.ids, self.people, self._drafts)
        self.stories: Stories = tell(seed, self.ids, self.people, start_ms)
        self.follows = SimFollows(seed, self.people, start_ms)
        self._planted_by: dict[int, list[Planted]] = defaultdict(list)
        self._planted_replies: dict[int, list[int]] = defaultdict(list)
        for planted in self.stories.posts.values():
            self._planted_by[planted.author].append(planted)
            if planted.parent:
                self._planted_replies[planted.parent.id].append(planted.id)
        self._by_id = {person.id: person for person in self.people}
        self._by_handle: dict[str, list[tuple[int, int, Person]]] = defaultdict(list)
        for person in self.people:
            ends = [since for since, _ in person.handles[1:]] + [FOREVER_MS]
            for (since_ms, handle), until_ms in zip(person.handles, ends, strict=True):
                self._by_handle[handle.lower()].append((since_ms, until_ms, person))
        self._timelines: SimCache[int, Timeline] = SimCache(MOST_KEPT)
        self._roots: SimCache[int, int] = SimCache(ROOTS_KEPT)

    @property
    def stars(self) -> list[Person]:
        return self.people[: self.size.stars]

    def person(self, user_id: int) -> Person | None:
        return self._by_id.get(user_id)

    def holder(self, handle: str, now_ms: int) -> Person | None:
        """Who goes by a handle at that time, however it is written."""
        holders = self._by_handle.get(handle.lower(), ())
        return next((person for since, until, person in holders if since <= now_ms < until), None)

    def timeline(self, author: int, until_ms: int) -> Timeline:
        """All posts of an author until then and perhaps a little further: cut with `until`."""
        draft = self._drafts.of(author, until_ms)
        timeline = self._timelines.get(author)
        if timeline is None:
            timeline = self._timelines.put(author, Timeline(array("Q"), bytearray(), -1), weight=len(draft.ids) + 50)
        if timeline.drafted < 0:
            self._begin(timeline, author, draft)
        elif timeline.drafted < len(draft.ids):
            self._append(timeline, author, draft)
        return timeline

    def post(self, post_id: int) -> SimPost | None:
        """A post that ever was or will be, whatever became of it."""
        author = self.ids.author_of(post_id)
        if author >= len(self.people):
            return None
        timeline = self.timeline(author, time_of(post_id))
        place = bisect_left(timeline.ids, post_id)
        if place == len(timeline.ids) or timeline.ids[place] != post_id:
            return None
        return self.post_at(author, post_id, timeline.marks[place])

    def post_at(self, author: int, post_id: int, mark: int) -> SimPost:
        kind = DraftKind(mark & KIND)
        planted = self.stories.posts[post_id] if mark & PLANTED else None
        parent = planted.parent if planted else None
        original = planted.quoted if planted else None
        if not planted and kind is DraftKind.REPLY:
            parent = self.references.parent_of(author, post_id)
        elif not planted and kind is not DraftKind.ORIGINAL:
            original = self.references.original_of(author, post_id, kind)
        return SimPost(
            id=post_id, author=author, kind=kind, mark=mark, parent=parent, original=original, planted=planted
        )

    def deleted_at_ms(self, post_id: int, mark: int) -> int:
        if not mark & DOOMED:
            return FOREVER_MS
        return time_of(post_id) + HOUR_MS // 6 + mix(self.seed, Draw.DELETION, post_id) % (2 * DAY_MS)

    def fate(self, post_id: int, now_ms: int) -> Fate:
        post = self.post(post_id)
        return Fate.UNKNOWN if post is None else self.fate_of(post, now_ms)

    def fate_of(self, post: SimPost, now_ms: int) -> Fate:
        if post.at_ms > now_ms:
            return Fate.UNKNOWN
        if self.deleted_at_ms(post.id, post.mark) <= now_ms:
            return Fate.DELETED
        match self.people[post.author].standing_at(now_ms):
            case SimAccountState.ACTIVE:
                return Fate.SHOWN
            case SimAccountState.PROTECTED:
                return Fate.PROTECTED
            case SimAccountState.SUSPENDED | SimAccountState.GONE:
                return Fate.SUSPENDED

    def searchable(self, author: int, now_ms: int) -> bool:
        person = self.people[author]
        return person.searchable and person.standing_at(now_ms) is SimAccountState.ACTIVE

    def root_of(self, post: SimPost) -> int:
        """Where the conversation began, even if that post is gone."""
        way: list[int] = []
        root = post.id
        current: SimPost | None = post
        while current is not None:
            known = self._roots.get(current.id)
            if known is not None or current.parent is None:
                root = known or current.id
                break
            way.append(current.id)
            root = current.parent.id
            current = self.post(root)
        for each in way:
            self._roots.put(each, root)
        return root

    def replies_to(self, post_id: int, now_ms: int) -> list[int]:
        """Direct replies made by then, shown or not, oldest first."""
        found = [each for each in self._planted_replies.get(post_id, ()) if time_of(each) <= now_ms]
        if self.ids.author_of(post_id) < len(self.people) and post_id not in self.stories.posts:
            for author, reply in self.references.replies_to(post_id, now_ms):
                if time_of(reply) <= now_ms and self.references.parent_of(author, reply).id == post_id:
                    found.append(reply)
        return sorted(found)

    def descendants(self, post_id: int, now_ms: int) -> Iterator[int]:
        waiting = [post_id]
        while waiting:
            for reply in self.replies_to(waiting.pop(), now_ms):
                yield reply
                waiting.append(reply)

    def _begin(self, timeline: Timeline, author: int, draft: Draft) -> None:
        planted = [(each.id, _planted_mark(each)) for each in self._planted_by.get(author, ())]
        drafted = list(zip(draft.ids, self._settled(author, draft, 0), strict=True))
        merged = sorted(drafted + planted) if planted else drafted
        timeline.ids.extend([post_id for post_id, _ in merged])
        timeline.marks.extend([mark for _, mark in merged])
        timeline.drafted = len(draft.ids)

    def _append(self, timeline: Timeline, author: int, draft: Draft) -> None:
        timeline.ids.extend(draft.ids[timeline.drafted :])
        timeline.marks.extend(self._settled(author, draft, timeline.drafted))
        timeline.drafted = len(draft.ids)

    def _settled(self, author: int, draft: Draft, start: int) -> bytearray:
        """A quote or retweet of nothing is a plain post."""
        marks = draft.marks[start:]
        for place, mark in enumerate(marks):
            kind = mark & KIND
            if kind >= DraftKind.QUOTE and self.references.original_of(author, draft.ids[start + place], kind) is None:
                marks[place] = mark & ~KIND | DraftKind.ORIGINAL
        return marks


def _planted_mark(planted: Planted) -> int:
    kind = DraftKind.REPLY if planted.parent else DraftKind.QUOTE if planted.quoted else DraftKind.ORIGINAL
    return kind | PLANTED | (DOOMED if planted.doomed else 0) | (HIDDEN if planted.hidden else 0)
