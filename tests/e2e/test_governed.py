"""Several real processes share one source through one database: its rate holds, and one call at a time tries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mistnet.governor.grants import crowd
from tests import governed
from tests.commands import DEADLINE_SECONDS, ROOT
from tests.e2e.conftest import until
from tests.warm import SOURCES, WarmProcess

PROCESSES = 4
SKEW_SECONDS = 0.5
"""How far the shared clock may differ from process to process, as each learned it over its own connection."""


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@contextmanager
def processes(url: str, folder: Path, per_second: float) -> Iterator[list[Path]]:
    """Yields the files they write to, once all have begun together; they are told to stop at the end."""
    written = [folder / f"{number}.jsonl" for number in range(PROCESSES)]
    command = [sys.executable, "-m", governed.__name__, url, str(folder), str(per_second)]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    started = []
    try:
        for path in written:
            with path.open("w", encoding="utf-8") as out:
                started.append(
                    WarmProcess(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=out, text=True)
                )
        until(lambda: all(path.read_text(encoding="utf-8").startswith("ready") for path in written))
        for process in started:
            _tell(process)
        yield written
    finally:
        (folder / "stop").touch()
        codes = [process.wait(DEADLINE_SECONDS) for process in started]
    assert codes == [0] * PROCESSES


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.close()


def calls(written: Sequence[Path]) -> list[dict[str, Any]]:
    """All that was told so far, in the order it began; a line that is being written is left out."""
    whole = [path.read_text(encoding="utf-8").rpartition("\n")[0].removeprefix("ready") for path in written]
    told = [call for text in whole for call in governed.lines(text.strip())]
    return sorted(told, key=lambda call: call["begun"])


def test_four_processes_together_never_exceed_the_rate_in_any_span(shared_url: str, tmp_path: Path) -> None:
    rate = 200.0
    with processes(shared_url, tmp_path, rate) as written:
        until(lambda: len(calls(written)) >= 500)
    moments = sorted(call["at"] for call in calls(written))
    most = crowd(rate, governed.BURST) + rate * SKEW_SECONDS
    for first, begun in enumerate(moments):
        for last in range(first, len(moments)):
            assert last - first + 1 <= rate * (moments[last] - begun) + most
    assert all(path.stat().st_size > 1_000 for path in written)  # each of them got its share


@pytest.mark.in_turn(0)
def test_five_failures_stop_all_processes_and_one_call_at_a_time_tries(postgresql_url: str, tmp_path: Path) -> None:
    down = tmp_path / "down"
    down.touch()
    with processes(postgresql_url, tmp_path, 100.0) as written:
        until(lambda: sum(call["probe"] for call in calls(written)) >= 2)
        down.unlink()
        until(lambda: all(any(call["ok"] and not call["probe"] for call in calls([path])) for path in written))
    told = calls(written)
    probes = [call for call in told if call["probe"]]
    failed, (healing, *_) = [call for call in probes if not call["ok"]], [call for call in probes if call["ok"]]
    cooldown = governed.COOLDOWN.total_seconds() - SKEW_SECONDS
    for before, after in pairwise(probes):
        assert before["ended"] <= after["begun"], "one call at a time tries"
    for probe in failed:
        soon = [call for call in told if probe["ended"] < call["begun"] < probe["ended"] + cooldown]
        assert soon == [], "a try that fails closes the source for all, again for the whole time"
    assert len(failed) >= 2
    early = [call for call in told if not call["probe"] and call["begun"] < probes[0]["begun"]]
    assert len(early) >= governed.FAILURES
    assert not [call for call in told if not call["probe"] and probes[0]["begun"] < call["begun"] < healing["ended"]]
