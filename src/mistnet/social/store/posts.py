"""Writes users and posts. Known fields are kept, new ones added, and no payload removes a field."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict, astuple
from sqlalchemy import ColumnElement, Table, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.merged import Part, insert_part
from mistnet.kit.statements import insert_of, insert_rows, run
from mistnet.kit.types import moment, storable
from mistnet.queue.model import JobId
from mistnet.social.accounts import Missing
from mistnet.social.model import (
    LONGEST_CLEAN_TEXT,
    Detail,
    LinkMention,
    Media,
    Platform,
    Post,
    PostId,
    Unreadable,
    User,
    UserId,
)
from mistnet.social.search_query import search_text
from mistnet.social.store.accounts import slices
from mistnet.social.store.ingests import ingests_of_jobs
from mistnet.social.tables import missing, posts, quarantine, user_versions, users

_RICHNESS: Final = {Detail.AUTHOR: 0, Detail.LISTED: 1, Detail.PROFILE: 2}
_PICTURE_SIZE: Final = re.compile(r"_(?:normal|mini|bigger|\d+x\d+)(?=\.\w+$)")
_VERSIONED: Final = ("handle", "name", "bio", "avatar_url")
_USER_TEXTS: Final = (*_VERSIONED, "location", "website", "banner_url", "verified_kind", "unavailable_reason")
_USER_FACTS: Final = (
    *("verified", "protected", "automated", "created_at"),
    *("followers_count", "following_count", "posts_count", "media_count", "likes_count"),
)
_FRESH: Final = timedelta(hours=1)
# Pages and exports go by the time a post was written: a row that moved would be shown twice or not at all.
_KEPT_OF_POST: Final = frozenset({"platform", "id", "author_id", "created_at", "first_seen_at", "nested", "raw"})
_MERGE_POST: Final = "ON CONFLICT (platform, id) DO UPDATE SET " + ", ".join(
    [
        *(
            f"{column.name} = COALESCE(excluded.{column.name}, posts.{column.name})"
            for column in posts.columns
            if column.name not in _KEPT_OF_POST
        ),
        # A post inside another one's payload lacks fields, so its payload must not replace a complete one.
        "raw = CASE WHEN excluded.nested AND NOT posts.nested THEN posts.raw ELSE excluded.raw END",
        "nested = posts.nested AND excluded.nested",
    ]
)
Row = dict[str, Any]
V = TypeVar("V", User, Post, Missing)

_ADD_USER: Final = "ON CONFLICT (platform, id) DO NOTHING RETURNING platform, id"

_encode = msgspec.json.Encoder().encode


async def write_users(connection: AsyncConnection, given: Sequence[User], now: datetime) -> None:
    """Insert or update users at once. A settlement takes the two steps apart, with its other writes in between."""
    await update_users(connection, await add_users(connection, given, now), now)


async def add_users(connection: AsyncConnection, given: Sequence[User], now: datetime) -> Sequence[User]:
    """Insert the users that are not stored. Return those whose stored row they change.

    This locks no stored row: popular users are on everybody's pages.
    """
    wanted = _latest(given)
    known = await _profiles(connection, wanted)
    added: set[tuple[str, int]] = set()
    if rows := await _new_users(connection, wanted, known, now):
        # Another process may have inserted one of them meanwhile: it is then updated as any other stored one.
        added = {(platform, user_id) for platform, user_id in await insert_rows(connection, users, rows, _ADD_USER)}
    return [
        user
        for key, user in wanted.items()
        if key not in added and (key not in known or _tells_news(known[key], user, now))
    ]


async def users_at_once(connection: AsyncConnection, given: Sequence[User], now: datetime) -> Sequence[Part] | None:
    """The insert of users as a part of one statement, if they change no stored row."""
    wanted = _latest(given)
    known = await _profiles(connection, wanted)
    if any(_tells_news(old, wanted[key], now) for key, old in known.items()):
        return None
    rows = await _new_users(connection, wanted, known, now)
    return [insert_part(connection, users, rows, _ADD_USER, all_new=True)] if rows else []


async def _new_users(
    connection: AsyncConnection,
    wanted: Mapping[tuple[str, int], User],
    known: Container[tuple[str, int]],
    now: datetime,
) -> list[tuple[Any, ...]]:
    new = {key: user for key, user in wanted.items() if key not in known}
    ingests = await _ingests_of(connection, new.values())
    when = partial(moment, connection.dialect.name)
    return [_new_user(user, when(now), when, ingests.get(key)) for key, user in new.items()]


async def update_users(connection: AsyncConnection, given: Sequence[User], now: datetime) -> None:
    """Merge these users into their stored rows. Earlier handles, names, bios and avatars become versions."""
    if not given:
        return
    keys = [(user.platform, user.id) for user in given]
    if connection.dialect.name == "postgresql":
        await run(connection, "lock_users", {"users": keys})
    known = await _profiles(connection, keys)
    # Another transaction may have told the same meanwhile.
    news = {key: user for key, user in zip(keys, given, strict=True) if _tells_news(known[key], user, now)}
    ingests = await _ingests_of(connection, news.values())
    merged = {key: _merged(known[key], user, now) for key, user in news.items()}
    changed = [row for key, row in merged.items() if key not in ingests]
    named = [{**row, "new_ingest_id": ingests[key]} for key, row in merged.items() if key in ingests]
    versions: list[Row] = []
    for (platform, user_id), user in news.items():
        old, fields = known[platform, user_id], _fields_of(user)
        turned = [name for name in _VERSIONED if None not in (fields[name], old[name]) and fields[name] != old[name]]
        # Embedded authors lack their bio, and the same picture comes in several sizes.
        pictures = {_PICTURE_SIZE.sub("", row["avatar_url"] or "") for row in (fields, old)}
        if any(len(pictures) > 1 if name == "avatar_url" else name != "bio" or fields[name] for name in turned):
            kept = {"handle_key": _handle_key(old["handle"]), **{name: old[name] for name in _VERSIONED}}
            versions.append({"platform": platform, "user_id": user_id, "until": now, **kept})
    adding = insert_of(connection.dialect.name)(user_versions).on_conflict_do_nothing()
    for statement, rows in ((adding, versions), (_UPDATE_USER, changed), (_UPDATE_NAMED_USER, named)):
        if rows:
            await connection.execute(statement, rows)


async def _profiles(
    connection: AsyncConnection, keys: Iterable[tuple[str, int]]
) -> Mapping[tuple[str, int], Mapping[str, Any]]:
    rows = (await run(connection, "known_profiles", {"users": list(keys)})).mappings()
    return {(row["platform"], row["id"]): dict(row) for row in rows}


async def _ingests_of(
    connection: AsyncConnection, given: Collection[User] | Collection[Post]
) -> Mapping[tuple[str, int], int]:
    """The ingests that fetched these. Most have none, and then nothing is queried."""
    job_ids = {JobId(each.ingest_job_id) for each in given if each.ingest_job_id is not None}
    of_jobs = await ingests_of_jobs(connection, sorted(job_ids)) if job_ids else {}
    return {
        (each.platform, each.id): ingest_id
        for each in given
        if (ingest_id := each.ingest_id or (each.ingest_job_id and of_jobs.get(JobId(each.ingest_job_id))))
    }


def _latest(given: Iterable[V]) -> dict[tuple[str, int], V]:
    """One per id, in the order that all writers share, so that two of them cannot deadlock."""
    found: dict[tuple[str, int], V] = {}
    for each in given:
        before = found.get((each.platform, each.id))
        if isinstance(each, User) and isinstance(before, User) and _RICHNESS[before.detail] > _RICHNESS[each.detail]:
            continue
        # A quoted copy leaves fields out.
        if isinstance(each, Post) and isinstance(before, Post) and each.nested and not before.nested:
            continue
        found[each.platform, each.id] = each
    return dict(sorted(found.items()))


def _fields_of(user: User) -> Row:
    texts = {name: storable(getattr(user, name)) for name in _USER_TEXTS}
    return {**texts, **{name: getattr(user, name) for name in _USER_FACTS}}


_USER_COLUMNS: Final = tuple(column.name for column in users.columns)


def _new_user(user: User, now: Any, when: Callable[[datetime], Any], ingest_id: int | None) -> tuple[Any, ...]:
    """One row in the order of the table's columns, as the driver takes it: a page of followers brings hundreds."""
    row = {
        **_fields_of(user),
        "platform": str(user.platform),
        "id": user.id,
        "handle_key": _handle_key(user.handle),
        "created_at": when(user.created_at) if user.created_at else None,
        "detail": str(user.detail),
        "raw": user.raw.decode("utf-8", "replace"),
        "first_seen_at": now,
        "last_updated_at": now,
        "profiled_at": now if user.detail is Detail.PROFILE else None,
        "ingest_id": ingest_id,
    }
    return tuple(row[name] for name in _USER_COLUMNS)


def _tells_news(old: Mapping[str, Any], user: User, now: datetime) -> bool:
    """Whether to update the row. An author is on every page of a sweep; without changes, once an hour is enough."""
    if user.detail is Detail.PROFILE or now - old["last_updated_at"] >= _FRESH:
        return True
    richer = _RICHNESS[user.detail] > _RICHNESS[Detail(old["detail"])]
    return richer or any(value is not None and value != old[name] for name, value in _fields_of(user).items())


def _merged(old: Mapping[str, Any], user: User, now: datetime) -> Row:
    """The stored row with the fields of this payload on top."""
    row = {name: old[name] if value is None else value for name, value in _fields_of(user).items()}
    poorer = _RICHNESS[user.detail] < _RICHNESS[Detail(old["detail"])]
    if poorer:
        row |= {name: old[name] for name in ("avatar_url", "banner_url") if old[name]}
    if user.unavailable_reason is None and user.detail is Detail.PROFILE:
        row["unavailable_reason"] = None
    return {
        **{f"new_{name}": value for name, value in row.items()},
        "new_handle_key": _handle_key(row["handle"]),
        "new_detail": old["detail"] if poorer else user.detail,
        "new_raw": None if poorer else user.raw,
        "new_last_updated_at": now,
        "new_profiled_at": now if user.detail is Detail.PROFILE else old["profiled_at"],
        "known_platform": user.platform,
        "known_id": user.id,
    }


_TURNED: Final = (*_USER_TEXTS, *_USER_FACTS, "handle_key", "detail", "last_updated_at", "profiled_at")
_UPDATE_USER: Final = (
    update(users)
    .where(users.c.platform == bindparam("known_platform"), users.c.id == bindparam("known_id"))
    .values(
        **{name: bindparam(f"new_{name}", type_=users.c[name].type) for name in _TURNED},
        raw=func.coalesce(bindparam("new_raw", type_=users.c.raw.type), users.c.raw),
    )
)


_UPDATE_NAMED_USER: Final = _UPDATE_USER.values(ingest_id=bindparam("new_ingest_id", type_=users.c.ingest_id.type))
"""Separate from the other, because users of old databases are hydrated before this column exists."""


async def write_posts(connection: AsyncConnection, given: Sequence[Post], now: datetime) -> None:
    """Insert or update posts. Counts change; no field is ever removed."""
    await insert_rows(connection, posts, await _rows_of_posts(connection, given, now), _MERGE_POST)


async def posts_at_once(connection: AsyncConnection, given: Sequence[Post], now: datetime) -> Sequence[Part]:
    """What `write_posts` does, as a part of one statement."""
    return [insert_part(connection, posts, await _rows_of_posts(connection, given, now), _MERGE_POST)]


async def _rows_of_posts(connection: AsyncConnection, given: Sequence[Post], now: datetime) -> list[tuple[Any, ...]]:
    when = partial(moment, connection.dialect.name)
    wanted = _latest(given)
    ingests = await _ingests_of(connection, wanted.values())
    return [_post(post, when(now), when(post.created_at), ingests.get(key)) for key, post in wanted.items()]


def _post(post: Post, now: Any, created_at: Any, ingest_id: int | None) -> tuple[Any, ...]:
    """One row in the order of the table's columns, as the driver takes it: most of all rows are posts."""
    reference = post.reposted or post.quoted
    whole = storable(post.one_line)
    clean = whole[:LONGEST_CLEAN_TEXT]
    return (
        str(post.platform),
        post.id,
        post.author_id,
        storable(post.text),
        clean,
        search_text(whole) or (None if whole == clean else whole),  # also finds words that are cut off
        storable(post.lang),
        storable(post.url),
        created_at,
        post.conversation_id,
        post.in_reply_to_id,
        post.in_reply_to_user_id,
        post.quoted.id if post.quoted else None,
        post.reposted.id if post.reposted else None,
        storable(reference.text) if reference else None,
        storable(reference.author_handle) if reference else None,
        _listed(reference.media) if reference else None,
        _listed(post.media),
        _listed(post.links),
        *astuple(post.metrics),
        post.nested,
        post.raw.decode("utf-8", "replace"),
        now,
        now,
        ingest_id,
        storable(reference.text_clean) if reference else None,
    )


def _listed(values: Sequence[Media] | Sequence[LinkMention]) -> str | None:
    return _encode(values).decode() if values else None


async def write_missing(connection: AsyncConnection, given: Sequence[Missing], now: datetime) -> None:
    found = {(each.platform, each.what, each.id): each for each in given}
    rows = [{**asdict(each), "asked_at": now} for _, each in sorted(found.items())]
    adding = insert_of(connection.dialect.name)(missing)
    again = {
        "reason": adding.excluded.reason,
        "asked_at": adding.excluded.asked_at,
        "times_asked": missing.c.times_asked + 1,
    }
    await connection.execute(adding.on_conflict_do_update(index_elements=["platform", "what", "id"], set_=again), rows)


async def write_quarantine(connection: AsyncConnection, given: Sequence[Unreadable], now: datetime) -> None:
    """The same payload is stored once, however often it arrives."""
    found = {(each.platform, each.endpoint, hashlib.sha256(each.payload).hexdigest()): each for each in given}
    rows = [
        {
            "platform": platform,
            "endpoint": endpoint,
            "digest": digest,
            "problem": storable(each.problem),
            "payload": each.payload,
            "first_seen_at": now,
            "last_seen_at": now,
        }
        for (platform, endpoint, digest), each in sorted(found.items(), key=lambda item: item[0])
    ]
    adding = insert_of(connection.dialect.name)(quarantine)
    again = {
        "problem": adding.excluded.problem,
        "last_seen_at": adding.excluded.last_seen_at,
        "times_seen": quarantine.c.times_seen + 1,
    }
    where = ["platform", "endpoint", "digest"]
    await connection.execute(adding.on_conflict_do_update(index_elements=where, set_=again), rows)


def _handle_key(handle: str | None) -> str | None:
    return handle.lower() if handle else None


Id = TypeVar("Id", UserId, PostId)


async def stored_users(database: Database, platform: Platform, ids: Collection[UserId]) -> set[UserId]:
    """The stored ones. Users known only as unavailable are left out, so that a caller fetches them again."""
    own = users.c
    return await _stored(
        database, users, platform, ids, own.unavailable_reason.is_(None) | own.profiled_at.is_not(None)
    )


async def stored_posts(database: Database, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
    return await _stored(database, posts, platform, ids)


async def _stored(
    database: Database, table: Table, platform: Platform, ids: Collection[Id], *conditions: ColumnElement[bool]
) -> set[Id]:
    found: set[Id] = set()
    async with database.read() as connection:
        for each in slices(sorted(ids)):
            asked = select(table.c.id).where(table.c.platform == platform, table.c.id.in_(each), *conditions)
            found.update((await connection.execute(asked)).scalars())
    return found
