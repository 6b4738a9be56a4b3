"""Writes the steps of runs: what each page brought, and the end when the last account has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.events import EventKind, NewEvent, summaries
from mistnet.domain.runs import UNFINISHED, Run, RunAccount, RunId, RunStatus, RunStep, outcome_of
from mistnet.domain.social import UserId
from mistnet.store.events import write_events
from mistnet.store.inserts import insert_of
from mistnet.store.tables import posts, run_accounts, run_posts, runs


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
