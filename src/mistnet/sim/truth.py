"""What is true: the answers an oracle compares a collector with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from mistnet.sim.clock import from_ms, to_ms
from mistnet.sim.content import Writer
from mistnet.sim.drafts import HIDDEN, KIND, Kind
from mistnet.sim.people import Person, Silence, Standing
from mistnet.sim.references import Parent
from mistnet.sim.users import Users
from mistnet.sim.world import Fate, Post, World

ROOT = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTruth:
    """`search`, `retweets` and `hidden` share no id: found by search, by the second pass alone, by id alone."""

    user_id: int
    handle: str
    standing: Standing
    handles: tuple[tuple[datetime | None, str], ...]
    search: tuple[int, ...]
    retweets: tuple[int, ...]
    hidden: tuple[int, ...]
    deleted: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Ancestors that can be had by id, nearest first, and why it ends: `root`, or the fate of `end_id`."""

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
            standing=person.standing_at(now_ms),
            handles=self.handle_history(person.id),
            search=tuple(self.search_ids(handle, at)),
            retweets=tuple(self.retweet_ids(handle, at)),
            hidden=tuple(self.hidden_ids(handle, at)),
            deleted=tuple(post.id for post in self._posts(person, now_ms) if self._is(post, Fate.DELETED, now_ms)),
        )

    def accounts(self, at: datetime) -> list[str]:
        """The stars that can be swept, by their handle at that time."""
        now_ms = to_ms(at)
        return [star.handle_at(now_ms) for star in self._world.stars if self._world.searchable(star.index, now_ms)]

    def search_ids(self, handle: str, at: datetime) -> list[int]:
        """All posts `from:handle` would ever page through, newest first."""
        return [post.id for post in self._shown(handle, at) if self._searchable(post, at) and not _native(post)]

    def retweet_ids(self, handle: str, at: datetime) -> list[int]:
        """Native retweets: `from:` never shows them, `filter:nativeretweets` does."""
        return [post.id for post in self._shown(handle, at) if self._searchable(post, at) and _native(post)]

    def hidden_ids(self, handle: str, at: datetime) -> list[int]:
        """Posts that search never returns and that a lookup by id shows."""
        return [post.id for post in self._shown(handle, at) if not self._searchable(post, at)]

    def fate(self, post_id: int, at: datetime) -> Fate:
        return self._world.fate(post_id, to_ms(at))

    def parent_of(self, post_id: int) -> Parent | None:
        post = self._world.post(post_id)
        return post.parent if post else None

    def chain(self, post_id: int, at: datetime) -> Chain:
        now_ms = to_ms(at)
        ancestors: list[int] = []
        current = self._world.post(post_id)
        while current is not None and current.parent is not None:
            parent = current.parent.id
            fate = self._world.fate(parent, now_ms)
            if fate is not Fate.SHOWN:
                return Chain(ancestors=tuple(ancestors), end=str(fate), end_id=parent)
            ancestors.append(parent)
            current = self._world.post(parent)
        end_id = ancestors[-1] if ancestors else post_id
        return Chain(ancestors=tuple(ancestors), end=ROOT, end_id=end_id)

    def missing_ancestors(self, handles: Iterable[str], at: datetime) -> set[int]:
        """What thread walks have to fetch by id once every account is swept."""
        swept = {post_id for handle in handles for post_id in self.search_ids(handle, at)}
        wanted = {ancestor for post_id in swept for ancestor in self.chain(post_id, at).ancestors}
        return wanted - swept

    def originals(self, post_ids: Iterable[int], at: datetime) -> set[int]:
        """What these posts show inside them: the posts they quote or repeat."""
        found = {post.original for post in map(self._world.post, post_ids) if post and post.original}
        return {original for original in found if self.fate(original, at) is Fate.SHOWN}

    def authors(self, post_ids: Iterable[int]) -> set[int]:
        return {self._world.people[post.author].id for post in map(self._world.post, post_ids) if post}

    def addressed(self, post_ids: Iterable[int]) -> set[int]:
        """Whom these posts answer or greet: the users named by `inReplyToUserId`."""
        writer = Writer(self._world, Users(self._world))
        found: set[int] = set()
        for post in map(self._world.post, post_ids):
            if post and post.parent:
                found.add(post.parent.user_id)
            elif post and post.kind is not Kind.RETWEET and (greeted := writer.content(post).greeted):
                found.add(greeted.id)
        return found

    def links(self, post_ids: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Where these posts link to, link by link, each as its author meant it."""
        writer = Writer(self._world, Users(self._world))
        for post in map(self._world.post, post_ids):
            if post and post.kind is not Kind.RETWEET:
                yield from ((post.id, url["expanded_url"]) for url in writer.content(post).urls)

    def hydratable(self, user_ids: Iterable[int], at: datetime) -> set[int]:
        """Those that a lookup by id returns as full profiles."""
        people = (self._world.person(user_id) for user_id in user_ids)
        return {person.id for person in people if person and person.shown_at(to_ms(at))}

    def unavailable(self, user_ids: Iterable[int], at: datetime) -> set[int]:
        """Those that a lookup by id returns marked as unavailable; the rest it never returns."""
        people = (self._world.person(user_id) for user_id in user_ids)
        gone = (person for person in people if person and not person.shown_at(to_ms(at)))
        return {person.id for person in gone if person.silence is Silence.OBJECT}

    def followers(self, handle: str, at: datetime) -> list[int]:
        """User ids as the list shows them, newest follow first."""
        return self._listed(handle, at, followers=True)

    def followings(self, handle: str, at: datetime) -> list[int]:
        return self._listed(handle, at, followers=False)

    def handle_history(self, user_id: int) -> tuple[tuple[datetime | None, str], ...]:
        """Every handle, past and to come, and since when; None means from the beginning."""
        person = self._world.person(user_id)
        if person is None:
            return ()
        return tuple((from_ms(since_ms) if since_ms else None, handle) for since_ms, handle in person.handles)

    def _listed(self, handle: str, at: datetime, *, followers: bool) -> list[int]:
        now_ms = to_ms(at)
        person = self._world.holder(handle, now_ms)
        if person is None or person.standing_at(now_ms) is not Standing.ACTIVE:
            return []
        follows = self._world.follows
        found = follows.followers(person.index, now_ms) if followers else follows.followings(person.index, now_ms)
        people = (self._world.people[index] for index in found)
        return [each.id for each in people if each.shown_at(now_ms)]

    def _posts(self, person: Person, now_ms: int) -> Iterator[Post]:
        timeline = self._world.timeline(person.index, now_ms)
        for place in range(timeline.until(now_ms) - 1, -1, -1):
            yield self._world.post_at(person.index, timeline.ids[place], timeline.marks[place])

    def _shown(self, handle: str, at: datetime) -> Iterator[Post]:
        now_ms = to_ms(at)
        person = self._world.holder(handle, now_ms)
        posts = self._posts(person, now_ms) if person else iter(())
        return (post for post in posts if self._is(post, Fate.SHOWN, now_ms))

    def _is(self, post: Post, fate: Fate, now_ms: int) -> bool:
        return self._world.fate_of(post, now_ms) is fate

    def _searchable(self, post: Post, at: datetime) -> bool:
        return not post.mark & HIDDEN and self._world.searchable(post.author, to_ms(at))


def _native(post: Post) -> bool:
    return post.mark & KIND == Kind.RETWEET
