"""The truth about a world: what tests compare a collector's results with."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from mistnet.sim.clock import from_ms, to_ms
from mistnet.sim.endpoints import MINIMUM, PAGE, POST, PROFILE
from mistnet.sim.people import Person, Silence, SimAccountState
from mistnet.sim.posts import HIDDEN, KIND, DraftKind, RepliedPost
from mistnet.sim.render import SimWriter
from mistnet.sim.users import Users
from mistnet.sim.world import PostFate, SimPost, World

ROOT = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTruth:
    """`search`, `retweets` and `hidden` are disjoint: found by search, by the search for retweets, by id only."""

    user_id: int
    handle: str
    state: SimAccountState
    handles: tuple[tuple[datetime | None, str], ...]
    search: tuple[int, ...]
    retweets: tuple[int, ...]
    hidden: tuple[int, ...]
    deleted: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Ancestors available by id, nearest first, and why the chain ends: `root`, or the state of `end_id`."""

    ancestors: tuple[int, ...]
    end: str
    end_id: int


class Truth:
    def __init__(self, world: World) -> None:
        self._world = world

    def account(self, handle: str, at: datetime) -> AccountTruth | None:
        now_ms = to_ms(at)
        person = self._world.holder(handle, now_ms)
        if person is None:
            return None
        return AccountTruth(
            user_id=person.id,
            handle=person.handle_at(now_ms),
            state=person.state_at(now_ms),
            handles=self.handle_history(person.id),
            search=tuple(self.search_ids(handle, at)),
            retweets=tuple(self.retweet_ids(handle, at)),
            hidden=tuple(self.hidden_ids(handle, at)),
            deleted=tuple(post.id for post in self._posts(person, now_ms) if self._is(post, PostFate.DELETED, now_ms)),
        )

    def accounts(self, at: datetime) -> list[str]:
        """The stars whose posts can be swept, by their handle at that time."""
        now_ms = to_ms(at)
        return [star.handle_at(now_ms) for star in self._world.stars if self._world.searchable(star.index, now_ms)]

    def search_ids(self, handle: str, at: datetime) -> list[int]:
        """All posts that `from:handle` returns, newest first."""
        return [post.id for post in self._shown(handle, at) if self._searchable(post, at) and not _native(post)]

    def retweet_ids(self, handle: str, at: datetime) -> list[int]:
        """Native retweets: `from:` never shows them, `filter:nativeretweets` does."""
        return [post.id for post in self._shown(handle, at) if self._searchable(post, at) and _native(post)]

    def hidden_ids(self, handle: str, at: datetime) -> list[int]:
        """Posts that search never returns and that a lookup by id shows."""
        return [post.id for post in self._shown(handle, at) if not self._searchable(post, at)]

    def fate(self, post_id: int, at: datetime) -> PostFate:
        return self._world.fate(post_id, to_ms(at))

    def parent_of(self, post_id: int) -> RepliedPost | None:
        post = self._world.post(post_id)
        return post.parent if post else None

    def chain(self, post_id: int, at: datetime) -> Chain:
        now_ms = to_ms(at)
        ancestors: list[int] = []
        current = self._world.post(post_id)
        while current is not None and current.parent is not None:
            parent = current.parent.id
            fate = self._world.fate(parent, now_ms)
            if fate is not PostFate.SHOWN:
                return Chain(ancestors=tuple(ancestors), end=str(fate), end_id=parent)
            ancestors.append(parent)
            current = self._world.post(parent)
        end_id = ancestors[-1] if ancestors else post_id
        return Chain(ancestors=tuple(ancestors), end=ROOT, end_id=end_id)

    def missing_ancestors(self, handles: Iterable[str], at: datetime) -> set[int]:
        """What walks must fetch by id once every account is swept."""
        swept = {post_id for handle in handles for post_id in self.search_ids(handle, at)}
        wanted = {ancestor for post_id in swept for ancestor in self.chain(post_id, at).ancestors}
        return wanted - swept

    def originals(self, post_ids: Iterable[int], at: datetime) -> set[int]:
        """The posts that these posts quote or repeat."""
        found = {post.original for post in map(self._world.post, post_ids) if post and post.original}
        return {original for original in found if self.fate(original, at) is PostFate.SHOWN}

    def authors(self, post_ids: Iterable[int]) -> set[int]:
        return {self._world.people[post.author].id for post in map(self._world.post, post_ids) if post}

    def addressed(self, post_ids: Iterable[int]) -> set[int]:
        """The users in `inReplyToUserId` of these posts."""
        writer = SimWriter(self._world, Users(self._world))
        found: set[int] = set()
        for post in map(self._world.post, post_ids):
            if post and post.parent:
                found.add(post.parent.user_id)
            elif post and post.kind is not DraftKind.RETWEET and (greeted := writer.content(post).greeted):
                found.add(greeted.id)
        return found

    def links(self, post_ids: Iterable[int]) -> Iterator[tuple[int, str]]:
        """The destinations of the links in these posts."""
        writer = SimWriter(self._world, Users(self._world))
        for post in map(self._world.post, post_ids):
            if post and post.kind is not DraftKind.RETWEET:
                yield from ((post.id, url["expanded_url"]) for url in writer.content(post).urls)

    def hydratable(self, user_ids: Iterable[int], at: datetime) -> set[int]:
        """The users that a lookup by id returns as full profiles."""
        people = (self._world.person(user_id) for user_id in user_ids)
        return {person.id for person in people if person and person.shown_at(to_ms(at))}

    def unavailable(self, user_ids: Iterable[int], at: datetime) -> set[int]:
        """The users that a lookup by id returns as unavailable. It never returns the rest."""
        people = (self._world.person(user_id) for user_id in user_ids)
        gone = (person for person in people if person and not person.shown_at(to_ms(at)))
        return {person.id for person in gone if person.silence is Silence.OBJECT}

    def followers(self, handle: str, at: datetime) -> list[int]:
        """User ids as the list shows them, newest follow first."""
        return self._listed(self._world.follows.followers, handle, at)

    def followings(self, handle: str, at: datetime) -> list[int]:
        return self._listed(self._world.follows.followings, handle, at)

    def handle_history(self, user_id: int) -> tuple[tuple[datetime | None, str], ...]:
        """Every past and future handle with its start; None: from the beginning."""
        person = self._world.person(user_id)
        if person is None:
            return ()
        return tuple((from_ms(since_ms) if since_ms else None, handle) for since_ms, handle in person.handles)

    def _listed(self, edges: Callable[[int, int], list[int]], handle: str, at: datetime) -> list[int]:
        now_ms = to_ms(at)
        person = self._world.holder(handle, now_ms)
        if person is None or person.state_at(now_ms) is not SimAccountState.ACTIVE:
            return []
        people = (self._world.people[index] for index in edges(person.index, now_ms))
        return [each.id for each in people if each.shown_at(now_ms)]

    def _posts(self, person: Person, now_ms: int) -> Iterator[SimPost]:
        timeline = self._world.timeline(person.index, now_ms)
        for place in range(timeline.until(now_ms) - 1, -1, -1):
            yield self._world.post_at(person.index, timeline.ids[place], timeline.marks[place])

    def _shown(self, handle: str, at: datetime) -> Iterator[SimPost]:
        now_ms = to_ms(at)
        person = self._world.holder(handle, now_ms)
        posts = self._posts(person, now_ms) if person else iter(())
        return (post for post in posts if self._is(post, PostFate.SHOWN, now_ms))

    def _is(self, post: SimPost, fate: PostFate, now_ms: int) -> bool:
        return self._world.fate_of(post, now_ms) is fate

    def _searchable(self, post: SimPost, at: datetime) -> bool:
        return not post.mark & HIDDEN and self._world.searchable(post.author, to_ms(at))


def _native(post: SimPost) -> bool:
    return post.mark & KIND == DraftKind.RETWEET


FULL_BATCH = 100
SEARCH = "/twitter/tweet/advanced_search"
LOOKUP = "/twitter/tweets"
ONE_PROFILE = "/twitter/user/info"
PROFILES = "/twitter/user/batch_info_by_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    calls: int = 0
    credits: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(calls=self.calls + other.calls, credits=self.credits + other.credits)


def sweep_cost(posts: int) -> Cost:
    """Full pages up to the end, and one request that confirms it. An empty list costs two requests."""
    pages = ceil(posts / PAGE)
    looks = 1 if pages else 2
    return Cost(calls=pages + looks, credits=POST * posts + looks * MINIMUM)


def lookup_cost(found: int, gone: int = 0) -> Cost:
    """Posts by id in batches. Deleted posts cost nothing, but are requested too."""
    calls = ceil((found + gone) / PAGE)
    return Cost(calls=calls, credits=max(POST * found, MINIMUM * calls))


def profiles_cost(found: int, unknown: int = 0) -> Cost:
    """Batches of a hundred at one credit per returned user. Unknown users count towards the hundred.

    A rest is left small, with as many of the unknown in it as there are, or filled up where that is cheaper.
    """
    batches, rest = divmod(found + unknown, FULL_BATCH)
    full = Cost(calls=batches, credits=max(found, MINIMUM * batches))
    if not rest:
        return full
    dear = max(rest - unknown, 0)
    small = max(MINIMUM, PROFILE * dear) + max(found - dear, MINIMUM * batches)
    filled = max(found + FULL_BATCH - rest, MINIMUM * (batches + 1))
    return Cost(calls=batches + 1, credits=min(small, filled))


def least_credits(truth: Truth, handles: Iterable[str], at: datetime, *, retweets: bool = False) -> Cost:
    """A complete backfill of these accounts, with conversations and users."""
    return sum(least_by_endpoint(truth, handles, at, retweets=retweets).values(), Cost())


def least_by_endpoint(truth: Truth, handles: Iterable[str], at: datetime, *, retweets: bool = False) -> dict[str, Cost]:
    """The profiles, the sweeps, the ancestors of replies, and the users who are only mentioned by replies."""
    accounts = list(handles)
    passes = [truth.search_ids(handle, at) for handle in accounts]
    # Native retweets need a search of their own.
    passes += [truth.retweet_ids(handle, at) for handle in accounts if retweets]
    swept = {post_id for found in passes for post_id in found}
    least = {
        ONE_PROFILE: Cost(calls=len(accounts), credits=PROFILE * len(accounts)),
        SEARCH: sum((sweep_cost(len(found)) for found in passes), Cost()),
    }
    ancestors: set[int] = set()
    ends: set[tuple[int, int]] = set()  # unavailable posts, each with its author
    for post_id in swept:
        chain = truth.chain(post_id, at)
        ancestors |= set(chain.ancestors)
        parent = truth.parent_of(chain.ancestors[-1] if chain.ancestors else post_id)
        if chain.end != ROOT and parent:
            ends.add((chain.end_id, parent.user_id))
    shown = swept | truth.originals(swept, at)
    gone = {end for end, _ in ends}
    spoken_to = truth.addressed(swept) | {user_id for _, user_id in ends}
    strangers = spoken_to - truth.authors(shown | ancestors | truth.originals(ancestors, at))
    known = len(truth.hydratable(strangers, at) | truth.unavailable(strangers, at))
    least[LOOKUP] = lookup_cost(len(ancestors - shown), len(gone))
    least[PROFILES] = profiles_cost(known, len(strangers) - known)
    return least
