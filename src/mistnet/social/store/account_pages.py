"""Accounts as the dashboard shows them: a page of many, and one with its past, its rhythm and its posts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, func, or_, select

from mistnet.kit.database import Database
from mistnet.kit.statements import run
from mistnet.kit.text import read_number
from mistnet.social.accounts import AccountState
from mistnet.social.coverage.model import AccountProgress
from mistnet.social.coverage.store import PROGRESS
from mistnet.social.fetch_sizes import FetchRules, FetchStats
from mistnet.social.model import UserId, X
from mistnet.social.post_order import NEWEST_FIRST, PostCursor, older_than
from mistnet.social.store.post_listing import POST_FIELDS, ShownPost, shown
from mistnet.social.tables import accounts, posts, user_versions, users

_HEAT_POSTS: Final = 20_000


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One account in a list."""

    progress: AccountProgress
    name: str | None

    @property
    def place(self) -> str:
        """Where the next page begins."""
        return f"{self.progress.user_id}-{(self.progress.handle or '').lower()}"


class AccountFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which accounts to list. `after` is the place of the last one seen."""

    words: str = ""
    state: AccountState | None = None
    after: str | None = None
    limit: int = 50


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """What a user showed until then."""

    until: datetime
    handle: str | None
    name: str | None
    bio: str | None


class AccountProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What upstream says of a user, and what looking for his new posts has brought so far."""

    user_id: UserId
    handle: str | None
    name: str | None
    bio: str | None
    location: str | None
    website: str | None
    verified: bool | None
    followers_count: int | None
    following_count: int | None
    posts_count: int | None
    created_at: datetime | None
    profiled_at: datetime | None
    state_since: datetime
    next_look_at: datetime | None
    fetches: int
    empty_fetches: int
    posts_found: int
    last_fetched_count: int | None
    last_new_count: int | None
    new_rate: float
    fetch_limit: int | None

    @property
    def expected(self) -> float:
        """How many new posts a look brings on average."""
        return FetchStats(avg_new_rate=self.new_rate).expected(FetchRules())


class AccountPages:
    """Reads. No count of posts: those come from elsewhere."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: AccountFilter) -> Sequence[Listed]:
        """By handle. A page is stable while accounts come and go."""
        asked = _narrowed(PROGRESS.add_columns(users.c.name), wanted).limit(wanted.limit)
        async with self._database.read() as connection:
            return [_listed(row) for row in (await connection.execute(asked)).mappings()]

    async def progress(self, user_id: UserId) -> Listed | None:
        asked = PROGRESS.add_columns(users.c.name).where(accounts.c.user_id == user_id)
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).mappings().first()
        return _listed(row) if row else None

    async def profile(self, user_id: UserId) -> AccountProfile | None:
        async with self._database.read() as connection:
            row = (await connection.execute(_PROFILE.where(accounts.c.user_id == user_id))).mappings().first()
        return AccountProfile(**row) if row else None

    async def versions(self, user_id: UserId, limit: int = 50) -> Sequence[Version]:
        """The latest first."""
        asked = (
            select(*(user_versions.c[name] for name in Version.__struct_fields__))
            .where(user_versions.c.platform == X, user_versions.c.user_id == user_id)
            .order_by(user_versions.c.until.desc())
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [Version(**row) for row in (await connection.execute(asked)).mappings()]

    async def hours(self, user_id: UserId) -> Mapping[int, int]:
        """In which hours of the week (UTC, Monday's first is 0) the latest posts were written, read off their ids."""
        async with self._database.read() as connection:
            binds = {"platform": X, "user_id": user_id, "limit": _HEAT_POSTS}
            rows = await run(connection, "hours", binds)
            return {int(row.hour): row.posts for row in rows}

    async def posts(self, user_id: UserId, *, before: PostCursor | None, limit: int) -> Sequence[ShownPost]:
        """Newest first; the cursor of the last post of one page is the `before` of the next."""
        asked = (
            select(*POST_FIELDS)
            .join(users, (users.c.platform == posts.c.platform) & (users.c.id == posts.c.author_id))
            .where(posts.c.platform == X, posts.c.author_id == user_id)
            .order_by(*NEWEST_FIRST)
            .limit(limit)
        )
        if before is not None:
            asked = asked.where(older_than(before))
        async with self._database.read() as connection:
            return [shown(row) for row in (await connection.execute(asked)).mappings()]


def _narrowed(asked: Select[Any], wanted: AccountFilter) -> Select[Any]:
    if wanted.state is not None:
        asked = asked.where(accounts.c.state == wanted.state)
    words = wanted.words.strip().removeprefix("@").lower()
    if words:
        named = func.lower(users.c.name).contains(words, autoescape=True)
        asked = asked.where(or_(users.c.handle_key.contains(words, autoescape=True), named))
    written, _, key = (wanted.after or "").partition("-")
    if (user_id := read_number(written)) is not None:
        handle = func.coalesce(users.c.handle_key, "")
        asked = asked.where(or_(handle > key, and_(handle == key, accounts.c.user_id > user_id)))
    return asked.order_by(None).order_by(func.coalesce(users.c.handle_key, ""), accounts.c.user_id)


def _listed(row: Mapping[Any, Any]) -> Listed:
    told = {name: row[name] for name in row if name != "name"}
    return Listed(progress=AccountProgress(**{**told, "state": AccountState(row["state"])}), name=row["name"])


_PROFILE: Final = (
    select(
        accounts.c.user_id,
        *(users.c[name] for name in AccountProfile.__struct_fields__ if name in users.c),
        *(accounts.c[name] for name in AccountProfile.__struct_fields__ if name in accounts.c and name != "user_id"),
    )
    .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
    .where(accounts.c.platform == X)
)


class KnownUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user as the latest payloads show him."""

    id: UserId
    handle: str | None
    name: str | None
    bio: str | None
    location: str | None
    website: str | None
    avatar_url: str | None
    banner_url: str | None
    verified: bool | None
    verified_kind: str | None
    protected: bool | None
    automated: bool | None
    followers_count: int | None
    following_count: int | None
    posts_count: int | None
    media_count: int | None
    likes_count: int | None
    created_at: datetime | None
    unavailable_reason: str | None
    detail: str
    first_seen_at: datetime
    last_updated_at: datetime
    profiled_at: datetime | None


class UserVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a user showed until then."""

    until: datetime
    handle: str | None
    name: str | None
    bio: str | None
    avatar_url: str | None


class People:
    """Reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def by_id(self, user_id: UserId) -> KnownUser | None:
        return await self._one(_USER.where(users.c.id == user_id))

    async def called(self, handle: str) -> KnownUser | None:
        """Who goes by this handle; of several, the one that showed it last."""
        own = _USER.where(users.c.handle_key == handle.lower())
        return await self._one(own.order_by(users.c.last_updated_at.desc(), users.c.id).limit(1))

    async def versions(self, user_id: UserId, *, before: datetime | None, limit: int) -> Sequence[UserVersion]:
        """The latest first."""
        own = user_versions.c
        asked = select(*(own[name] for name in UserVersion.__struct_fields__)).where(
            own.platform == X, own.user_id == user_id
        )
        if before is not None:
            asked = asked.where(own.until < before)
        async with self._database.read() as connection:
            rows = await connection.execute(asked.order_by(own.until.desc()).limit(limit))
            return [UserVersion(**row) for row in rows.mappings()]

    async def _one(self, asked: Select[Any]) -> KnownUser | None:
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).mappings().first()
        return KnownUser(**row) if row else None


_USER: Final = select(*(users.c[name] for name in KnownUser.__struct_fields__)).where(users.c.platform == X)
