"""Runs as somebody asks for them, looks at them, and finds their end."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseBusy
from mistnet.kit.statements import insert_of
from mistnet.kit.text import counted
from mistnet.operations.errors import RunInProgress, RunNotFound
from mistnet.operations.runs.model import (
    DEFAULT_LIMIT,
    SCRAPE,
    UNFINISHED,
    Run,
    RunAccount,
    RunId,
    RunStatus,
    RunStep,
    outcome_of,
    require_startable,
    scrape_job,
    share_of,
)
from mistnet.operations.tables import UNFINISHED as UNFINISHED_RUN
from mistnet.operations.tables import run_accounts, run_posts, runs
from mistnet.queue.events import EventKind, NewEvent, summaries
from mistnet.queue.model import JobId, JobState
from mistnet.queue.outbox import write_events
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.tables import GAP, LIVE_KEY, jobs
from mistnet.social.accounts import AccountState
from mistnet.social.fetch_sizes import next_limit
from mistnet.social.model import Platform, PostId, UserId
from mistnet.social.store import account_jobs
from mistnet.social.store.fetch_sizes import STATISTICS, stats_of
from mistnet.social.tables import accounts, posts, users


async def write_run_steps(connection: AsyncConnection, given: Sequence[RunStep], now: datetime) -> None:
    """Comes before the posts themselves are written: what is not there yet is new. Late steps change nothing."""
    for run_id, steps in groupby(sorted(given, key=lambda step: (step.run_id, step.position)), _run_of):
        begun_at = await _lock(connection, run_id)
        if begun_at is None:
            continue
        taken = list(steps)
        for step in taken:
            await _take(connection, step, begun_at, now)
        await close_if_over(connection, run_id, now, summarize=any(step.summarize for step in taken))


def _run_of(step: RunStep) -> RunId:
    return step.run_id


async def _lock(connection: AsyncConnection, run_id: RunId) -> datetime | None:
    """When the run began; None if it is over. Other steps of it wait until this transaction ends."""
    asked = select(runs.c.created_at).where(runs.c.id == run_id, runs.c.status.in_(UNFINISHED)).with_for_update()
    begun_at: datetime | None = (await connection.execute(asked)).scalar()
    return begun_at


async def _take(connection: AsyncConnection, step: RunStep, begun_at: datetime, now: datetime) -> None:
    new = set(step.posts) - await _known(connection, step, begun_at)
    own = (run_accounts.c.run_id == step.run_id) & (run_accounts.c.position == step.position)
    told = {
        "status": step.status,
        "total": run_accounts.c.total + len(step.posts) + step.failed,
        "new": run_accounts.c.new + len(new),
        "skipped": run_accounts.c.skipped + len(step.posts) - len(new),
        "failed": run_accounts.c.failed + step.failed,
        "reason": step.reason,
        "user_id": func.coalesce(step.user_id, run_accounts.c.user_id),
        "updated_at": now,
    }
    changed = await connection.execute(
        update(run_accounts).where(own, run_accounts.c.status.in_(UNFINISHED)).values(told)
    )
    if changed.rowcount and new:
        insert = insert_of(connection.dialect.name)
        rows = [{"run_id": step.run_id, "platform": step.platform, "post_id": each} for each in sorted(new)]
        await connection.execute(insert(run_posts).on_conflict_do_nothing(), rows)


async def _known(connection: AsyncConnection, step: RunStep, begun_at: datetime) -> set[int]:
    """Posts that were stored before the run began, or that it has counted already."""
    stored = select(posts.c.id).where(
        posts.c.platform == step.platform, posts.c.id.in_(step.posts), posts.c.first_seen_at <= begun_at
    )
    counted = select(run_posts.c.post_id).where(
        run_posts.c.run_id == step.run_id,
        run_posts.c.platform == step.platform,
        run_posts.c.post_id.in_(step.posts),
    )
    if not step.posts:
        return set()
    return {*(await connection.execute(stored)).scalars(), *(await connection.execute(counted)).scalars()}


async def give_up(connection: AsyncConnection, run_id: RunId, position: int, reason: str, now: datetime) -> None:
    """Ends an account that nobody works for any more."""
    own = (run_accounts.c.run_id == run_id) & (run_accounts.c.position == position)
    told = {"status": RunStatus.FAILED, "reason": reason, "updated_at": now}
    await connection.execute(update(run_accounts).where(own, run_accounts.c.status.in_(UNFINISHED)).values(told))


async def close_if_over(connection: AsyncConnection, run_id: RunId, now: datetime, *, summarize: bool) -> None:
    """Whoever ends the last account ends the run, and tells of it. The caller holds the run's row."""
    left = select(func.count()).where(run_accounts.c.run_id == run_id, run_accounts.c.status.in_(UNFINISHED))
    if (await connection.execute(left)).scalar_one():
        going = {"status": RunStatus.RUNNING, "updated_at": now}
        await connection.execute(update(runs).where(runs.c.id == run_id).values(going))
        return
    (run,) = await read_runs(connection, runs.c.id == run_id)
    ended = {"status": outcome_of(run.accounts), "updated_at": now, "finished_at": now}
    await connection.execute(update(runs).where(runs.c.id == run_id).values(ended))
    (run,) = await read_runs(connection, runs.c.id == run_id)
    await write_events(connection, [_finished(run)], now)
    if summarize:
        await write_events(connection, await _summaries(connection, run_id), now)


def _finished(run: Run) -> NewEvent:
    payload = {"run_id": run.id, "status": str(run.status), "asked_by": run.asked_by, **run.report}
    return NewEvent(kind=EventKind.RUN_FINISHED, subject=run.id, payload=payload)


async def _summaries(connection: AsyncConnection, run_id: RunId) -> Sequence[NewEvent]:
    asked = select(run_posts.c.post_id).where(run_posts.c.run_id == run_id).order_by(run_posts.c.post_id)
    return summaries(run_id, {"run_id": run_id}, list((await connection.execute(asked)).scalars()))


async def read_runs(
    connection: AsyncConnection, wanted: ColumnElement[bool], *, limit: int | None = None
) -> Sequence[Run]:
    """Runs with their accounts, newest first."""
    asked = select(*_RUN).where(wanted).order_by(runs.c.id.desc()).limit(limit)
    rows = (await connection.execute(asked)).mappings().all()
    accounts = await _accounts(connection, [row["id"] for row in rows])
    return [Run(**{**row, "status": RunStatus(row["status"])}, accounts=accounts.get(row["id"], [])) for row in rows]


async def _accounts(connection: AsyncConnection, run_ids: Collection[str]) -> dict[str, list[RunAccount]]:
    asked = (
        select(*_ACCOUNT, run_accounts.c.run_id)
        .where(run_accounts.c.run_id.in_(run_ids))
        .order_by(run_accounts.c.run_id, run_accounts.c.position)
    )
    found: dict[str, list[RunAccount]] = {}
    for row in (await connection.execute(asked)).mappings():
        told: dict[str, Any] = {column.name: row[column.name] for column in _ACCOUNT}
        user_id = UserId(told["user_id"]) if told["user_id"] is not None else None
        account = RunAccount(**{**told, "status": RunStatus(told["status"]), "user_id": user_id})
        found.setdefault(row["run_id"], []).append(account)
    return found


_RUN: Final = tuple(runs.c[name] for name in Run.__struct_fields__ if name != "accounts")
_ACCOUNT: Final = tuple(run_accounts.c[name] for name in RunAccount.__struct_fields__)

CANCELLED: Final = "its job was cancelled"
NOBODY: Final = "no worker has taken its jobs"
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REASON_LENGTH: Final = 300
_TRIES: Final = 5


class RunService:
    """Where runs are asked for. They live in the database alone, so nothing of them is lost with a process."""

    def __init__(
        self,
        database: Database,
        job_writer: JobWriter,
        *,
        summarize: bool = False,
        longest_wait: timedelta = timedelta(hours=1),
    ) -> None:
        self._database = database
        self._job_writer = job_writer
        self._summarize = summarize
        self._longest_wait = longest_wait

    async def start(
        self, handles: Sequence[str], limit: int | None, *, asked_by: str, now: datetime, max_credits: int | None = None
    ) -> Run:
        """The run and its jobs, in one transaction. Raises RunInProgress while another one is not finished.

        Without a limit each tracked account has the one its earlier fetches suggest, and others the default.
        """
        require_startable(handles, DEFAULT_LIMIT if limit is None else limit)
        share = share_of(max_credits, len(handles))
        await self.settle(now)
        run_id = new_run_id(now)
        for _ in range(_TRIES):
            async with self._database.transaction() as connection:
                learned = await self._learned(connection, handles) if limit is None else {}
                limits = [learned.get(handle.lower(), limit or DEFAULT_LIMIT) for handle in handles]
                if await self._insert(connection, run_id, max(limits), asked_by, now):
                    await self._add_accounts(connection, run_id, handles, now)
                    wanted = [
                        scrape_job(run_id, place, handle, most, share)
                        for place, (handle, most) in enumerate(zip(handles, limits, strict=True))
                    ]
                    await self._job_writer.write(connection, wanted, now)
                    (run,) = await read_runs(connection, runs.c.id == run_id)
                    return run
                other = await self._unfinished(connection)
                stands = await self._stands(connection, other[0]) if other else ""
            if other:
                raise RunInProgress(other[0], stands)
        raise DatabaseBusy("runs begin and end too fast to begin another one")

    async def get(self, run_id: str) -> Run | None:
        if not _RUN_ID.fullmatch(run_id):
            return None
        async with self._database.read() as connection:
            found = await read_runs(connection, runs.c.id == run_id)
        return found[0] if found else None

    async def list(self, limit: int = 50, before: str | None = None) -> Sequence[Run]:
        """Newest first. `before` is the last one of the page before: runs made meanwhile move nothing."""
        if before is not None and not _RUN_ID.fullmatch(before):
            raise RunNotFound(before)
        wanted = (runs.c.kind == SCRAPE) & (runs.c.id < before) if before else runs.c.kind == SCRAPE
        async with self._database.read() as connection:
            return await read_runs(connection, wanted, limit=limit)

    async def new_posts(self, run_id: str) -> Sequence[PostId]:
        """The posts that were not stored when the run began, oldest first."""
        asked = select(run_posts.c.post_id).where(run_posts.c.run_id == run_id).order_by(run_posts.c.post_id)
        async with self._database.read() as connection:
            return [PostId(each) for each in (await connection.execute(asked)).scalars()]

    async def settle(self, now: datetime) -> int:
        """Closes accounts whose job ended without telling or waited too long. Returns how many.

        So no run keeps others from beginning for ever.
        """
        async with self._database.read() as connection:
            unfinished = await self._unfinished(connection)
            hangs = [run for run in unfinished if await self._hangs(connection, run, now)]
            if not hangs and not [each for run in unfinished for each in await self._lost(connection, run)]:
                return 0
        async with self._database.transaction() as connection:
            # Jobs first, as workers do, or the two could wait for each other.
            reasons = {run: await self._end_waiting(connection, run, now) for run in hangs}
            locked = await self._locked(connection)
            return sum([await self._settle(connection, each, now, reasons.get(each)) for each in locked])

    async def cancel(self, run_id: str, now: datetime) -> Run:
        """Ends a run where it stands: what it has collected stays and is reported. A finished one is left alone."""
        run = await self.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        async with self._database.transaction() as connection:
            # Jobs first, as workers do, or the two could wait for each other.
            await self._cancel_jobs(connection, run.id, now)
            for each in await self._locked(connection):
                await self._settle(connection, each, now)
            (run,) = await read_runs(connection, runs.c.id == run.id)
        return run

    async def prune(self, before: datetime) -> int:
        """Forgets runs that finished before then; what they collected stays."""
        async with self._database.transaction() as connection:
            return (await connection.execute(delete(runs).where(runs.c.finished_at < before))).rowcount

    async def _learned(self, connection: AsyncConnection, handles: Sequence[str]) -> Mapping[str, int]:
        """The limits of those that are tracked, by their handles in lower case."""
        found: dict[str, int] = {}
        for some in account_jobs.slices([handle.lower() for handle in handles]):
            asked = (
                select(users.c.handle_key, *STATISTICS)
                .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
                .where(accounts.c.platform == Platform.X, accounts.c.state != AccountState.UNTRACKED)
                .where(users.c.handle_key.in_(some))
            )
            rows = (await connection.execute(asked)).mappings()
            found |= {row["handle_key"]: next_limit(stats_of(row)) for row in rows}
        return found

    async def _insert(
        self, connection: AsyncConnection, run_id: RunId, limit: int, asked_by: str, now: datetime
    ) -> bool:
        new = insert_of(connection.dialect.name)(runs)
        adding = new.on_conflict_do_nothing(index_elements=["kind"], index_where=text(UNFINISHED_RUN))
        row = {
            "id": run_id,
            "kind": SCRAPE,
            "status": RunStatus.PENDING,
            "asked_by": asked_by,
            "post_limit": limit,
            "created_at": now,
            "updated_at": now,
        }
        return (await connection.execute(adding.values(row).returning(runs.c.id))).first() is not None

    async def _add_accounts(
        self, connection: AsyncConnection, run_id: RunId, handles: Sequence[str], now: datetime
    ) -> None:
        rows = [
            {
                "run_id": run_id,
                "position": position,
                "handle": handle,
                "status": RunStatus.PENDING,
                "updated_at": now,
            }
            for position, handle in enumerate(handles)
        ]
        await connection.execute(insert(run_accounts), rows)

    async def _unfinished(self, connection: AsyncConnection) -> Sequence[RunId]:
        asked = select(runs.c.id).where(runs.c.kind == SCRAPE, text(UNFINISHED_RUN))
        return [RunId(each) for each in (await connection.execute(asked)).scalars()]

    async def _locked(self, connection: AsyncConnection) -> Sequence[RunId]:
        """The steps of a run wait for its row: while we hold it, a job that is gone has told all it will tell."""
        asked = select(runs.c.id).where(runs.c.kind == SCRAPE, text(UNFINISHED_RUN)).order_by(runs.c.id)
        return [RunId(each) for each in (await connection.execute(asked.with_for_update())).scalars()]

    async def _cancel_jobs(self, connection: AsyncConnection, run_id: RunId, now: datetime) -> None:
        alive = select(jobs.c.id).where(jobs.c.kind == SCRAPE, _belongs_to(run_id), text(LIVE_KEY))
        ids = [JobId(each) for each in (await connection.execute(alive.order_by(jobs.c.id))).scalars()]
        await account_jobs.cancel(connection, ids, now)

    async def _hangs(self, connection: AsyncConnection, run_id: RunId, now: datetime) -> bool:
        """Whether no page came for too long, and no worker works on one."""
        begun = select(runs.c.updated_at).where(runs.c.id == run_id)
        updated_at: datetime | None = (await connection.execute(begun)).scalar_one_or_none()
        late = updated_at is not None and now - updated_at > self._longest_wait
        return late and not await self._has_running(connection, run_id)

    async def _end_waiting(self, connection: AsyncConnection, run_id: RunId, now: datetime) -> str | None:
        """Cancels the jobs of a run that hangs; returns what to tell its accounts. None if it goes on meanwhile."""
        if not await self._hangs(connection, run_id, now):
            return None
        why = await self._waits_for(connection, run_id)
        await self._cancel_jobs(connection, run_id, now)
        minutes = round(self._longest_wait.total_seconds() / 60)
        return f"nothing came of it for {counted(minutes, 'minute')}: {why or NOBODY}"

    async def _stands(self, connection: AsyncConnection, run_id: RunId) -> str:
        """What a run that keeps others from beginning is doing."""
        if await self._has_running(connection, run_id):
            return "is still going"
        why = await self._waits_for(connection, run_id)
        return f"waits: {why}" if why else f"has not begun: {NOBODY}"

    async def _has_running(self, connection: AsyncConnection, run_id: RunId) -> bool:
        running = select(jobs.c.id).where(
            jobs.c.kind == SCRAPE, _belongs_to(run_id), text(LIVE_KEY), jobs.c.state == JobState.RUNNING
        )
        return (await connection.execute(running.limit(1))).first() is not None

    async def _waits_for(self, connection: AsyncConnection, run_id: RunId) -> str | None:
        """Why its jobs wait, if they were told to."""
        waiting = select(jobs.c.wait_reason, jobs.c.last_error).where(
            jobs.c.kind == SCRAPE, _belongs_to(run_id), text(LIVE_KEY), jobs.c.wait_reason.is_not(None)
        )
        row = (await connection.execute(waiting.order_by(jobs.c.run_at, jobs.c.id).limit(1))).first()
        if row is None:
            return None
        return f"{row.wait_reason}: {_last_line(row.last_error)}" if row.last_error else str(row.wait_reason)

    async def _settle(
        self, connection: AsyncConnection, run_id: RunId, now: datetime, why_cancelled: str | None = None
    ) -> int:
        lost = await self._lost(connection, run_id)
        reasons = await self._reasons(connection, run_id, lost)
        for position in lost:
            await give_up(connection, run_id, position, reasons.get(position, why_cancelled or CANCELLED), now)
        if lost:
            await close_if_over(connection, run_id, now, summarize=self._summarize)
        return len(lost)

    async def _lost(self, connection: AsyncConnection, run_id: RunId) -> Sequence[int]:
        """The places of unfinished accounts that no live job works for."""
        waiting = select(run_accounts.c.position).where(
            run_accounts.c.run_id == run_id, run_accounts.c.status.in_(UNFINISHED)
        )
        alive = select(jobs.c.key).where(jobs.c.kind == SCRAPE, _belongs_to(run_id), text(LIVE_KEY))
        places = set((await connection.execute(waiting)).scalars())
        return sorted(places - {_place(key) for key in (await connection.execute(alive)).scalars()})

    async def _reasons(self, connection: AsyncConnection, run_id: RunId, places: Collection[int]) -> Mapping[int, str]:
        """What the jobs that ended badly said last."""
        keys = [f"{run_id}:{place}" for place in places]
        asked = select(jobs.c.key, jobs.c.last_error).where(jobs.c.kind == SCRAPE, jobs.c.key.in_(keys), text(GAP))
        rows = await connection.execute(asked.order_by(jobs.c.id))
        return {_place(row.key): _last_line(row.last_error) for row in rows}


def new_run_id(now: datetime) -> RunId:
    """A UUID that sorts by time (version 7)."""
    millisecond = int(now.timestamp() * 1000) & (1 << 48) - 1
    chance = secrets.randbits(74)
    value = millisecond << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    return RunId(str(UUID(int=value)))


def _belongs_to(run_id: RunId) -> ColumnElement[bool]:
    return jobs.c.key.startswith(f"{run_id}:")


def _place(key: str) -> int:
    return int(key.rpartition(":")[2])


def _last_line(error: str | None) -> str:
    """The last line of an error says what happened."""
    lines = (error or "").strip().splitlines()
    return lines[-1].strip()[:_REASON_LENGTH] if lines else "its job failed without saying why"
