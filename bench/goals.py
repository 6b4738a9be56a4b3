"""What mistnet should reach beside its peers and the bare database, and whether it did in this run."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.report import BARE, BARE_LOOP, OURS, Row, best

ONE_PROCESS = "throughput, 1 process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A ratio that must be at least `wanted`, between two figures of one run."""

    name: str
    wanted: float
    ours: Callable[[Row], bool]
    other: Callable[[Row], bool]

    def got(self, measured: Sequence[Row]) -> float | None:
        ours, other = best(filter(self.ours, measured)), best(filter(self.other, measured))
        return ours.times(other) if ours and other else None

    def reached(self, got: float) -> bool:
        return got >= self.wanted

    def __str__(self) -> str:
        return f"at least {self.wanted:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """How many times as much it costs as another figure of the run, at most `allowed`."""

    name: str
    allowed: float
    ours: Callable[[Row], bool]
    other: Callable[[Row], bool]

    def got(self, measured: Sequence[Row]) -> float | None:
        ours, other = best(filter(self.ours, measured)), best(filter(self.other, measured))
        return other.times(ours) if ours and other else None

    def reached(self, got: float) -> bool:
        return got <= self.allowed

    def __str__(self) -> str:
        return f"at most {self.allowed:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A figure that must be at most `allowed`, the worst of its rows."""

    name: str
    allowed: float
    of: Callable[[Row], bool]

    def got(self, measured: Sequence[Row]) -> float | None:
        return max((row.figure for row in filter(self.of, measured)), default=None)

    def reached(self, got: float) -> bool:
        return got <= self.allowed

    def __str__(self) -> str:
        return f"at most {self.allowed:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A figure that must be at least `wanted`, the worst of its rows."""

    name: str
    wanted: float
    of: Callable[[Row], bool]

    def got(self, measured: Sequence[Row]) -> float | None:
        return min((row.figure for row in filter(self.of, measured)), default=None)

    def reached(self, got: float) -> bool:
        return got >= self.wanted

    def __str__(self) -> str:
        return f"at least {self.wanted:,g}"


def row(name: str, side: str, setting: str = "") -> Callable[[Row], bool]:
    """The rows of a table by a side, whose setting holds some words."""
    return lambda row: row.first.name == name and row.first.side == side and setting in row.first.setting


def peers(name: str) -> Callable[[Row], bool]:
    return lambda row: row.first.name == name and row.first.side not in {BARE, OURS}


def pages(begins: str, *, of: str = "/", posts: str = "", busy: bool) -> Callable[[Row], bool]:
    """The pages whose address begins so, in the tables whose name does."""
    writes = "a worker writes" if busy else "nothing writes"
    return lambda row: (
        row.first.name.startswith(begins)
        and writes in row.first.name
        and posts in row.first.name
        and row.first.setting.startswith(of)
    )


BATCH = row(ONE_PROCESS, OURS, "batch 100")
SINGLE = row(ONE_PROCESS, OURS, "single jobs")


def collecting(database: str, *, wall: float, processor: float) -> tuple[Goal, ...]:
    name = f"collecting, {database}"
    used = f"collecting, processor time, {database}"
    pages = "the same pages, 1 process"
    return (
        Goal(
            name=f"{name} / bare loop, 16 at once",
            wanted=wall,
            ours=row(name, OURS, pages),
            other=row(name, BARE_LOOP, "16 accounts at once"),
        ),
        Goal(
            name=f"{used} / bare loop",
            wanted=processor,
            ours=row(used, OURS, pages),
            other=row(used, BARE_LOOP, "one account after another"),
        ),
        Goal(
            name=f"{name} / scrapy, bulk upserts",
            wanted=2,
            ours=row(name, OURS, pages),
            other=row(name, "scrapy", "bulk upserts"),
        ),
    )


def whole_work() -> tuple[Goal | Cost | Ceiling, ...]:
    """Posts, reply chains and people, by several processes on one PostgreSQL."""
    whole = "threads and people too"
    used = "collecting, processor time, PostgreSQL"
    one = row(used, OURS, f"{whole}, 1 process")
    # Two workers, what serves them in PostgreSQL, and the source.
    enough = (os.cpu_count() or 1) >= 6
    return (
        Cost(
            name="processor time per post, 2 processes / 1",
            allowed=1.05,
            ours=row(used, OURS, f"{whole}, 2"),
            other=one,
        ),
        Cost(
            name="processor time per post, 4 processes / 1",
            allowed=1.10,
            ours=row(used, OURS, f"{whole}, 4"),
            other=one,
        ),
        Goal(
            name="whole work, 2 processes / 1",
            wanted=1.5 if enough else 1.0,
            ours=row("collecting, PostgreSQL", OURS, f"{whole}, 2"),
            other=row("collecting, PostgreSQL", OURS, f"{whole}, 1 process"),
        ),
        Ceiling(
            name="time waited for locks, 4 processes",
            allowed=0.02,
            of=row("time waited for locks / the processes' time, PostgreSQL", OURS, f"{whole}, 4"),
        ),
    )


def syncing(database: str) -> Goal:
    name = f"follow sync, {database}"
    return Goal(name=f"{name} / bare loop", wanted=0.5, ours=row(name, OURS), other=row(name, BARE_LOOP))


def pricing(database: str, wanted: float) -> tuple[Goal, Goal]:
    def goal(name: str) -> Goal:
        return Goal(name=f"{name} / bare upserts", wanted=wanted, ours=row(name, OURS), other=row(name, BARE_LOOP))

    return goal(f"price points written, {database}"), goal(f"price points seen again, {database}")


def crawling(database: str) -> tuple[Goal, Goal]:
    """What it costs that pages of strangers are read in processes that may be killed."""

    def goal(name: str) -> Goal:
        return Goal(
            name=f"{name}: page readers / the worker's own process",
            wanted=0.95,
            ours=row(name, OURS, "page readers"),
            other=row(name, OURS, "in the worker's process"),
        )

    return goal(f"crawling, {database}"), goal(f"crawling, processor time, {database}")


def over_the_broker(queue: str) -> Goal:
    name = f"jobs over RabbitMQ, {queue} queue"

    def ours(each: Row) -> bool:  # what was published beforehand, as for the bare consumer
        return row(name, OURS)(each) and "dispatched" not in each.first.setting

    return Goal(name=f"{name} / bare consumer", wanted=0.6, ours=ours, other=row(name, BARE_LOOP))


def governing(processes: int, database: str) -> tuple[Floor | Goal, ...]:
    name = f"admissions per process, {processes} on one rate, {database}"
    gate = row(name, OURS, "the rate gate alone")
    return (
        Floor(name=f"{name}, /s", wanted=50_000, of=gate),
        Goal(name=f"{name} / a trip per call", wanted=20, ours=gate, other=row(name, "a trip per call")),
        Goal(name=f"{name} / bare bucket", wanted=0.2, ours=gate, other=row(name, "bare bucket in memory")),
    )


GOALS: tuple[Goal | Cost | Ceiling | Floor, ...] = (
    Goal(
        name="single jobs / pgqueuer's best worker",
        wanted=1.2,
        ours=SINGLE,
        other=row(ONE_PROCESS, "pgqueuer", "manager"),
    ),
    Goal(
        name="batch 100 / pgqueuer's best worker", wanted=2, ours=BATCH, other=row(ONE_PROCESS, "pgqueuer", "manager")
    ),
    Goal(
        name="batch 100 / pgqueuer's bare queries",
        wanted=1.0,
        ours=BATCH,
        other=row(ONE_PROCESS, "pgqueuer", "queries"),
    ),
    Goal(name="batch 100 / procrastinate", wanted=15, ours=BATCH, other=row(ONE_PROCESS, "procrastinate")),
    Goal(name="batch 100 / bare loop, batch 100", wanted=0.35, ours=BATCH, other=row(ONE_PROCESS, BARE, "batch 100")),
    Goal(name="idle pick-up, p99 / best peer", wanted=1, ours=row("latency, p99", OURS), other=peers("latency, p99")),
    Goal(name="bulk enqueue / COPY", wanted=0.5, ours=row("bulk enqueue", OURS), other=row("bulk enqueue", BARE)),
    Goal(
        name="1,000,000 pending / 100,000 pending",
        wanted=0.75,
        ours=row("depth", OURS, "1,000,000 pending"),
        other=row("depth", OURS, "100,000 pending"),
    ),
    Goal(
        name="1,000 pending / 100,000 pending",
        wanted=0.75,
        ours=row("depth", OURS, "1,000 pending, again"),
        other=row("depth", OURS, "100,000 pending"),
    ),
    Goal(
        name="after a million processed / before",
        wanted=0.75,
        ours=row("depth", OURS, "after 1,000,000"),
        other=row("depth", OURS, "after 0"),
    ),
    *collecting("SQLite", wall=0.85, processor=0.8),
    *collecting("PostgreSQL", wall=0.75, processor=0.7),
    *whole_work(),
    Ceiling(
        name="processor time per post, last tenth / first tenth",
        allowed=1.1,
        of=row("last tenth / first tenth", OURS, "processor time"),
    ),
    Ceiling(name="peak memory of a worker, MB", allowed=160, of=row("peak memory of a worker", OURS)),
    Ceiling(name="credits spent / least possible", allowed=1.05, of=row("credits spent / least possible", OURS)),
    Ceiling(name="mean delay / fixed polling's", allowed=0.75, of=row("mean delay / fixed polling's", OURS)),
    Ceiling(name="median delay / fixed polling's", allowed=0.6, of=row("median delay / fixed polling's", OURS)),
    Ceiling(name="credits / fixed polling's", allowed=1.0, of=row("credits / fixed polling's", OURS)),
    Ceiling(name="slowest page, p50, ms", allowed=200, of=pages("pages, p50", busy=False)),
    Ceiling(
        name="the API's p99 / /healthz's, 10,000,000 posts on PostgreSQL, while a worker writes",
        allowed=8,
        of=pages("pages, p99", of="/api", busy=True, posts="10,000,000 posts on PostgreSQL"),
    ),
    Ceiling(
        name="the API's p99 / /healthz's, 1,000,000 posts, while a worker writes",
        allowed=10,
        of=pages("pages, p99", of="/api", busy=True, posts="1,000,000 posts on"),
    ),
    syncing("SQLite"),
    syncing("PostgreSQL"),
    *pricing("SQLite", 0.6),
    *pricing("PostgreSQL", 0.8),
    over_the_broker("classic"),
    over_the_broker("quorum"),
    Goal(
        name="links named / ada-url and w3lib",
        wanted=0.5,
        ours=row("links named", OURS),
        other=row("links named", "ada-url + w3lib"),
    ),
    Goal(
        name="texts searched / twitter-text",
        wanted=1.0,
        ours=row("texts searched", OURS),
        other=row("texts searched", "twitter-text"),
    ),
    Ceiling(
        name="peak memory of a sync / of one a tenth as long",
        allowed=1.15,
        of=row("peak memory of a sync / of one a tenth as long", OURS),
    ),
    Ceiling(name="materializing mutuals / the plain join", allowed=3, of=row("materializing / the plain join", OURS)),
    Ceiling(
        name="credits of a sync / least possible", allowed=1.05, of=row("credits of a sync / least possible", OURS)
    ),
    Goal(
        name="product pages read / extruct's default",
        wanted=10,
        ours=row("product pages read", OURS),
        other=row("product pages read", "extruct", "default"),
    ),
    Goal(
        name="product pages read / lxml's bare parse",
        wanted=0.05,
        ours=row("product pages read", OURS),
        other=row("product pages read", "lxml"),
    ),
    *crawling("SQLite"),
    *crawling("PostgreSQL"),
    *governing(1, "sqlite"),
    *governing(4, "sqlite"),
    *governing(1, "postgresql"),
    *governing(4, "postgresql"),
    Ceiling(name="1,000 posts stored, s", allowed=10, of=row("floors, SQLite", OURS, "1,000 posts")),
    Ceiling(name="100 accounts at 1 s latency, s", allowed=300, of=row("floors, SQLite", OURS, "accounts")),
)


def table(measured: Sequence[Row]) -> Table:
    drawn = Table("goal", title="goals: ratios within this run", title_justify="left")
    for heading in ("wanted", "got", ""):
        drawn.add_column(heading, justify="right")
    for cells in _rows(measured):
        drawn.add_row(*cells)
    return drawn


def _rows(measured: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for goal in GOALS:
        got = goal.got(measured)
        if got is not None:
            verdict = "[green]reached[/]" if goal.reached(got) else "[red]missed[/]"
            yield goal.name, str(goal), f"{got:.2f}", verdict
