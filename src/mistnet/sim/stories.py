"""Scenes that every world contains, whatever its seed: the threads and texts a collector must survive."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mistnet.sim.language import HOSTILE_TEXTS, SHOP_LINKS, long_text
from mistnet.sim.numbers import DAY_MS, HOUR_MS, Draw, PostIds, mix
from mistnet.sim.people import Person, SimAccountState
from mistnet.sim.posts import RepliedPost, ghost_id

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
    greets: int | None = None  # starts with a mention of this person without being a reply
    article: bool = False
    doomed: bool = False
    hidden: bool = False


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


def tell(seed: int, ids: PostIds, people: Sequence[Person], start_ms: int) -> Stories:
    return _Teller(seed, ids, people, start_ms).tell()


class _Teller:
    def __init__(self, seed: int, ids: PostIds, people: Sequence[Person], start_ms: int) -> None:
        self._seed, self._ids, self._people = seed, ids, people
        self._at_ms = start_ms - 30 * DAY_MS
        self._fans = [person.index for person in people if not person.star and person.always_open][1:]
        self._stars = [person.index for person in people if person.star and person.always_open and person.posts]
        self._told = Stories()

    def tell(self) -> Stories:
        told = self._told
        told.deep_leaf = self._chain([self._speaker(level) for level in range(DEPTH + 1)])
        told.broken_leaf = self._chain([self._speaker(level) for level in range(BROKEN_DEPTH)], lost=BROKEN_DEPTH // 2)
        told.self_thread_leaf = self._chain([self._stars[2 % len(self._stars)]] * 30)
        told.protected_leaf = self._chain(
            [self._with(SimAccountState.PROTECTED), self._stars[0], self._fans[0], self._stars[0]]
        )
        told.suspended_leaf = self._chain([self._stars[1], self._with(SimAccountState.SUSPENDED), self._stars[0]])
        told.wide_root = self._wide()
        told.ghost_leaf = self._ghost()
        self._texts()
        self._links()
        self._oddities()
        return told

    def _speaker(self, level: int) -> int:
        """Two stars and a fan take turns, and now and then a newcomer."""
        if level % 7 == 6:
            return self._fans[level % len(self._fans)]
        return (self._stars[0], self._stars[1], self._fans[0])[level % 3]

    def _with(self, standing: SimAccountState) -> int:
        stars = (person for person in self._people if person.star)
        return next(star.index for star in stars if star.standing_at(0) is standing)

    def _post(self, author: int, parent: RepliedPost | None = None, **more: object) -> int:
        self._at_ms += MINUTE_MS + mix(self._seed, Draw.STORY, self._at_ms) % MINUTE_MS
        own = self._ids.make(self._at_ms, author)
        self._told.posts[own] = Planted(id=own, author=author, parent=parent, **more)  # type: ignore[arg-type]  # names are Planted's own
        return own

    def _to(self, post_id: int) -> RepliedPost:
        answered = self._people[self._told.posts[post_id].author]
        return RepliedPost(post_id, answered.id, answered.handle_at(self._at_ms))

    def _chain(self, speakers: list[int], lost: int | None = None) -> int:
        self._at_ms += HOUR_MS
        last = self._post(speakers[0])
        for level, speaker in enumerate(speakers[1:], start=1):
            last = self._post(speaker, self._to(last), doomed=level == lost)
        return last

    def _wide(self) -> int:
        root = self._post(self._stars[1], text="What did you find at the flea market today? Show me!")
        for place in range(WIDTH):
            self._post(self._fans[place % len(self._fans)], self._to(root))
        return root

    def _ghost(self) -> int:
        nobody = self._ids.make(self._at_ms, len(self._people) + 7)
        return self._post(self._stars[0], RepliedPost(nobody, ghost_id(self._seed, 7), "left_7"))

    def _texts(self) -> None:
        for place, text in enumerate(HOSTILE_TEXTS):
            self._post(self._stars[place % 3], text=text)
        for place, length in enumerate(LONG_LENGTHS):
            self._told.longest = self._post(self._stars[place % 2], text=long_text(length))

    def _links(self) -> None:
        for place, link in enumerate(SHOP_LINKS):
            self._post(self._stars[place % len(self._stars)], text="Look what I found", link=link)

    def _oddities(self) -> None:
        star, other = self._stars[0], self._stars[1]
        for media in ("photo", "photos", "video", "animated_gif"):
            self._post(star, text="Seen today", media=media)
        self._post(star, text="will there be another auction this week?", greets=other)
        self._post(star, text="A long read", article=True)
        reply = self._post(other, self._to(self._told.wide_root))
        self._post(star, text="This.", quoted=reply)
        self._post(star, text="And this.", quoted=self._post(other, text="Gone soon", doomed=True))
        self._post(star, text="Only those who know where to look", hidden=True)
        self._post(star, text="x")
