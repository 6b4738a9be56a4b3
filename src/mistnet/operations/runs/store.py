"""The steps of runs, written with their posts; and the service that starts, lists, settles and cancels runs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseBusy
from mistnet.kit.statements import insert_of
from mistnet.kit.text import counted, last_line
from mistnet.kit.view import ListPage, columns_of, record_of
from mistnet.operations.runs.model import (
    DEFAULT_LIMIT,
    SCRAPE,
    UNFINISHED,
    Run,
    RunAccount,
    RunId,
    RunInProgress,
    RunNotFound,
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
from mistnet.social.accounts import AccountState, next_limit
from mistnet.social.model import X
from mistnet.social.store.accounts import STATISTICS, cancel, slices, stats_of
from mistnet.social.tables import accounts, posts, users

_CANCELLED: Final = "its job was cancelled"
_NO_WORKER: Final = "no worker has taken its jobs"
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REASON_LENGTH: Final = 300
_TRIES: Final = 5


async def write_run_steps(connection: AsyncConnection, given: Sequence[RunStep], now: datetime) -> None:
    """Must run before the writer of posts: a post that is not stored yet is new. Late steps change nothing."""
    in_order = sorted(given, key=lambda step: (step.run_id, step.position))
    for run_id, steps in groupby(in_order, lambda step: step.run_id):
        # The lock makes other steps of the run wait for this transaction. Without it, two steps that end the last
        # two accounts at once would each see the other account unfinished, and the run would never end.
        locked = select(runs.c.created_at).where(runs.c.id == run_id, runs.c.status.in_(UNFINISHED)).with_for_update()
        started_at = (await connection.execute(locked)).scalar()
        if started_at is not None:
            summarize = [await _write_step(connection, step, started_at, now) for step in steps]
            await _close_if_finished(connection, run_id, now, summarize=any(summarize))


async def _write_step(connection: AsyncConnection, step: RunStep, started_at: datetime, now: datetime) -> bool:
    new = set(step.posts)
    if new:
        # Posts that were stored before the run started, or that it has counted, are not new.
        stored = select(posts.c.id).where(
            posts.c.platform == step.platform, posts.c.id.in_(step.posts), posts.c.first_seen_at <= started_at
        )
        own = run_posts.c
        counted_before = select(own.post_id).where(
            own.run_id == step.run_id, own.platform == step.platform, own.post_id.in_(step.posts)
        )
        new -= set((await connection.execute(stored.union(counted_before))).scalars())
    changed = await connection.execute(
        _unfinished_account(step.run_id, step.position).values(
            status=step.status,
            total=run_accounts.c.total + len(step.posts) + step.failed,
            new=run_accounts.c.new + len(new),
            skipped=run_accounts.c.skipped + len(step.posts) - len(new),
            failed=run_accounts.c.failed + step.failed,
            reason=step.reason,
            user_id=func.coalesce(step.user_id, run_accounts.c.user_id),
            updated_at=now,
        )
    )
    if changed.rowcount and new:
        rows = [{"run_id": step.run_id, "platform": step.platform, "post_id": each} for each in sorted(new)]
        await connection.execute(insert_of(connection.dialect.name)(run_posts).on_conflict_do_nothing(), rows)
    return step.summarize


def _unfinished_account(run_id: str, position: int) -> Any:
    own = run_accounts.c
    return update(run_accounts).where(own.run_id == run_id, own.position == position, own.status.in_(UNFINISHED))


async def _close_if_finished(connection: AsyncConnection, run_id: RunId, now: datetime, *, summarize: bool) -> None:
    """End a run whose last account has ended, and write its event. The caller holds the lock of the run's row."""
    change = update(runs).where(runs.c.id == run_id)
    left = select(func.count()).where(run_accounts.c.run_id == run_id, run_accounts.c.status.in_(UNFINISHED))
    if (await connection.execute(left)).scalar_one():
        await connection.execute(change.values(status=RunStatus.RUNNING, updated_at=now))
        return
    (run,) = await _read_runs(connection, runs.c.id == run_id)
    status = outcome_of(run.accounts)
    await connection.execute(change.values(status=status, updated_at=now, finished_at=now))
    payload = {"run_id": run.id, "status": str(status), "asked_by": run.asked_by, **run.report}
    await write_events(connection, [NewEvent(kind=EventKind.RUN_FINISHED, subject=run.id, payload=payload)], now)
    if summarize:
        new = select(run_posts.c.post_id).where(run_posts.c.run_id == run_id).order_by(run_posts.c.post_id)
        post_ids = list((await connection.execute(new)).scalars())
        await write_events(connection, summaries(run_id, {"run_id": run_id}, post_ids), now)


async def _read_runs(
    connection: AsyncConnection, condition: ColumnElement[bool], *, limit: int | None = None
) -> Sequence[Run]:
    """Runs with their accounts, newest first."""
    query = select(*columns_of(Run, runs)).where(condition).order_by(runs.c.id.desc()).limit(limit)
    rows = (await connection.execute(query)).mappings().all()
    of_runs = (
        select(*columns_of(RunAccount, run_accounts), run_accounts.c.run_id)
        .where(run_accounts.c.run_id.in_([row["id"] for row in rows]))
        .order_by(run_accounts.c.run_id, run_accounts.c.position)
    )
    by_run: dict[str, list[RunAccount]] = {row["id"]: [] for row in rows}
    for row in (await connection.execute(of_runs)).mappings():
        by_run[row["run_id"]].append(record_of(RunAccount, row))
    return [Run(**{**row, "status": RunStatus(row["status"])}, accounts=by_run[row["id"]]) for row in rows]


class RunService:
    """What an operator can do with runs. Runs exist in the database only, so none is lost with a process."""

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
        """Create a run and its jobs in one transaction. Raises RunInProgress while another run is unfinished.

        Without a limit, each tracked account gets the one that its earlier fetches suggest, and others the default.
        """
        require_startable(handles, DEFAULT_LIMIT if limit is None else limit)
        share = share_of(max_credits, len(handles))
        await self.settle(now)
        run_id = new_run_id(now)
        for _ in range(_TRIES):
            async with self._database.transaction() as connection:
                limits = [limit] * len(handles) if limit else await _suggested_limits(connection, handles)
                if await _insert(connection, run_id, handles, max(limits), asked_by, now):
                    new = [
                        scrape_job(run_id, position, handle, most, share)
                        for position, (handle, most) in enumerate(zip(handles, limits, strict=True))
                    ]
                    await self._job_writer.write(connection, new, now)
                    (run,) = await _read_runs(connection, runs.c.id == run_id)
                    return run
                other = await _unfinished(connection)
                if other is None:
                    # The run that was in the way has just ended: try again.
                    continue
                state = "is still running"
                if not await _has_running_jobs(connection, other):
                    reason = await _wait_reason(connection, other)
                    state = f"is waiting: {reason}" if reason else f"has not started: {_NO_WORKER}"
                raise RunInProgress(other, state)
        raise DatabaseBusy("runs start and end too fast to start another one")

    async def get(self, run_id: str) -> Run | None:
        if not _RUN_ID.fullmatch(run_id):
            return None
        async with self._database.read() as connection:
            found = await _read_runs(connection, runs.c.id == run_id)
        return found[0] if found else None

    async def show(self, run_id: str, now: datetime) -> Run:
        """Settle runs, so that one whose jobs are gone is shown as ended, and read this one. Raises RunNotFound."""
        await self.settle(now)
        run = await self.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    async def page(self, now: datetime, *, before: str | None = None, limit: int) -> ListPage[Run]:
        """Settle runs and list them, newest first. `before` is `next` of the page before."""
        if before is not None and not _RUN_ID.fullmatch(before):
            raise RunNotFound(before)
        await self.settle(now)
        condition = (runs.c.kind == SCRAPE) & (runs.c.id < before) if before else runs.c.kind == SCRAPE
        async with self._database.read() as connection:
            return ListPage.cut(await _read_runs(connection, condition, limit=limit + 1), limit, lambda run: run.id)

    async def settle(self, now: datetime) -> int:
        """Close accounts whose job ended without a report or has waited too long. Return how many.

        Otherwise their run would stay unfinished, and no other run could start.
        """
        async with self._database.read() as connection:
            run_id = await _unfinished(connection)
            if run_id is None or not (
                await self._is_stalled(connection, run_id, now) or await _abandoned(connection, run_id)
            ):
                return 0
        async with self._database.transaction() as connection:
            # Jobs are locked before their run, in the order of the workers. The other order could deadlock.
            reason = _CANCELLED
            if await self._is_stalled(connection, run_id, now):
                waited = counted(round(self._longest_wait.total_seconds() / 60), "minute")
                reason = f"no progress for {waited}: {await _wait_reason(connection, run_id) or _NO_WORKER}"
                await _cancel_jobs(connection, run_id, now)
            return await self._close_abandoned(connection, now, reason)

    async def cancel(self, run_id: str, now: datetime) -> Run:
        """End a run. What it has collected stays and is reported. A finished run is left alone."""
        run = await self.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        async with self._database.transaction() as connection:
            # Jobs first, for the same reason as in `settle`.
            await _cancel_jobs(connection, run.id, now)
            await self._close_abandoned(connection, now, _CANCELLED)
            (run,) = await _read_runs(connection, runs.c.id == run.id)
        return run

    async def prune(self, before: datetime) -> int:
        """Delete runs that finished before then. What they collected stays."""
        async with self._database.transaction() as connection:
            return (await connection.execute(delete(runs).where(runs.c.finished_at < before))).rowcount

    async def _is_stalled(self, connection: AsyncConnection, run_id: RunId, now: datetime) -> bool:
        """Whether no page has arrived for too long, and no worker is fetching one."""
        query = select(runs.c.updated_at).where(runs.c.id == run_id)
        updated_at = (await connection.execute(query)).scalar_one_or_none()
        late = updated_at is not None and now - updated_at > self._longest_wait
        return late and not await _has_running_jobs(connection, run_id)

    async def _close_abandoned(self, connection: AsyncConnection, now: datetime, reason: str) -> int:
        """Fail the accounts of the unfinished run that have no job, with the last error of that job or this reason."""
        # A step waits for the lock of the run's row. So a job that is gone by now has written its last step.
        run_id = await _unfinished(connection, lock=True)
        positions = await _abandoned(connection, run_id) if run_id else []
        if not run_id or not positions:
            return 0
        keys = [f"{run_id}:{position}" for position in positions]
        failed = select(jobs.c.key, jobs.c.last_error).where(jobs.c.kind == SCRAPE, jobs.c.key.in_(keys), text(GAP))
        errors = {row.key: _brief(row.last_error) for row in await connection.execute(failed.order_by(jobs.c.id))}
        for position, key in zip(positions, keys, strict=True):
            change = {"status": RunStatus.FAILED, "reason": errors.get(key, reason), "updated_at": now}
            await connection.execute(_unfinished_account(run_id, position).values(change))
        await _close_if_finished(connection, run_id, now, summarize=self._summarize)
        return len(positions)


async def _suggested_limits(connection: AsyncConnection, handles: Sequence[str]) -> Sequence[int]:
    """For each handle the limit that earlier fetches suggest, or the default if the account is not tracked."""
    known: dict[str, int] = {}
    for some in slices([handle.lower() for handle in handles]):
        query = (
            select(users.c.handle_key, *STATISTICS)
            .join(users, (users.c.platform == accounts.c.platform) & (users.c.id == accounts.c.user_id))
            .where(accounts.c.platform == X, accounts.c.state != AccountState.UNTRACKED)
            .where(users.c.handle_key.in_(some))
        )
        rows = (await connection.execute(query)).mappings()
        known |= {row["handle_key"]: next_limit(stats_of(row)) for row in rows}
    return [known.get(handle.lower(), DEFAULT_LIMIT) for handle in handles]


async def _insert(
    connection: AsyncConnection, run_id: RunId, handles: Sequence[str], limit: int, asked_by: str, now: datetime
) -> bool:
    """Insert a run with its accounts. False if another one is unfinished: a unique index allows one at a time."""
    new = insert_of(connection.dialect.name)(runs).values(
        id=run_id,
        kind=SCRAPE,
        status=RunStatus.PENDING,
        asked_by=asked_by,
        post_limit=limit,
        created_at=now,
        updated_at=now,
    )
    alone = new.on_conflict_do_nothing(index_elements=["kind"], index_where=text(UNFINISHED_RUN))
    if (await connection.execute(alone.returning(runs.c.id))).first() is None:
        return False
    rows = [
        {"run_id": run_id, "position": position, "handle": handle, "status": RunStatus.PENDING, "updated_at": now}
        for position, handle in enumerate(handles)
    ]
    await connection.execute(insert(run_accounts), rows)
    return True


async def _unfinished(connection: AsyncConnection, *, lock: bool = False) -> RunId | None:
    query = select(runs.c.id).where(runs.c.kind == SCRAPE, text(UNFINISHED_RUN))
    found: RunId | None = (await connection.execute(query.with_for_update() if lock else query)).scalar()
    return found


async def _live_jobs(connection: AsyncConnection, run_id: str) -> Sequence[Any]:
    query = select(jobs.c.id, jobs.c.key, jobs.c.state).where(_is_live_job_of(run_id)).order_by(jobs.c.id)
    return (await connection.execute(query)).all()


def _is_live_job_of(run_id: str) -> ColumnElement[bool]:
    return and_(jobs.c.kind == SCRAPE, jobs.c.key.startswith(f"{run_id}:"), text(LIVE_KEY))


async def _has_running_jobs(connection: AsyncConnection, run_id: str) -> bool:
    return any(job.state == JobState.RUNNING for job in await _live_jobs(connection, run_id))


async def _cancel_jobs(connection: AsyncConnection, run_id: str, now: datetime) -> None:
    await cancel(connection, [JobId(job.id) for job in await _live_jobs(connection, run_id)], now)


async def _abandoned(connection: AsyncConnection, run_id: RunId) -> Sequence[int]:
    """The positions of unfinished accounts that have no live job."""
    own = run_accounts.c
    unfinished = select(own.position).where(own.run_id == run_id, own.status.in_(UNFINISHED))
    positions = set((await connection.execute(unfinished)).scalars())
    return sorted(positions - {int(job.key.rpartition(":")[2]) for job in await _live_jobs(connection, run_id)})


async def _wait_reason(connection: AsyncConnection, run_id: RunId) -> str | None:
    """Why the first of its jobs waits."""
    waiting = select(jobs.c.wait_reason, jobs.c.last_error).where(
        _is_live_job_of(run_id), jobs.c.wait_reason.is_not(None)
    )
    row = (await connection.execute(waiting.order_by(jobs.c.run_at, jobs.c.id).limit(1))).first()
    if row is None:
        return None
    return f"{row.wait_reason}: {_brief(row.last_error)}" if row.last_error else str(row.wait_reason)


def new_run_id(now: datetime) -> RunId:
    """A UUID that sorts by time (version 7)."""
    millisecond = int(now.timestamp() * 1000) & (1 << 48) - 1
    chance = secrets.randbits(74)
    # RFC 9562: 48 bits of time, the version, 12 random bits, the variant, 62 random bits.
    value = millisecond << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    return RunId(str(UUID(int=value)))


def _brief(error: str | None) -> str:
    return last_line(error)[:_REASON_LENGTH] or "its job failed without an error message"
