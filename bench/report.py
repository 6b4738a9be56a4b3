"""The figures of all rounds as tables and as a file."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.queue.common import Figure

BARE = "bare asyncpg"
BARE_LOOP = "bare loop"
OURS = "mistnet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure over all rounds."""

    runs: Sequence[Figure]

    @property
    def first(self) -> Figure:
        return self.runs[0]

    @property
    def figure(self) -> float:
        return median(run.figure for run in self.runs)

    @property
    def complete(self) -> bool:
        return all(run.got == run.expected for run in self.runs)

    def times(self, other: "Row | None") -> float | None:
        """How many times as good as the other."""
        if other is None or min(self.figure, other.figure) <= 0:
            return None
        ratio = self.figure / other.figure
        return 1 / ratio if self.first.lower_is_better else ratio


def rows(figures: Iterable[Figure]) -> list[Row]:
    runs: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in figures:
        runs.setdefault(figure.key, []).append(figure)
    return [Row(runs=each) for each in runs.values()]


def best(candidates: Iterable[Row]) -> Row | None:
    return max(
        candidates,
        key=lambda row: -row.figure if row.first.lower_is_better else row.figure,
        default=None,
    )


def tables(measured: Sequence[Row]) -> Iterator[Table]:
    for name in dict.fromkeys(row.first.name for row in measured):
        same = [row for row in measured if row.first.name == name]
        peer = best(row for row in same if row.first.side not in {BARE, BARE_LOOP, OURS})
        bare = best(row for row in same if row.first.side in {BARE, BARE_LOOP})
        drawn = Table("side", "setting", title=name, title_justify="left")
        for heading in (same[0].first.unit, "lowest - highest", "x best peer", "x bare", "complete"):
            drawn.add_column(heading, justify="right", no_wrap=True)
        for row in same:
            drawn.add_row(*_cells(row, peer, bare))
        yield drawn


def _cells(row: Row, peer: Row | None, bare: Row | None) -> list[str]:
    figures = [run.figure for run in row.runs]
    return [
        row.first.side,
        row.first.setting,
        _number(row.figure),
        f"{_number(min(figures))} - {_number(max(figures))}",
        _times(row.times(peer)),
        _times(row.times(bare)),
        _count(row),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _count(row: Row) -> str:
    if row.complete:
        return f"[green]✓[/] {row.first.expected:,}"
    worst = min(row.runs, key=lambda run: run.got - run.expected)
    return f"[red]✗[/] {worst.got:,} of {worst.expected:,}"


def write(measured: Sequence[Row], machine: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    results = [
        {
            **asdict(row.first),
            "figure": row.figure,
            "complete": row.complete,
            "runs": [asdict(r) for r in row.runs],
        }
        for row in measured
    ]
    path.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
