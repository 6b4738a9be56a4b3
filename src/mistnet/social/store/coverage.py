"""Reads how much of accounts and conversations is stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Select, func, select

from mistnet.kit.database import Database
from mistnet.kit.statements import run
from mistnet.queue.model import JobId, JobState
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import (
    TIMED_IDS,
    AccountProgress,
    Conversation,
    MissingParent,
    Sweep,
    SweepKind,
    Walk,
)
from mistnet.social.jobs.args import key_of
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.store.post_listing import stored_platforms
from mistnet.social.tables import accounts, posts, user_versions, users

_oldest, _newest = posts.alias("oldest"), posts.alias("newest")


class _SweepArgs(msgspec.Struct, frozen=True):
    """Fields of the args of sweeps."""

    user_id: UserId
    platform: Platform = X
    floor: PostId = PostId(0)
    ceiling: PostId | None = None
    top: PostId | None = None
    mending: bool = False


class _WalkArgs(msgspec.Struct, frozen=True):
    reply_id: PostId
    next_id: PostId


class Coverage:
    """Reads for one platform. Nothing is locked, so parts may be from different moments."""

    def __init__(self, database: Database, platform: Platform = X) -> None:
        self._database = database
        self._platform = platform

    async def accounts(self) -> Sequence[AccountProgress]:
        """All accounts ever tracked, by handle."""
        return await self._progress(_COUNTED, await self.sweeps())

    async def account(self, handle: str) -> AccountProgress | None:
        """The account with this current handle."""
        wanted = _COUNTED.where(users.c.handle_key == handle.lower())
        found = await self._progress(wanted, ())
        if not found:
            return None
        newest = max(found, key=lambda each: each.tracked_at)
        return msgspec.structs.replace(newest, sweeps=await self.sweeps(newest.user_id))

    async def account_by_id(self, user_id: UserId) -> AccountProgress | None:
        found = await self._progress(_COUNTED.where(accounts.c.user_id == user_id), await self.sweeps(user_id))
        return found[0] if found else None

    async def handles(self) -> Sequence[str]:
        asked = select(users.c.handle).join(accounts, _SAME_USER)
        asked = asked.where(users.c.platform == self._platform, users.c.handle.is_not(None))
        return [row["handle"] for row in await self._database.fetch_rows(asked)]

    async def now_called(self, handle: str) -> str | None:
        """The current handle of an account that once had this one."""
        asked = (
            select(users.c.handle)
            .join(
                user_versions, (user_versions.c.platform == users.c.platform) & (user_versions.c.user_id == users.c.id)
            )
            .join(accounts, _SAME_USER)
            .where(user_versions.c.platform == self._platform, user_versions.c.handle_key == handle.lower())
            .order_by(user_versions.c.until.desc())
            .limit(1)
        )
        async with self._database.read() as connection:
            return (await connection.execute(asked)).scalar_one_or_none()

    async def sweeps(self, user_id: UserId | None = None) -> Sequence[Sweep]:
        """Live and failed sweeps of one account, or of all."""
        key = key_of(self._platform, user_id) if user_id else None
        async with self._database.read() as connection:
            rows = (await run(connection, "sweeps", {"key": key, "mends": f"{key}:%"})).mappings().all()
        found = [
            Sweep(
                job_id=JobId(row["id"]),
                kind=SweepKind(row["kind"]),
                state=JobState(row["state"]),
                last_error=row["last_error"],
                wait_reason=row["wait_reason"],
                **msgspec.structs.asdict(msgspec.json.decode(row["args"], type=_SweepArgs)),
            )
            for row in sorted(rows, key=lambda row: int(row["id"]))
        ]
        return await self._timed([each for each in found if each.platform == self._platform])

    async def _timed(self, sweeps: Sequence[Sweep]) -> Sequence[Sweep]:
        """Where ids carry no time, the bounds of sweeps get those of the stored posts beside them."""
        if self._platform in TIMED_IDS or not sweeps:
            return sweeps
        ids = {each for sweep in sweeps for each in (sweep.floor, (sweep.ceiling or 0) + 1, sweep.top or 0)}
        asked = select(posts.c.id, posts.c.created_at).where(posts.c.platform == self._platform, posts.c.id.in_(ids))
        at = {row["id"]: row["created_at"] for row in await self._database.fetch_rows(asked)}
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
        counted = select(func.count(posts.c.reposted_id)).where(
            posts.c.platform == self._platform, posts.c.author_id == user_id
        )
        async with self._database.read() as connection:
            return (await connection.execute(counted)).scalar_one()

    async def platform_of(self, conversation_id: PostId) -> Platform:
        """The platform of a conversation: X, if several platforms have one with this id."""
        asked = select(posts.c.platform).where(posts.c.conversation_id == conversation_id).limit(1)
        async with self._database.read() as connection:
            for platform in await stored_platforms(connection):
                if (await connection.execute(asked.where(posts.c.platform == platform))).first():
                    return platform
        return X

    async def conversation(self, conversation_id: PostId, platform: Platform = X) -> Conversation:
        counted = select(func.count()).where(posts.c.platform == platform, posts.c.conversation_id == conversation_id)
        binds = {"platform": platform, "id": conversation_id}
        async with self._database.read() as connection:
            lost = (await run(connection, "lost_parents", binds)).mappings().all()
            prefix = key_of(platform, "")
            named = {**binds, "prefix": prefix, "walks": f"{prefix}{conversation_id}:%"}
            rows = (await run(connection, "walks_of", named)).mappings().all()
            stored = (await connection.execute(counted)).scalar_one()
        walks = [
            Walk(
                job_id=JobId(row["id"]),
                state=JobState(row["state"]),
                last_error=row["last_error"],
                **msgspec.structs.asdict(msgspec.json.decode(row["args"], type=_WalkArgs)),
            )
            for row in sorted(rows, key=lambda row: int(row["id"]))
        ]
        awaited = await self._awaited(platform, {walk.next_id for walk in walks if walk.alive}) if lost else set()
        parents = [
            MissingParent(**{**row, "gone": bool(row["gone"]), "awaited": row["post_id"] in awaited}) for row in lost
        ]
        return Conversation(
            platform=platform, conversation_id=conversation_id, posts=stored, parents=parents, walks=walks
        )

    async def conversation_of(self, post_id: PostId, platform: Platform | None = None) -> PostId | None:
        """The conversation of a stored post, on one platform or on the first that has this id."""
        asked = select(posts.c.conversation_id).where(posts.c.id == post_id)
        async with self._database.read() as connection:
            for each in await stored_platforms(connection) if platform is None else [platform]:
                found = (await connection.execute(asked.where(posts.c.platform == each))).scalar_one_or_none()
                if found is not None:
                    return PostId(found)
        return None

    async def _awaited(self, platform: Platform, next_ids: Collection[PostId]) -> set[PostId]:
        """The posts that live walks will fetch: for each, the first one up that is not stored."""
        binds = {"platform": platform, "ids": sorted(next_ids)}
        async with self._database.read() as connection:
            rows = await run(connection, "frontiers", binds)
            return {PostId(row.id) for row in rows}

    async def _progress(self, wanted: Select[Any], sweeps: Sequence[Sweep]) -> Sequence[AccountProgress]:
        async with self._database.read() as connection:
            wanted = wanted.where(accounts.c.platform == self._platform)
            rows = (await connection.execute(wanted)).mappings().all()
        by_account: dict[UserId, list[Sweep]] = {}
        for sweep in sweeps:
            by_account.setdefault(sweep.user_id, []).append(sweep)
        return [
            AccountProgress(**{**row, "state": AccountState(row["state"])}, sweeps=by_account.get(row["user_id"], ()))
            for row in rows
        ]


_SAME_USER: Final = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)
PROGRESS: Final = (
    select(
        accounts.c.platform,
        accounts.c.user_id,
        users.c.handle,
        accounts.c.state,
        accounts.c.state_reason,
        accounts.c.tracked_at,
        users.c.created_at.label("born_at"),
        accounts.c.oldest_post_id,
        _oldest.c.created_at.label("oldest_post_at"),
        accounts.c.newest_post_id,
        _newest.c.created_at.label("newest_post_at"),
        accounts.c.newest_repost_id,
        accounts.c.backfilled_at,
        accounts.c.reposts_backfilled_at,
        accounts.c.last_fetched_at,
        users.c.profiled_at,
        users.c.posts_count,
        accounts.c.suspect_since,
        accounts.c.next_look_at,
    )
    .join(users, _SAME_USER)
    .outerjoin(_oldest, (_oldest.c.platform == accounts.c.platform) & (_oldest.c.id == accounts.c.oldest_post_id))
    .outerjoin(_newest, (_newest.c.platform == accounts.c.platform) & (_newest.c.id == accounts.c.newest_post_id))
    .order_by(users.c.handle_key, accounts.c.user_id)
)
"""The progress of accounts, without the number of their posts, which is slow to count."""

_COUNTED: Final = PROGRESS.add_columns(
    select(func.count())
    .where(posts.c.platform == accounts.c.platform, posts.c.author_id == accounts.c.user_id)
    .scalar_subquery()
    .label("stored")
)
