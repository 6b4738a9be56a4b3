"""Accounts and suggestions: their jobs, their state and progress, and what handlers read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict, astuple
from sqlalchemy import Column, Select, Update, bindparam, case, func, literal, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database, Store
from mistnet.kit.merged import Part, part_of
from mistnet.kit.statements import insert_of, run, statement
from mistnet.kit.types import UtcTime
from mistnet.kit.view import columns_of, record_of
from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.model import LIVE_STATES, Enqueued, JobId, JobState, KindName, NewJob
from mistnet.queue.outbox import write_events
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import GAP, LIVE_KEY, jobs
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
from mistnet.social.jobs.args import (
    BACKFILL,
    CATCH_UP,
    HYDRATE_POST,
    HYDRATE_USER,
    RELOOK,
    REPOSTS,
    SUGGESTION,
    key_of,
    platform_and_key,
)
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.tables import IS_USER_OF_ACCOUNT, accounts, posts, suggestions, users

T = TypeVar("T")

SWEEPS: Final = (BACKFILL, CATCH_UP, REPOSTS, RELOOK)
"""Kinds whose jobs belong to one account. Their key is its key, or begins with it and a colon."""

# Both databases take about 32,000 parameters, and a row may need several.
_MANY: Final = 5_000

_COLUMN_OF: Final[Mapping[str, Column[Any]]] = {
    "last_fetch_at": accounts.c.last_fetched_at,
    "last_fetched_count": accounts.c.last_fetched_count,
    "last_new_count": accounts.c.last_new_count,
    "total_fetches": accounts.c.fetches,
    "avg_new_rate": accounts.c.new_rate,
    "consecutive_empty_fetches": accounts.c.empty_fetches,
    "last_limit": accounts.c.fetch_limit,
}
"""Where each field of FetchStats is stored."""

STATISTICS: Final = tuple(_COLUMN_OF.values())
"""The columns that `stats_of` reads."""


class SubjectJob(msgspec.Struct, frozen=True, kw_only=True):
    """The live or failed job of one subject, such as the poll of a feed."""

    id: JobId
    state: JobState
    wait_reason: str | None
    last_error: str | None

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


def slices(given: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices that fit into the parameters of one statement."""
    return (given[start : start + _MANY] for start in range(0, len(given), _MANY))


async def live_sweeps(connection: AsyncConnection, platform: Platform, user_id: UserId) -> list[JobId]:
    key = key_of(platform, user_id)
    own = or_(jobs.c.key == key, jobs.c.key.startswith(f"{key}:", autoescape=True))
    asked = select(jobs.c.id).where(jobs.c.kind.in_(SWEEPS), own, text(LIVE_KEY))
    return [JobId(each) for each in (await connection.execute(asked)).scalars()]


async def live_suggestions(connection: AsyncConnection, platform: Platform, handle: str) -> list[JobId]:
    asked = select(jobs.c.id).where(
        jobs.c.kind == SUGGESTION, jobs.c.key == key_of(platform, handle.lower()), text(LIVE_KEY)
    )
    return [JobId(each) for each in (await connection.execute(asked)).scalars()]


async def live_hydrations(
    connection: AsyncConnection, platform: Platform, user_ids: Collection[UserId], *, tracking: bool
) -> list[JobId]:
    """Live hydrations that also track the user, or those that do not."""
    found: list[JobId] = []
    for each in slices([key_of(platform, user_id) for user_id in sorted(user_ids)]):
        asked = select(jobs.c.id, jobs.c.args).where(jobs.c.kind == HYDRATE_USER, jobs.c.key.in_(each), text(LIVE_KEY))
        rows = await connection.execute(asked)
        found += [JobId(row.id) for row in rows if bool(row.args.get("tracked")) is tracking]
    return found


async def cancel(connection: AsyncConnection, ids: Sequence[JobId], now: datetime) -> Sequence[JobId]:
    """Cancel jobs; return those that existed. A worker on one of them loses its lease."""
    if not ids:
        return []
    if connection.dialect.name == "postgresql":
        return list((await run(connection, "cancel", {"ids": ids, "now": now})).scalars())
    # SQLite has no statement that deletes and inserts at once; its transaction holds the only write lock.
    await run(connection, "history", {"ids": ids, "now": now, "state": JobState.CANCELLED})
    await run(connection, "forget", {"ids": ids})
    return ids


async def cancel_gaps(connection: AsyncConnection, kind: KindName, keys: Collection[str | None], now: datetime) -> None:
    """Move the failed jobs with these keys to the history."""
    for some in slices(sorted(filter(None, keys))):
        failed = select(jobs.c.id).where(jobs.c.kind == kind, jobs.c.key.in_(some), text(GAP)).order_by(jobs.c.id)
        await cancel(connection, [JobId(each) for each in (await connection.execute(failed)).scalars()], now)


async def renew_jobs(
    connection: AsyncConnection, job_writer: JobWriter, wanted: Sequence[NewJob], now: datetime
) -> Enqueued:
    """Add jobs of one kind that are not live, in place of failed ones with the same keys."""
    if wanted:
        await cancel_gaps(connection, wanted[0].kind, [job.key for job in wanted], now)
    return await job_writer.write(connection, wanted, now)


async def revive_gaps(connection: AsyncConnection, wanted: Sequence[NewJob], now: datetime) -> int:
    """Revive failed jobs with these kinds and keys; return how many."""
    keys = {(job.kind, job.key) for job in wanted}
    gaps: list[JobId] = []
    for kind in sorted({job.kind for job in wanted}):
        asked = select(jobs.c.id, jobs.c.key).where(jobs.c.kind == kind, text(GAP))
        gaps += [JobId(row.id) for row in await connection.execute(asked) if (kind, row.key) in keys]
    if not gaps:
        return 0
    return len((await run(connection, "revive", {"ids": gaps, "now": now})).all())


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
        # The account stays locked, so that each change is reported once.
        binds = {"of_platform": each.platform, "of_user": each.user_id}
        row = (await connection.execute(_STATE, binds)).first()
        await run(connection, "change_account_state", {**asdict(each), "now": now})
        if row is None or row.state in (each.state, AccountState.UNTRACKED):
            continue
        user_id = str(each.user_id)
        payload = {
            "user_id": user_id,
            "handle": row.handle,
            "state": str(each.state),
            "was": row.state,
            "reason": each.reason,
        }
        event = NewEvent(kind=EventKind.ACCOUNT_STATE_CHANGED, subject=user_id, payload=payload)
        await write_events(connection, [event], now)


async def write_swept(connection: AsyncConnection, given: Sequence[Swept], now: datetime) -> None:
    # One after the other for steps on one account: an UPDATE changes a row once, whatever is joined to it.
    left = list(given)
    while left:
        first = {(each.platform, each.user_id): each for each in reversed(left)}
        await run(connection, "move_boundaries", {"swept": _boundaries(first), "now": now})
        left = [each for each in left if first[each.platform, each.user_id] is not each]


async def swept_at_once(connection: AsyncConnection, given: Sequence[Swept], now: datetime) -> Sequence[Part] | None:
    """What `write_swept` does, as a part of one statement, unless two steps are on one account."""
    of_accounts = {(each.platform, each.user_id): each for each in given}
    if len(of_accounts) < len(given):
        return None
    return [part_of(connection, "move_boundaries", {"swept": _boundaries(of_accounts), "now": now})]


def _boundaries(swept: Mapping[tuple[Platform, UserId], Swept]) -> list[tuple[object, ...]]:
    """In one order, so that two writers cannot deadlock."""
    return [astuple(each) for _, each in sorted(swept.items(), key=itemgetter(0))]


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
        own = (suggestions.c.platform == each.platform) & (suggestions.c.handle_key == each.handle.lower())
        outcome = "accepted" if each.accepted else "refused"
        closed = {"deleted_at": now, "outcome": outcome, "reason": each.reason, "user_id": each.user_id}
        await connection.execute(update(suggestions).where(own, suggestions.c.deleted_at.is_(None)).values(closed))


async def tracked_handles(database: Database, platform: Platform = X) -> Mapping[UserId, str]:
    """The current handle of every account."""
    query = select(accounts.c.user_id, users.c.handle).join(users, IS_USER_OF_ACCOUNT)
    query = query.where(accounts.c.platform == platform, users.c.handle.is_not(None))
    return {UserId(row["user_id"]): row["handle"] for row in await database.fetch_rows(query)}


async def stored_posts_of(database: Database, platform: Platform, ids: Sequence[UserId]) -> Mapping[UserId, int]:
    """How many posts of these accounts are stored. No post is counted, but of an account tracked a moment ago."""
    found: dict[UserId, int] = {}
    for each in slices(ids):
        binds = {"platform": platform, "ids": each}
        rows = await database.fetch_rows(statement("account_posts", database.dialect), binds)
        found |= {UserId(row["user_id"]): int(row["posts"]) for row in rows}
    return found


async def accounts_to_look_at(
    connection: AsyncConnection, *, now: datetime, next_at: datetime
) -> Sequence[tuple[Platform, UserId]]:
    """Take the accounts whose next check is due, and set the time of the one after."""
    uncollectable = accounts.c.state.not_in([AccountState.ACTIVE, AccountState.UNTRACKED])
    return await _take_due(connection, update(accounts).where(uncollectable).values(next_look_at=next_at), now)


async def suspects_to_look_at(connection: AsyncConnection, *, now: datetime) -> Sequence[tuple[Platform, UserId]]:
    """Take the suspect accounts whose next check is due. Each check is followed by a longer wait."""
    waits = {looks: literal(now + wait, UtcTime) for looks, wait in enumerate(SUSPECT_LOOKS[1:])}
    longest = literal(now + SUSPECT_LOOKS[-1], UtcTime)
    change = (
        update(accounts)
        .where(accounts.c.state == AccountState.ACTIVE, accounts.c.suspect_since.is_not(None))
        .values(
            next_look_at=case(waits, value=accounts.c.suspect_looks, else_=longest),
            suspect_looks=accounts.c.suspect_looks + 1,
        )
    )
    return await _take_due(connection, change, now)


async def _take_due(connection: AsyncConnection, change: Update, now: datetime) -> Sequence[tuple[Platform, UserId]]:
    due = change.where(accounts.c.next_look_at <= now)
    rows = await connection.execute(due.returning(accounts.c.platform, accounts.c.user_id))
    return sorted((Platform(row.platform), UserId(row.user_id)) for row in rows)


_IS_GIVEN: Final = (accounts.c.platform == bindparam("of_platform")) & (accounts.c.user_id == bindparam("of_user"))
_ACCOUNT: Final = (
    select(
        *columns_of(Account, accounts),
        users.c.handle,
        users.c.profiled_at,
        users.c.posts_count,
        *STATISTICS,
    )
    .join(users, IS_USER_OF_ACCOUNT)
    .where(_IS_GIVEN)
)
_STATE: Final = (
    select(accounts.c.state, users.c.handle)
    .join(users, IS_USER_OF_ACCOUNT)
    .where(_IS_GIVEN)
    .with_for_update(of=accounts)
)


class StoreLook(Store):
    """What handlers read. Nothing is locked, no transaction stays open, and each read is independent of the others."""

    async def account(self, platform: Platform, user_id: UserId) -> Account | None:
        rows = await self._database.fetch_prepared(_ACCOUNT, {"of_platform": platform, "of_user": user_id})
        if not rows:
            return None
        row = rows[0]._asdict()
        return record_of(Account, {**row, "fetch": stats_of(row)})

    async def frontiers(self, platform: Platform, ids: Collection[PostId]) -> Mapping[PostId, Frontier]:
        """For each of these posts, the first post above it that is neither stored nor known to be deleted."""
        return (await self.leads(platform, ids, ()))[0]

    async def leads(
        self, platform: Platform, ids: Collection[PostId], user_ids: Collection[UserId]
    ) -> tuple[Mapping[PostId, Frontier], set[UserId]]:
        """The frontiers of these posts, and those of these users that `known_users` has, by one question."""
        if not ids:
            return {}, await self.known_users(platform, user_ids)
        binds = {"platform": platform, "ids": sorted(ids), "user_ids": sorted(user_ids)}
        rows = await self._database.fetch_prepared(statement("frontiers", self._database.dialect), binds)
        return (
            {row.start: Frontier(row.id, row.user_id) for row in rows if row.start is not None},
            {row.id for row in rows if row.start is None},
        )

    async def known_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        """The ones that are stored."""
        if not ids:
            return set()
        own = (posts.c.platform == platform) & posts.c.id.in_(sorted(ids))
        return set(await self.fetch_ids(select(posts.c.id).where(own)))

    async def stored_posts(self, platform: Platform, user_id: UserId, *, most: int) -> int:
        """The number of a user's stored posts, counted up to `most`."""
        own = (posts.c.platform == platform) & (posts.c.author_id == user_id)
        some = select(posts.c.id).where(own).limit(most).subquery()
        async with self._database.read_quickly() as connection:
            return (await connection.execute(select(func.count()).select_from(some))).scalar_one()

    async def unreadable_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        """The ones whose job failed because they could not be read: each is a known gap."""
        if not ids:
            return set()
        keys = {key_of(platform, each): each for each in ids}
        query = select(jobs.c.key).where(jobs.c.kind == HYDRATE_POST, text(GAP), jobs.c.key.in_(sorted(keys)))
        return {keys[key] for key in await self.fetch_ids(query)}

    async def new_posts(
        self, platform: Platform, user_id: UserId, *, above: PostId, stored_since: datetime
    ) -> Sequence[PostId]:
        """A user's posts with higher ids that were stored since then, oldest first."""
        query = (
            select(posts.c.id)
            .where(posts.c.platform == platform, posts.c.author_id == user_id, posts.c.id > above)
            .where(posts.c.first_seen_at >= stored_since, posts.c.reposted_id.is_(None))
            .order_by(posts.c.id)
        )
        return await self.fetch_ids(query)

    async def known_users(self, platform: Platform, ids: Collection[UserId]) -> set[UserId]:
        """The ones that are stored, or known to be unavailable."""
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
        """The ones with a live backfill, which will fetch their posts."""
        if not user_ids:
            return set()
        binds = {"keys": [key_of(platform, each) for each in sorted(user_ids)]}
        rows = await self._database.fetch_prepared(statement("being_backfilled", self._database.dialect), binds)
        return {UserId(int(platform_and_key(row.key)[1])) for row in rows}

    async def stalest_users(self, platform: Platform, limit: int, without: Collection[UserId]) -> Sequence[UserId]:
        query = (
            select(users.c.id)
            .where(users.c.platform == platform)
            .order_by(users.c.profiled_at.asc().nulls_first(), users.c.id)
            .limit(limit + len(without))
        )
        return [each for each in await self.fetch_ids(query) if each not in without][:limit]

    async def fetch_ids(self, query: Select[Any]) -> list[Any]:
        async with self._database.read_quickly() as connection:
            return list((await connection.execute(query)).scalars())


def stats_of(row: Mapping[Any, Any]) -> FetchStats:
    """The statistics in a row that has the columns of STATISTICS."""
    known = {name: row[column.name] for name, column in _COLUMN_OF.items() if row[column.name] is not None}
    if not row["fetches"]:
        # A sweep of the past moves the column as well. Only fetches that are counted have a time here.
        known.pop("last_fetch_at", None)
    return FetchStats(**known)


async def fetch_stats(database: Database, platform: Platform = X) -> Mapping[UserId, FetchStats]:
    """Of every account."""
    query = select(accounts.c.user_id, *STATISTICS).where(accounts.c.platform == platform)
    return {UserId(row["user_id"]): stats_of(row) for row in await database.fetch_rows(query)}


async def write_fetched(connection: AsyncConnection, given: Sequence[Fetched], now: datetime) -> None:
    """Add each to the statistics that are stored, in the order that all writers share."""
    for each in sorted(given, key=lambda each: (each.platform, each.user_id)):
        own = {"of_platform": each.platform, "of_user": each.user_id}
        query = select(*STATISTICS).where(_IS_GIVEN).with_for_update()
        known = (await connection.execute(query, own)).mappings().first()
        if known is not None:
            stats = after(stats_of(known), fetched=each.fetched, new=each.new, limit=each.limit, at=now)
            values = {column.name: getattr(stats, name) for name, column in _COLUMN_OF.items()}
            await connection.execute(update(accounts).where(_IS_GIVEN).values(values), own)
