"""Which measurements are made, and with how many jobs."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

TOPICS = (
    "throughput",
    "latency",
    "enqueue",
    "depth",
    "sqlite",
    "collect",
    "growth",
    "cost",
    "floors",
    "rhythm",
    "pages",
    "graph",
    "pages_parse",
    "crawl",
    "links",
    "broker",
    "points",
    "governor",
)
POSTGRESQL, SQLITE = "postgresql", "sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    topic: str
    side: str
    command: str
    jobs: int
    batch: int = 1
    processes: int = 1
    form: str = "single"
    package: str = "queue"
    database: str = POSTGRESQL
    needs: str | None = None
    once: bool = False
    slow: bool = False
    patience_s: int = 600

    @property
    def module(self) -> str:
        return f"bench.{self.package}.{self.side}"

    @property
    def lacks(self) -> str | None:
        return self.needs if self.needs and not find_spec(self.needs) else None

    def arguments(self, dsn: str) -> list[str]:
        options = {
            "dsn": dsn,
            "jobs": self.jobs,
            "batch": self.batch,
            "processes": self.processes,
            "form": self.form,
        }
        return [self.command, *(word for key, value in options.items() for word in (f"--{key}", str(value)))]


def plan(topics: frozenset[str], *, quick: bool, rounds: int) -> list[Measurement]:
    """Sides take turns within a topic, so that a busy minute of the machine falls on all of them."""
    queue = [*_throughput(1), *_throughput(2), *_latency(), *_enqueue(), *_depth(), *_sqlite()]
    wanted = [
        replace(measurement, jobs=max(measurement.jobs // 10, 40)) if quick else measurement
        for measurement in [
            *queue,
            *_collect(),
            *_growth(),
            *_cost(),
            *_floors(),
            *_rhythm(),
            *_pages(),
            *_graph(),
            *_pages_parse(),
            *_crawl(),
            *_links(),
            *_broker(),
            *_points(),
            *_governor(),
        ]
        if measurement.topic in topics and find_spec(measurement.module) and not (quick and measurement.slow)
    ]
    again = [measurement for measurement in wanted if not measurement.once]
    return wanted + again * (rounds - 1)


def _throughput(processes: int) -> list[Measurement]:
    def drained(side: str, jobs: int, batch: int, form: str = "single") -> Measurement:
        return Measurement(
            topic="throughput",
            side=side,
            command="throughput",
            jobs=jobs,
            batch=batch,
            processes=processes,
            form=form,
        )

    return [
        drained("procrastinate_side", 4_000, 20),
        drained("bare_side", 3_000, 1),
        drained("mistnet_side", 3_000, 1),
        drained("pgqueuer_side", 30_000, 10),
        drained("bare_side", 50_000, 20),
        drained("mistnet_side", 50_000, 20),
        drained("pgqueuer_side", 40_000, 100),
        drained("bare_side", 100_000, 100),
        drained("mistnet_side", 50_000, 100),
        drained("mistnet_side", 30_000, 10, "single jobs"),
        drained("mistnet_side", 50_000, 100, "single jobs"),
        drained("pgqueuer_side", 40_000, 500),
        drained("pgqueuer_side", 40_000, 100, "queries"),
    ]


def _latency() -> list[Measurement]:
    return [
        Measurement(topic="latency", side=side, command="latency", jobs=400)
        for side in ("procrastinate_side", "pgqueuer_side", "mistnet_side", "bare_side")
    ]


def _enqueue() -> list[Measurement]:
    return [
        Measurement(topic="enqueue", side=side, command="enqueue", jobs=100_000)
        for side in ("procrastinate_side", "pgqueuer_side", "mistnet_side", "bare_side")
    ]


def _depth() -> list[Measurement]:
    pending = [
        Measurement(topic="depth", side="mistnet_side", command="depth", jobs=jobs, batch=100)
        for jobs in (1_000, 100_000, 1_000_000)
    ]
    return [
        *pending,
        Measurement(topic="depth", side="mistnet_side", command="aged", jobs=1_000_000, batch=100),
    ]


def _sqlite() -> list[Measurement]:
    return [Measurement(topic="sqlite", side="mistnet_side", command="sqlite", jobs=20_000, batch=100, database=SQLITE)]


def _collect() -> list[Measurement]:
    def speed(
        side: str, database: str, *, processes: int = 1, form: str = "single", needs: str | None = None
    ) -> Measurement:
        return Measurement(
            topic="collect",
            side=side,
            command="speed",
            jobs=50_000,
            processes=processes,
            form=form,
            package="collect",
            database=database,
            needs=needs,
        )

    return [
        measurement
        for database in (SQLITE, POSTGRESQL)
        for measurement in (
            speed("bare_side", database),
            speed("bare_side", database, form="abreast"),
            speed("mistnet_side", database, form="sweeps"),
            speed("scrapy_side", database, needs="scrapy"),
            speed("scrapy_side", database, form="bulk", needs="scrapy"),
        )
    ] + [speed("mistnet_side", POSTGRESQL, processes=processes) for processes in (1, 2, 4)]


def _growth() -> list[Measurement]:
    return [_alone("growth", jobs=1_000_000, database=database, patience_s=3600) for database in (SQLITE, POSTGRESQL)]


def _cost() -> list[Measurement]:
    return [_alone("cost", jobs=100_000, database=SQLITE)]


def _floors() -> list[Measurement]:
    return [_alone("floors", jobs=10_000, database=SQLITE, slow=True)]


def _rhythm() -> list[Measurement]:
    """Nothing is stored and nothing is timed: a month goes by in a model, and its figures are the same each time."""
    return [
        Measurement(
            topic="rhythm",
            side="mistnet_side",
            command="rhythm",
            jobs=100,
            package="rhythm",
            database=SQLITE,
            once=True,
            patience_s=1800,
        )
    ]


def _pages() -> list[Measurement]:
    """`jobs` is how many posts are stored, `batch` how often each page is asked for."""

    def asked(posts: int, form: str, database: str, *, slow: bool = False) -> Measurement:
        return Measurement(
            topic="pages",
            side="mistnet_side",
            command="pages",
            jobs=posts,
            batch=100,
            form=form,
            package="pages",
            database=database,
            once=True,
            slow=slow,
            patience_s=3600,
        )

    return [
        *(asked(1_000_000, form, database) for database in (SQLITE, POSTGRESQL) for form in ("single", "busy")),
        asked(10_000_000, "busy", POSTGRESQL, slow=True),
    ]


def _graph() -> list[Measurement]:
    """`jobs` is how many followers an account has, or how many edges each of two subjects."""
    return [
        Measurement(
            topic="graph",
            side=side,
            command=command,
            jobs=1_000_000,
            package="graph",
            database=database,
            once=True,
            patience_s=3600,
        )
        for database in (SQLITE, POSTGRESQL)
        for side, command in (("bare_side", "sync"), ("mistnet_side", "sync"), ("mistnet_side", "mutuals"))
    ]


def _broker() -> list[Measurement]:
    """`batch` is the prefetch. The first two forms find all messages in the queue; the last publishes as it goes."""
    return [
        Measurement(topic="broker", side=side, command="jobs", jobs=10_000, batch=50, form=form, package="broker")
        for side, form in (
            ("bare_side", "classic"),
            ("mistnet_side", "classic"),
            ("bare_side", "quorum"),
            ("mistnet_side", "quorum"),
            ("mistnet_side", "quorum, dispatched meanwhile"),
        )
    ]


def _points() -> list[Measurement]:
    """`jobs` is how many price points each side writes, `batch` how many a look brings."""
    return [
        Measurement(
            topic="points",
            side="mistnet_side",
            command="points",
            jobs=1_000_000,
            batch=100,
            package="points",
            database=database,
            once=True,
            patience_s=3600,
        )
        for database in (SQLITE, POSTGRESQL)
    ]


def _links() -> list[Measurement]:
    """`jobs` is how many URLs are named; a quarter as many texts are searched."""
    return [
        Measurement(topic="links", side="mistnet_side", command="links", jobs=10_000, package="links", database=SQLITE)
    ]


def _pages_parse() -> list[Measurement]:
    """`jobs` is how many different product pages are read; nothing is stored."""
    return [
        Measurement(
            topic="pages_parse",
            side=side,
            command="pages_parse",
            jobs=30,
            package="pages_parse",
            database=SQLITE,
            needs=needs,
        )
        for side, needs in (("mistnet_side", None), ("lxml_side", "lxml"), ("extruct_side", "extruct"))
    ]


def _crawl() -> list[Measurement]:
    """`jobs` is how many product pages are crawled. The bare loop stores nothing; it runs once per database table."""
    return [
        Measurement(
            topic="crawl",
            side=side,
            command="crawl",
            jobs=400,
            form=form,
            package="crawl",
            database=database,
        )
        for database in (SQLITE, POSTGRESQL)
        for side, form in (("bare_side", "single"), ("mistnet_side", "single"), ("mistnet_side", "here"))
    ]


def _governor() -> list[Measurement]:
    """`jobs` is the shared rate in calls a second; each measurement lasts a few seconds."""
    return [
        Measurement(
            topic="governor",
            side="mistnet_side",
            command="admissions",
            jobs=300_000,
            processes=processes,
            form=form,
            package="governor",
            database=database,
        )
        for database in (SQLITE, POSTGRESQL)
        for processes in (1, 4)
        for form in ("memory", "trip", "gate", "calls")
    ]


def _alone(topic: str, *, jobs: int, database: str, slow: bool = False, patience_s: int = 900) -> Measurement:
    """Without a peer: a figure of mistnet's own, made once."""
    return Measurement(
        topic=topic,
        side="mistnet_side",
        command=topic,
        jobs=jobs,
        package="collect",
        database=database,
        once=True,
        slow=slow,
        patience_s=patience_s,
    )
