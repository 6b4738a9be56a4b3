"""What the sides of the queue benchmark share: the contract, the figures, the clock, the databases.

A side is a module, run as a fresh process for every measurement:

    python -m bench.queue.<side> throughput --dsn DSN --jobs N --batch B --processes P [--form F]
    python -m bench.queue.<side> latency --dsn DSN --jobs N
    python -m bench.queue.<side> enqueue --dsn DSN --jobs N

DSN names an empty database of the side's own. Every command prints one JSON line per figure (`Figure`) on
stdout, and nothing else. `batch` is how much a worker takes at a time, in the side's own terms; `form` picks
one of its ways to work. `mistnet_side` also answers, with the arguments of `throughput`, to `depth` (N jobs
pending), `aged` (N jobs processed before) and `sqlite` (DSN is the path of a file that does not exist yet).

A side that fills in a `bench.queue.side.Side` and hands it to `main` keeps this contract.
"""

import json
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

import asyncpg

PER_SECOND = "jobs/s"
MILLISECONDS = "ms"
MINUTES = "min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    command: str
    dsn: str
    jobs: int
    batch: int
    processes: int
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number; `expected` and `got` count the jobs it stands on."""

    name: str
    side: str
    setting: str
    figure: float
    unit: str
    expected: int
    got: int
    detail: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name, self.side, self.setting

    @property
    def lower_is_better(self) -> bool:
        return self.unit in {MILLISECONDS, MINUTES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of the machine's clock and the jobs handled in it."""

    started_ns: int
    ended_ns: int
    handled: int

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.started_ns) / 1e9


def now_ns() -> int:
    """CLOCK_MONOTONIC: all processes of one machine read the same."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def emit(figure: Figure) -> None:
    print(json.dumps(asdict(figure)), flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def joined(spans: Sequence[Span]) -> Span:
    return Span(
        started_ns=min(span.started_ns for span in spans),
        ended_ns=max(span.ended_ns for span in spans),
        handled=sum(span.handled for span in spans),
    )


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def settle(dsn: str) -> None:
    """Leave nothing of the preparation to be paid for while the clock runs."""
    async with connected(dsn) as connection:
        await connection.execute("VACUUM (ANALYZE)")
        await connection.execute("CHECKPOINT")


async def create_database(admin_dsn: str, name: str) -> None:
    async with connected(admin_dsn) as connection:
        await connection.execute(f'CREATE DATABASE "{name}"')


async def drop_database(admin_dsn: str, name: str) -> None:
    async with connected(admin_dsn) as connection:
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
