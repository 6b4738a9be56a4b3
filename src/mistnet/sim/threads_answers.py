"""What an unreliable Threads does to its pages and answers. Which of it, and when, is decided as for X."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mistnet.sim.clock import from_ms, to_ms
from mistnet.sim.faults import Decision, SimFault
from mistnet.sim.people import Person
from mistnet.sim.service import SimAnswer
from mistnet.sim.threads_world import ThreadsPost, ThreadsWorld
from mistnet.sim.users import Users, dump


@dataclass(slots=True, kw_only=True)
class Sheet:
    """One page. `here` leads to this same page again; `above` are the posts of the page before it."""

    records: list[dict[str, Any]] | None
    cursor: str
    here: str
    above: list[dict[str, Any]]
    missing: bool = False
    spoiled: list[str] = field(default_factory=list)

    def body(self, address: str) -> dict[str, Any]:
        """`next` has the asker's token in it, as the real one does."""
        told: dict[str, Any] = {} if self.missing else {"data": self.records}
        if not self.cursor and not self.records:
            return told
        cursors = {"before": self.here, "after": self.cursor or self.here}
        following = {"next": f"{address}&after={self.cursor}"} if self.cursor else {}
        return {**told, "paging": {"cursors": cursors, **following}}


def spoil(sheet: Sheet, fault: SimFault, luck: int) -> bool:
    """Do to a page what the fault says; False if this page cannot suffer it."""
    records = sheet.records or []
    match fault:
        case SimFault.EMPTY_CLAIMS_MORE:
            sheet.records, sheet.cursor = [], sheet.here
        case SimFault.EMPTY_CLAIMS_END if records:
            sheet.records, sheet.cursor = [], ""
        case SimFault.DUPLICATE_POSTS if records:
            place = luck % len(records)
            sheet.records = [*records[: place + 1], records[place], *records[place + 1 :]]
        case SimFault.REPEATED_PAGE | SimFault.STUCK_CEILING if sheet.above:
            sheet.records, sheet.cursor = sheet.above, sheet.here
        case SimFault.LOOPING_CURSOR if sheet.cursor:
            sheet.cursor = sheet.here
        case SimFault.MISSING_RECORDS:
            sheet.missing = True
        case SimFault.NULL_DATA:
            sheet.records = None
        case SimFault.MALFORMED_POST if records:
            _malform(sheet, luck)
        case _:
            return False
    return True


def _malform(sheet: Sheet, luck: int) -> None:
    records = sheet.records or []
    place = luck % len(records)
    post = dict(records[place])
    sheet.spoiled.append(str(post["id"]))
    match (luck >> 8) % 5:
        case 0:
            del post["id"]
        case 1:
            post["id"] = None
        case 2:
            post["username"] = ["somebody"]
        case 3:
            post["timestamp"] = 20261001
        case _:
            post["text"] = {"unexpected": True}
    sheet.records = [*records[:place], post, *records[place + 1 :]]


def refusal(decision: Decision) -> SimAnswer:
    match decision.fault:
        case SimFault.RATE_LIMITED:
            return _error(403, {"message": "Application request limit reached", "code": 4})
        case SimFault.RATE_LIMITED_WITH_WAIT:
            limited = _error(429, {"message": "User request limit reached", "code": 17})
            waits = {**limited.headers, "retry-after": str(1 + decision.luck % 10)}
            return SimAnswer(status=429, headers=waits, body=limited.body)
        case SimFault.KEY_REFUSED:
            return _error(400, {"message": "An unexpected error has occurred", "code": 2, "is_transient": True})
        case SimFault.SERVER_ERROR:
            status = (500, 502, 503)[decision.luck % 3]
            return _error(status, {"message": "An unknown error occurred", "code": 1})
        case _:
            page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
            headers = {"content-type": "text/html", "content-length": str(len(page))}
            return SimAnswer(status=502, headers=headers, body=page)


def _error(status: int, told: dict[str, Any]) -> SimAnswer:
    body = dump({"error": {"type": "OAuthException", **told, "fbtrace_id": "AbCdEf"}}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return SimAnswer(status=status, headers=headers, body=body)


DEFAULT_PROFILE = "username,name,profile_picture_url,biography,is_verified,follower_count,likes_count,views_count"
_FIELD = re.compile(r"([a-z_]+)(\{[^{}]*\})?")


class ThreadsRenderer:
    def __init__(self, threads: ThreadsWorld) -> None:
        self._threads = threads
        self._users = Users(threads.world)

    def own_profile(self, person: Person, now_ms: int, fields: str) -> dict[str, Any]:
        face = self._users.face(person)
        told = {
            "id": str(person.id),
            "username": self._threads.handle(person.index, now_ms),
            "name": face.name,
            "threads_profile_picture_url": _picture(person),
            "threads_biography": face.bio,
            "is_verified": face.verified,
        }
        return _chosen(told, fields)

    def public_profile(self, person: Person, now_ms: int) -> dict[str, Any]:
        """No id: others are known by their names alone."""
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
        told: dict[str, Any] = {
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
            "text_attachment": _text_attachment(post),
            "is_verified": self._users.face(self._threads.world.people[post.author]).verified,
            "profile_picture_url": _picture(self._threads.world.people[post.author]),
            "media_url": f"https://scontent.example/{post.id}.jpg" if post.kind == "IMAGE" else None,
            "alt_text": "a picture" if post.kind == "IMAGE" else None,
            "owner": {"id": str(self._threads.world.people[post.author].id)} if own else None,
            **(_place(post, own=own) if post.root else {}),
        }
        return _chosen(told, fields)


def _place(post: ThreadsPost, *, own: bool) -> dict[str, Any]:
    return {
        "is_reply": True,
        "is_reply_owned_by_me": own,
        "root_post": {"id": str(post.root)},
        "replied_to": {"id": str(post.parent)},
        "hide_status": "NOT_HUSHED",
    }


def _text_attachment(post: ThreadsPost) -> dict[str, Any] | None:
    inside, beside = post.links.get("text_attachment"), post.links.get("text_attachment_link")
    if not inside and not beside:
        return None
    told = {"plaintext": f"The whole story, and where to get it: {inside}" if inside else "The whole story."}
    return {**told, "link_attachment_url": beside} if beside else told


def _picture(person: Person) -> str:
    return f"https://scontent.example/faces/{person.index}.jpg"


def _chosen(told: dict[str, Any], fields: str) -> dict[str, Any]:
    """What was asked for and is there; the id always."""
    wanted = {found[1] for found in _FIELD.finditer(fields)} | {"id"}
    return {name: value for name, value in told.items() if name in wanted and value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTruth:
    """Everything a feed must bring: posts, the author's own replies below them, and what both quote or repeat.

    `gone` are those of the latter that nobody is shown. `links` has the links of each post, by their place.
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
        now_ms = to_ms(at)
        stars = self._threads.world.stars
        return [self._threads.handle(star.index, now_ms) for star in stars if self._threads.is_open(star.index, now_ms)]

    def closed(self, at: datetime) -> list[str]:
        now_ms = to_ms(at)
        stars = self._threads.world.stars
        return [
            self._threads.handle(star.index, now_ms) for star in stars if not self._threads.is_open(star.index, now_ms)
        ]

    def feed(self, handle: str, at: datetime) -> FeedTruth | None:
        now_ms = to_ms(at)
        person = self._threads.holder(handle, now_ms)
        if person is None:
            return None
        posts = self._threads.roots(person.index, now_ms)
        replies = self._threads.replies_of(person.index, now_ms)
        shown, gone = self._originals([*posts, *replies], now_ms)
        return FeedTruth(
            handle=self._threads.handle(person.index, now_ms),
            posts=tuple(post.id for post in posts),
            replies=tuple(post.id for post in replies),
            originals=tuple(shown),
            gone=tuple(gone),
            links={post.id: dict(post.links) for post in [*posts, *replies] if post.links},
        )

    def _originals(self, posts: list[ThreadsPost], now_ms: int) -> tuple[list[int], list[int]]:
        named = sorted({each for post in posts for each in (post.quoted, post.reposted) if each})
        found = {each: self._threads.post(each) for each in named}
        shown = [each for each, post in found.items() if post and self._threads.is_shown(post, now_ms)]
        return shown, [each for each in named if each not in shown]
