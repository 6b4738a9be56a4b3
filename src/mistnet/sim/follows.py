"""Who follows whom, since when and until when."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from mistnet.sim.numbers import DAY_MS, Draw, mix
from mistnet.sim.people import FOREVER_MS, Person

NEAR = 6
FUTURE_DAYS = 60

Edge = tuple[int, int, int]  # since, until, the other one


class SimEdges:
    """One person's follows in one direction, oldest first, packed: a star has very many."""

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
    """Fans follow stars by popularity; everybody follows some of those next to them."""

    def __init__(self, seed: int, people: Sequence[Person], start_ms: int) -> None:
        self._seed, self._people, self._start_ms = seed, people, start_ms
        self._stars = sum(person.star for person in people)
        self._followers: dict[int, SimEdges] = {}
        self._followings: dict[int, SimEdges] = {}

    def followers(self, of: int, now_ms: int) -> list[int]:
        """Newest first, those who can no longer be shown included."""
        return self._edges_to(of).at(now_ms)

    def followings(self, of: int, now_ms: int) -> list[int]:
        return self._edges_from(of).at(now_ms)

    def follows(self, who: int, whom: int, now_ms: int) -> bool:
        """Whether one follows the other at that time."""
        near = min((who - whom) % len(self._people), (whom - who) % len(self._people)) <= NEAR
        asked = [(who, whom, whom)] if whom < self._stars or near else []
        return any(since_ms <= now_ms < until_ms for since_ms, until_ms, _ in self._found(asked))

    def counts(self, of: int, now_ms: int) -> tuple[int, int]:
        """How many followers and followings."""
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
        """A function of the two alone, so that both ways of looking agree."""
        towards, share, known = 0, 0.0, -1
        for who, whom, other in asked:
            if whom != known:
                towards, share, known = mix(self._seed, Draw.FOLLOW, whom), self._share(whom), whom
            luck = mix(towards, who)
            near = (who - whom + NEAR) % len(self._people) <= 2 * NEAR
            if luck % 1000 < (max(share, 500) if near else share) and who != whom:
                yield (*self._span(who, whom, luck), other)

    def _share(self, whom: int) -> float:
        """How many of a thousand follow somebody they do not live next to."""
        return 900 / (whom + 2) ** 0.5 if whom < self._stars else 0.0

    def _span(self, who: int, whom: int, luck: int) -> tuple[int, int]:
        """One in eight is still to come; one in sixteen will not last."""
        met_ms = max(self._people[who].created_ms, self._people[whom].created_ms)
        since_ms = met_ms + (luck >> 16) % max(self._start_ms - met_ms, 1)
        if (luck >> 10) % 8 == 0:
            since_ms = self._start_ms + (luck >> 16) % (FUTURE_DAYS * DAY_MS)
        if (luck >> 13) % 16:
            return since_ms, FOREVER_MS
        return since_ms, max(since_ms, self._start_ms) + DAY_MS + (luck >> 18) % (FUTURE_DAYS * DAY_MS)
