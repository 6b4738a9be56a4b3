"""The world on Threads: its accounts, their posts and replies, and the payloads that show them."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from random import Random
from typing import Any
from urllib.parse import quote

from mistnet.sim.clock import DAY_MS, HOUR_MS, SECOND_MS, Draw, chance, from_ms, mix, to_ms
from mistnet.sim.language import sentence
from mistnet.sim.people import FOREVER_MS, Person, SimAccountState
from mistnet.sim.shelf import SHELF, SHORT_LINKS
from mistnet.sim.users import Users
from mistnet.sim.world import World

FIRST_MS = to_ms(datetime(2024, 6, 1, tzinfo=UTC))
FUTURE_DAYS = 60
FIRST_ID = 17_800_000_000_000_000
# An id is the second and the author's index.
IDS_PER_SECOND = 1_000_000
LOUD_REPLIES = 45
LINKS = (*(thing.canonical for thing in SHELF), *SHORT_LINKS)
PLACES = ("text", "attachment", "text_attachment", "text_attachment_link")


@dataclass(slots=True, kw_only=True)
class ThreadsPost:
    """`links` are by place. Reposts have no text; only replies have `parent` and `root`."""

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
    """The stars of a world on Threads. Their fans reply, but have no feeds."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._start_ms = to_ms(world.start_at)

    def holder(self, handle: str, now_ms: int) -> Person | None:
        """The star with this handle, if their feed is open."""
        person = self.world.holder(handle, now_ms)
        return person if person and person.star and self.is_open(person.index, now_ms) else None

    def is_open(self, author: int, now_ms: int) -> bool:
        person = self.world.people[author]
        return person.searchable and person.state_at(now_ms) is SimAccountState.ACTIVE

    def handle(self, author: int, now_ms: int) -> str:
        return self.world.people[author].handle_at(now_ms).lower()

    def post(self, post_id: int) -> ThreadsPost | None:
        return self._posts.get(post_id)

    def is_shown(self, post: ThreadsPost, now_ms: int) -> bool:
        """A reply disappears with the post it answers."""
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
        """An author's replies, newest first."""
        own = [post for post in self._posts.values() if post.author == author and post.root]
        return _latest(post for post in own if self.is_shown(post, now_ms))

    def below(self, post_id: int, now_ms: int) -> list[ThreadsPost]:
        """The conversation under a post, newest first."""
        return _latest(post for post in self._below.get(post_id, ()) if self.is_shown(post, now_ms))

    @cached_property
    def _roots(self) -> dict[int, list[ThreadsPost]]:
        found: dict[int, list[ThreadsPost]] = {}
        for star in self.world.stars:
            luck = chance(self.world.seed, Draw.THREADS, star.index)
            past = 25 + luck.randrange(45)
            times = {FIRST_MS + luck.randrange(self._start_ms - FIRST_MS) for _ in range(past)}
            times |= {self._start_ms + luck.randrange(FUTURE_DAYS * DAY_MS) for _ in range(FUTURE_DAYS)}
            roots = found[star.index] = []
            for at_ms in sorted({at_ms - at_ms % SECOND_MS for at_ms in times}):
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
                roots.append(post)
        for post in (post for posts in found.values() for post in posts):
            self._refer(post, found)
        return found

    @cached_property
    def _posts(self) -> dict[int, ThreadsPost]:
        """Every post with its replies: the author's own, which often contain links, and those of fans."""
        roots = [post for posts in self._roots.values() for post in posts]
        found = {post.id: post for post in roots}
        for post in (each for each in roots if each.kind != "REPOST_FACADE"):
            luck = chance(self.world.seed, Draw.THREADS, post.id, 1)
            payload: list[ThreadsPost] = []
            loud = luck.random() < 0.03
            for _ in range(LOUD_REPLIES if loud else luck.choice((0, 0, 1, 2, 5))):
                fan = self.world.size.stars + luck.randrange(self.world.size.users - self.world.size.stars)
                payload.append(self._reply(post, post, fan, luck))
            if luck.random() < 0.5:
                own = self._reply(post, post, post.author, luck)
                place = luck.choice(("text", "attachment"))
                if luck.random() < 0.7:
                    own.links[place] = _posted(luck.choice(LINKS), luck)
                    own.text += " " + own.links[place] if place == "text" else ""
                payload.append(own)
                if luck.random() < 0.3:
                    payload.append(self._reply(post, own, post.author, luck))
            # Ids contain the second and the author, so equal ones collapse; replies to a dropped reply are dropped too.
            replies = {reply.id: reply for reply in payload}
            for reply in replies.values():
                if reply.parent == reply.root or reply.parent in replies:
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

    def _refer(self, post: ThreadsPost, roots: Mapping[int, list[ThreadsPost]]) -> None:
        """Turn some posts into reposts or quotes of earlier posts by another star."""
        luck = mix(self.world.seed, Draw.THREADS, post.id)
        other = self.world.stars[luck % len(self.world.stars)].index
        # Only earlier posts, so that references form no circle.
        earlier = [each for each in roots[other] if each.at_ms < post.at_ms and each.kind != "REPOST_FACADE"]
        if not earlier or other == post.author:
            return
        original = earlier[(luck >> 16) % len(earlier)].id
        match (luck >> 40) % 12:
            case 0:
                post.reposted, post.kind, post.text, post.links = original, "REPOST_FACADE", "", {}
            case 1 | 2:
                post.quoted = original

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


def _latest(posts: Iterable[ThreadsPost]) -> list[ThreadsPost]:
    return sorted(posts, key=lambda post: (-post.at_ms, -post.id))


def _posted(url: str, luck: Random) -> str:
    """The URL as people post it: with tracking parameters, or behind the platform's redirect."""
    draw = luck.random()
    if draw < 0.2:
        return f"https://l.threads.com/?u={quote(url, safe='')}&e=AT0x{luck.getrandbits(48):x}"
    if draw < 0.5:
        return f"{url}{'&' if '?' in url else '?'}utm_source=threads&xmt=AQ{luck.getrandbits(32):x}"
    return url


_FIELD = re.compile(r"([a-z_]+)(\{[^{}]*\})?")


class ThreadsRenderer:
    def __init__(self, threads: ThreadsWorld) -> None:
        self._threads = threads
        self._users = Users(threads.world)

    def own_profile(self, person: Person, now_ms: int, fields: str) -> dict[str, Any]:
        face = self._users.face(person)
        payload = {
            "id": str(person.id),
            "username": self._threads.handle(person.index, now_ms),
            "name": face.name,
            "threads_profile_picture_url": _picture(person),
            "threads_biography": face.bio,
            "is_verified": face.verified,
        }
        return _chosen(payload, fields)

    def public_profile(self, person: Person, now_ms: int) -> dict[str, Any]:
        """Without an id: other users are identified by handle only."""
        face = self._users.face(person)
        followers, _ = self._threads.world.follows.counts(person.index, now_ms)
        return {
            "username": self._threads.handle(person.index, now_ms),
            "name": face.name,
            "profile_picture_url": _picture(person),
            "biography": face.bio,
            "is_verified": face.verified,
            "follower_count": followers + 100,
            "likes_count": face.favourites,
            "quotes_count": 0,
            "replies_count": 0,
            "reposts_count": 0,
            "views_count": face.favourites * 10,
        }

    def post(self, post: ThreadsPost, now_ms: int, fields: str, *, own: bool = False) -> dict[str, Any]:
        handle = self._threads.handle(post.author, now_ms)
        code = f"C{post.id:x}"
        person = self._threads.world.people[post.author]
        inside, beside = post.links.get("text_attachment"), post.links.get("text_attachment_link")
        attachment = {"plaintext": f"The whole story, and where to get it: {inside}" if inside else "The whole story."}
        if beside:
            attachment["link_attachment_url"] = beside
        payload: dict[str, Any] = {
            "id": str(post.id),
            "media_product_type": "THREADS",
            "media_type": post.kind,
            "permalink": f"https://www.threads.com/@{handle}/post/{code}",
            "username": handle,
            "text": post.text or None,
            "timestamp": from_ms(post.at_ms).strftime("%Y-%m-%dT%H:%M:%S+0000"),
            "shortcode": code,
            "is_quote_post": post.quoted is not None,
            "quoted_post": {"id": str(post.quoted)} if post.quoted else None,
            "reposted_post": {"id": str(post.reposted)} if post.reposted else None,
            "has_replies": bool(self._threads.below(post.id, now_ms)),
            "link_attachment_url": post.links.get("attachment"),
            "text_attachment": attachment if inside or beside else None,
            "is_verified": self._users.face(person).verified,
            "profile_picture_url": _picture(person),
            "media_url": f"https://scontent.example/{post.id}.jpg" if post.kind == "IMAGE" else None,
            "alt_text": "a picture" if post.kind == "IMAGE" else None,
            "owner": {"id": str(person.id)} if own else None,
        }
        if post.root:
            payload |= {
                "is_reply": True,
                "is_reply_owned_by_me": own,
                "root_post": {"id": str(post.root)},
                "replied_to": {"id": str(post.parent)},
                "hide_status": "NOT_HUSHED",
            }
        return _chosen(payload, fields)


def _picture(person: Person) -> str:
    return f"https://scontent.example/faces/{person.index}.jpg"


def _chosen(payload: dict[str, Any], fields: str) -> dict[str, Any]:
    """The requested fields that have a value, and always the id."""
    wanted = {found[1] for found in _FIELD.finditer(fields)} | {"id"}
    return {name: value for name, value in payload.items() if name in wanted and value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTruth:
    """Everything that a feed must collect: posts, the author's own replies, and what both quote or repost.

    `gone` are those of the latter that no request shows. `links` has the links of each post, by their place.
    """

    handle: str
    posts: tuple[int, ...]
    replies: tuple[int, ...]
    originals: tuple[int, ...]
    gone: tuple[int, ...]
    links: Mapping[int, Mapping[str, str]]

    @property
    def all_posts(self) -> set[int]:
        return {*self.posts, *self.replies, *self.originals}


class ThreadsTruth:
    def __init__(self, threads: ThreadsWorld) -> None:
        self._threads = threads

    def accounts(self, at: datetime) -> list[str]:
        """Handles whose feeds can be read."""
        return self._handles(at, is_open=True)

    def closed(self, at: datetime) -> list[str]:
        return self._handles(at, is_open=False)

    def _handles(self, at: datetime, *, is_open: bool) -> list[str]:
        now_ms, threads = to_ms(at), self._threads
        stars = (star for star in threads.world.stars if threads.is_open(star.index, now_ms) is is_open)
        return [threads.handle(star.index, now_ms) for star in stars]

    def feed(self, handle: str, at: datetime) -> FeedTruth | None:
        now_ms = to_ms(at)
        person = self._threads.holder(handle, now_ms)
        if person is None:
            return None
        posts = self._threads.roots(person.index, now_ms)
        replies = self._threads.replies_of(person.index, now_ms)
        named = sorted({each for post in [*posts, *replies] for each in (post.quoted, post.reposted) if each})
        originals = {each: self._threads.post(each) for each in named}
        shown = [each for each, post in originals.items() if post and self._threads.is_shown(post, now_ms)]
        return FeedTruth(
            handle=self._threads.handle(person.index, now_ms),
            posts=tuple(post.id for post in posts),
            replies=tuple(post.id for post in replies),
            originals=tuple(shown),
            gone=tuple(each for each in named if each not in shown),
            links={post.id: dict(post.links) for post in [*posts, *replies] if post.links},
        )
