"""Who follows whom, since when and until when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mistnet.sim.numbers import DAY_MS, Draw, mix
from mistnet.sim.people import FOREVER_MS, Person

NEAR = 6
FUTURE_DAYS = 60


@dataclass(frozen=True, slots=True)
class Edge:
    since_ms: int
    until_ms: int
    other: int

    def holds_at(self, now_ms: int) -> bool:
        return self.since_ms <= now_ms < self.until_ms


class Follows:
    """Fans follow stars by popularity; everybody follows some of those next to them."""

    def __init__(self, seed: int, people: Sequence[Person], start_ms: int) -> None:
        self._seed, self._people, self._start_ms = seed, people, start_ms
        self._stars = sum(person.star for person in people)
        self._followers: dict[int, list[Edge]] = {}
        self._followings: dict[int, list[Edge]] = {}

    def followers(self, of: int, now_ms: int) -> list[int]:
        """Newest first, those who can no longer be shown included."""
        edges = self._followers.get(of)
        if edges is None:
            edges = self._followers[of] = _newest_first(self._edges_to(of))
        return [edge.other for edge in edges if edge.holds_at(now_ms)]

    def followings(self, of: int, now_ms: int) -> list[int]:
        edges = self._followings.get(of)
        if edges is None:
            edges = self._followings[of] = _newest_first(self._edges_from(of))
        return [edge.other for edge in edges if edge.holds_at(now_ms)]

    def _edges_to(self, of: int) -> Iterator[Edge]:
        for who in range(len(self._people)) if of < self._stars else self._near(of):
            edge = self._edge(who, of)
            if edge:
                yield Edge(*edge, who)

    def _edges_from(self, of: int) -> Iterator[Edge]:
        for whom in sorted({*range(self._stars), *self._near(of)}):
            edge = self._edge(of, whom)
            if edge:
                yield Edge(*edge, whom)

    def _near(self, of: int) -> list[int]:
        return [(of + step) % len(self._people) for step in range(-NEAR, NEAR + 1) if step]

    def _edge(self, who: int, whom: int) -> tuple[int, int] | None:
        """A function of the two alone, so that both ways of looking agree."""
        luck = mix(self._seed, Draw.FOLLOW, who, whom)
        near = (who - whom + NEAR) % len(self._people) <= 2 * NEAR
        share = max(0.9 / (whom + 2) ** 0.5 if whom < self._stars else 0.0, 0.5 if near else 0.0)
        if who == whom or luck % 1000 >= share * 1000:
            return None
        met_ms = max(self._people[who].created_ms, self._people[whom].created_ms)
        if (luck >> 10) % 8:
            since_ms = met_ms + (luck >> 16) % max(self._start_ms - met_ms, 1)
        else:
            since_ms = self._start_ms + (luck >> 16) % (FUTURE_DAYS * DAY_MS)
        if (luck >> 13) % 16:
            return since_ms, FOREVER_MS
        return since_ms, since_ms + DAY_MS + (luck >> 18) % (self._start_ms + FUTURE_DAYS * DAY_MS - met_ms)


def _newest_first(edges: Iterator[Edge]) -> list[Edge]:
    return sorted(edges, key=lambda edge: (edge.since_ms, edge.other), reverse=True)
