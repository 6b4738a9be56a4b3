"""Reads how much of accounts and conversations is stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import ColumnElement, func, select

from mistnet.kit.database import Database
from mistnet.kit.statements import run, statement
from mistnet.kit.view import View, columns_of, record_of
from mistnet.social.coverage import (
    TIMED_IDS,
    AccountProgress,
    Conversation,
    MissingParent,
    Sweep,
    Walk,
)
from mistnet.social.jobs.args import key_of
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.store.accounts import StoreLook, slices, stored_posts_of
from mistnet.social.store.post_listing import stored_platforms
from mistnet.social.tables import IS_USER_OF_ACCOUNT, accounts, posts, user_versions, users

_oldest, _newest = posts.alias("oldest"), posts.alias("newest")


R = TypeVar("R")


class Coverage:
    """Reads for one platform. Nothing is locked, so parts may be from different moments."""

    def __init__(self, database: Database, platform: Platform = X) -> None:
        self._database = database
        self._platform = platform
        self._look = StoreLook(database)

    async def accounts(self, user_ids: Collection[UserId] | None = None) -> Sequence[AccountProgress]:
        """All accounts ever tracked, by handle, or these."""
        by_account = await self._sweeps_by_account()
        own = accounts.c.platform == self._platform
        parts = [own] if user_ids is None else [own & accounts.c.user_id.in_(each) for each in slices(sorted(user_ids))]
        found = [each for part in parts for each in await _ACCOUNTS.rows(self._database, part)]
        if any(each.backfilled_at is None and each.user_id not in by_account for each in found):
            # Accounts that were tracked after the first read have sweeps now; without them they would look missing.
            by_account = await self._sweeps_by_account() | by_account
        stored = await stored_posts_of(self._database, self._platform, [each.user_id for each in found])
        return [
            msgspec.structs.replace(each, sweeps=by_account.get(each.user_id, ()), stored=stored.get(each.user_id, 0))
            for each in found
        ]

    async def _sweeps_by_account(self) -> dict[UserId, list[Sweep]]:
        by_account: dict[UserId, list[Sweep]] = {}
        for sweep in await self.sweeps():
            by_account.setdefault(sweep.user_id, []).append(sweep)
        return by_account

    async def account(self, handle: str) -> AccountProgress | None:
        """The account with this current handle; of several, the one that was tracked last."""
        return await self._account(users.c.handle_key == handle.lower())

    async def account_by_id(self, user_id: UserId) -> AccountProgress | None:
        return await self._account(accounts.c.user_id == user_id)

    async def _account(self, condition: ColumnElement[bool]) -> AccountProgress | None:
        found = await _ACCOUNTS.rows(self._database, accounts.c.platform == self._platform, condition)
        if not found:
            return None
        newest = max(found, key=lambda each: each.tracked_at)
        stored = await stored_posts_of(self._database, self._platform, [newest.user_id])
        sweeps = await self.sweeps(newest.user_id)
        return msgspec.structs.replace(newest, sweeps=sweeps, stored=stored.get(newest.user_id, 0))

    async def handles(self) -> Sequence[str]:
        query = select(users.c.handle).join(accounts, IS_USER_OF_ACCOUNT)
        query = query.where(users.c.platform == self._platform, users.c.handle.is_not(None))
        return [row["handle"] for row in await self._database.fetch_rows(query)]

    async def now_called(self, handle: str) -> str | None:
        """The current handle of an account that once had this one."""
        query = (
            select(users.c.handle)
            .join(
                user_versions, (user_versions.c.platform == users.c.platform) & (user_versions.c.user_id == users.c.id)
            )
            .join(accounts, IS_USER_OF_ACCOUNT)
            .where(user_versions.c.platform == self._platform, user_versions.c.handle_key == handle.lower())
            .order_by(user_versions.c.until.desc())
            .limit(1)
        )
        found: str | None = await self._database.fetch_value(query)
        return found

    async def sweeps(self, user_id: UserId | None = None) -> Sequence[Sweep]:
        """Live and failed sweeps of one account, or of all."""
        key = key_of(self._platform, user_id) if user_id else None
        query = statement("sweeps", self._database.dialect)
        rows = await self._database.fetch_rows(query, {"key": key, "mends": f"{key}:%"})
        found = [_with_args(Sweep, row) for row in sorted(rows, key=lambda row: int(row["id"]))]
        sweeps = [each for each in found if each.platform == self._platform]
        if self._platform in TIMED_IDS or not sweeps:
            return sweeps
        # Where ids carry no time, the bounds of sweeps get those of the stored posts beside them.
        ids = {each for sweep in sweeps for each in (sweep.floor, (sweep.ceiling or 0) + 1, sweep.top or 0)}
        stored = select(posts.c.id, posts.c.created_at).where(posts.c.platform == self._platform, posts.c.id.in_(ids))
        at = {row["id"]: row["created_at"] for row in await self._database.fetch_rows(stored)}
        return [
            msgspec.structs.replace(
                sweep,
                floor_at=at.get(sweep.floor),
                ceiling_at=at.get((sweep.ceiling or 0) + 1),
                top_at=at.get(sweep.top),
            )
            for sweep in sweeps
        ]

    async def native_reposts(self, user_id: UserId) -> int:
        """The number of an account's stored native reposts."""
        own = (posts.c.platform == self._platform) & (posts.c.author_id == user_id)
        return int(await self._database.fetch_value(select(func.count(posts.c.reposted_id)).where(own)))

    async def platform_of(self, conversation_id: PostId) -> Platform:
        """The platform of a conversation: X, if several platforms have one with this id."""
        query = select(posts.c.platform).where(posts.c.conversation_id == conversation_id).limit(1)
        async with self._database.read() as connection:
            for platform in await stored_platforms(connection):
                if (await connection.execute(query.where(posts.c.platform == platform))).first():
                    return platform
        return X

    async def conversation(self, conversation_id: PostId, platform: Platform = X) -> Conversation:
        counted = select(func.count()).where(posts.c.platform == platform, posts.c.conversation_id == conversation_id)
        binds = {"platform": platform, "id": conversation_id}
        async with self._database.read() as connection:
            lost = (await run(connection, "lost_parents", binds)).mappings()
            prefix = key_of(platform, "")
            named = {**binds, "prefix": prefix, "walks": f"{prefix}{conversation_id}:%"}
            rows = (await run(connection, "walks_of", named)).mappings()
            stored = (await connection.execute(counted)).scalar_one()
        walks = [_with_args(Walk, row) for row in sorted(rows, key=lambda row: int(row["id"]))]
        awaited: set[PostId] = set()
        if lost:
            # The posts that live walks will fetch: for each, the first one up that is not stored.
            next_ids = {walk.next_id for walk in walks if walk.alive}
            awaited = {each.post_id for each in (await self._look.frontiers(platform, next_ids)).values()}
        parents = [record_of(MissingParent, {**row, "awaited": row["post_id"] in awaited}) for row in lost]
        return Conversation(
            platform=platform, conversation_id=conversation_id, posts=stored, parents=parents, walks=walks
        )

    async def conversation_of(self, post_id: PostId, platform: Platform | None = None) -> PostId | None:
        """The conversation of a stored post, on one platform or on the first that has this id."""
        query = select(posts.c.conversation_id).where(posts.c.id == post_id)
        async with self._database.read() as connection:
            for each in await stored_platforms(connection) if platform is None else [platform]:
                found = (await connection.execute(query.where(posts.c.platform == each))).scalar_one_or_none()
                if found is not None:
                    return PostId(found)
        return None


def _with_args(record: type[R], row: Mapping[Any, Any]) -> R:
    """A record of a job that also has fields of its arguments."""
    return record_of(record, {**msgspec.json.decode(row["args"]), **row, "job_id": row["id"]})


PROGRESS: Final = (
    select(
        *columns_of(AccountProgress, accounts),
        *columns_of(AccountProgress, users, without=("platform", "state")),
        users.c.created_at.label("born_at"),
        _oldest.c.created_at.label("oldest_post_at"),
        _newest.c.created_at.label("newest_post_at"),
    )
    .join(users, IS_USER_OF_ACCOUNT)
    .outerjoin(_oldest, (_oldest.c.platform == accounts.c.platform) & (_oldest.c.id == accounts.c.oldest_post_id))
    .outerjoin(_newest, (_newest.c.platform == accounts.c.platform) & (_newest.c.id == accounts.c.newest_post_id))
)
"""The progress of accounts, without the number of their posts and their sweeps."""

_ACCOUNTS: Final = View(AccountProgress, PROGRESS, users.c.handle_key, accounts.c.user_id, descending=False)
