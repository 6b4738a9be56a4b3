"""What a play came to, as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.stage import Life

SURVIVED, NOT_SURVIVED = "survived", "NOT SURVIVED"


@dataclass
class Verdict:
    """`problems` is empty if everything was survived. Those that one fault caused also stand under its name."""

    played: Counter[str] = field(default_factory=Counter)
    disturbed: Counter[str] = field(default_factory=Counter)
    """How often a fault was played while there was work."""
    struck: Counter[str] = field(default_factory=Counter)
    units: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    lives: Sequence[Life] = ()
    jobs: int = 0
    seconds: float = 0.0
    billed: int = 0
    counted: int = 0
    ledger: int = 0

    @property
    def result(self) -> str:
        return NOT_SURVIVED if self.problems else SURVIVED

    def table(self) -> str:
        faults = align([("fault", "played", "struck", "result"), *self.fault_rows()])
        lines = [*faults, "", *self.process_rows(), "", self._sums()]
        lines += [f"PROBLEM: {problem}" for problem in dict.fromkeys(self.problems)]
        return "\n".join(lines)

    def fault_rows(self) -> list[tuple[str, str, str, str]]:
        """Each fault: its name, how often it was played, what it hit, and what came of it."""
        return [
            (name, str(times), self._struck(name), NOT_SURVIVED if name in self.failed else SURVIVED)
            for name, times in self.played.items()
        ]

    def _struck(self, name: str) -> str:
        unit, times = self.units.get(name), self.struck[name]
        return f"{times:,} {unit}{'' if times == 1 else 's'}" if unit else ""

    def process_rows(self) -> list[str]:
        rows = [("process", "started", "killed", "ended by itself", "exit code at its stop")]
        for life in self.lives:
            ended = ", ".join(map(str, life.ended)) or "never"
            code = "" if life.at_stop is None else str(life.at_stop)
            rows.append((life.name, str(life.started), str(life.killed), ended, code))
        return align(rows)

    def _sums(self) -> str:
        work = f"{self.jobs:,} jobs done in {self.seconds:.0f} s"
        money = f"upstream billed {self.billed:,} credits, caps count {self.counted:,}, the ledger has {self.ledger:,}"
        return f"{work}; {money}"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(cell.replace(",", "").isdigit() for cell in column[1:]) for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]
