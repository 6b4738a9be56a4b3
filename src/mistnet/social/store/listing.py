"""Pages of accounts, suggestions and payloads that could not be read, each by its id: stable under inserts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, Text, cast, func, or_, select

from mistnet.kit.database import Database
from mistnet.queue.tables import jobs
from mistnet.social.accounts import AccountState
from mistnet.social.fetch_sizes import FetchStats
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.account_jobs import live_sweeps
from mistnet.social.store.fetch_sizes import STATISTICS, stats_of
from mistnet.social.store.tracking import Suggestion
from mistnet.social.tables import accounts, posts, quarantine, suggestions, users

_LARGEST_ID: Final = 2**63 - 1


class AccountLine(msgspec.Struct, frozen=True, kw_only=True):
    """One account, with what looking for its new posts has brought so far."""

    user_id: UserId
    handle: str | None
    name: str | None
    state: AccountState
    state_reason: str | None
    state_since: datetime
    tracked_at: datetime
    backfilled_at: datetime | None
    oldest_post_id: PostId | None
    newest_post_id: PostId | None
    next_look_at: datetime | None
    suspect_since: datetime | None
    posts_found: int
    profile_posts: int | None
    followers: int | None
    fetch: FetchStats


class QuarantineLine(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that could not be read, without the payload."""

    id: int
    platform: str
    endpoint: str
    problem: str
    first_seen_at: datetime
    last_seen_at: datetime
    times_seen: int
    resolved_at: datetime | None


class AccountListing:
    """Reads. The last id of one page is where the next begins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accounts(
        self, *, words: str = "", state: AccountState | None = None, after: int = 0, limit: int
    ) -> Sequence[AccountLine]:
        """By user id, the oldest user first."""
        asked = _ACCOUNTS.where(accounts.c.user_id > after).order_by(accounts.c.user_id).limit(limit)
        if state is not None:
            asked = asked.where(accounts.c.state == state)
        if word := words.strip().removeprefix("@").lower():
            named = func.lower(users.c.name).contains(word, autoescape=True)
            asked = asked.where(or_(users.c.handle_key.contains(word, autoescape=True), named))
        return await self._accounts(asked)

    async def stored_posts(self, user_id: UserId, *, most: int) -> int:
        """How many posts of an account there are, counted no further than `most`."""
        some = select(posts.c.id).where(posts.c.platform == X, posts.c.author_id == user_id).limit(most).subquery()
        async with self._database.read() as connection:
            return (await connection.execute(select(func.count()).select_from(some))).scalar_one()

    async def live_jobs(self, user_id: UserId) -> Mapping[str, int]:
        """How many sweeps of each kind are alive for one account."""
        async with self._database.read() as connection:
            ids = await live_sweeps(connection, user_id)
            kinds = (await connection.execute(select(jobs.c.kind).where(jobs.c.id.in_(ids)))).scalars()
            return Counter(kinds)

    async def account(self, user_id: UserId) -> AccountLine | None:
        found = await self._accounts(_ACCOUNTS.where(accounts.c.user_id == user_id))
        return found[0] if found else None

    async def account_called(self, handle: str) -> AccountLine | None:
        """Who goes by this handle now; of several, the one that showed it last."""
        own = users.c.handle_key == handle.lower()
        found = await self._accounts(_ACCOUNTS.where(own).order_by(users.c.last_updated_at.desc(), users.c.id))
        return next((each for each in found if each.state is not AccountState.UNTRACKED), found[0] if found else None)

    async def suggestions(self, *, live_only: bool, before: int = _LARGEST_ID, limit: int) -> Sequence[Suggestion]:
        """The latest first."""
        plain = [suggestions.c[name] for name in Suggestion.__struct_fields__ if name != "labels"]
        asked = (
            select(*plain, cast(suggestions.c.labels, Text).label("labels"))
            .where(suggestions.c.platform == X, suggestions.c.id < before)
            .order_by(suggestions.c.id.desc())
            .limit(limit)
        )
        if live_only:
            asked = asked.where(suggestions.c.deleted_at.is_(None))
        rows = await self._rows(asked)
        return [Suggestion(**{**row, "labels": msgspec.Raw(str(row["labels"]).encode())}) for row in rows]

    async def quarantine(
        self, *, unresolved_only: bool, before: int = _LARGEST_ID, limit: int
    ) -> Sequence[QuarantineLine]:
        """The latest first."""
        asked = _KEPT.where(quarantine.c.id < before).order_by(quarantine.c.id.desc()).limit(limit)
        if unresolved_only:
            asked = asked.where(quarantine.c.resolved_at.is_(None))
        return [QuarantineLine(**row) for row in await self._rows(asked)]

    async def quarantined(self, kept_id: int) -> tuple[QuarantineLine, bytes] | None:
        """One of them with its payload."""
        rows = await self._rows(_KEPT.add_columns(quarantine.c.payload).where(quarantine.c.id == kept_id))
        if not rows:
            return None
        row = dict(rows[0])
        payload = bytes(row.pop("payload"))
        return QuarantineLine(**row), payload

    async def _accounts(self, asked: Select[Any]) -> list[AccountLine]:
        rows = await self._rows(asked)
        plain = [name for name in AccountLine.__struct_fields__ if name not in ("fetch", "state")]
        return [
            AccountLine(**{name: row[name] for name in plain}, state=AccountState(row["state"]), fetch=stats_of(row))
            for row in rows
        ]

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


_OWN: Final = (
    *("user_id", "state", "state_reason", "state_since", "tracked_at", "backfilled_at"),
    *("oldest_post_id", "newest_post_id", "next_look_at", "suspect_since", "posts_found"),
)
_ACCOUNTS: Final = (
    select(
        *(accounts.c[name] for name in _OWN),
        *STATISTICS,
        users.c.handle,
        users.c.name,
        users.c.posts_count.label("profile_posts"),
        users.c.followers_count.label("followers"),
    )
    .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
    .where(accounts.c.platform == X)
)
_KEPT: Final = select(*(quarantine.c[name] for name in QuarantineLine.__struct_fields__))
