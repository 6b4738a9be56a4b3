"""How Threads writes profiles and posts: the fields that were asked for, and no others."""

import re
from typing import Any

from mistnet.sim.clock import from_ms
from mistnet.sim.people import Person
from mistnet.sim.threads_world import ThreadsPost, ThreadsWorld
from mistnet.sim.users import Users

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
