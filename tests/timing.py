"""Records where the time of a test run goes: by phase, by folder, by database and by process start.

Loaded as a pytest plugin (`-p tests.timing`). A summary is printed at the end of a run; the figures of every test are
written to `build/test-times.json`.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "build" / "test-times.json"
DATABASES = ("sqlite", "postgresql", "libsql")
PHASES = ("setup", "call", "teardown")
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork")


@dataclass
class Usage:
    """Totals of one group of tests: wall time per phase, CPU time of the tests and of the processes they started."""

    tests: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    own_cpu: float = 0.0
    child_cpu: float = 0.0
    starts: int = 0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def add(self, report: pytest.TestReport) -> None:
        cost: dict[str, Any] = getattr(report, "cost", {})
        self.tests += report.when == "call"
        self.seconds[report.when] += report.duration
        self.own_cpu += cost.get("own_cpu", 0.0)
        self.child_cpu += cost.get("child_cpu", 0.0)
        self.starts += cost.get("starts", 0)


class Meter:
    """Measures each phase of each test in the process that runs it."""

    def __init__(self) -> None:
        self._starts = 0
        self._before = (0.0, 0.0, 0)
        sys.addaudithook(self._count)

    def _count(self, event: str, _arguments: tuple[Any, ...]) -> None:
        self._starts += event in STARTS

    def _now(self) -> tuple[float, float, int]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return process_time(), children.ru_utime + children.ru_stime, self._starts

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = self._now()
        names = ("own_cpu", "child_cpu", "starts")
        report.cost = {  # type: ignore[attr-defined]  # reports carry any extra attribute to the main process
            name: after - before for name, before, after in zip(names, self._before, now, strict=True)
        }
        self._before = now
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._before = self._now()


class Ledger:
    """Adds up what all processes of the run report, and prints it."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._reports:
            return
        self._write()
        terminalreporter.section("where the time went", sep="-")
        for title, groups in (
            ("folder", self._by(_folder)),
            ("database", self._by(_database)),
            ("file", self._by(_file)),
        ):
            shown = sorted(groups.items(), key=lambda pair: -pair[1].total)[:12]
            terminalreporter.line(f"{title:44} tests     set-up    call  tear-down   own CPU  child CPU  starts")
            for name, usage in shown:
                phases = f"{usage.seconds['setup']:9.1f} {usage.seconds['call']:7.1f} {usage.seconds['teardown']:10.1f}"
                cpu = f"{usage.own_cpu:9.1f} {usage.child_cpu:10.1f} {usage.starts:7}"
                terminalreporter.line(f"  {name[-42:]:42} {usage.tests:5} {phases} {cpu}")
        terminalreporter.line(f"set-up of a contract test, half and 95 % of them: {self._describe_set_ups()}")
        terminalreporter.line(
            f"wall time {monotonic() - self._began:.0f} s; every figure is in {RESULT.relative_to(ROOT)}"
        )

    def _describe_set_ups(self) -> str:
        """How long a test on a shared database waits for it to be reset."""
        told = []
        for name in DATABASES:
            spans = sorted(
                report.duration * 1000
                for report in self._reports
                if report.when == "setup" and _database(report) == name and _folder(report) == "tests/contract"
            )
            if spans:
                told.append(f"{name} {spans[len(spans) // 2]:.0f} and {spans[len(spans) * 95 // 100]:.0f} ms")
        return ", ".join(told) or "none"

    def _by(self, group: Callable[[pytest.TestReport], str]) -> dict[str, Usage]:
        found: dict[str, Usage] = defaultdict(Usage)
        for report in self._reports:
            found[group(report)].add(report)
        return found

    def _write(self) -> None:
        tests: dict[str, dict[str, Any]] = defaultdict(dict)
        for report in self._reports:
            tests[report.nodeid][report.when] = {"seconds": report.duration, **getattr(report, "cost", {})}
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps({"wall": monotonic() - self._began, "tests": tests}), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger())


def _file(report: pytest.TestReport) -> str:
    return report.nodeid.partition("::")[0]


def _folder(report: pytest.TestReport) -> str:
    return _file(report).rpartition("/")[0]


def _database(report: pytest.TestReport) -> str:
    parameters = report.nodeid.partition("[")[2].rstrip("]").split("-")
    return next((name for name in DATABASES if name in parameters), "other")
