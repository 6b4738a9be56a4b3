"""The answers of each endpoint, without faults."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice

from mistnet.sim.clock import Draw, first_id_at, mix
from mistnet.sim.ledger import MINIMUM, PROFILE, RELATION, profiles_price
from mistnet.sim.people import Person, Silence, SimAccountState
from mistnet.sim.posts import KIND, DraftKind
from mistnet.sim.render import (
    FOLLOWER_IDS,
    FOLLOWERS,
    FOLLOWINGS,
    LOOKUP,
    PROFILES,
    SEARCH,
    THREAD,
    TIMELINE,
    CursorKind,
    PageShape,
    Renderer,
    RenderPlace,
    SimListing,
    Single,
    cursor_to,
    position_of,
)
from mistnet.sim.search import Found, Search, parse
from mistnet.sim.users import dump
from mistnet.sim.world import Fate, World

PAGE = 20
PROFILE_PAGE = 19
MOST_POST_IDS = 100
MOST_FOLLOWERS = 200
MOST_FOLLOWER_IDS = 5000
USER_NOT_FOUND = b'{"status":"error","msg":"user not found","data":null}'
NO_PROFILE = b'{"status":"success","msg":"success","data":null}'
NO_TIMELINE = b'{"status":"success","code":0,"msg":"success","data":null,"has_next_page":false,"next_cursor":""}'
HOLLOW_POST = (
    b'{"type":"tweet","id":"","url":"","twitterUrl":"","text":"","author":{},"entities":{},"extendedEntities":{}}'
)

TOP = 1 << 63  # above every id

Params = Mapping[str, str]
Reply = SimListing | Single


class SimBadRequest(Exception):
    """400: a bad request; the detail names the parameter."""


class Endpoints:
    def __init__(self, world: World) -> None:
        self._world = world
        self.renderer = Renderer(world)
        self._search = Search(world, self.renderer)

    def routes(self) -> dict[str, Callable[[Params, int], Reply]]:
        return {
            "/twitter/user/info": self.user_info,
            "/twitter/user/batch_info_by_ids": self.batch_info,
            "/twitter/user/last_tweets": lambda params, now_ms: self._timeline(
                self._numbered(params) if params.get("userId") else self._holder(params, now_ms), params, now_ms, PAGE
            ),
            "/twitter/user/last_tweets/v2": lambda params, now_ms: self._timeline(
                self._numbered(params), params, now_ms, PAGE
            ),
            "/twitter/user/tweet_timeline": lambda params, now_ms: self._timeline(
                self._numbered(params), params, now_ms, PROFILE_PAGE
            ),
            "/twitter/user/followers": partial(self._follow_list, FOLLOWERS, self._world.follows.followers),
            "/twitter/user/followings": partial(self._follow_list, FOLLOWINGS, self._world.follows.followings),
            "/twitter/user/followers_ids": self.followers_ids,
            "/twitter/user/check_follow_relationship": self.relation,
            "/twitter/tweets": self.tweets,
            "/twitter/tweet/replies": lambda params, now_ms: self.replies(params, now_ms, PAGE),
            "/twitter/tweet/replies/v1": lambda params, now_ms: self.replies(params, now_ms, 0),
            "/twitter/tweet/replies/v2": lambda params, now_ms: self.replies(params, now_ms, 0),
            "/twitter/tweet/thread_context": self.thread_context,
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

    def followers_ids(self, params: Params, now_ms: int) -> Reply:
        person = self._numbered(params) if params.get("userId") else self._holder(params, now_ms)
        if person is None or not person.shown_at(now_ms):
            return Single(body=USER_NOT_FOUND, credits_due=MINIMUM)
        everyone = self._world.follows.followers(person.index, now_ms)
        count = _clamped(params.get("count"), MOST_FOLLOWER_IDS, 1, MOST_FOLLOWER_IDS)
        cursor = params.get("cursor", "")
        # The cursor counts from the oldest follow, so that new ones do not shift later pages.
        left = min(int(cursor), len(everyone)) if cursor.isdecimal() and cursor != "0" else len(everyone)
        page = everyone[len(everyone) - left :][:count]
        return SimListing(
            shape=FOLLOWER_IDS,
            records=[b'"%d"' % self._world.people[index].id for index in page],
            more=left > count,
            cursor=str(left - count) if left > count else "0",
            here=str(left),
        )

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
            if post and self._world.fate_of(post, now_ms) is Fate.SHOWN:
                shown.append(self.renderer.known(post, now_ms, RenderPlace.LOOKUP))
            elif post_id % 8 == 0:  # most missing posts are absent, some are empty objects
                hollow.append(HOLLOW_POST)
        return SimListing(shape=LOOKUP, records=shown + hollow, price=LOOKUP.price(len(shown)))

    def replies(self, params: Params, now_ms: int, size: int) -> Reply:
        root = _number(params, "tweetId")
        since = _number(params, "sinceTime") if params.get("sinceTime") else 0
        until = _number(params, "untilTime") if params.get("untilTime") else now_ms // 1000 + 2
        low, high = first_id_at(since * 1000), first_id_at(until * 1000)
        below = position_of(CursorKind.THREAD, params.get("cursor", "")) or TOP
        found = [each for each in self._world.descendants(root, now_ms) if low <= each < high and each < below]
        shown = sorted((each for each in found if self._shown(each, now_ms)), reverse=True)
        return self._thread_page(root, shown, size or 31 + mix(Draw.PAGE, root, below) % 8, [], now_ms, below)

    def thread_context(self, params: Params, now_ms: int) -> Reply:
        post_id = _number(params, "tweetId")
        below = position_of(CursorKind.THREAD, params.get("cursor", ""))
        ancestors: list[int] = []  # with the post itself
        current: int | None = post_id if below is None else None
        while current is not None and self._shown(current, now_ms):
            ancestors.append(current)
            post = self._world.post(current)
            current = post.parent.id if post and post.parent else None
        under = [each for each in self._world.replies_to(post_id, now_ms) if self._shown(each, now_ms)]
        rest = sorted((each for each in under if each < (below or TOP)), reverse=True)
        return self._thread_page(post_id, rest, PAGE, ancestors[::-1], now_ms, below or TOP)

    def advanced_search(self, params: Params, now_ms: int) -> Reply:
        query = parse(required(params, "query"), now_ms)
        below = position_of(CursorKind.SEARCH, params.get("cursor", ""))
        if below is not None:
            query.lower(below - 1)
        found = self._search.newest(query, now_ms, PAGE + 1)
        here = cursor_to(CursorKind.SEARCH, TOP if query.ceiling is None else min(query.ceiling + 1, TOP))
        return SimListing(
            shape=SEARCH,
            records=self._listed(found[:PAGE], now_ms),
            more=len(found) > PAGE,
            cursor=cursor_to(CursorKind.SEARCH, found[PAGE - 1][0]) if len(found) > PAGE else "",
            here=here,
            above=lambda count: self._listed(self._search.above(query, now_ms, count), now_ms),
        )

    def _listed(self, found: list[Found], now_ms: int) -> list[bytes]:
        listed = self.renderer.listed
        return [listed(author, post_id, mark, now_ms) for post_id, author, mark in found]

    def _numbered(self, params: Params) -> Person | None:
        return self._world.person(_number(params, "userId"))

    def _holder(self, params: Params, now_ms: int) -> Person | None:
        return self._world.holder(required(params, "userName"), now_ms)

    def _shown(self, post_id: int, now_ms: int) -> bool:
        return self._world.fate(post_id, now_ms) is Fate.SHOWN

    def _thread_page(self, root: int, rest: list[int], size: int, first: list[int], now_ms: int, below: int) -> Reply:
        """Reply lists sometimes announce a page that is then empty."""
        page = rest[:size]
        promises = bool(page) and root >> 22 & 1 == 1
        more = len(rest) > size or promises
        return SimListing(
            shape=THREAD,
            records=[self.renderer.post(each, now_ms) for each in first + page],
            more=more,
            cursor=cursor_to(CursorKind.THREAD, page[-1]) if more else "",
            here=cursor_to(CursorKind.THREAD, below),
        )

    def _timeline(self, person: Person | None, params: Params, now_ms: int, size: int) -> Reply:
        if person is None:
            return Single(body=USER_NOT_FOUND, credits_due=MINIMUM)
        if not person.shown_at(now_ms):
            return Single(body=NO_TIMELINE, credits_due=MINIMUM)
        below = position_of(CursorKind.TIMELINE, params.get("cursor", ""))
        with_replies = params.get("includeReplies", "false").lower() == "true"
        found: list[Found] = []
        if person.searchable and person.state_at(now_ms) is SimAccountState.ACTIVE:
            timeline = self._world.timeline(person.index, now_ms)
            newest = min(timeline.until(now_ms), bisect_left(timeline.ids, below or TOP)) - 1
            posts = ((timeline.ids[place], person.index, timeline.marks[place]) for place in range(newest, -1, -1))
            shown = (
                (post_id, author, mark)
                for post_id, author, mark in posts
                if (with_replies or mark & KIND != DraftKind.REPLY)
                and self._world.deleted_at_ms(post_id, mark) > now_ms
            )
            found = list(islice(shown, size + 1))
        return SimListing(
            shape=TIMELINE,
            records=self._listed(found[:size], now_ms),
            more=len(found) > size,
            cursor=cursor_to(CursorKind.TIMELINE, found[size - 1][0]) if len(found) > size else "",
            here=cursor_to(CursorKind.TIMELINE, below or TOP),
        )

    def _follow_list(
        self, shape: PageShape, edges: Callable[[int, int], list[int]], params: Params, now_ms: int
    ) -> Reply:
        """Pages can be short: unavailable users still take up room."""
        person = self._holder(params, now_ms)
        if person is None or not person.shown_at(now_ms):
            return Single(body=USER_NOT_FOUND, credits_due=MINIMUM)
        # A protected user's lists are empty, as upstream.
        everyone = edges(person.index, now_ms) if person.state_at(now_ms) is SimAccountState.ACTIVE else []
        size = _clamped(params.get("pageSize"), MOST_FOLLOWERS, PAGE, MOST_FOLLOWERS)
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


def _number(params: Params, name: str) -> int:
    given = required(params, name)
    if not given.isdecimal() or len(given) > 19:
        raise SimBadRequest(f"{name} must be a number")
    return int(given)


def _clamped(given: str | None, otherwise: int, low: int, high: int) -> int:
    return min(max(int(given), low), high) if given and given.isdecimal() else otherwise


def _ids(given: str) -> list[int]:
    """Each id once, in the requested order. Anything else is ignored."""
    asked = (each.strip() for each in given.split(","))
    return list(dict.fromkeys(int(each) for each in asked if each.isdecimal() and len(each) <= 19))
