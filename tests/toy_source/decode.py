"""Turns the notes and people of the toy platform into posts and users."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from mistnet import Detail, Gathered, Page, Platform, Post, PostId, Unreadable, User, UserId

TOY = Platform("toy")


class Person(msgspec.Struct):
    id: int
    name: str
    about: str
    notes: int
    since: int


class Note(msgspec.Struct):
    n: int
    by: int
    says: str
    at: int
    answers: int | None = None
    thread: int | None = None


class Answer(msgspec.Struct):
    """Raw parts, so that one that cannot be read does not spoil the others."""

    people: list[msgspec.Raw] = []
    notes: list[msgspec.Raw] = []
    more: bool = False


def read_answer(body: bytes) -> Answer:
    return msgspec.json.decode(body, type=Answer)


def read_page(answer: Answer, endpoint: str) -> Page:
    users, posts, unreadable = dict[UserId, User](), dict[PostId, Post](), list[Unreadable]()
    for raw in answer.people:
        try:
            user = _user(raw)
        except msgspec.MsgspecError as error:
            unreadable.append(Unreadable(platform=TOY, endpoint=endpoint, problem=str(error), payload=bytes(raw)))
        else:
            users[user.id] = user
    for raw in answer.notes:
        try:
            post = _post(raw)
        except msgspec.MsgspecError as error:
            unreadable.append(Unreadable(platform=TOY, endpoint=endpoint, problem=str(error), payload=bytes(raw)))
        else:
            posts[post.id] = post
    gathered = Gathered(posts=posts, users=users, unreadable=unreadable)
    return Page(own=list(posts), gathered=gathered, has_more=answer.more)


def _user(raw: msgspec.Raw) -> User:
    person = msgspec.json.decode(raw, type=Person)
    return User(
        platform=TOY,
        id=UserId(person.id),
        detail=Detail.PROFILE,
        handle=person.name,
        name=person.name.title(),
        bio=person.about,
        posts_count=person.notes,
        created_at=datetime.fromtimestamp(person.since, UTC),
        raw=bytes(raw),
    )


def _post(raw: msgspec.Raw) -> Post:
    note = msgspec.json.decode(raw, type=Note)
    return Post(
        platform=TOY,
        id=PostId(note.n),
        author_id=UserId(note.by),
        text=note.says,
        created_at=datetime.fromtimestamp(note.at, UTC),
        url=f"https://toy.example/notes/{note.n}",
        conversation_id=PostId(note.thread or note.n),
        in_reply_to_id=PostId(note.answers) if note.answers else None,
        raw=bytes(raw),
    )


def ids(given: Sequence[int]) -> str:
    return ",".join(map(str, given))
