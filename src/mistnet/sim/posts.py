"""Posts of a simulated world, and the scenes that every world contains."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import exp
from random import Random

from mistnet.sim.clock import DAY_MS, HOUR_MS, Draw, PostIds, SimCache, chance, mix, time_of
from mistnet.sim.language import HOSTILE_TEXTS, SHOP_LINKS, long_text
from mistnet.sim.people import FIRST_POST_MS, Person, SimAccountState

KIND = 7
DOOMED = 8
HIDDEN = 16
PLANTED = 32
MOST_KEPT = 3_000_000


class DraftKind(IntEnum):
    ORIGINAL = 0
    REPLY = 1
    QUOTE = 2
    RETWEET = 3


STAR_KINDS = (560, 840, 910)  # of 1024: originals, then replies, then quotes; the rest are native retweets
FAN_KINDS = (330, 880, 930)


@dataclass(slots=True)
class Draft:
    """Post ids in order with a mark each, and how many days after the world's start are generated."""

    ids: "array[int]"
    marks: bytearray
    days: int = 0


class Drafts:
    def __init__(self, seed: int, ids: PostIds, people: Sequence[Person], start_ms: int) -> None:
        self._seed, self._ids, self._people, self._start_ms = seed, ids, people, start_ms
        self._kept: SimCache[int, Draft] = SimCache(MOST_KEPT)

    def of(self, author: int, until_ms: int) -> Draft:
        """All posts of an author until a time, and possibly a few more."""
        draft = self._kept.get(author)
        if draft is None:
            person = self._people[author]
            luck, first_ms = chance(self._seed, Draw.HISTORY, author), self._first_ms(person)
            span = self._start_ms - first_ms
            draft = Draft(array("Q"), bytearray())
            # A set: an id has room for one post of an author in each millisecond.
            times = sorted({first_ms + int(luck.random() * span) for _ in range(person.posts)})
            self._add(draft, person, times, luck)
            # 50 for the objects around the ids.
            self._kept.put(author, draft, weight=len(draft.ids) + 50)
        if until_ms >= self._start_ms + draft.days * DAY_MS:
            person = self._people[author]
            so_far = person.posts * DAY_MS / (self._start_ms - self._first_ms(person))
            rate = max(so_far, 3.0 if person.star else 0.05)
            while self._start_ms + draft.days * DAY_MS <= until_ms:
                luck = chance(self._seed, Draw.DAY, person.index, draft.days)
                day_ms = self._start_ms + draft.days * DAY_MS
                times = sorted({day_ms + int(luck.random() * DAY_MS) for _ in range(_poisson(rate, luck))})
                self._add(draft, person, times, luck)
                draft.days += 1
        return draft

    def _add(self, draft: Draft, person: Person, times: list[int], luck: Random) -> None:
        make, index = self._ids.make, person.index
        draft.ids.extend(array("Q", [make(at_ms, index) for at_ms in times]))
        originals, replies, quotes = STAR_KINDS if person.star else FAN_KINDS
        for _ in times:
            bits = luck.getrandbits(30)
            draw = bits & 1023
            kind = 0 if draw < originals else 1 if draw < replies else 2 if draw < quotes else 3
            kind = kind if kind < DraftKind.RETWEET or person.retweets else DraftKind.ORIGINAL
            doomed = DOOMED if (bits >> 10) & 1023 < 20 else 0
            hidden = HIDDEN if (bits >> 20) < 8 else 0
            draft.marks.append(kind | doomed | hidden)

    def _first_ms(self, person: Person) -> int:
        return max(person.created_ms + DAY_MS, FIRST_POST_MS)


def _poisson(mean: float, luck: Random) -> int:
    count, left = 0, luck.random()
    # For a much larger mean exp would underflow to 0.
    floor = exp(-min(mean, 500.0))
    while left > floor:
        left *= luck.random()
        count += 1
    return count


LOOKBACK = 12
NEIGHBOURS = 4
ACQUAINTANCES, STRIDE = 40, 37  # stars know people everywhere, not only their neighbours
IDOLS = 3
GHOSTS = 1000


@dataclass(frozen=True, slots=True)
class RepliedPost:
    """The post that a reply answers. The author of a ghost's post does not exist."""

    id: int
    user_id: int
    handle: str


class References:
    def __init__(self, seed: int, ids: PostIds, people: Sequence[Person], drafts: Drafts) -> None:
        self._seed, self._ids, self._people, self._drafts = seed, ids, people, drafts
        self._stars = sum(person.star for person in people)
        self._open_stars = [person.index for person in people if person.star and person.always_open]

    def parent_of(self, author: int, post_id: int) -> RepliedPost:
        luck = mix(self._seed, Draw.PARENT, post_id)
        draw = luck % 100
        if draw < 18:
            target = author
        elif draw < 70:
            target = self.idols(author)[draw % IDOLS]
        elif author < self._stars:
            target = (author + ((luck >> 8) % ACQUAINTANCES + 1) * STRIDE) % len(self._people)
        else:
            target = (author + 1 + draw % NEIGHBOURS) % len(self._people)
        found = None if draw < 3 else self._recent(target, post_id, (luck >> 16) % LOOKBACK, gone_too=True)
        if found is None:
            which, at_ms = luck >> 24, time_of(post_id)
            no_one = self._ids.make(at_ms - 1 - which % HOUR_MS, len(self._people) + which % GHOSTS)
            return RepliedPost(no_one, ghost_id(self._seed, which % GHOSTS), f"left_{which % GHOSTS}")
        answered = self._people[target]
        return RepliedPost(found, answered.id, answered.handle_at(time_of(post_id)))

    def original_of(self, author: int, post_id: int, kind: int) -> int | None:
        """The post that is quoted or retweeted; None if there is none yet."""
        luck = mix(self._seed, Draw.ORIGINAL, post_id)
        target = self._open_stars[luck % len(self._open_stars)]
        if target == author:
            target = self._open_stars[(luck + 1) % len(self._open_stars)]
        return self._recent(target, post_id, (luck >> 16) % LOOKBACK, gone_too=kind == DraftKind.QUOTE)

    def idols(self, author: int) -> tuple[int, ...]:
        luck = mix(self._seed, Draw.CIRCLE, author)
        return tuple((luck >> (16 * place)) % self._stars for place in range(IDOLS))

    def _recent(self, author: int, before_id: int, back: int, *, gone_too: bool) -> int | None:
        draft = self._drafts.of(author, time_of(before_id))
        end = bisect_left(draft.ids, before_id)
        place = max(end - 1 - back, min(end - 1, 0))
        for step in range(min(LOOKBACK, place + 1)):
            mark = draft.marks[place - step]
            if mark & KIND != DraftKind.RETWEET and (gone_too or not mark & DOOMED):
                return draft.ids[place - step]
        return None


def ghost_id(seed: int, which: int) -> int:
    """A user id that no lookup ever returns."""
    return 1_000_000_000_000_000_000 + mix(seed, Draw.GHOST, which) % 500_000_000_000_000_000


MINUTE_MS = 60_000
DEPTH = 60
BROKEN_DEPTH = 24
WIDTH = 130
LONG_LENGTHS = (500, 2_000, 9_999, 24_999, 25_000, 26_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    id: int
    author: int
    parent: RepliedPost | None = None
    quoted: int | None = None
    text: str | None = None
    link: str | None = None
    media: str | None = None
    greets: int | None = None  # starts with a mention of this person, but is not a reply
    article: bool = False
    doomed: bool = False
    hidden: bool = False

    @property
    def mark(self) -> int:
        kind = DraftKind.REPLY if self.parent else DraftKind.QUOTE if self.quoted else DraftKind.ORIGINAL
        return kind | PLANTED | (DOOMED if self.doomed else 0) | (HIDDEN if self.hidden else 0)


@dataclass(slots=True)
class Stories:
    """The planted posts by id, and the ids of the scenes worth naming."""

    posts: dict[int, Planted] = field(default_factory=dict)
    deep_leaf: int = 0
    broken_leaf: int = 0
    wide_root: int = 0
    self_thread_leaf: int = 0
    protected_leaf: int = 0
    suspended_leaf: int = 0
    ghost_leaf: int = 0
    longest: int = 0


class StoryPlanter:
    def __init__(self, seed: int, ids: PostIds, people: Sequence[Person], start_ms: int) -> None:
        self._seed, self._ids, self._people = seed, ids, people
        self._at_ms = start_ms - 30 * DAY_MS
        self._fans = [person.index for person in people if not person.star and person.always_open][1:]
        self._stars = [person.index for person in people if person.star and person.always_open and person.posts]
        self._stories = Stories()

    def plant(self) -> Stories:
        stories, star, other = self._stories, self._stars[0], self._stars[1]
        stories.deep_leaf = self._chain([self._speaker(level) for level in range(DEPTH + 1)])
        broken = [self._speaker(level) for level in range(BROKEN_DEPTH)]
        stories.broken_leaf = self._chain(broken, lost=BROKEN_DEPTH // 2)
        stories.self_thread_leaf = self._chain([self._stars[2 % len(self._stars)]] * 30)
        stories.protected_leaf = self._chain([self._with(SimAccountState.PROTECTED), star, self._fans[0], star])
        stories.suspended_leaf = self._chain([other, self._with(SimAccountState.SUSPENDED), star])
        stories.wide_root = self._post(other, text="What did you find at the flea market today? Show me!")
        for place in range(WIDTH):
            self._post(self._fans[place % len(self._fans)], self._to(stories.wide_root))
        no_one = self._ids.make(self._at_ms, len(self._people) + 7)
        stories.ghost_leaf = self._post(star, RepliedPost(no_one, ghost_id(self._seed, 7), "left_7"))
        for place, text in enumerate(HOSTILE_TEXTS):
            self._post(self._stars[place % 3], text=text)
        for place, length in enumerate(LONG_LENGTHS):
            stories.longest = self._post(self._stars[place % 2], text=long_text(length))
        for place, link in enumerate(SHOP_LINKS):
            self._post(self._stars[place % len(self._stars)], text="Look what I found", link=link)
        for media in ("photo", "photos", "video", "animated_gif"):
            self._post(star, text="Seen today", media=media)
        self._post(star, text="will there be another auction this week?", greets=other)
        self._post(star, text="A long read", article=True)
        self._post(star, text="This.", quoted=self._post(other, self._to(stories.wide_root)))
        self._post(star, text="And this.", quoted=self._post(other, text="Gone soon", doomed=True))
        self._post(star, text="Only those who know where to look", hidden=True)
        self._post(star, text="x")
        return stories

    def _speaker(self, level: int) -> int:
        """Two stars and a fan take turns, and sometimes another fan."""
        if level % 7 == 6:
            return self._fans[level % len(self._fans)]
        return (self._stars[0], self._stars[1], self._fans[0])[level % 3]

    def _with(self, state: SimAccountState) -> int:
        stars = (person for person in self._people if person.star)
        return next(star.index for star in stars if star.state_at(0) is state)

    def _post(self, author: int, parent: RepliedPost | None = None, **more: object) -> int:
        self._at_ms += MINUTE_MS + mix(self._seed, Draw.STORY, self._at_ms) % MINUTE_MS
        own = self._ids.make(self._at_ms, author)
        self._stories.posts[own] = Planted(id=own, author=author, parent=parent, **more)  # type: ignore[arg-type]  # Planted's field names
        return own

    def _to(self, post_id: int) -> RepliedPost:
        answered = self._people[self._stories.posts[post_id].author]
        return RepliedPost(post_id, answered.id, answered.handle_at(self._at_ms))

    def _chain(self, speakers: list[int], lost: int | None = None) -> int:
        self._at_ms += HOUR_MS
        last = self._post(speakers[0])
        for level, speaker in enumerate(speakers[1:], start=1):
            last = self._post(speaker, self._to(last), doomed=level == lost)
        return last
