"""Writes the state and progress of accounts and suggestions, and reads what handlers need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, bindparam, case, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of, run, statement
from mistnet.kit.types import UtcTime
from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.outbox import write_events
from mistnet.social.accounts import (
    Account,
    AccountState,
    AccountStateChange,
    AccountTracked,
    Fetched,
    FetchStats,
    Frontier,
    HistoryJudged,
    StoredProfile,
    SuggestionClosed,
    Swept,
    after,
)
from mistnet.social.coverage import SUSPECT_LOOKS
from mistnet.social.jobs.args import key_of, platform_and_key
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.store.quarantine import gaps_among
from mistnet.social.tables import accounts, posts, suggestions, users

STATISTICS: Final = (
    accounts.c.last_fetched_at,
    accounts.c.last_fetched_count,
    accounts.c.last_new_count,
    accounts.c.fetches,
    accounts.c.new_rate,
    accounts.c.empty_fetches,
    accounts.c.fetch_limit,
)
"""The columns that `stats_of` reads."""


async def write_tracked(connection: AsyncConnection, given: Sequence[AccountTracked], now: datetime) -> None:
    """Tracked accounts keep their progress; untracked ones are reactivated."""
    insert = insert_of(connection.dialect.name)(accounts)
    adding = insert.on_conflict_do_update(
        index_elements=["platform", "user_id"],
        set_={"state": AccountState.ACTIVE, "state_since": now, "state_reason": None, "next_look_at": None},
        where=accounts.c.state != AccountState.ACTIVE,
    )
    rows = [
        {
            "platform": each.platform,
            "user_id": each.user_id,
            "state": AccountState.ACTIVE,
            "state_since": now,
            "tracked_at": now,
        }
        for each in sorted({(each.platform, each.user_id): each for each in given}.values(), key=lambda e: e.user_id)
    ]
    await connection.execute(adding, rows)


async def write_state_changes(connection: AsyncConnection, given: Sequence[AccountStateChange], now: datetime) -> None:
    """An untracked account stays untracked, whatever a late sweep reports."""
    for each in sorted(given, key=lambda each: each.user_id):
        events = await _state_events(connection, each)
        values = {
            "platform": each.platform,
            "user_id": each.user_id,
            "state": each.state,
            "reason": each.reason,
            "next_look_at": each.next_look_at,
            "now": now,
        }
        await run(connection, "change_account_state", values)
        await write_events(connection, events, now)


async def _state_events(connection: AsyncConnection, change: AccountStateChange) -> list[NewEvent]:
    """The event of a real change. The account stays locked, so that each change is reported once."""
    binds = {"of_platform": change.platform, "of_user": change.user_id}
    row = (await connection.execute(_STATE, binds)).first()
    if row is None or row.state in (change.state, AccountState.UNTRACKED):
        return []
    payload = {
        "user_id": str(change.user_id),
        "handle": row.handle,
        "state": str(change.state),
        "was": row.state,
        "reason": change.reason,
    }
    return [NewEvent(kind=EventKind.ACCOUNT_STATE_CHANGED, subject=str(change.user_id), payload=payload)]


async def write_swept(connection: AsyncConnection, given: Sequence[Swept], now: datetime) -> None:
    rows = [
        {
            "platform": each.platform,
            "user_id": each.user_id,
            "oldest": each.oldest,
            "newest": each.newest,
            "newest_repost": each.newest_repost,
            "backfilled": each.backfilled,
            "reposts_backfilled": each.reposts_backfilled,
            "found": each.found,
            "now": now,
        }
        for each in sorted(given, key=lambda each: each.user_id)
    ]
    await run(connection, "move_boundaries", rows)


async def write_judged(connection: AsyncConnection, given: Sequence[HistoryJudged], now: datetime) -> None:
    """A suspect account gets a next check; one that is no longer suspect has none."""
    for each in sorted(given, key=lambda each: each.user_id):
        own = (accounts.c.platform == each.platform) & (accounts.c.user_id == each.user_id)
        doubted = {
            "suspect_since": func.coalesce(accounts.c.suspect_since, literal(now, UtcTime)),
            "next_look_at": func.coalesce(accounts.c.next_look_at, literal(now + SUSPECT_LOOKS[0], UtcTime)),
        }
        cleared = {"suspect_since": None, "suspect_looks": 0, "next_look_at": None}
        judged = update(accounts).where(own, accounts.c.state == AccountState.ACTIVE)
        await connection.execute(judged.values(doubted if each.suspect else cleared))


async def write_closed_suggestions(
    connection: AsyncConnection, given: Sequence[SuggestionClosed], now: datetime
) -> None:
    for each in given:
        await connection.execute(
            update(suggestions)
            .where(
                suggestions.c.platform == each.platform,
                suggestions.c.handle_key == each.handle.lower(),
                suggestions.c.deleted_at.is_(None),
            )
            .values(
                deleted_at=now,
                outcome="accepted" if each.accepted else "refused",
                reason=each.reason,
                user_id=each.user_id,
            )
        )


async def tracked_handles(database: Database, platform: Platform = X) -> Mapping[UserId, str]:
    """The current handle of every account."""
    person = (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id)
    asked = select(accounts.c.user_id, users.c.handle).join(users, person)
    asked = asked.where(accounts.c.platform == platform, users.c.handle.is_not(None))
    async with database.read() as connection:
        return {UserId(row.user_id): row.handle for row in await connection.execute(asked)}


async def accounts_to_look_at(
    connection: AsyncConnection, *, now: datetime, next_at: datetime
) -> Sequence[tuple[Platform, UserId]]:
    """Takes the accounts whose next check is due, and sets the time of the one after."""
    taken = await connection.execute(
        update(accounts)
        .where(
            accounts.c.next_look_at <= now,
            accounts.c.state.not_in([AccountState.ACTIVE, AccountState.UNTRACKED]),
        )
        .values(next_look_at=next_at)
        .returning(accounts.c.platform, accounts.c.user_id)
    )
    return sorted((Platform(row.platform), UserId(row.user_id)) for row in taken)


async def suspects_to_look_at(connection: AsyncConnection, *, now: datetime) -> Sequence[tuple[Platform, UserId]]:
    """Takes the suspect accounts whose next check is due. Each check is followed by a longer wait."""
    waits = dict(enumerate(SUSPECT_LOOKS[1:]))
    taken = await connection.execute(
        update(accounts)
        .where(
            accounts.c.next_look_at <= now,
            accounts.c.state == AccountState.ACTIVE,
            accounts.c.suspect_since.is_not(None),
        )
        .values(
            next_look_at=case(
                {looks: literal(now + wait, UtcTime) for looks, wait in waits.items()},
                value=accounts.c.suspect_looks,
                else_=literal(now + SUSPECT_LOOKS[-1], UtcTime),
            ),
            suspect_looks=accounts.c.suspect_looks + 1,
        )
        .returning(accounts.c.platform, accounts.c.user_id)
    )
    return sorted((Platform(row.platform), UserId(row.user_id)) for row in taken)


_ACCOUNT: Final = (
    select(
        accounts.c.platform,
        accounts.c.user_id,
        users.c.handle,
        accounts.c.state,
        accounts.c.oldest_post_id,
        accounts.c.newest_post_id,
        accounts.c.newest_repost_id,
        accounts.c.backfilled_at,
        accounts.c.reposts_backfilled_at,
        users.c.profiled_at,
        users.c.posts_count,
        accounts.c.suspect_since,
        *(column for column in STATISTICS),
    )
    .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
    .where(accounts.c.platform == bindparam("of_platform"), accounts.c.user_id == bindparam("of_user"))
)


_STATE: Final = (
    select(accounts.c.state, users.c.handle)
    .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
    .where(accounts.c.platform == bindparam("of_platform"), accounts.c.user_id == bindparam("of_user"))
    .with_for_update(of=accounts)
)


class StoreLook:
    """Reads for handlers. Each read is independent of the others."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def account(self, platform: Platform, user_id: UserId) -> Account | None:
        rows = await self._database.fetch_prepared(_ACCOUNT, {"of_platform": platform, "of_user": user_id})
        if not rows:
            return None
        row = rows[0]._asdict()
        own = {name: value for name, value in row.items() if name in Account.__struct_fields__}
        known = {"platform": Platform(row["platform"]), "state": AccountState(row["state"]), "fetch": stats_of(row)}
        return Account(**{**own, **known})

    async def frontiers(self, platform: Platform, ids: Collection[PostId]) -> Mapping[PostId, Frontier]:
        if not ids:
            return {}
        binds = {"platform": platform, "ids": sorted(ids)}
        rows = await self._database.fetch_prepared(statement("frontiers", self._database.dialect), binds)
        return {row.start: Frontier(row.id, row.user_id) for row in rows}

    async def known_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        if not ids:
            return set()
        asked = select(posts.c.id).where(posts.c.platform == platform, posts.c.id.in_(sorted(ids)))
        async with self._database.read_quickly() as connection:
            return {PostId(each) for each in (await connection.execute(asked)).scalars()}

    async def stored_posts(self, platform: Platform, user_id: UserId, *, most: int) -> int:
        own = (posts.c.platform == platform) & (posts.c.author_id == user_id)
        some = select(posts.c.id).where(own).limit(most).subquery()
        async with self._database.read_quickly() as connection:
            return (await connection.execute(select(func.count()).select_from(some))).scalar_one()

    async def unreadable_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        if not ids:
            return set()
        async with self._database.read_quickly() as connection:
            return await gaps_among(connection, platform, ids)

    async def new_posts(
        self, platform: Platform, user_id: UserId, *, above: PostId, stored_since: datetime
    ) -> Sequence[PostId]:
        asked = (
            select(posts.c.id)
            .where(posts.c.platform == platform, posts.c.author_id == user_id, posts.c.id > above)
            .where(posts.c.first_seen_at >= stored_since, posts.c.reposted_id.is_(None))
            .order_by(posts.c.id)
        )
        async with self._database.read_quickly() as connection:
            return [PostId(each) for each in (await connection.execute(asked)).scalars()]

    async def known_users(self, platform: Platform, ids: Collection[UserId]) -> set[UserId]:
        if not ids:
            return set()
        binds = {"platform": platform, "ids": sorted(ids)}
        rows = await self._database.fetch_prepared(statement("known_users", self._database.dialect), binds)
        return {row.id for row in rows}

    async def profiles(self, platform: Platform, ids: Collection[UserId]) -> Mapping[UserId, StoredProfile]:
        """Those of these that are stored, with what a search needs to know of them."""
        asked = select(users.c.id, users.c.handle, users.c.profiled_at).where(
            users.c.platform == platform, users.c.id.in_(sorted(ids))
        )
        async with self._database.read_quickly() as connection:
            rows = await connection.execute(asked)
            return {UserId(row.id): StoredProfile(row.handle, row.profiled_at) for row in rows}

    async def being_backfilled(self, platform: Platform, user_ids: Collection[UserId]) -> set[UserId]:
        if not user_ids:
            return set()
        binds = {"keys": [key_of(platform, each) for each in sorted(user_ids)]}
        rows = await self._database.fetch_prepared(statement("being_backfilled", self._database.dialect), binds)
        return {UserId(int(platform_and_key(row.key)[1])) for row in rows}

    async def stalest_users(self, platform: Platform, limit: int, without: Collection[UserId]) -> Sequence[UserId]:
        asked = (
            select(users.c.id)
            .where(users.c.platform == platform)
            .order_by(users.c.profiled_at.asc().nulls_first(), users.c.id)
            .limit(limit + len(without))
        )
        async with self._database.read_quickly() as connection:
            found = (await connection.execute(asked)).scalars()
            return [each for each in found if each not in without][:limit]


def stats_of(row: Mapping[Any, Any]) -> FetchStats:
    """The statistics in a row that has the columns of STATISTICS."""
    return FetchStats(
        # A sweep of the past moves the column as well. Only fetches that are counted have a time here.
        last_fetch_at=row["last_fetched_at"] if row["fetches"] else None,
        last_fetched_count=row["last_fetched_count"] or 0,
        last_new_count=row["last_new_count"] or 0,
        total_fetches=row["fetches"],
        avg_new_rate=row["new_rate"],
        consecutive_empty_fetches=row["empty_fetches"],
        last_limit=row["fetch_limit"],
    )


async def fetch_stats(database: Database, platform: Platform = X) -> Mapping[UserId, FetchStats]:
    """Of every account."""
    asked = select(accounts.c.user_id, *STATISTICS).where(accounts.c.platform == platform)
    return {UserId(row["user_id"]): stats_of(row) for row in await database.fetch_rows(asked)}


async def write_fetched(connection: AsyncConnection, given: Sequence[Fetched], now: datetime) -> None:
    """Each on top of what was known, in the order all writers share."""
    for each in sorted(given, key=lambda each: (each.platform, each.user_id)):
        own = {"of_platform": each.platform, "of_user": each.user_id}
        known = (await connection.execute(_FETCH_STATS, own)).mappings().first()
        if known is not None:
            stats = after(stats_of(known), fetched=each.fetched, new=each.new, limit=each.limit, at=now)
            values = {
                **own,
                "new_last_fetched_at": stats.last_fetch_at,
                "new_last_fetched_count": stats.last_fetched_count,
                "new_last_new_count": stats.last_new_count,
                "new_fetches": stats.total_fetches,
                "new_new_rate": stats.avg_new_rate,
                "new_empty_fetches": stats.consecutive_empty_fetches,
                "new_fetch_limit": stats.last_limit,
            }
            await connection.execute(_KEEP_FETCH_STATS, values)


_FETCH_STATS: Final[Select[Any]] = (
    select(*STATISTICS)
    .where(accounts.c.platform == bindparam("of_platform"), accounts.c.user_id == bindparam("of_user"))
    .with_for_update()
)
_KEEP_FETCH_STATS: Final = (
    update(accounts)
    .where(accounts.c.platform == bindparam("of_platform"), accounts.c.user_id == bindparam("of_user"))
    .values({column.name: bindparam(f"new_{column.name}") for column in STATISTICS})
)
