"""What the sides of the collecting benchmark share: the options, the pages asked for, the run of a process."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from bench.queue.common import Figure, Options, emit, now_ns

ROOT = Path(__file__).parents[2]
POSTS_PER_SECOND = "posts/s"
POSTS_PER_CPU_SECOND = "posts/CPU s"
SECONDS = "s"
MEGABYTES = "MB"
CREDITS = "credits"
TIMES = "x"
SHARE = "of it"
LOOKS_AT_THE_END = 2
PASSES = ("", " filter:nativeretweets")
"""`from:` shows all but native retweets; a second pass shows those."""

SEARCH = "/twitter/tweet/advanced_search"
PROFILE = "/twitter/user/info"
_LIBC = ctypes.CDLL(None)
_LOOK_S = 0.02
_SAMPLE_EVERY = 10
_ASK_EVERY = 250


def query(handle: str, filters: str, ceiling: int | None) -> str:
    below = f" max_id:{ceiling}" if ceiling else ""
    return f"from:{handle}{filters}{below}"


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process had used at a time of day."""

    at: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process from start to end, with all its children."""

    started_at: float
    ended_ns: int
    code: int
    cpu_seconds: float
    peak_mb: float
    samples: Sequence[Sample] = field(repr=False)


class TookTooLong(Exception):
    def __init__(self, command: str, patience_s: float) -> None:
        super().__init__(f"{command} was ended after {patience_s:g} s")


class EndedBadly(Exception):
    def __init__(self, command: str, code: int, said: str) -> None:
        super().__init__(f"{command} ended with {code}: {said[-2000:]}")


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    fine: Container[int],
    patience_s: float,
    enough: Callable[[], bool] = lambda: False,
) -> Run:
    """Waits for a process, stops it when it did enough, and ends it if it takes too long."""
    with TemporaryFile("w+") as said:
        started_at = time.time()
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=said,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - only the child can do this, and it takes no lock
        )
        try:
            done = _watched(process, started_at, patience_s, enough)
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        if done.code not in fine:
            said.seek(0)
            raise EndedBadly(command[0], done.code, said.read())
        return done


def _watched(
    process: "subprocess.Popen[bytes]", started_at: float, patience_s: float, enough: Callable[[], bool]
) -> Run:
    samples: list[Sample] = []
    stopped = False
    for look in range(int(patience_s / _LOOK_S)):
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return Run(
                started_at=started_at,
                ended_ns=now_ns(),
                code=process.returncode,
                cpu_seconds=usage.ru_utime + usage.ru_stime,
                peak_mb=usage.ru_maxrss / 1024,
                samples=samples,
            )
        if look % _SAMPLE_EVERY == 0:
            samples.append(Sample(time.time(), cpu_seconds(process.pid)))
        if look % _ASK_EVERY == 0 and not stopped and enough():
            os.kill(process.pid, signal.SIGTERM)
            stopped = True
        time.sleep(_LOOK_S)
    raise TookTooLong(str(process.args), patience_s)


def _end_with_parent() -> None:
    """A measurement that is cut short leaves nothing running."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        _LIBC.prctl(set_parent_death_signal, signal.SIGKILL)


def cpu_seconds(pid: int) -> float:
    """What a running process has used so far, as Linux tells it; the name before may hold blanks."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


__all__ = ["Figure", "Options", "Run", "Sample", "cpu_seconds", "emit", "now_ns", "query", "run"]
