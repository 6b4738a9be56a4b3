"""Run the long searches, in chunks that are not repeated, and beside them a service for a day, which must stay flat."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.steady.play import DATABASES, Plan, Verdict, play  # noqa: E402 (it is found by the path above)

STEADY = ROOT / "build" / "steady"
STATE = ROOT / "build" / "soak.json"
REPLAY = re.compile(r"replay: ((?:MISTNET_TEST_SEED=\d+ make test|make chaos) ARGS='[^']+')")


@dataclass(frozen=True, kw_only=True)
class Search:
    """One kind of search: so many units of work, a chunk of them per process."""

    name: str
    unit: str
    total: int
    per_chunk: int
    variable: str
    arguments: tuple[str, ...] = ()
    is_range: bool = True
    script: tuple[str, ...] = ()
    """A script of this folder and its arguments, in the place of tests; it is told a seed and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    search: Search
    first: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.search.name} {self.first}-{self.first + self.size - 1}"

    @property
    def environment(self) -> dict[str, str]:
        value = f"{self.first}:{self.first + self.size}" if self.search.is_range else str(self.size)
        return {self.search.variable: value}

    @property
    def replay(self) -> str:
        """The command that runs the whole chunk again."""
        if self.search.script:
            return f"make {Path(self.search.script[0]).stem} ARGS='{' '.join(script_command(self)[2:])}'"
        named = " ".join(f"{name}={value}" for name, value in self.environment.items())
        quoted = " ".join(f'"{each}"' if " " in each else each for each in self.search.arguments)
        return f"{named} make test ARGS='{quoted}'"


@dataclass(frozen=True, kw_only=True)
class Result:
    passed: bool
    replays: tuple[str, ...] = ()


SIMULATION = "tests/simulation"
SEARCHES = (
    Search(
        name="engine",
        unit="seeds",
        total=10_000,
        per_chunk=100,
        variable="MISTNET_TEST_SEEDS",
        arguments=(f"{SIMULATION}/test_engine.py", "-k", "twice_on_sqlite"),
    ),
    Search(
        name="engine on PostgreSQL",
        unit="seeds",
        total=500,
        per_chunk=10,
        variable="MISTNET_TEST_SEEDS",
        arguments=(f"{SIMULATION}/test_engine.py", "-k", "done_twice_on_postgresql"),
    ),
    Search(
        name="worlds",
        unit="worlds",
        total=2_000,
        per_chunk=4,
        variable="MISTNET_TEST_SEEDS",
        arguments=(f"{SIMULATION}/test_collecting.py", "-k", "whole or lose_nothing_on"),
    ),
    Search(
        name="other simulations",
        unit="seeds",
        total=500,
        per_chunk=2,
        variable="MISTNET_TEST_SEEDS",
        arguments=(SIMULATION, "-k", "not test_engine and not test_collecting and not test_virtual"),
    ),
    Search(
        name="broker faults",
        unit="seeds",
        total=200,
        per_chunk=10,
        variable="MISTNET_TEST_SEEDS",
        arguments=("tests/contract/test_broker_faults.py", "-k", "network"),
    ),
    Search(
        name="tests that take turns, and contract tests on every database",
        unit="runs",
        total=1,
        per_chunk=1,
        variable="MISTNET_TEST_ALL",
        arguments=("tests/contract", "tests/unit/test_services.py", "tests/e2e/test_lineage_cli.py"),
        is_range=False,
    ),
    Search(
        name="kills",
        unit="kills",
        total=200,
        per_chunk=25,
        variable="MISTNET_TEST_KILLS",
        arguments=("tests/e2e/test_kill.py", "tests/e2e/test_kill_collecting.py"),
        is_range=False,
    ),
    Search(
        name="chaos",
        unit="seeds",
        total=20,
        per_chunk=1,
        variable="MISTNET_TEST_SEEDS",
        script=("scripts/chaos.py", "--minutes", "3"),
    ),
    Search(
        name="API",
        unit="examples per operation",
        total=1_000,
        per_chunk=1_000,
        variable="MISTNET_TEST_API_EXAMPLES",
        arguments=("tests/contract/test_api_schema.py",),
        is_range=False,
    ),
)


class Soak:
    """Runs chunks that have not been run, keeps their results in a file, and reports."""

    def __init__(
        self,
        searches: Sequence[Search],
        state: Path,
        *,
        command: Callable[[Chunk], Sequence[str]],
        processes: int,
        console: Console,
    ) -> None:
        self._searches = searches
        self._state = state
        self._command = command
        self._processes = processes
        self._console = console
        self._results = load(state)

    def run(self, *, seconds: float) -> int:
        """Start chunks until the time is up, wait for those that run, and return the exit code."""
        end = monotonic() + seconds
        left = (chunk for chunk in chunks_of(self._searches) if chunk.name not in self._results)
        running: dict[Future[Result], Chunk] = {}
        with self._progress() as progress, ThreadPoolExecutor(self._processes) as pool:
            total = sum(1 for _ in chunks_of(self._searches))
            bar = progress.add_task("chunks", total=total, completed=len(self._results))
            while True:
                while len(running) < self._processes and monotonic() < end and (chunk := next(left, None)):
                    running[pool.submit(self._run_chunk, chunk)] = chunk
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    chunk = running.pop(future)
                    self._results[chunk.name] = future.result()
                    save(self._state, self._results)
                    progress.advance(bar)
                    if not self._console.is_terminal:  # a log shows no bar
                        self._show(f"{chunk.name}: {'passed' if future.result().passed else 'failed'}")
        return self.report()

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self._console)

    def _run_chunk(self, chunk: Chunk) -> Result:
        done = subprocess.run(
            self._command(chunk),
            cwd=ROOT,
            env={**environment(), **chunk.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode == 0:
            return Result(passed=True)
        log = self._state.with_name(f"soak-{chunk.name.replace(' ', '-')}.log")
        log.write_text(done.stdout, encoding="utf-8")
        found = dict.fromkeys(REPLAY.findall(done.stdout))
        return Result(passed=False, replays=tuple(found) or (chunk.replay,))

    def report(self) -> int:
        """Print what was run and what failed; 1 if anything did."""
        failed = []
        for search in self._searches:
            finished = [chunk for chunk in chunks_of([search]) if chunk.name in self._results]
            bad = [chunk for chunk in finished if not self._results[chunk.name].passed]
            run = sum(chunk.size for chunk in finished)
            self._show(
                f"{search.name}: {run} of {search.total} {search.unit}, {len(bad)} of {len(finished)} chunks failed"
            )
            failed += bad
        for chunk in failed:
            self._show(f"failed: {chunk.name}")
            for replay in self._results[chunk.name].replays:
                self._show(f"  {replay}")
        return 1 if failed else 0

    def _show(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def chunks_of(searches: Sequence[Search]) -> Iterator[Chunk]:
    """One chunk of each search in turn, so that a short run has some of everything."""
    rows = zip_longest(*(_cut(search) for search in searches))
    return (chunk for chunk in chain.from_iterable(rows) if chunk is not None)


def _cut(search: Search) -> list[Chunk]:
    return [
        Chunk(search=search, first=first, size=min(search.per_chunk, search.total - first))
        for first in range(0, search.total, search.per_chunk)
    ]


def load(state: Path) -> dict[str, Result]:
    if not state.exists():
        return {}
    stored: Mapping[str, Any] = json.loads(state.read_text(encoding="utf-8"))
    return {name: Result(passed=each["passed"], replays=tuple(each["replays"])) for name, each in stored.items()}


def save(state: Path, results: Mapping[str, Result]) -> None:
    """Replaces the file at once: an interrupted run leaves the old one or the new one."""
    state.parent.mkdir(parents=True, exist_ok=True)
    written = state.with_suffix(".new")
    stored = {name: {"passed": each.passed, "replays": each.replays} for name, each in results.items()}
    written.write_text(json.dumps(stored, indent=1), encoding="utf-8")
    written.replace(state)


def environment() -> dict[str, str]:
    """Let Python keep its bytecode, as for any other test run."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def command_of(chunk: Chunk) -> list[str]:
    return script_command(chunk) if chunk.search.script else pytest_command(chunk)


def script_command(chunk: Chunk) -> list[str]:
    return [sys.executable, *chunk.search.script, "--seed", str(chunk.first)]


def pytest_command(chunk: Chunk) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "--timeout", "0", *chunk.search.arguments]


def run_steady(plan: Plan, databases: Sequence[str], *, console: Console) -> int:
    """The same run on each database at the same time; 1 if one of them grows or does not last."""

    def show(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def run(name: str) -> Verdict:
        folder = STEADY / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with DATABASES[name](folder) as meter:
            return play(plan, meter, folder, note=show)

    with ThreadPoolExecutor(len(databases)) as pool:
        verdicts = list(pool.map(run, databases))
    for verdict in verdicts:
        show(f"\n{verdict.report()}")
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=480, help="start no chunk after this time; 0: no searches")
    parser.add_argument("--restart", action="store_true", help="run finished chunks again")
    parser.add_argument("--steady-hours", type=float, default=24, help="how long the service runs; 0: not at all")
    parser.add_argument("--steady-sample", type=float, default=60, help="measure it every so many seconds")
    parser.add_argument(
        "--steady-on", nargs="+", choices=list(DATABASES), default=list(DATABASES), help="only on these"
    )
    parser.add_argument(
        "--leak", type=float, default=0, metavar="MB", help="let it leak so much a minute: it must fail"
    )
    asked = parser.parse_args(arguments)
    if asked.restart:
        STATE.unlink(missing_ok=True)
    console = Console()
    plan = Plan(hours=asked.steady_hours, sample_seconds=asked.steady_sample, leak_megabytes_a_minute=asked.leak)
    with ThreadPoolExecutor(1) as beside:
        steady = beside.submit(run_steady, plan, asked.steady_on, console=console) if plan.hours else None
        soak = Soak(SEARCHES, STATE, command=command_of, processes=os.cpu_count() or 1, console=console)
        failed = soak.run(seconds=asked.minutes * 60) if asked.minutes else 0
        return max(failed, steady.result() if steady else 0)


if __name__ == "__main__":
    raise SystemExit(main())
