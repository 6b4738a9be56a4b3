"""Kill workers while they hold jobs: the database says which one does, not the clock."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.e2e.conftest import CommandLine, until

END_SECONDS: Final = 480.0
"""How long a crew may take to end, even on a busy machine."""
KILLS: Final = int(os.environ.get("MISTNET_TEST_KILLS", "2"))
"""How many workers are killed while they hold a job, in each test that kills again and again."""


def list_children(parent: int) -> list[int]:
    """The process ids of a process's children; none when it has ended."""
    with suppress(FileNotFoundError):
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def kill_holder(mistnet: CommandLine, candidates: Callable[[], Collection[int]], *, is_over: Callable[[], bool]) -> int:
    """Kill one of these processes while it holds a job; return its id, or 0 when the work is over.

    A job may be settled between the look and the kill: then the next holder is killed as well.
    """
    while not is_over():
        until(lambda: is_over() or _holders(mistnet, candidates()))
        for pid, name in _holders(mistnet, candidates()):
            _kill(pid)
            if mistnet.sql("SELECT id FROM jobs WHERE worker = :name AND state = 'running'", name=name):
                return pid
    return 0


def _holders(mistnet: CommandLine, candidates: Collection[int]) -> list[tuple[int, str]]:
    """Process id and name of those workers that hold a job now."""
    running = mistnet.sql(
        "SELECT DISTINCT w.pid, w.name FROM workers w JOIN jobs j ON j.worker = w.name WHERE j.state = 'running'"
    )
    return [(row["pid"], row["name"]) for row in running if row["pid"] in candidates]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: _has_ended(pid))


def _has_ended(pid: int) -> bool:
    """Whether its parent may be told so: the first of its threads can be gone before the others."""
    process = Path(f"/proc/{pid}")
    try:
        is_gone = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return is_gone and len([*(process / "task").iterdir()]) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for_all(crew: Collection["subprocess.Popen[str]"], *, allowed: Collection[int] = (0,)) -> None:
    """Wait until all these processes have ended; fail with what they said if one ended badly."""
    deadline = time.monotonic() + END_SECONDS
    for worker in crew:
        out, err = worker.communicate(timeout=max(deadline - time.monotonic(), 1.0))
        assert worker.returncode in allowed, (worker.returncode, out, err)
