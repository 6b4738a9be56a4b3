"""Add jobs to the queue, and wake jobs whose wait is over, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.merged import Part, part_of
from mistnet.kit.statements import copy_rows, run
from mistnet.queue.errors import BadArgs, UnknownKind
from mistnet.queue.model import Enqueued, KindName, KindRules, NewJob, Wake
from mistnet.queue.tables import jobs

CHANNEL = "mistnet_jobs"
_COPIED_FROM: Final = 100
_COLUMNS: Final = (
    *("kind", "key", "lane", "class", "args", "max_attempts", "run_at", "parked", "wait_reason"),
    *("created_at", "state"),
)
"""As `_row` has them, and then what is the same in each."""

# Its row is counted, because PostgreSQL leaves out a SELECT whose rows are not read.
_NOTIFY: Final = Part(f"SELECT pg_notify('{CHANNEL}', '')", (), 1)

_encode = msgspec.json.Encoder().encode


class JobWriter:
    """Adds jobs with the class, lane and limits that the rules of their kind give them."""

    def __init__(self, rules: Mapping[KindName, KindRules]) -> None:
        self._rules = rules

    def serves(self, kind: KindName, lane: str) -> bool:
        """Whether a job of this kind can be made on this lane."""
        return kind in self._rules and lane in self._rules[kind].lanes

    async def write(self, connection: AsyncConnection, new_jobs: Sequence[NewJob], now: datetime) -> Enqueued:
        """Add jobs whose key is not live already. They are stored when the caller's transaction commits."""
        if not new_jobs:
            return Enqueued()
        wanted, parked = await self._ordered(connection, new_jobs)
        rows = [self._row(job, now, parked=index in parked) for index, job in enumerate(wanted)]
        created, free = 0, sum(job.key is None for job in wanted)
        if connection.dialect.name == "postgresql":
            if _is_any_due(wanted, now):
                await connection.execute(text(f"NOTIFY {CHANNEL}"))
            if free >= _COPIED_FROM:
                # A job without a key conflicts with none. COPY takes half of the server's time that INSERT does.
                created = await copy_rows(connection, jobs, _COLUMNS, ((*row, now, "pending") for row in rows[:free]))
                rows = rows[free:]
        if rows:
            created += (await run(connection, "enqueue", {"jobs": rows, "now": now})).rowcount
        return Enqueued(created=created, duplicates=len(new_jobs) - created, parked=min(len(parked), created))

    async def parts(
        self, connection: AsyncConnection, new_jobs: Sequence[NewJob], now: datetime
    ) -> Sequence[Part] | None:
        """What `write` does, as parts of one statement, unless there are so many that they are copied."""
        wanted, parked = await self._ordered(connection, new_jobs)
        if sum(job.key is None for job in wanted) >= _COPIED_FROM:
            return None
        rows = [self._row(job, now, parked=index in parked) for index, job in enumerate(wanted)]
        added = part_of(connection, "enqueue", {"jobs": rows, "now": now})
        return [_NOTIFY, added] if _is_any_due(wanted, now) else [added]

    async def _ordered(
        self, connection: AsyncConnection, new_jobs: Sequence[NewJob]
    ) -> tuple[Sequence[NewJob], Collection[int]]:
        """One job per key, in an order that all writers share, so that two of them cannot deadlock.

        Also the indexes of jobs above their kind's cap on live jobs. Concurrent writers may exceed the cap a little.
        """
        keyed = {(job.kind, job.key): job for job in reversed(new_jobs) if job.key is not None}
        wanted = [job for job in new_jobs if job.key is None] + [keyed[place] for place in sorted(keyed)]
        parked: set[int] = set()
        for kind in dict.fromkeys(job.kind for job in wanted):
            if (cap := self._rules_of(kind).live_cap) is not None:
                live = (await run(connection, "live_count", {"kind": kind, "limit": cap})).scalar_one()
                places = [index for index, job in enumerate(wanted) if job.kind == kind]
                parked.update(places[max(cap - live, 0) :])
        return wanted, parked

    def _row(self, job: NewJob, now: datetime, *, parked: bool) -> tuple[object, ...]:
        rules = self._rules_of(job.kind)
        lane = job.lane or next(iter(rules.lanes), None)
        if lane is None or lane not in rules.lanes:
            known = ", ".join(rules.lanes) or "none, because the settings of this process name none for it"
            raise BadArgs(job.kind, f"it has no lane {lane!r}; its lanes: {known}")
        args, run_at = _encode(job.args).decode(), job.run_at or now
        job_class = int(rules.job_class)
        return job.kind, job.key, lane, job_class, args, rules.max_attempts, run_at, parked, job.reason

    def _rules_of(self, kind: KindName) -> KindRules:
        try:
            return self._rules[kind]
        except KeyError:
            raise UnknownKind(kind, sorted(self._rules)) from None


def _is_any_due(new_jobs: Sequence[NewJob], now: datetime) -> bool:
    return any((job.run_at or now) <= now for job in new_jobs)


async def write_wakes(connection: AsyncConnection, wakes: Sequence[Wake], now: datetime) -> None:
    """Make jobs due whose wait is over."""
    for wake in dict.fromkeys(wakes):
        binds = {"kind": wake.kind, "reason": wake.reason, "now": now}
        await run(connection, "wake", binds)
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"NOTIFY {CHANNEL}"))
