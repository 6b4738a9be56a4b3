"""Runs the tests on all cores. What fails on a busy machine is tried once more, alone, and named in any case."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LISTED = "MISTNET_TEST_FAILED"
MOST = 12
"""More than these are no accident."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """As a plugin: writes down what failed."""
    if LISTED not in os.environ:
        return
    reports = [*terminalreporter.stats.get("failed", []), *terminalreporter.stats.get("error", [])]
    names = dict.fromkeys(report.nodeid for report in reports)
    Path(os.environ[LISTED]).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "failed"
        code = _pytest("-n", "auto", "--dist", "worksteal", *arguments, listed=listed)
        failed = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
        if code != pytest.ExitCode.TESTS_FAILED or not _may_be_accidents(failed):
            return code
        _say(f"{len(failed)} failed; once more, alone:", failed)
        code = _pytest(f"@{listed}", listed=Path(folder) / "failed-again")
    if code == pytest.ExitCode.OK:
        _say("passed at the second try only, with the machine to itself:", failed)
    return code


def _may_be_accidents(failed: Sequence[str]) -> bool:
    return 0 < len(failed) <= MOST and all("::" in name for name in failed)  # a file by itself: it cannot be read


def _pytest(*arguments: str, listed: Path) -> int:
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-p", "scripts.run_tests", *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, LISTED: str(listed)}, check=False).returncode


def _say(title: str, names: Sequence[str]) -> None:
    print("", title, *(f"  {name}" for name in names), "", sep="\n", flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
