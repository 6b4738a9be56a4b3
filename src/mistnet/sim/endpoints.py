"""The answers of each endpoint, without faults: their pages, cursors and prices."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from heapq import merge
from itertools import islice

from mistnet.sim.people import Person, Silence, SimAccountState
from mistnet.sim.posts import DOOMED, HIDDEN, KIND, DraftKind
from mistnet.sim.render import Renderer, RenderPlace
from mistnet.sim.users import dump
from mistnet.sim.world import PostFate, World

MINIMUM = 15
POST = 15
PROFILE = 18
RELATION = 100


def posts_price(posts: int) -> int:
    return max(MINIMUM, POST * posts)


def profiles_price(asked: int, returned: int) -> int:
    """From 100 ids in one call a profile costs 1 instead of 18."""
    return max(MINIMUM, returned * (1 if asked >= 100 else PROFILE))


def follow_list_price(users: int) -> int:
    return max(MINIMUM, users * (1 if users >= 200 else 2 if users >= 100 else 3))


POSITION_BYTES = 9
SUCCESS = b'"status":"success","msg":"success"'
SUCCESS_WITH_CODE = b'"status":"success","code":0,"msg":"success"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PageShape:
    """`records` is the key of the list."""

    records: str
    price: Callable[[int], int]
    before: bytes = b""
    after: bytes = b""
    paged: bool = True
    holds_posts: bool = True


SEARCH = PageShape(records="tweets", price=posts_price)
LOOKUP = PageShape(records="tweets", price=posts_price, before=SUCCESS_WITH_CODE, paged=False)
PROFILES = PageShape(records="users", price=lambda users: users, after=SUCCESS, paged=False, holds_posts=False)
FOLLOWERS = PageShape(records="followers", price=follow_list_price, before=SUCCESS_WITH_CODE, holds_posts=False)
FOLLOWINGS = PageShape(records="followings", price=follow_list_price, before=SUCCESS_WITH_CODE, holds_posts=False)


class Records(StrEnum):
    """What a fault does to the records of a page."""

    KEPT = "kept"
    MISSING = "missing"
    NULL = "null"


@dataclass(slots=True, kw_only=True)
class SimListing:
    """One page. `here` leads to this same page again; `above` are the posts above it, from there upwards.

    Of a follow list, `whole` is how many are on it, and `after` how many of them come after this page.
    """

    shape: PageShape
    records: list[bytes]
    more: bool = False
    cursor: str = ""
    here: str = ""
    above: Iterator[bytes] | None = None
    whole: int = 0
    after: int = 0
    written: Records = Records.KEPT
    price: int | None = None
    spoiled: list[str] = field(default_factory=list)

    @property
    def credits_due(self) -> int:
        return self.shape.price(len(self.records)) if self.price is None else self.price

    @property
    def shows_posts(self) -> bool:
        return self.shape.paged and self.shape.holds_posts and bool(self.records)

    def body(self) -> bytes:
        shape = self.shape
        parts = [shape.before] if shape.before else []
        key = f'"{shape.records}":'.encode()
        match self.written:
            case Records.KEPT:
                parts.append(key + b"[" + b",".join(self.records) + b"]")
            case Records.MISSING:
                parts.append(b'"data":[]')
            case Records.NULL:
                parts.append(key + b"null")
        if shape.paged:
            parts.append(
                b'"has_next_page":%s,"next_cursor":"%s"' % (b"true" if self.more else b"false", self.cursor.encode())
            )
        if shape.after:
            parts.append(shape.after)
        return b"{" + b",".join(parts) + b"}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """An answer that is not a list."""

    body: bytes
    credits_due: int


class CursorKind(StrEnum):
    """Cursors have a prefix for each endpoint, and are invalid elsewhere."""

    SEARCH = "DAACCgAC"
    FOLLOWS = "DAAGCgAG"


def cursor_to(kind: CursorKind, position: int) -> str:
    return kind + urlsafe_b64encode(position.to_bytes(POSITION_BYTES, "big")).decode()


def position_of(kind: CursorKind, cursor: str) -> int | None:
    """The place of a cursor; None (the first page) if it is empty or invalid."""
    if not cursor.startswith(kind):
        return None
    try:
        position = urlsafe_b64decode(cursor.removeprefix(kind))
    except (NotBase64, ValueError):
        return None
    return int.from_bytes(position, "big") if len(position) == POSITION_BYTES else None


PAGE = 20
MOST_POST_IDS = 100
MOST_FOLLOWERS = 200
USER_NOT_FOUND = b'{"status":"error","msg":"user not found","data":null}'
NO_PROFILE = b'{"status":"success","msg":"success","data":null}'
HOLLOW_POST = (
    b'{"type":"tweet","id":"","url":"","twitterUrl":"","text":"","author":{},"entities":{},"extendedEntities":{}}'
)

TOP = 1 << 63  # above every id

Found = tuple[int, int, int]  # id, author, mark
Params = Mapping[str, str]
Reply = SimListing | Single


class SimBadRequest(Exception):
    """400: a bad request; the detail names the parameter."""


@dataclass(slots=True, kw_only=True)
class SimQuery:
    """Posts by some authors. Native retweets are left out, or are all that is returned."""

    authors: list[str] = field(default_factory=list)
    ceiling: int = TOP  # inclusive
    floor: int = 0  # exclusive
    retweets: bool = False


def parse(text: str) -> SimQuery:
    """A query without any other words: a misspelt operator is refused, not searched as a word."""
    query = SimQuery()
    for term in text.replace("(", " ").replace(")", " ").split():
        match term.partition(":"):
            case "from", _, handle if handle:
                query.authors.append(handle)
            case "max_id", _, given if given.isdecimal():
                query.ceiling = min(query.ceiling, int(given))
            case "since_id", _, given if given.isdecimal():
                query.floor = max(query.floor, int(given))
            case "filter", _, "nativeretweets":
                query.retweets = True
            case "OR", _, "":
                pass
            case _:
                raise SimBadRequest(f"query: the simulator does not know {term!r}")
    return query


class Endpoints:
    def __init__(self, world: World) -> None:
        self._world = world
        self.renderer = Renderer(world)

    def routes(self) -> dict[str, Callable[[Params, int], Reply]]:
        return {
            "/twitter/user/info": self.user_info,
            "/twitter/user/batch_info_by_ids": self.batch_info,
            "/twitter/user/followers": partial(self._follow_list, FOLLOWERS, self._world.follows.followers),
            "/twitter/user/followings": partial(self._follow_list, FOLLOWINGS, self._world.follows.followings),
            "/twitter/user/check_follow_relationship": self.relation,
            "/twitter/tweets": self.tweets,
            "/twitter/tweet/advanced_search": self.advanced_search,
        }

    def user_info(self, params: Params, now_ms: int) -> Reply:
        person = self._holder(params, now_ms)
        if person is None:
            return Single(body=USER_NOT_FOUND, credits_due=MINIMUM)
        if person.shown_at(now_ms):
            return _profile(self.renderer.users.profile(person, now_ms))
        match person.silence:
            case Silence.ERROR:
                return Single(body=USER_NOT_FOUND, credits_due=MINIMUM)
            case Silence.NULL:
                return Single(body=NO_PROFILE, credits_due=MINIMUM)
            case Silence.OBJECT:
                return _profile(self.renderer.users.unavailable(person, now_ms))

    def batch_info(self, params: Params, now_ms: int) -> Reply:
        asked = _ids(required(params, "userIds"))
        people = [person for person in map(self._world.person, asked) if person]
        users = self.renderer.users
        records = [users.profile(person, now_ms) for person in people if person.shown_at(now_ms)]
        records += [
            users.unavailable(person, now_ms)
            for person in people
            if not person.shown_at(now_ms) and person.silence is Silence.OBJECT
        ]
        return SimListing(shape=PROFILES, records=records, price=profiles_price(len(asked), len(records)))

    def relation(self, params: Params, now_ms: int) -> Reply:
        """Whether the first user follows the second, and the reverse."""
        names = (required(params, "source_user_name"), required(params, "target_user_name"))
        source, target = (self._world.holder(name, now_ms) for name in names)
        if source is None or target is None or not source.shown_at(now_ms) or not target.shown_at(now_ms):
            return Single(body=USER_NOT_FOUND, credits_due=RELATION)
        follows = self._world.follows
        told = {
            "following": follows.follows(source.index, target.index, now_ms),
            "followed_by": follows.follows(target.index, source.index, now_ms),
        }
        body = {"status": "success", "message": "success", "data": told}
        return Single(body=dump(body).encode(), credits_due=RELATION)

    def tweets(self, params: Params, now_ms: int) -> Reply:
        asked = _ids(required(params, "tweet_ids"))
        if len(asked) > MOST_POST_IDS:
            raise SimBadRequest(f"tweet_ids must hold at most {MOST_POST_IDS} ids")
        shown, hollow = [], []
        for post_id in asked:
            post = self._world.post(post_id)
            if post and self._world.fate_of(post, now_ms) is PostFate.SHOWN:
                shown.append(self.renderer.known(post, now_ms, RenderPlace.LOOKUP))
            elif post_id % 8 == 0:  # most missing posts are absent, some are empty objects
                hollow.append(HOLLOW_POST)
        return SimListing(shape=LOOKUP, records=shown + hollow, price=LOOKUP.price(len(shown)))

    def advanced_search(self, params: Params, now_ms: int) -> Reply:
        query = parse(required(params, "query"))
        below = position_of(CursorKind.SEARCH, params.get("cursor", ""))
        if below is not None:
            query.ceiling = min(query.ceiling, below - 1)
        authors = [self._world.holder(handle, now_ms) for handle in query.authors]
        walks = (self._search(author, query, now_ms) for author in {*authors})
        found = list(islice(merge(*walks, reverse=True), PAGE + 1))
        above = self._search(authors[0] if authors else None, query, now_ms, above=True)
        return SimListing(
            shape=SEARCH,
            records=list(self._listed(found[:PAGE], now_ms)),
            more=len(found) > PAGE,
            cursor=cursor_to(CursorKind.SEARCH, found[PAGE - 1][0]) if len(found) > PAGE else "",
            here=cursor_to(CursorKind.SEARCH, min(query.ceiling + 1, TOP)),
            above=self._listed(above, now_ms),
        )

    def _search(self, author: Person | None, query: SimQuery, now_ms: int, *, above: bool = False) -> Iterator[Found]:
        """One author's posts that search shows, newest first; or those above its ceiling, from there upwards."""
        if author is None or not self._world.searchable(author.index, now_ms):
            return
        timeline = self._world.timeline(author.index, now_ms)
        top, until = bisect_right(timeline.ids, query.ceiling), timeline.until(now_ms)
        bottom = bisect_left(timeline.ids, query.floor + 1)
        for place in range(top, until) if above else range(min(top, until) - 1, bottom - 1, -1):
            post_id, mark = timeline.ids[place], timeline.marks[place]
            deleted = mark & DOOMED and self._world.deleted_at_ms(post_id, mark) <= now_ms
            is_retweet = mark & KIND == DraftKind.RETWEET
            if not mark & HIDDEN and not deleted and is_retweet is query.retweets:
                yield post_id, author.index, mark

    def _listed(self, found: Iterable[Found], now_ms: int) -> Iterator[bytes]:
        listed = self.renderer.listed
        return (listed(author, post_id, mark, now_ms) for post_id, author, mark in found)

    def _holder(self, params: Params, now_ms: int) -> Person | None:
        return self._world.holder(required(params, "userName"), now_ms)

    def _follow_list(
        self, shape: PageShape, edges: Callable[[int, int], list[int]], params: Params, now_ms: int
    ) -> Reply:
        """Pages can be short: unavailable users still take up room."""
        person = self._holder(params, now_ms)
        if person is None or not person.shown_at(now_ms):
            return Single(body=USER_NOT_FOUND, credits_due=MINIMUM)
        # A protected user's lists are empty, as upstream.
        everyone = edges(person.index, now_ms) if person.state_at(now_ms) is SimAccountState.ACTIVE else []
        wanted = params.get("pageSize", "")
        size = min(max(int(wanted), PAGE), MOST_FOLLOWERS) if wanted.isdecimal() else MOST_FOLLOWERS
        left = position_of(CursorKind.FOLLOWS, params.get("cursor", ""))
        left = len(everyone) if left is None else min(left, len(everyone))
        page = everyone[len(everyone) - left :][:size]
        people = self._world.people
        member = self.renderer.users.member
        return SimListing(
            shape=shape,
            records=[member(each, now_ms, iso=shape is FOLLOWINGS) for each in page if people[each].shown_at(now_ms)],
            more=left > size,
            cursor=cursor_to(CursorKind.FOLLOWS, left - size) if left > size else "",
            here=cursor_to(CursorKind.FOLLOWS, left),
            whole=len(everyone),
            after=max(left - size, 0),
        )


def _profile(body: bytes) -> Single:
    return Single(body=b'{"status":"success","msg":"success","data":' + body + b"}", credits_due=PROFILE)


def required(params: Params, name: str) -> str:
    if not params.get(name):
        raise SimBadRequest(f"{name} is required")
    return params[name]


def _ids(given: str) -> list[int]:
    """Each id once, in the requested order. Anything else is ignored."""
    asked = (each.strip() for each in given.split(","))
    return list(dict.fromkeys(int(each) for each in asked if each.isdecimal() and len(each) <= 19))
