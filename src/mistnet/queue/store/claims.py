"""The queue port on a database: claim, settle, extend, release, look ahead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import CursorResult, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import command, statement
from mistnet.queue.model import (
    GAP_STATES,
    Awaited,
    Claim,
    Enqueued,
    JobState,
    KindName,
    Lease,
    NewJob,
    Settlement,
    Target,
    WorkerName,
)
from mistnet.queue.ports import Outlook
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import GivenUp, Prepared, Writers, tell_none

LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
CAP_LOCK = 0x6D697374  # any number all mistnet workers share: claims under a cap go one at a time


class JobQueue:
    """Leases jobs to workers and settles what they return, each in one transaction."""

    def __init__(
        self, database: Database, job_writer: JobWriter, writers: Writers, *, given_up: GivenUp = tell_none
    ) -> None:
        self._database = database
        self._job_writer = job_writer
        self._writers = writers
        self._given_up = given_up
        self._dialect = database.dialect
        self._flowing = False

    async def enqueue(self, jobs: Sequence[NewJob], *, now: datetime) -> Enqueued:
        async with self._database.transaction() as connection:
            return await self._job_writer.write(connection, jobs, now)

    async def claim(
        self,
        *,
        worker: WorkerName,
        targets: Sequence[Target],
        room: int,
        lease: timedelta,
        now: datetime,
        aged_before: datetime | None,
        lost_before: datetime | None = None,
    ) -> Sequence[Lease]:
        """Leases due jobs of the most urgent target, or jobs whose lease ran out, to one worker."""
        if not targets or room <= 0:
            return []
        binds = {
            "worker": worker,
            "room": room,
            "now": now,
            "lost_before": lost_before or now,
            "lease_until": now + lease,
            "aged_before": aged_before or LONG_AGO,
        }
        claim = self._claim_sqlite if self._dialect == "sqlite" else self._claim_postgresql
        leases = await claim(targets, binds)
        return sorted(leases, key=lambda lease: (lease.run_at, lease.id))

    async def _claim_postgresql(self, targets: Sequence[Target], binds: Mapping[str, Any]) -> Sequence[Lease]:
        capped = any(target.kind_cap is not None or target.lane_cap is not None for target in targets)
        opened = self._database.transaction() if capped else self._database.autocommit()
        async with opened as connection:
            if capped:
                await connection.execute(text(f"SELECT pg_advisory_xact_lock({CAP_LOCK})"))
            rows = await connection.execute(statement("claim", self._dialect), {**binds, **_columns(targets)})
            return [Lease(*row) for row in rows]

    async def _claim_sqlite(self, targets: Sequence[Target], binds: Mapping[str, Any]) -> Sequence[Lease]:
        listed = msgspec.json.encode(targets).decode()
        now: datetime = binds["now"]
        if not self._flowing:
            ahead = await self.outlook(targets, now=now)
            if ahead.next_due_at is None or ahead.next_due_at > now:
                return []  # looked without taking the one write lock there is
        self._flowing = False
        async with self._database.transaction() as connection:
            expired = await connection.execute(statement("expired", self._dialect), {**binds, "targets": listed})
            lost_by = {row.job_id: row.worker for row in expired}
            if lost_by:
                taken = {**binds, "ids": list(lost_by)}
                rows = await connection.execute(statement("claim_expired", self._dialect), taken)
                return [msgspec.structs.replace(Lease(*row), lost_by=lost_by[row.id]) for row in rows]
            urgent = await connection.execute(statement("urgent", self._dialect), {**binds, "targets": listed})
            head = urgent.first()
            if head is None:
                return []
            taken = {**binds, "kind": head.kind, "lane": head.lane, "take": head.take}
            rows = await connection.execute(statement("claim", self._dialect), taken)
            leases = [Lease(*row) for row in rows]
        self._flowing = len(leases) >= head.take
        return leases

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime) -> Collection[Claim]:
        """Applies outcomes in one transaction; returns the claims that still held. The rest is void."""
        done = [s.lease for s in settlements if s.state is JobState.SUCCEEDED]
        back = [s for s in settlements if s.state is not JobState.SUCCEEDED]
        plain = not back and not any(s.writes for s in settlements)
        # Before the transaction: looking for the links of posts takes a while, and others wait to write.
        prepared = {s.lease.claim: self._writers.prepare(s.writes) for s in settlements if s.writes}
        async with self._database.autocommit() if plain else self._database.transaction() as connection:
            won = await self._finish(connection, done, now) if done else set()
            back = await self._with_waits_that_are_over(connection, back, now)
            won |= await self._put_back(connection, back, now) if back else set()
            writes = [write for claim, each in prepared.items() if claim in won for write in each.writes]
            if writes:
                await self._writers.write(connection, Prepared(writes), now)
            over = [s.lease.id for s in back if s.state in GAP_STATES and s.lease.claim in won]
            if over:
                await self._given_up(connection, over, now)  # after the writes: what waits may have ended with them
        return won

    async def _finish(self, connection: AsyncConnection, leases: Sequence[Lease], now: datetime) -> set[Claim]:
        if self._dialect == "postgresql":
            rows = await connection.execute(statement("finish", self._dialect), {**_held(leases), "now": now})
            return _claims(rows)
        won = await self._still_held(connection, leases)
        ids = sorted(job_id for job_id, _fence in won)
        binds = {"ids": ids, "now": now, "state": JobState.SUCCEEDED}
        await connection.execute(command("history", self._dialect), binds)
        await connection.execute(command("forget", self._dialect), {"ids": ids})
        return won

    async def _with_waits_that_are_over(
        self, connection: AsyncConnection, settlements: Sequence[Settlement], now: datetime
    ) -> list[Settlement]:
        """Jobs that would wait for one that ended since they looked are due now: nothing will wake them any more."""
        awaited: dict[KindName, set[str]] = {}
        for each in settlements:
            if each.awaits:
                awaited.setdefault(each.awaits.kind, set()).add(each.awaits.key)
        alive: set[Awaited] = set()
        for kind, keys in sorted(awaited.items()):
            rows = await connection.execute(statement("awaited", self._dialect), {"kind": kind, "keys": sorted(keys)})
            alive |= {Awaited(kind, row.key) for row in rows}
        return [
            each
            if each.awaits is None or each.awaits in alive
            else msgspec.structs.replace(each, run_at=now, reason=None)
            for each in settlements
        ]

    async def _put_back(
        self, connection: AsyncConnection, settlements: Sequence[Settlement], now: datetime
    ) -> set[Claim]:
        if self._dialect == "postgresql":
            rows = await connection.execute(statement("put_back", self._dialect), _next_states(settlements))
            won = _claims(rows)
        else:
            won = await self._still_held(connection, [s.lease for s in settlements])
            kept = [_next_state(s) for s in settlements if s.lease.claim in won]
            if kept:
                await connection.execute(command("put_back", self._dialect), kept)
        await self._note_errors(connection, [s for s in settlements if s.error and s.lease.claim in won], now)
        return won

    async def _note_errors(self, connection: AsyncConnection, settlements: Sequence[Settlement], now: datetime) -> None:
        if not settlements:
            return
        notes = [(s.lease.id, s.lease.fence, s.error) for s in settlements]
        binds: dict[str, Any] = {"now": now, "worker": settlements[0].lease.worker}
        if self._dialect == "postgresql":
            ids, fences, errors = zip(*notes, strict=True)
            binds |= {"ids": ids, "fences": fences, "errors": errors}
        else:
            binds |= {"notes": msgspec.json.encode(notes).decode()}
        await connection.execute(command("note_errors", self._dialect), binds)

    async def extend(self, leases: Sequence[Lease], *, until: datetime) -> Collection[Claim]:
        """Lengthens leases; returns the claims that are still ours, whether or not lengthened this time."""
        if self._dialect == "postgresql":
            async with self._database.autocommit() as connection:
                await connection.execute(command("extend", self._dialect), {**_held(leases), "until": until})
                rows = await connection.execute(statement("still_held", self._dialect), _held(leases))
                return _claims(rows)
        async with self._database.transaction() as connection:
            await connection.execute(command("extend", self._dialect), {"held": _pairs(leases), "until": until})
            return await self._still_held(connection, leases)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Hands leases back: the jobs are due again at once, and no attempt is spent."""
        if not leases:
            return
        async with self._database.transaction() as connection:
            if self._dialect == "postgresql":
                await connection.execute(command("release", self._dialect), _held(leases))
                await connection.execute(text("NOTIFY mistnet_jobs"))
            else:
                each = [{"id": lease.id, "fence": lease.fence} for lease in leases]
                await connection.execute(command("release", self._dialect), each)

    async def outlook(self, targets: Sequence[Target], *, now: datetime) -> Outlook:
        binds: dict[str, Any] = {"now": now}
        if self._dialect == "postgresql":
            columns = _columns(targets)
            binds |= {name: columns[name] for name in ("kinds", "lanes", "kind_caps", "lane_caps")}
        else:
            binds |= {"targets": msgspec.json.encode(targets).decode()}
        async with self._database.read_cached_plan() as connection:
            row = (await connection.execute(statement("outlook", self._dialect), binds)).one()
        return Outlook(next_due_at=row.next_due_at, capped=bool(row.capped))

    async def _still_held(self, connection: AsyncConnection, leases: Sequence[Lease]) -> set[Claim]:
        rows = await connection.execute(statement("still_held", self._dialect), {"held": _pairs(leases)})
        return _claims(rows)


def _claims(rows: CursorResult[Any]) -> set[Claim]:
    return {(row.id, row.fence) for row in rows}


def _held(leases: Sequence[Lease]) -> dict[str, Any]:
    return {"ids": [lease.id for lease in leases], "fences": [lease.fence for lease in leases]}


def _pairs(leases: Sequence[Lease]) -> str:
    return msgspec.json.encode([(lease.id, lease.fence) for lease in leases]).decode()


def _columns(targets: Sequence[Target]) -> dict[str, Any]:
    return {
        "kinds": [target.kind for target in targets],
        "lanes": [target.lane for target in targets],
        "classes": [target.job_class for target in targets],
        "takes": [target.take for target in targets],
        "kind_caps": [target.kind_cap for target in targets],
        "lane_caps": [target.lane_cap for target in targets],
    }


def _next_state(settlement: Settlement) -> dict[str, Any]:
    return {
        "id": settlement.lease.id,
        "fence": settlement.lease.fence,
        "state": settlement.state,
        "run_at": settlement.run_at,
        "attempts": settlement.attempts,
        "args": settlement.args,
        "alone": settlement.alone,
        "reason": settlement.reason,
        "error": settlement.error,
    }


def _next_states(settlements: Sequence[Settlement]) -> dict[str, Any]:
    rows = [_next_state(settlement) for settlement in settlements]
    names = {
        "ids": "id",
        "fences": "fence",
        "states": "state",
        "run_ats": "run_at",
        "attempts_list": "attempts",
        "args_list": "args",
        "alones": "alone",
        "reasons": "reason",
        "errors": "error",
    }
    return {bind: [row[name] for row in rows] for bind, name in names.items()}
