"""Who speaks to whom: which post a reply answers and which one a quote or retweet repeats."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mistnet.sim.drafts import DOOMED, KIND, Drafts, Kind
from mistnet.sim.numbers import HOUR_MS, Draw, PostIds, mix, time_of
from mistnet.sim.people import Person

LOOKBACK = 12
REACH = 2 * LOOKBACK + 1  # a reply is never further than this many posts from what it answers
NEIGHBOURS = 4
ACQUAINTANCES, STRIDE = 40, 37  # stars know people all over the world, not just those who live next to them
IDOLS = 3
GHOSTS = 1000


@dataclass(frozen=True, slots=True)
class Parent:
    """What a reply answers. The author of a ghost's post was never anybody."""

    id: int
    user_id: int
    handle: str


class References:
    def __init__(self, seed: int, ids: PostIds, people: Sequence[Person], drafts: Drafts) -> None:
        self._seed, self._ids, self._people, self._drafts = seed, ids, people, drafts
        self._stars = sum(person.star for person in people)
        self._open_stars = [person.index for person in people if person.star and person.always_open]
        self._fans: dict[int, list[int]] | None = None

    def parent_of(self, author: int, post_id: int) -> Parent:
        luck = mix(self._seed, Draw.PARENT, post_id)
        target = self._answered(author, luck)
        found = None if target is None else self._recent(target, post_id, (luck >> 16) % LOOKBACK, gone_too=True)
        if target is None or found is None:
            return self._ghost(post_id, luck)
        answered = self._people[target]
        return Parent(found, answered.id, answered.handle_at(time_of(post_id)))

    def original_of(self, author: int, post_id: int, kind: int) -> int | None:
        """What a quote or native retweet repeats; None if there was nothing yet."""
        luck = mix(self._seed, Draw.ORIGINAL, post_id)
        target = self._open_stars[luck % len(self._open_stars)]
        if target == author:
            target = self._open_stars[(luck + 1) % len(self._open_stars)]
        return self._recent(target, post_id, (luck >> 16) % LOOKBACK, gone_too=kind == Kind.QUOTE)

    def idols(self, author: int) -> tuple[int, ...]:
        luck = mix(self._seed, Draw.CIRCLE, author)
        return tuple((luck >> (16 * place)) % self._stars for place in range(IDOLS))

    def fans(self, author: int) -> list[int]:
        """Everybody whose replies may go to this author."""
        if self._fans is None:
            fans = defaultdict(list)
            for person in self._people:
                for idol in set(self.idols(person.index)):
                    fans[idol].append(person.index)
            for star in range(self._stars):
                for place in range(ACQUAINTANCES):
                    fans[self._acquaintance(star, place)].append(star)
            self._fans = dict(fans)
        near = [(author - step) % len(self._people) for step in range(NEIGHBOURS + 1)]
        return sorted({*self._fans.get(author, ()), *near})

    def replies_to(self, post_id: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """(author, id) of posts that may answer this one: the caller checks."""
        author = self._ids.author_of(post_id)
        own = self._drafts.of(author, until_ms).ids
        after = bisect_left(own, post_id) + REACH
        last = own[after] if after < len(own) else self._ids.make(until_ms + 1, 0)
        for fan in self.fans(author):
            draft = self._drafts.of(fan, until_ms)
            for place in range(bisect_left(draft.ids, post_id + 1), bisect_left(draft.ids, last)):
                if draft.marks[place] & KIND == Kind.REPLY:
                    yield fan, draft.ids[place]

    def _answered(self, author: int, luck: int) -> int | None:
        draw = luck % 100
        if draw < 3:
            return None
        if draw < 18:
            return author
        if draw < 70:
            return self.idols(author)[draw % IDOLS]
        if author < self._stars:
            return self._acquaintance(author, (luck >> 8) % ACQUAINTANCES)
        return (author + 1 + draw % NEIGHBOURS) % len(self._people)

    def _acquaintance(self, star: int, place: int) -> int:
        return (star + (place + 1) * STRIDE) % len(self._people)

    def _recent(self, author: int, before_id: int, back: int, *, gone_too: bool) -> int | None:
        draft = self._drafts.of(author, time_of(before_id))
        end = bisect_left(draft.ids, before_id)
        place = max(end - 1 - back, min(end - 1, 0))
        for step in range(min(LOOKBACK, place + 1)):
            mark = draft.marks[place - step]
            if mark & KIND != Kind.RETWEET and (gone_too or not mark & DOOMED):
                return draft.ids[place - step]
        return None

    def _ghost(self, post_id: int, luck: int) -> Parent:
        which = luck >> 24
        nobody = len(self._people) + which % GHOSTS
        answered = self._ids.make(time_of(post_id) - 1 - which % HOUR_MS, nobody)
        return Parent(answered, ghost_id(self._seed, which % GHOSTS), f"left_{which % GHOSTS}")


def ghost_id(seed: int, which: int) -> int:
    """A user id that no lookup ever returns."""
    return 1_000_000_000_000_000_000 + mix(seed, Draw.GHOST, which) % 500_000_000_000_000_000
