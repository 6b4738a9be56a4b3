"""Admissions a second: one and four processes on one rate, beside a bucket in memory and a trip to the database each.

    python -m bench.governor.mistnet_side admissions --dsn DSN --jobs RATE --processes P --form FORM

RATE is the shared rate in calls a second; DSN an empty PostgreSQL database, or the path of a file that is not there.
Forms: `gate` (the rate gate alone: the ledger takes the records and forgets them), `calls` (with the ledger),
`trip` (a trip to the database per call), `memory` (a bare token bucket in the process, which shares nothing).
Each figure counts what the busiest span was allowed and what it got: more than the rate and the burst is a failure.
"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.queue.common import Figure, Options, emit
from bench.queue.processes import await_go, say, workers
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits, Grants, crowd
from mistnet.governor.model import CallPurpose, CallRecord, KeyLabel, SourceName
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate
from mistnet.queue.errors import NotNow

MODULE = "bench.governor.mistnet_side"
ADMISSIONS = "admissions/s"
OURS, TRIP, MEMORY = "mistnet", "a trip per call", "bare bucket in memory"
SIDES = {"gate": OURS, "calls": OURS, "trip": TRIP, "memory": MEMORY}
SETTINGS = {
    "gate": "the rate gate alone",
    "calls": "with every call in the ledger",
    "trip": "one transaction each",
    "memory": "shares nothing",
}
SOURCE, KEY = SourceName("shop"), KeyLabel("key")
SECONDS, QUICK_SECONDS, MANY = 4.0, 1.0, 100_000
BIN_NS = 10_000_000
TURN = 200
BURST = 5


class Forgetful(DatabaseSourceStore):
    """The shared rows as they are; the ledger's records are dropped."""

    async def record(self, calls: Sequence[CallRecord]) -> None:
        pass


class BareBucket:
    """The least one could do: a token bucket of this process alone."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, time.monotonic()

    async def admit(self) -> None:
        while not self._taken():
            await asyncio.sleep(1 / self._rate)

    def _taken(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def url_of(dsn: str) -> str:
    return dsn if "://" in dsn else f"sqlite:///{dsn}"


async def work(options: Options) -> None:
    """One process: as many admissions as it gets until its time is over, counted by hundredths of a second."""
    seconds = SECONDS if options.jobs >= MANY else QUICK_SECONDS
    database = Database(url_of(options.dsn))
    await database.correct_clock()
    limits = GovernorLimits(rate_per_minute=options.jobs * 60.0, burst=BURST)
    async with admitting(options.form, database, limits) as admit:
        await admit()
        await asyncio.to_thread(await_go)
        counts: Counter[int] = Counter()
        cpu = time.process_time()
        ended = time.monotonic_ns() + int(seconds * 1e9)
        now = 0
        while now < ended:
            for _ in range(TURN):
                await admit()
                now = time.monotonic_ns()
                counts[now // BIN_NS] += 1
            await asyncio.sleep(0)
        cpu = time.process_time() - cpu
        begun_closing = time.monotonic()
    closing = time.monotonic() - begun_closing
    await database.close()
    say({"counts": {str(place): count for place, count in counts.items()}, "cpu": cpu, "closing": closing})


@asynccontextmanager
async def admitting(
    form: str, database: Database, limits: GovernorLimits
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    if form == "memory":
        yield BareBucket(limits.rate_per_minute / 60, crowd(limits.rate_per_minute / 60, limits.burst)).admit
        return
    if form == "trip":
        yield one_trip(DatabaseSourceStore(database), database, Grants(source=SOURCE, limits=limits))
        return
    book = Forgetful(database) if form == "gate" else DatabaseSourceStore(database)
    governor = Governor(SOURCE, {KEY: ""}, store=book, clock=database.clock, limits=limits)
    purpose = CallPurpose()

    async def admit() -> None:
        while True:
            try:
                async with governor.call("search", most=0, purpose=purpose) as call:
                    call.settle(items=1, credits_due=0)
            except NotNow:
                await asyncio.sleep(0.01)
            else:
                return

    async with governor.opened():
        yield admit


def one_trip(book: DatabaseSourceStore, database: Database, grants: Grants) -> Callable[[], Awaitable[None]]:
    async def admit() -> None:
        now = database.clock.now()
        await book.change(
            SOURCE, KEY, lambda source, key: grants.grant(source, key, refused=False, need=0, span=1e-9, now=now)
        )

    return admit


async def admissions(options: Options) -> Figure:
    if "://" in options.dsn or not Path(options.dsn).exists():
        database = Database(url_of(options.dsn))
        await migrate(database)
        await database.close()
    async with workers(MODULE, "work", options) as started:
        for worker in started:
            await worker.ready()
        for worker in started:
            await worker.go()
        told: list[dict[str, Any]] = [await worker.result() for worker in started]
    return figure(options, told)


def figure(options: Options, told: Sequence[dict[str, Any]]) -> Figure:
    """Per process, over the span in which all were at it."""
    each = [{int(place): count for place, count in one["counts"].items()} for one in told]
    first, last = max(min(one) for one in each) + 1, min(max(one) for one in each) - 1
    seconds = (last - first + 1) * BIN_NS / 1e9
    per_process = [sum(count for place, count in one.items() if first <= place <= last) / seconds for one in each]
    allowed = crowd(options.jobs, BURST)
    too_many = busiest(each, options.jobs)
    shares = options.form != "memory"
    return Figure(
        name=f"admissions per process, {options.processes} on one rate, {backend(options.dsn)}",
        side=SIDES[options.form],
        setting=SETTINGS[options.form],
        figure=sum(per_process) / len(per_process),
        unit=ADMISSIONS,
        expected=0,
        got=max(int(too_many - allowed), 0) if shares else 0,
        detail={
            "all together/s": sum(per_process),
            "slowest process/s": min(per_process),
            "rate/s": options.jobs,
            "burst": allowed,
            "most above the rate": too_many,
            "cpu us each": 1e6 * sum(one["cpu"] for one in told) / sum(sum(one.values()) for one in each),
            "closing s": max(one["closing"] for one in told),
        },
    )


def busiest(each: Sequence[dict[int, int]], rate: float) -> float:
    """How many more than the rate allows were admitted in the span where that is most."""
    total: Counter[int] = Counter()
    for one in each:
        total.update(one)
    allowed, most, running = rate * BIN_NS / 1e9, 0.0, 0.0
    for place in range(min(total), max(total) + 1):
        running = max(running + total[place] - allowed, 0.0)
        most = max(most, running)
    return most


def backend(dsn: str) -> str:
    return "postgresql" if "://" in dsn else "sqlite"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["admissions", "work"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, default=300_000, help="the shared rate, in calls a second")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="gate", choices=list(SIDES))
    options = Options(**vars(parser.parse_args()))
    if options.command == "work":
        asyncio.run(work(options))
    else:
        emit(asyncio.run(admissions(options)))


if __name__ == "__main__":
    main()
