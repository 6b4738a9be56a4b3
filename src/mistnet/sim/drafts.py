"""Each author's own output: when they post and what kind of post, before anything refers to anything."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import exp
from random import Random

from mistnet.sim.kept import Kept
from mistnet.sim.numbers import DAY_MS, Draw, PostIds, chance
from mistnet.sim.people import FIRST_POST_MS, Person

KIND = 7
DOOMED = 8
HIDDEN = 16
PLANTED = 32
MOST_KEPT = 3_000_000


class Kind(IntEnum):
    ORIGINAL = 0
    REPLY = 1
    QUOTE = 2
    RETWEET = 3


STAR_KINDS = (560, 840, 910)  # of 1024: originals, then replies, then quotes; the rest are native retweets
FAN_KINDS = (330, 880, 930)


@dataclass(slots=True)
class Draft:
    """Ids in order, a mark for each, and how many days after the world's start are already in."""

    ids: "array[int]"
    marks: bytearray
    days: int = 0


class Drafts:
    def __init__(self, seed: int, ids: PostIds, people: Sequence[Person], start_ms: int) -> None:
        self._seed, self._ids, self._people, self._start_ms = seed, ids, people, start_ms
        self._kept: Kept[int, Draft] = Kept(MOST_KEPT)

    def of(self, author: int, until_ms: int) -> Draft:
        """Everything the author posts until then, and perhaps a little more."""
        draft = self._kept.get(author)
        if draft is None:
            draft = self._history(self._people[author])
            self._kept.put(author, draft, weight=len(draft.ids) + 50)
        if until_ms >= self._start_ms + draft.days * DAY_MS:
            self._extend(draft, self._people[author], until_ms)
        return draft

    def _history(self, person: Person) -> Draft:
        luck = chance(self._seed, Draw.HISTORY, person.index)
        first_ms = self._first_ms(person)
        span = self._start_ms - first_ms
        times = sorted({first_ms + int(luck.random() * span) for _ in range(person.posts)})
        draft = Draft(array("Q"), bytearray())
        self._add(draft, person, times, luck)
        return draft

    def _extend(self, draft: Draft, person: Person, until_ms: int) -> None:
        rate = self._posts_per_day(person)
        while self._start_ms + draft.days * DAY_MS <= until_ms:
            luck = chance(self._seed, Draw.DAY, person.index, draft.days)
            day_ms = self._start_ms + draft.days * DAY_MS
            times = sorted({day_ms + int(luck.random() * DAY_MS) for _ in range(_poisson(rate, luck))})
            self._add(draft, person, times, luck)
            draft.days += 1

    def _add(self, draft: Draft, person: Person, times: list[int], luck: Random) -> None:
        make, index = self._ids.make, person.index
        draft.ids.extend(array("Q", [make(at_ms, index) for at_ms in times]))
        originals, replies, quotes = STAR_KINDS if person.star else FAN_KINDS
        for _ in times:
            bits = luck.getrandbits(30)
            draw = bits & 1023
            kind = 0 if draw < originals else 1 if draw < replies else 2 if draw < quotes else 3
            kind = kind if kind < Kind.RETWEET or person.retweets else Kind.ORIGINAL
            doomed = DOOMED if (bits >> 10) & 1023 < 20 else 0
            hidden = HIDDEN if (bits >> 20) < 8 else 0
            draft.marks.append(kind | doomed | hidden)

    def _first_ms(self, person: Person) -> int:
        return max(person.created_ms + DAY_MS, FIRST_POST_MS)

    def _posts_per_day(self, person: Person) -> float:
        so_far = person.posts * DAY_MS / (self._start_ms - self._first_ms(person))
        return max(so_far, 3.0 if person.star else 0.05)


def _poisson(mean: float, luck: Random) -> int:
    count, left = 0, luck.random()
    floor = exp(-min(mean, 500.0))
    while left > floor:
        left *= luck.random()
        count += 1
    return count
