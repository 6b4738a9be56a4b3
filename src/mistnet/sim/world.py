"""A simulated world: people, their posts and follows, as a function of a seed and the time."""

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mistnet.sim.clock import DAY_MS, HOUR_MS, WORLD_START_AT, Draw, PostIds, SimCache, first_id_at, mix, time_of, to_ms
from mistnet.sim.people import FOREVER_MS, SIZES, Person, SimAccountState, WorldSize, populate
from mistnet.sim.posts import (
    DOOMED,
    KIND,
    MOST_KEPT,
    PLANTED,
    Draft,
    DraftKind,
    Drafts,
    Planted,
    References,
    RepliedPost,
    Stories,
    StoryPlanter,
)

NEAR = 6
FUTURE_DAYS = 60

Edge = tuple[int, int, int]  # since, until, the other person


class SimEdges:
    """One person's follows in one direction, oldest first. Packed, because a star has very many."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        found = sorted(edges, key=lambda edge: (edge[0], edge[2]))
        self._since = array("Q", [since_ms for since_ms, _, _ in found])
        self._until = array("Q", [until_ms for _, until_ms, _ in found])
        self._other = array("L", [other for _, _, other in found])
        self._ends = array("Q", sorted(self._until))

    def at(self, now_ms: int) -> list[int]:
        """Newest first."""
        begun = bisect_right(self._since, now_ms)
        edges = zip(self._until[:begun], self._other[:begun], strict=True)
        return [other for until_ms, other in edges if until_ms > now_ms][::-1]

    def count_at(self, now_ms: int) -> int:
        return bisect_right(self._since, now_ms) - bisect_right(self._ends, now_ms)


class SimFollows:
    """Fans follow stars by popularity, and everyone follows some of their neighbours."""

    def __init__(self, seed: int, people: Sequence[Person], start_ms: int) -> None:
        self._seed, self._people, self._start_ms = seed, people, start_ms
        self._stars = sum(person.star for person in people)
        self._followers: dict[int, SimEdges] = {}
        self._followings: dict[int, SimEdges] = {}

    def followers(self, of: int, now_ms: int) -> list[int]:
        """Newest first, including unavailable users."""
        return self._edges_to(of).at(now_ms)

    def followings(self, of: int, now_ms: int) -> list[int]:
        return self._edges_from(of).at(now_ms)

    def follows(self, who: int, whom: int, now_ms: int) -> bool:
        """Whether the first follows the second at that time."""
        near = min((who - whom) % len(self._people), (whom - who) % len(self._people)) <= NEAR
        asked = [(who, whom, whom)] if whom < self._stars or near else []
        return any(since_ms <= now_ms < until_ms for since_ms, until_ms, _ in self._found(asked))

    def counts(self, of: int, now_ms: int) -> tuple[int, int]:
        """The numbers of followers and followings."""
        return self._edges_to(of).count_at(now_ms), self._edges_from(of).count_at(now_ms)

    def _edges_to(self, of: int) -> SimEdges:
        edges = self._followers.get(of)
        if edges is None:
            asked = range(len(self._people)) if of < self._stars else self._near(of)
            edges = self._followers[of] = SimEdges(self._found((who, of, who) for who in asked))
        return edges

    def _edges_from(self, of: int) -> SimEdges:
        edges = self._followings.get(of)
        if edges is None:
            asked = {*range(self._stars), *self._near(of)}
            edges = self._followings[of] = SimEdges(self._found((of, whom, whom) for whom in asked))
        return edges

    def _near(self, of: int) -> list[int]:
        return [(of + step) % len(self._people) for step in range(-NEAR, NEAR + 1) if step]

    def _found(self, asked: Iterable[tuple[int, int, int]]) -> Iterator[Edge]:
        """A function of the two people only, so that both directions agree."""
        towards, share, known = 0, 0.0, -1
        for who, whom, other in asked:
            if whom != known:
                towards, known = mix(self._seed, Draw.FOLLOW, whom), whom
                # How many of a thousand follow someone who is not a neighbour.
                share = 900 / (whom + 2) ** 0.5 if whom < self._stars else 0.0
            luck = mix(towards, who)
            near = (who - whom + NEAR) % len(self._people) <= 2 * NEAR
            if luck % 1000 < (max(share, 500) if near else share) and who != whom:
                # One edge in eight begins later; one in sixteen ends.
                met_ms = max(self._people[who].created_ms, self._people[whom].created_ms)
                since_ms, until_ms = met_ms + (luck >> 16) % max(self._start_ms - met_ms, 1), FOREVER_MS
                if (luck >> 10) % 8 == 0:
                    since_ms = self._start_ms + (luck >> 16) % (FUTURE_DAYS * DAY_MS)
                if (luck >> 13) % 16 == 0:
                    until_ms = max(since_ms, self._start_ms) + DAY_MS + (luck >> 18) % (FUTURE_DAYS * DAY_MS)
                yield since_ms, until_ms, other


ROOTS_KEPT = 500_000


class PostFate(StrEnum):
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
        """How many of the posts exist at that time."""
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
    """People, posts and follows. In a restless world many people are suspended, leave or are renamed over time.

    In a quiet one the last star has written nothing yet, and the one before it never retweets.
    """

    def __init__(
        self, seed: int = 7, size: WorldSize | str = "tiny", *, restless: bool = False, quiet: bool = False
    ) -> None:
        self.seed = seed
        self.size = SIZES[size] if isinstance(size, str) else size
        self.start_at = WORLD_START_AT
        start_ms = to_ms(WORLD_START_AT)
        self.people: list[Person] = populate(seed, self.size, start_ms, restless=restless, quiet=quiet)
        self.ids = PostIds(seed)
        self._drafts = Drafts(seed, self.ids, self.people, start_ms)
        self.references = References(seed, self.ids, self.people, self._drafts)
        self.stories: Stories = StoryPlanter(seed, self.ids, self.people, start_ms).plant()
        self.follows = SimFollows(seed, self.people, start_ms)
        self._planted_by: dict[int, list[Planted]] = defaultdict(list)
        for planted in self.stories.posts.values():
            self._planted_by[planted.author].append(planted)
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
        """The person with this handle at that time, in any case."""
        holders = self._by_handle.get(handle.lower(), ())
        return next((person for since, until, person in holders if since <= now_ms < until), None)

    def timeline(self, author: int, until_ms: int) -> Timeline:
        """All posts of an author until a time, and possibly a few more: cut with `until`."""
        draft = self._drafts.of(author, until_ms)
        timeline = self._timelines.get(author)
        if timeline is None:
            timeline = self._timelines.put(author, Timeline(array("Q"), bytearray(), -1), weight=len(draft.ids) + 50)
        # Planted posts are merged before anything is appended: the ids must stay in order.
        if timeline.drafted < 0:
            planted = [(each.id, each.mark) for each in self._planted_by.get(author, ())]
            drafted = list(zip(draft.ids, self._settled(author, draft, 0), strict=True))
            merged = sorted(drafted + planted) if planted else drafted
            timeline.ids.extend([post_id for post_id, _ in merged])
            timeline.marks.extend([mark for _, mark in merged])
            timeline.drafted = len(draft.ids)
        elif timeline.drafted < len(draft.ids):
            timeline.ids.extend(draft.ids[timeline.drafted :])
            timeline.marks.extend(self._settled(author, draft, timeline.drafted))
            timeline.drafted = len(draft.ids)
        return timeline

    def post(self, post_id: int) -> SimPost | None:
        """Any past or future post, even if deleted."""
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
        # At least ten minutes, so that a collector can see the post before.
        return time_of(post_id) + HOUR_MS // 6 + mix(self.seed, Draw.DELETION, post_id) % (2 * DAY_MS)

    def fate(self, post_id: int, now_ms: int) -> PostFate:
        post = self.post(post_id)
        return PostFate.UNKNOWN if post is None else self.fate_of(post, now_ms)

    def fate_of(self, post: SimPost, now_ms: int) -> PostFate:
        if post.at_ms > now_ms:
            return PostFate.UNKNOWN
        if self.deleted_at_ms(post.id, post.mark) <= now_ms:
            return PostFate.DELETED
        match self.people[post.author].state_at(now_ms):
            case SimAccountState.ACTIVE:
                return PostFate.SHOWN
            case SimAccountState.PROTECTED:
                return PostFate.PROTECTED
            case SimAccountState.SUSPENDED | SimAccountState.GONE:
                return PostFate.SUSPENDED

    def searchable(self, author: int, now_ms: int) -> bool:
        person = self.people[author]
        return person.searchable and person.state_at(now_ms) is SimAccountState.ACTIVE

    def root_of(self, post: SimPost) -> int:
        """The root of the conversation, even if deleted."""
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
        # All of them have the same root, so that long threads are walked once.
        for each in way:
            self._roots.put(each, root)
        return root

    def _settled(self, author: int, draft: Draft, start: int) -> bytearray:
        """A quote or retweet without an original is a plain post."""
        marks = draft.marks[start:]
        for place, mark in enumerate(marks):
            kind = mark & KIND
            if kind >= DraftKind.QUOTE and self.references.original_of(author, draft.ids[start + place], kind) is None:
                marks[place] = mark & ~KIND | DraftKind.ORIGINAL
        return marks
