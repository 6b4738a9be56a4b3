"""The people of a world: their handles over time, and whether and when they become unavailable."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from mistnet.sim.clock import DAY_MS, LOW_BITS, SNOWFLAKE_EPOCH_MS, Draw, mix, to_ms

FIRST_ACCOUNT_MS = to_ms(datetime(2007, 3, 1, tzinfo=UTC))
FIRST_POST_MS = to_ms(datetime(2012, 1, 1, tzinfo=UTC))
LONG_IDS_MS = to_ms(datetime(2016, 2, 1, tzinfo=UTC))
FOREVER_MS = 1 << 60
# The first eight stars have fixed roles.
LEAST_STARS = 8
STAR_SHARE = 0.7


class SimAccountState(StrEnum):
    ACTIVE = "active"
    PROTECTED = "protected"
    SUSPENDED = "suspended"
    GONE = "gone"


class Silence(StrEnum):
    """How a profile lookup answers for an unavailable user."""

    ERROR = "error"
    NULL = "null"
    OBJECT = "object"


class SizeTooSmall(ValueError):
    def __init__(self, size: "WorldSize") -> None:
        super().__init__(f"{size}: a world needs {LEAST_STARS} stars, 12 users more than stars and 1 post per user")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSize:
    """`stars` are the popular accounts worth tracking; `posts` is about how many exist when the world starts."""

    users: int
    stars: int
    posts: int

    def __post_init__(self) -> None:
        if self.stars < LEAST_STARS or self.users < self.stars + 12 or self.posts < self.users:
            raise SizeTooSmall(self)


SIZES = {
    "tiny": WorldSize(users=40, stars=10, posts=600),
    "small": WorldSize(users=400, stars=14, posts=8_000),
    "medium": WorldSize(users=5_000, stars=40, posts=100_000),
    "large": WorldSize(users=50_000, stars=200, posts=1_000_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    index: int
    id: int
    star: bool
    created_ms: int
    handles: tuple[tuple[int, str], ...]  # (since, handle), oldest first
    state: SimAccountState = SimAccountState.ACTIVE
    state_from_ms: int = 0
    silence: Silence = Silence.ERROR
    searchable: bool = True
    language: str = "en"
    posts: int = 0
    retweets: bool = True

    def handle_at(self, at_ms: int) -> str:
        current = self.handles[0][1]
        for since_ms, handle in self.handles[1:]:
            if since_ms <= at_ms:
                current = handle
        return current

    def state_at(self, at_ms: int) -> SimAccountState:
        return self.state if self.state_from_ms <= at_ms else SimAccountState.ACTIVE

    def shown_at(self, at_ms: int) -> bool:
        return self.state_at(at_ms) in {SimAccountState.ACTIVE, SimAccountState.PROTECTED}

    @property
    def always_open(self) -> bool:
        return self.state is SimAccountState.ACTIVE and self.searchable


def populate(seed: int, size: WorldSize, start_ms: int, *, restless: bool = False, quiet: bool = False) -> list[Person]:
    """In a quiet world the last star has not posted before the start, and the one before it never retweets."""
    people = [_person(seed, size, start_ms, index) for index in range(size.users)]
    if restless:
        people = [_restless(seed, person, start_ms) for person in people]
    used_ids: set[int] = set()
    for index, person in enumerate(people):
        own = person.id
        while own in used_ids:  # ids from before 2016 have a resolution of a second only
            own += 1
        used_ids.add(own)
        people[index] = replace(person, id=own)
    for index, role in enumerate(_star_roles(people, start_ms)):
        people[index] = role
    if quiet:
        people[size.stars - 1] = replace(people[size.stars - 1], posts=0)
        people[size.stars - 2] = replace(people[size.stars - 2], retweets=False)
    taker = size.stars  # takes, after five days, the former handle of star 3
    plain = replace(people[taker], state=SimAccountState.ACTIVE, handles=people[taker].handles[:1])
    taken = people[3].handles[0][1]
    people[taker] = replace(plain, handles=(*plain.handles, (start_ms + 5 * DAY_MS, taken)), searchable=True)
    return people


def _star_roles(people: list[Person], start_ms: int) -> list[Person]:
    """The first stars have the same states in every world, so that each state occurs."""

    def renamed(star: Person, at_ms: int) -> tuple[tuple[int, str], ...]:
        return ((0, star.handles[0][1]), (at_ms, f"{star.handles[0][1][:10]}_now"))

    fresh_ms = start_ms - 20 * DAY_MS
    return [
        people[0],
        replace(people[1], handles=renamed(people[1], start_ms + 3 * DAY_MS)),
        replace(people[2], language="ja"),
        replace(people[3], handles=renamed(people[3], start_ms - 200 * DAY_MS)),
        replace(people[4], state=SimAccountState.PROTECTED),
        replace(people[5], state=SimAccountState.SUSPENDED, state_from_ms=start_ms + 10 * DAY_MS),
        replace(people[6], state=SimAccountState.SUSPENDED, silence=Silence.OBJECT),
        replace(
            people[7], searchable=False, created_ms=fresh_ms, id=_long_id(fresh_ms, 7), posts=min(people[7].posts, 60)
        ),
    ]


LANGUAGES = ("en", "en", "en", "en", "ja", "zh", "es", "de", "ar", "ko", "ru", "he", "pt", "hi")


def _person(seed: int, size: WorldSize, start_ms: int, index: int) -> Person:
    luck = mix(seed, Draw.PERSON, index)
    star = index < size.stars
    youngest_ms = start_ms - (2500 if star else 40) * DAY_MS
    created_ms = FIRST_ACCOUNT_MS + luck % (youngest_ms - FIRST_ACCOUNT_MS)
    first, trade = FIRST_NAMES[luck % len(FIRST_NAMES)], TRADES[(luck >> 8) % len(TRADES)]
    if star:
        weights = sum(1 / (place + 3) for place in range(size.stars))
        posts = max(25, round(size.posts * STAR_SHARE / (index + 3) / weights))
    else:
        each = size.posts * (1 - STAR_SHARE) / (size.users - size.stars)
        posts = round(each * ((luck >> 30) % 2001) / 1000)
    plain = Person(
        index=index,
        # Short, increasing ids before 2016; since then, long ones that encode the time.
        id=(
            _long_id(created_ms, index)
            if created_ms >= LONG_IDS_MS
            else 12 + (created_ms - FIRST_ACCOUNT_MS) // 1000 * 14
        ),
        star=star,
        created_ms=created_ms,
        handles=((0, f"{(first + trade)[:10]}{index}"),),
        language=LANGUAGES[(luck >> 20) % len(LANGUAGES)],
        posts=posts,
    )
    return plain if star else _fated(plain, luck >> 40, start_ms)


def _fated(person: Person, luck: int, start_ms: int) -> Person:
    """Of a hundred: three suspended, one gone, three protected, two unsearchable, three renamed."""
    silence = list(Silence)[luck // 100 % 3]
    match luck % 100:
        case 0 | 1 | 2:
            return replace(person, state=SimAccountState.SUSPENDED, silence=silence)
        case 3:
            return replace(person, state=SimAccountState.GONE, silence=silence)
        case 4 | 5 | 6:
            return replace(person, state=SimAccountState.PROTECTED)
        case 7 | 8:
            return replace(person, searchable=False)
        case 9 | 10 | 11:
            renamed_ms = start_ms + (luck // 100 % 900 - 870) * DAY_MS
            return replace(person, handles=(*person.handles, (renamed_ms, f"{person.handles[0][1]}_x")))
        case _:
            return person


def _restless(seed: int, person: Person, start_ms: int) -> Person:
    """Of ten people, two are suspended, one is deleted and one renamed within two months."""
    if person.star or person.state is not SimAccountState.ACTIVE or len(person.handles) > 1:
        return person
    luck = mix(seed, Draw.UNREST, person.index)
    turns_ms = start_ms + DAY_MS + (luck >> 16) % (60 * DAY_MS)
    silence = list(Silence)[(luck >> 8) % 3]
    match luck % 10:
        case 0 | 1:
            return replace(person, state=SimAccountState.SUSPENDED, state_from_ms=turns_ms, silence=silence)
        case 2:
            return replace(person, state=SimAccountState.GONE, state_from_ms=turns_ms, silence=silence)
        case 3:
            return replace(person, handles=(*person.handles, (turns_ms, f"{person.handles[0][1]}_y")))
        case _:
            return person


def _long_id(created_ms: int, index: int) -> int:
    return ((created_ms - SNOWFLAKE_EPOCH_MS) << LOW_BITS) | (index + 4096)


FIRST_NAMES = (
    "Ada", "bruno", "Chiara", "dmitri", "Elif", "farid", "Greta", "hana", "Imani", "joao", "Kenji", "lin", "Maya",
    "noor", "Olga", "petra", "Quentin", "rosa", "Sami", "tomo", "Uma", "victor", "Wen", "xenia", "Yusuf", "zoe",
)  # fmt: skip
TRADES = (
    *("Coins", "_reads", "Bakes", "_fm", "Maps", "_art", "Lab", "Stamps", "_dev", "News", "Birds", "_shop", "Tea", ""),
)
