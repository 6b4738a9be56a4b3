"""What mistnet should reach beside its peers and the bare database, and whether it did in this run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.report import BARE, OURS, Row, best

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


def row(name: str, side: str, setting: str = "") -> Callable[[Row], bool]:
    """The rows of a table by a side, whose setting holds some words."""
    return lambda row: row.first.name == name and row.first.side == side and setting in row.first.setting


def peers(name: str) -> Callable[[Row], bool]:
    return lambda row: row.first.name == name and row.first.side not in {BARE, OURS}


BATCH = row(ONE_PROCESS, OURS, "batch 100")
SINGLE = row(ONE_PROCESS, OURS, "single jobs")
GOALS = (
    Goal(
        name="single jobs / pgqueuer's best worker",
        wanted=1.0,
        ours=SINGLE,
        other=row(ONE_PROCESS, "pgqueuer", "manager"),
    ),
    Goal(
        name="batch 100 / pgqueuer's best worker", wanted=1.5, ours=BATCH, other=row(ONE_PROCESS, "pgqueuer", "manager")
    ),
    Goal(
        name="batch 100 / pgqueuer's bare queries",
        wanted=1.0,
        ours=BATCH,
        other=row(ONE_PROCESS, "pgqueuer", "queries"),
    ),
    Goal(name="batch 100 / procrastinate", wanted=15, ours=BATCH, other=row(ONE_PROCESS, "procrastinate")),
    Goal(name="batch 100 / bare loop, batch 100", wanted=0.35, ours=BATCH, other=row(ONE_PROCESS, BARE, "batch 100")),
    Goal(name="idle pick-up, p99 / best peer", wanted=0.5, ours=row("latency, p99", OURS), other=peers("latency, p99")),
    Goal(name="bulk enqueue / COPY", wanted=0.25, ours=row("bulk enqueue", OURS), other=row("bulk enqueue", BARE)),
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
            verdict = "[green]reached[/]" if got >= goal.wanted else "[red]missed[/]"
            yield goal.name, f"at least {goal.wanted:g}", f"{got:.2f}", verdict
