"""Reads and writes suggestions, refusals and tracked accounts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import Row, Text, case, cast, exists, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.kit.view import View, columns_of
from mistnet.queue.model import Enqueued, JobId, NewJob
from mistnet.queue.store.enqueue import JobWriter
from mistnet.social.accounts import AccountState
from mistnet.social.model import Platform, UserId, X
from mistnet.social.store.accounts import (
    cancel,
    live_hydrations,
    live_suggestions,
    live_sweeps,
    revive_gaps,
    slices,
)
from mistnet.social.tables import IS_USER_OF_ACCOUNT, LIVE, accounts, posts, suggestions, users

REFUSED: Final = "refused"


class RefusedHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A handle that is not tracked, when it was refused, and why."""

    handle: str
    reason: str
    refused_at: datetime


class Refusals:
    """Reads refusals. A refusal is valid until its handle is suggested again, tracked, or dismissed."""

    def __init__(self, database: Database, platform: Platform = X) -> None:
        self._database = database
        self._platform = platform

    async def list(self, limit: int | None = None) -> Sequence[RefusedHandle]:
        """The latest first."""
        return await _REFUSALS.rows(self._database, suggestions.c.platform == self._platform, limit=limit)

    async def of_handle(self, handle: str) -> RefusedHandle | None:
        own = (suggestions.c.platform == self._platform) & (suggestions.c.handle_key == handle.lower())
        return await _REFUSALS.first(self._database, own)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """How much is stored, and how far: accounts by state, and those whose history is read to its end."""

    posts: int
    accounts: Mapping[str, int]
    complete: int
    suggested: int


async def collected(database: Database) -> Collected:
    """Counts whole tables, by their smallest indexes."""
    done = accounts.c.backfilled_at.is_not(None) & accounts.c.suspect_since.is_(None)
    complete = case((done & (accounts.c.state == AccountState.ACTIVE), 1), else_=0)
    by_state = select(accounts.c.state, func.count().label("accounts"), func.sum(complete).label("complete"))
    rows = await database.fetch_rows(by_state.group_by(accounts.c.state).order_by(accounts.c.state))
    return Collected(
        posts=int(await database.fetch_value(select(func.count()).select_from(posts))),
        accounts={row["state"]: row["accounts"] for row in rows},
        complete=sum(row["complete"] for row in rows),
        suggested=int(await database.fetch_value(select(func.count()).select_from(suggestions).where(text(LIVE)))),
    )


_latest: Final = suggestions.alias("latest")
_REFUSALS: Final = View(
    RefusedHandle,
    select(
        suggestions.c.handle,
        func.coalesce(suggestions.c.reason, "").label("reason"),
        suggestions.c.deleted_at.label("refused_at"),
    ).where(
        suggestions.c.outcome == REFUSED,
        suggestions.c.withdrawn_at.is_(None),
        suggestions.c.id.in_(select(func.max(_latest.c.id)).group_by(_latest.c.platform, _latest.c.handle_key)),
        ~exists(
            select(accounts.c.user_id)
            .join(users, IS_USER_OF_ACCOUNT)
            .where(
                users.c.platform == suggestions.c.platform,
                users.c.handle_key == suggestions.c.handle_key,
                accounts.c.state != AccountState.UNTRACKED,
            )
        ),
    ),
    suggestions.c.id,
)
"""The latest suggestion of each handle, if it was refused and no account with that handle is tracked."""


class SuggestionResult(StrEnum):
    """The result of suggesting a handle."""

    ADDED = "added"
    SUGGESTED = "already suggested"
    TRACKED = "already tracked"


class NewSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A handle to track, with an optional wallet and labels."""

    handle: str
    wallet: str | None = None
    labels: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        return self.handle.lower()

    def over(self, earlier: NewSuggestion) -> NewSuggestion:
        """Both merged. Where both have a value, the later one counts."""
        labels = {**earlier.labels, **self.labels}
        return NewSuggestion(handle=earlier.handle, wallet=self.wallet or earlier.wallet, labels=labels)


class Suggested(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a suggestion. `user_id` is set if the user is tracked already.

    `merged`: its wallet and labels were added to an earlier suggestion.
    """

    handle: str
    result: SuggestionResult
    user_id: UserId | None = None
    merged: bool = False


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A stored suggestion, and when and why it was accepted or refused."""

    id: int
    handle: str
    wallet: str | None
    labels: msgspec.Raw
    suggested_at: datetime
    deleted_at: datetime | None
    outcome: str | None
    reason: str | None
    user_id: UserId | None
    withdrawn_at: datetime | None = None


SUGGESTIONS: Final = View(
    Suggestion,
    select(*columns_of(Suggestion, suggestions, without=("labels",)), cast(suggestions.c.labels, Text).label("labels")),
    suggestions.c.id,
    make=lambda row: Suggestion(**{**row, "labels": msgspec.Raw(row["labels"].encode())}),
)


class LetGo(msgspec.Struct, frozen=True, kw_only=True):
    """What untracking ended. `was` None: there was no such account."""

    user_id: UserId | None = None
    was: AccountState | None = None
    withdrawn: bool = False
    cancelled: Sequence[JobId] = ()

    @property
    def known(self) -> bool:
        return self.was is not None or self.withdrawn or bool(self.cancelled)


class TrackingStore:
    """Suggestions and accounts of one platform. Each change is one transaction."""

    def __init__(self, database: Database, job_writer: JobWriter, platform: Platform = X) -> None:
        self._database = database
        self._job_writer = job_writer
        self.platform = platform

    async def suggest(
        self, given: Sequence[NewSuggestion], *, job: Callable[[str], NewJob], now: datetime
    ) -> Sequence[Suggested]:
        """Add handles that are neither tracked nor suggested. `job` makes the job of a suggestion.

        Wallet and labels of a known handle are added to its earlier suggestion.
        """
        wanted: dict[str, NewSuggestion] = {}
        for each in given:
            wanted[each.key] = each.over(wanted[each.key]) if each.key in wanted else each
        async with self._database.transaction() as connection:
            # Handles change hands. If the last holder is not tracked, that a former one is does not count.
            last = {row.handle_key: row for row in await self._holders(connection, wanted)}
            tracked = {key: UserId(row.id) for key, row in last.items() if row.state not in _NOT_TRACKED}
            asked = [wanted[key] for key in sorted(wanted.keys() - tracked.keys())]
            added = await self._add(connection, asked, now)
            merging = [each for key, each in wanted.items() if key not in added and (each.wallet or each.labels)]
            for each in merging:
                await self._merge(connection, each, tracked.get(each.key), now)
            await self._begin(connection, [job(each.handle) for each in asked], now)
        merged = {each.key for each in merging}
        results = dict.fromkeys(wanted, SuggestionResult.SUGGESTED)
        results |= dict.fromkeys(added, SuggestionResult.ADDED) | dict.fromkeys(tracked, SuggestionResult.TRACKED)
        return [
            Suggested(handle=each.handle, result=results[key], user_id=tracked.get(key), merged=key in merged)
            for key, each in wanted.items()
        ]

    async def suggest_first(
        self, given: Sequence[NewSuggestion], *, job: Callable[[str], NewJob], now: datetime
    ) -> Sequence[str]:
        """Suggest handles that were never suggested and that no account has; return those.

        For repeated input, such as a configuration: refused and untracked handles stay so.
        """
        wanted = {each.key: each for each in given}
        async with self._database.transaction() as connection:
            holders = await self._holders(connection, wanted)
            known = {row.handle_key for row in holders if row.state is not None}
            for some in slices(sorted(wanted)):
                own = (suggestions.c.platform == self.platform) & suggestions.c.handle_key.in_(some)
                known.update((await connection.execute(select(suggestions.c.handle_key).where(own))).scalars())
            first = [wanted[key] for key in sorted(wanted.keys() - known)]
            added = await self._add(connection, first, now)
            created = [each.handle for each in first if each.key in added]
            await self._begin(connection, [job(handle) for handle in created], now)
        return created

    async def begin(self, wanted: Sequence[NewJob], *, now: datetime) -> Enqueued:
        """Add jobs that are not live. A failed job is revived instead."""
        async with self._database.transaction() as connection:
            return await self._begin(connection, wanted, now)

    async def track_by_id(
        self, user_ids: Collection[UserId], *, job: Callable[[UserId], NewJob], now: datetime
    ) -> Enqueued:
        """Add hydrations that also track the user. They replace live ones that do not."""
        async with self._database.transaction() as connection:
            # They have the same key: while one is live, the one that also tracks could not be added.
            outdone = await live_hydrations(connection, self.platform, user_ids, tracking=False)
            await cancel(connection, outdone, now)
            return await self._begin(connection, [job(each) for each in sorted(user_ids)], now)

    async def untrack(self, who: str | UserId, reason: str, *, now: datetime) -> LetGo:
        """Stop collecting an account, by its handle or id. Stored posts stay."""
        async with self._database.transaction() as connection:
            if isinstance(who, str):
                handle, user_id = who, None
            else:
                called = select(users.c.handle).where(users.c.platform == self.platform, users.c.id == who)
                handle, user_id = (await connection.execute(called)).scalar() or "", who
            # Jobs first, as workers do, or the two could wait for each other.
            waiting = await live_suggestions(connection, self.platform, handle)
            cancelled = [*await cancel(connection, waiting, now)]
            if isinstance(who, str):
                holders = [row for row in await self._holders(connection, [who.lower()]) if row.state is not None]
                # Of several, one that is tracked.
                holders.sort(key=lambda row: row.state != AccountState.UNTRACKED)
                user_id = UserId(holders[-1].id) if holders else None
            was = None
            if user_id is not None:
                waiting = await live_sweeps(connection, self.platform, user_id)
                waiting += await live_hydrations(connection, self.platform, [user_id], tracking=True)
                cancelled += await cancel(connection, waiting, now)
                own = (accounts.c.platform == self.platform) & (accounts.c.user_id == user_id)
                was = (await connection.execute(select(accounts.c.state).where(own).with_for_update())).scalar()
                ended = update(accounts).where(own, accounts.c.state != AccountState.UNTRACKED)
                gone = {"state": AccountState.UNTRACKED, "state_reason": reason, "state_since": now}
                await connection.execute(ended.values(**gone, next_look_at=None))
            # Close the open suggestion of the handle and withdraw its refusals, so that it is not tracked.
            own = (suggestions.c.platform == self.platform) & (suggestions.c.handle_key == handle.lower())
            closing = {"deleted_at": now, "outcome": REFUSED, "reason": reason, "withdrawn_at": now}
            closed = update(suggestions).where(own, suggestions.c.deleted_at.is_(None)).values(closing)
            refused = own & (suggestions.c.outcome == REFUSED) & suggestions.c.withdrawn_at.is_(None)
            taken_back = update(suggestions).where(refused).values(withdrawn_at=now)
            withdrawn = sum([(await connection.execute(each)).rowcount for each in (closed, taken_back)])
        state = AccountState(was) if was else None
        return LetGo(user_id=user_id, was=state, withdrawn=bool(withdrawn), cancelled=cancelled)

    async def liveliest(self, limit: int) -> Sequence[UserId]:
        """The tracked accounts to look at first: unfinished histories, then those that were fetched last."""
        order = (accounts.c.backfilled_at.is_not(None), accounts.c.last_fetched_at.desc(), accounts.c.user_id)
        query = select(accounts.c.user_id).where(accounts.c.platform == self.platform).order_by(*order).limit(limit)
        return [UserId(row["user_id"]) for row in await self._database.fetch_rows(query)]

    async def suggestions(self, *, live_only: bool = True) -> Sequence[Suggestion]:
        """Oldest first."""
        conditions = [suggestions.c.platform == self.platform]
        conditions += [suggestions.c.deleted_at.is_(None)] if live_only else []
        return (await SUGGESTIONS.rows(self._database, *conditions))[::-1]

    async def _holders(self, connection: AsyncConnection, handles: Collection[str]) -> Sequence[Row[Any]]:
        """The users who have these handles, with the state of their accounts. The user who had one last is last."""
        rows: list[Row[Any]] = []
        for some in slices(sorted(handles)):
            own = (users.c.platform == self.platform) & users.c.handle_key.in_(some)
            rows += await connection.execute(_HOLDERS.where(own))
        return rows

    async def _add(self, connection: AsyncConnection, given: Sequence[NewSuggestion], now: datetime) -> set[str]:
        """The handles that had no open suggestion before."""
        if not given:
            return set()
        adding = insert_of(connection.dialect.name)(suggestions).on_conflict_do_nothing(
            index_elements=["platform", "handle_key"], index_where=text(LIVE)
        )
        rows = [self._row(each, now) for each in given]
        return set((await connection.execute(adding.returning(suggestions.c.handle_key), rows)).scalars())

    async def _merge(
        self, connection: AsyncConnection, given: NewSuggestion, user_id: UserId | None, now: datetime
    ) -> None:
        """Merge wallet and labels into the open suggestion of the handle, or the last one of the account.

        An account that was never suggested, because it was tracked by id, gets a closed suggestion.
        """
        live = (suggestions.c.handle_key == given.key) & suggestions.c.deleted_at.is_(None)
        asked = (
            select(suggestions.c.id, suggestions.c.wallet, cast(suggestions.c.labels, Text).label("labels"))
            .where(suggestions.c.platform == self.platform, suggestions.c.user_id == user_id if user_id else live)
            .order_by(suggestions.c.id.desc())
            .limit(1)
            .with_for_update()
        )
        row = (await connection.execute(asked)).first()
        if row is not None:
            earlier = NewSuggestion(handle=given.handle, wallet=row.wallet, labels=msgspec.json.decode(row.labels))
            both = given.over(earlier)
            kept = {"wallet": both.wallet, "labels": msgspec.json.encode(both.labels)}
            await connection.execute(update(suggestions).where(suggestions.c.id == row.id).values(kept))
        elif user_id is not None:
            closed = {"deleted_at": now, "outcome": "accepted", "user_id": user_id}
            await connection.execute(insert(suggestions).values({**self._row(given, now), **closed}))

    def _row(self, given: NewSuggestion, now: datetime) -> dict[str, Any]:
        return {
            "platform": self.platform,
            "handle": given.handle,
            "handle_key": given.key,
            "wallet": given.wallet,
            "labels": msgspec.json.encode(given.labels),
            "suggested_at": now,
        }

    async def _begin(self, connection: AsyncConnection, wanted: Sequence[NewJob], now: datetime) -> Enqueued:
        revived = await revive_gaps(connection, wanted, now)
        added = await self._job_writer.write(connection, wanted, now)
        return msgspec.structs.replace(added, created=added.created + revived, duplicates=added.duplicates - revived)


_NOT_TRACKED: Final = (None, AccountState.UNTRACKED)
_HOLDERS: Final = (
    select(users.c.id, users.c.handle_key, accounts.c.state)
    .outerjoin(accounts, IS_USER_OF_ACCOUNT)
    .order_by(users.c.last_updated_at, users.c.id)
)
