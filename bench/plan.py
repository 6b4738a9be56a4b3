"""Which measurements are made, and with how many jobs."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

TOPICS = ("throughput", "latency", "enqueue", "depth", "sqlite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    topic: str
    side: str
    command: str
    jobs: int
    batch: int = 1
    processes: int = 1
    form: str = "single"

    @property
    def module(self) -> str:
        return f"bench.queue.{self.side}"

    def arguments(self, dsn: str) -> list[str]:
        options = {
            "dsn": dsn,
            "jobs": self.jobs,
            "batch": self.batch,
            "processes": self.processes,
            "form": self.form,
        }
        return [self.command, *(word for key, value in options.items() for word in (f"--{key}", str(value)))]


def plan(topics: frozenset[str], *, quick: bool) -> list[Measurement]:
    """Sides take turns within a topic, so that a busy minute of the machine falls on all of them."""
    return [
        replace(measurement, jobs=max(measurement.jobs // 10, 40)) if quick else measurement
        for measurement in [*_throughput(1), *_throughput(2), *_latency(), *_enqueue(), *_depth(), *_sqlite()]
        if measurement.topic in topics and find_spec(measurement.module)
    ]


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
    return [Measurement(topic="sqlite", side="mistnet_side", command="sqlite", jobs=20_000, batch=100)]
