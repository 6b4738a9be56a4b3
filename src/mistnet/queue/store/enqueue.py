"""Puts new jobs into the queue, in a transaction of its own or in the caller's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.statements import command, statement
from mistnet.queue.errors import BadArgs, UnknownKind
from mistnet.queue.model import Enqueued, KindName, KindRules, NewJob, Wake

CHANNEL = "mistnet_jobs"
_encode = msgspec.json.Encoder().encode


class JobWriter:
    """Knows the rules of every kind, and so the class, lane and limits of a new job."""

    def __init__(self, rules: Mapping[KindName, KindRules]) -> None:
        self._rules = rules

    def serves(self, kind: KindName, lane: str) -> bool:
        """Whether a job of this kind can be made on this lane."""
        return kind in self._rules and lane in self._rules[kind].lanes

    async def write(self, connection: AsyncConnection, new_jobs: Sequence[NewJob], now: datetime) -> Enqueued:
        """Adds what is not alive already. Commit or roll back as you like: the jobs share your transaction."""
        if not new_jobs:
            return Enqueued()
        wanted = _distinct(new_jobs)
        parked = await self._parked(connection, wanted)
        rows = [self._row(job, now, parked=index in parked) for index, job in enumerate(wanted)]
        created = await _insert(connection, rows, now)
        if connection.dialect.name == "postgresql" and any(row["run_at"] <= now for row in rows):
            await connection.execute(text(f"NOTIFY {CHANNEL}"))
        return Enqueued(created=created, duplicates=len(new_jobs) - created, parked=min(len(parked), created))

    def _row(self, job: NewJob, now: datetime, *, parked: bool) -> dict[str, Any]:
        rules = self._rules_of(job.kind)
        lane = job.lane or next(iter(rules.lanes), None)
        if lane is None or lane not in rules.lanes:
            known = ", ".join(rules.lanes) or "none: the settings here name nobody for it"
            raise BadArgs(job.kind, f"it has no lane {lane!r}; its lanes: {known}")
        return {
            "kind": job.kind,
            "key": job.key,
            "lane": lane,
            "class": int(rules.job_class),
            "args": _encode(job.args).decode(),
            "max_attempts": rules.max_attempts,
            "run_at": job.run_at or now,
            "parked": parked,
            "reason": job.reason,
        }

    def _rules_of(self, kind: KindName) -> KindRules:
        try:
            return self._rules[kind]
        except KeyError:
            raise UnknownKind(kind, sorted(self._rules)) from None

    async def _parked(self, connection: AsyncConnection, jobs: Sequence[NewJob]) -> set[int]:
        """Which of these would exceed their kind's cap on live jobs. The cap is soft under concurrency."""
        parked: set[int] = set()
        for kind in dict.fromkeys(job.kind for job in jobs):
            cap = self._rules_of(kind).live_cap
            if cap is not None:
                count = statement("live_count", connection.dialect.name)
                live = (await connection.execute(count, {"kind": kind, "limit": cap})).scalar_one()
                places = [index for index, job in enumerate(jobs) if job.kind == kind]
                parked.update(places[max(cap - live, 0) :])
        return parked


async def write_wakes(connection: AsyncConnection, wakes: Sequence[Wake], now: datetime) -> None:
    """Makes jobs due whose wait is over."""
    for wake in dict.fromkeys(wakes):
        binds = {"kind": wake.kind, "reason": wake.reason, "now": now}
        await connection.execute(command("wake", connection.dialect.name), binds)
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"NOTIFY {CHANNEL}"))


def _distinct(jobs: Iterable[NewJob]) -> list[NewJob]:
    """One job per key, in an order all writers share, so that two of them cannot wait for each other."""
    keyed = {(job.kind, job.key): job for job in reversed(list(jobs)) if job.key is not None}
    return [job for job in jobs if job.key is None] + [keyed[place] for place in sorted(keyed)]


async def _insert(connection: AsyncConnection, rows: Sequence[dict[str, Any]], now: datetime) -> int:
    dialect = connection.dialect.name
    if dialect != "postgresql":
        result = await connection.execute(command("enqueue", dialect), [{**row, "now": now} for row in rows])
        return result.rowcount
    columns = {
        "kinds": "kind",
        "keys": "key",
        "lanes": "lane",
        "classes": "class",
        "args_list": "args",
        "max_attempts_list": "max_attempts",
        "run_ats": "run_at",
        "parkeds": "parked",
        "reasons": "reason",
    }
    binds: dict[str, Any] = {bind: [row[column] for row in rows] for bind, column in columns.items()}
    result = await connection.execute(command("enqueue", dialect), {**binds, "now": now})
    return result.rowcount
