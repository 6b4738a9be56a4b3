"""What the same people say on Threads: posts, reposts and quotes, with links in every place, and replies below them."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from random import Random
from urllib.parse import quote

from mistnet.sim.clock import to_ms
from mistnet.sim.language import sentence
from mistnet.sim.numbers import DAY_MS, HOUR_MS, SECOND_MS, Draw, chance, mix
from mistnet.sim.people import FOREVER_MS, Person, SimAccountState
from mistnet.sim.shelf import SHELF, SHORT_LINKS
from mistnet.sim.world import World

FIRST_MS = to_ms(datetime(2024, 6, 1, tzinfo=UTC))
FUTURE_DAYS = 60
FIRST_ID = 17_800_000_000_000_000
IDS_PER_SECOND = 1_000_000
LOUD_REPLIES = 45
LINKS = (*(thing.canonical for thing in SHELF), *SHORT_LINKS)
PLACES = ("text", "attachment", "text_attachment", "text_attachment_link")


@dataclass(slots=True, kw_only=True)
class ThreadsPost:
    """`links` are by place. A repost has no words of its own; `parent` and `root` are of replies."""

    id: int
    author: int
    at_ms: int
    text: str = ""
    kind: str = "TEXT_POST"
    parent: int | None = None
    root: int | None = None
    quoted: int | None = None
    reposted: int | None = None
    deleted_ms: int = FOREVER_MS
    links: dict[str, str] = field(default_factory=dict)


class ThreadsWorld:
    """The stars of a world as Threads shows them. Their fans answer, and have no feeds of their own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._start_ms = to_ms(world.start_at)

    def holder(self, handle: str, now_ms: int) -> Person | None:
        """Who is shown by that name: stars in good standing whom enough people follow."""
        person = self.world.holder(handle, now_ms)
        return person if person and person.star and self.is_open(person.index, now_ms) else None

    def is_open(self, author: int, now_ms: int) -> bool:
        person = self.world.people[author]
        return person.searchable and person.standing_at(now_ms) is SimAccountState.ACTIVE

    def handle(self, author: int, now_ms: int) -> str:
        return self.world.people[author].handle_at(now_ms).lower()

    def post(self, post_id: int) -> ThreadsPost | None:
        return self._posts.get(post_id)

    def is_shown(self, post: ThreadsPost, now_ms: int) -> bool:
        """A reply goes with the post it answers."""
        if not post.at_ms <= now_ms < post.deleted_ms or not self.is_open(post.author, now_ms):
            return False
        parent = self._posts[post.parent] if post.parent else None
        return parent is None or self.is_shown(parent, now_ms)

    def roots(self, author: int, now_ms: int) -> list[ThreadsPost]:
        """An author's own posts, newest first."""
        listed = self._roots.get(author, [])
        past = listed[: bisect_left(listed, now_ms + 1, key=lambda post: post.at_ms)]
        return [post for post in reversed(past) if self.is_shown(post, now_ms)]

    def replies_of(self, author: int, now_ms: int) -> list[ThreadsPost]:
        """What an author said below posts, newest first."""
        own = [post for post in self._posts.values() if post.author == author and post.root]
        return _latest(post for post in own if self.is_shown(post, now_ms))

    def below(self, post_id: int, now_ms: int, *, direct: bool = False) -> list[ThreadsPost]:
        """The conversation under a post, newest first; or the direct replies alone."""
        found = [post for post in self._below.get(post_id, ()) if self.is_shown(post, now_ms)]
        return _latest(post for post in found if not direct or post.parent == post_id)

    def search(self, words: str, now_ms: int) -> list[ThreadsPost]:
        found = (post for posts in self._roots.values() for post in posts if words.lower() in post.text.lower())
        return _latest(post for post in found if self.is_shown(post, now_ms))

    @cached_property
    def _roots(self) -> dict[int, list[ThreadsPost]]:
        found = {star.index: self._written(star) for star in self.world.stars}
        for post in (post for posts in found.values() for post in posts):
            self._refer(post, found)
        return found

    @cached_property
    def _posts(self) -> dict[int, ThreadsPost]:
        roots = [post for posts in self._roots.values() for post in posts]
        found = {post.id: post for post in roots}
        for reply in (reply for post in roots for reply in self._answers(post)):
            found.setdefault(reply.id, reply)
        return found

    @cached_property
    def _below(self) -> dict[int, list[ThreadsPost]]:
        """Every reply under each post above it."""
        found: dict[int, list[ThreadsPost]] = defaultdict(list)
        for post in self._posts.values():
            above = post.parent
            while above is not None:
                found[above].append(post)
                above = self._posts[above].parent
        return found

    def _written(self, star: Person) -> list[ThreadsPost]:
        luck = chance(self.world.seed, Draw.THREADS, star.index)
        past = 25 + luck.randrange(45)
        times = {FIRST_MS + luck.randrange(self._start_ms - FIRST_MS) for _ in range(past)}
        times |= {self._start_ms + luck.randrange(FUTURE_DAYS * DAY_MS) for _ in range(FUTURE_DAYS)}
        seconds = sorted({at_ms - at_ms % SECOND_MS for at_ms in times})
        return [self._root(star, at_ms, luck) for at_ms in seconds]

    def _root(self, star: Person, at_ms: int, luck: Random) -> ThreadsPost:
        post = ThreadsPost(id=_id(at_ms, star.index), author=star.index, at_ms=at_ms)
        post.text = sentence(star.language, luck.randint(10, 160), luck.getrandbits(40))
        if luck.random() < 0.04:
            post.deleted_ms = at_ms + HOUR_MS + luck.randrange(20 * DAY_MS)
        if luck.random() < 0.5:
            place = PLACES[luck.randrange(len(PLACES))]
            post.links[place] = _posted(luck.choice(LINKS), luck)
        if post.links.get("text"):
            post.text += (" " if luck.random() < 0.7 else "連結在這裡") + post.links["text"]
        post.kind = "IMAGE" if luck.random() < 0.2 else "TEXT_POST"
        return post

    def _refer(self, post: ThreadsPost, roots: Mapping[int, list[ThreadsPost]]) -> None:
        """Some repeat or quote what another star said before."""
        luck = mix(self.world.seed, Draw.THREADS, post.id)
        other = self.world.stars[luck % len(self.world.stars)].index
        earlier = [each for each in roots[other] if each.at_ms < post.at_ms and each.kind != "REPOST_FACADE"]
        if not earlier or other == post.author:
            return
        original = earlier[(luck >> 16) % len(earlier)].id
        match (luck >> 40) % 12:
            case 0:
                post.reposted, post.kind, post.text, post.links = original, "REPOST_FACADE", "", {}
            case 1 | 2:
                post.quoted = original

    def _answers(self, post: ThreadsPost) -> list[ThreadsPost]:
        """The author's own words below his post, where links often are, and what his fans say to it."""
        if post.kind == "REPOST_FACADE":
            return []
        luck = chance(self.world.seed, Draw.THREADS, post.id, 1)
        told: list[ThreadsPost] = []
        loud = luck.random() < 0.03
        for _ in range(LOUD_REPLIES if loud else luck.choice((0, 0, 1, 2, 5))):
            fan = self.world.size.stars + luck.randrange(self.world.size.users - self.world.size.stars)
            told.append(self._reply(post, post, fan, luck))
        if luck.random() < 0.5:
            own = self._reply(post, post, post.author, luck)
            place = luck.choice(("text", "attachment"))
            if luck.random() < 0.7:
                own.links[place] = _posted(luck.choice(LINKS), luck)
                own.text += " " + own.links[place] if place == "text" else ""
            told.append(own)
            if luck.random() < 0.3:
                told.append(self._reply(post, own, post.author, luck))
        return _distinct(told)

    def _reply(self, root: ThreadsPost, parent: ThreadsPost, author: int, luck: Random) -> ThreadsPost:
        later = luck.choice((30 * SECOND_MS, HOUR_MS, 36 * HOUR_MS))
        at_ms = parent.at_ms + SECOND_MS + luck.randrange(later) // SECOND_MS * SECOND_MS
        words = sentence(self.world.people[author].language, luck.randint(5, 60), luck.getrandbits(40))
        gone = at_ms + HOUR_MS + luck.randrange(DAY_MS) if luck.random() < 0.03 else FOREVER_MS
        return ThreadsPost(
            id=_id(at_ms, author),
            author=author,
            at_ms=at_ms,
            text=words,
            parent=parent.id,
            root=root.id,
            deleted_ms=gone,
        )


def _id(at_ms: int, author: int) -> int:
    return FIRST_ID + (at_ms - FIRST_MS) // SECOND_MS * IDS_PER_SECOND + author


def _distinct(replies: list[ThreadsPost]) -> list[ThreadsPost]:
    """Nobody says two things in one second; whoever answers what was never said says nothing either."""
    found = {reply.id: reply for reply in replies}
    return [reply for reply in found.values() if reply.parent == reply.root or reply.parent in found]


def _latest(posts: Iterable[ThreadsPost]) -> list[ThreadsPost]:
    return sorted(posts, key=lambda post: (-post.at_ms, -post.id))


def _posted(url: str, luck: Random) -> str:
    """As people paste it: with somebody's tracking in it, or behind the platform's own redirect."""
    draw = luck.random()
    if draw < 0.2:
        return f"https://l.threads.com/?u={quote(url, safe='')}&e=AT0x{luck.getrandbits(48):x}"
    if draw < 0.5:
        return f"{url}{'&' if '?' in url else '?'}utm_source=threads&xmt=AQ{luck.getrandbits(32):x}"
    return url
