"""Worker processes: start a group, restart those that die, pass signals on. Signals of any process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from loguru import logger

from mistnet.settings import Settings

REFUSED: Final = 2
_ENDS: Final = {0, REFUSED, 3, 4, 5}
"""Exit codes of a child that stopped on purpose. After any other it is restarted."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_GOOD_LIFE_SECONDS: Final = 2.0
_ORPHAN_CHECK_SECONDS: Final = 0.5


class ChildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a child prints when it ends. One that was killed prints nothing."""

    settled: int = 0
    gaps: int = 0


class Crew:
    """The child processes of one parent. None outlives it: each checks whether its parent exists."""

    def __init__(
        self, settings: Settings, processes: int, flags: Sequence[str], *, metrics_port: int | None = None
    ) -> None:
        self._processes = processes
        self._flags = flags
        self._metrics_port = metrics_port
        self._environment = {**os.environ, **inherited(settings)}
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self.reports: list[ChildReport] = []

    def drain(self) -> None:
        """Send SIGTERM, whatever signal came: a terminal's Ctrl-C does not reach the children."""
        self._stopping.set()
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.terminate()

    def kill(self) -> None:
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.kill()

    async def run(self) -> int:
        """Run until every child is done. Return the highest of their exit codes."""
        return max(await asyncio.gather(*(self._keep(place) for place in range(self._processes))))

    async def _keep(self, place: int) -> int:
        pause = _FIRST_PAUSE
        while True:
            begun = time.monotonic()
            code = await self._child(place)
            if self._stopping.is_set():
                return max(code, 0)
            if code == REFUSED:
                # Settings that one child refuses, all refuse.
                self.drain()
            if code in _ENDS:
                return code
            # A child that worked for a while did not fail because of its settings.
            pause = _FIRST_PAUSE if time.monotonic() - begun > _GOOD_LIFE_SECONDS else pause
            logger.warning(
                "worker process {place} ended with {code}; starting another in {pause:g} s",
                place=place,
                code=code,
                pause=pause,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            if self._stopping.is_set():
                return 0
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _child(self, place: int) -> int:
        metrics = [] if self._metrics_port is None else ["--metrics-port", str(self._metrics_port + place)]
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "mistnet", "work", "--json", "--child-of", str(os.getpid())),
            *(*self._flags, *metrics),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # Else Ctrl-C would reach the children twice.
            start_new_session=True,
        )
        self._children[place] = child
        # `drain` may have been called while the child was started, and did not see it.
        if self._stopping.is_set():
            child.terminate()
        said, _ = await child.communicate()
        del self._children[place]
        with suppress(msgspec.DecodeError):
            self.reports.append(msgspec.json.decode(said, type=ChildReport))
        return child.returncode if child.returncode is not None else 1


def inherited(settings: Settings) -> Mapping[str, str]:
    """Settings that flags may have changed, as environment: other users can read arguments."""
    return {
        "MISTNET_DATABASE_URL": settings.database_url.get_secret_value(),
        "MISTNET_LOG_FORMAT": settings.log_format,
        "MISTNET_LOG_LEVEL": settings.log_level,
    }


_M_ARENA_MAX: Final = -8
_SET_BY_OPERATOR: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def share_one_heap() -> None:
    """Make all threads share one heap. Call it before threads start.

    glibc gives each thread a heap of its own, and each SQLite connection has a thread. What one thread frees no other
    can use, so the heaps fragmented by megabytes an hour. Python runs one thread at a time: sharing costs almost
    nothing. Does nothing without glibc, or where an operator chose otherwise.
    """
    if any(name in os.environ for name in _SET_BY_OPERATOR):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """A request to stop. A second signal ends the process at once."""

    def __init__(self, drain: Callable[[], None], at_once: Callable[[], None], meaning: str) -> None:
        self.asked = False
        self._drain = drain
        self._at_once = at_once
        self._meaning = meaning

    def ask(self, why: str) -> None:
        if not self.asked:
            self.asked = True
            logger.info("{why}: {meaning}", why=why, meaning=self._meaning)
            self._drain()

    def signalled(self, number: signal.Signals) -> None:
        if self.asked:
            logger.warning("{signal} again: stopping at once; leases run out by themselves", signal=number.name)
            self._at_once()
            # Not sys.exit: that would wait for what runs.
            os._exit(128 + number)
        self.ask(number.name)


@contextmanager
def stopping(drain: Callable[[], None], *, meaning: str, at_once: Callable[[], None] = lambda: None) -> Iterator[Stop]:
    """Handle signals while the block runs."""
    loop = asyncio.get_running_loop()
    stop = Stop(drain, at_once, meaning)
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.signalled, number)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def ask_when_orphaned(stop: Stop, parent: int) -> None:
    """Stop when the parent is gone: nothing else would stop this child."""
    while os.getppid() == parent:  # noqa: ASYNC110 (there is no event for it)
        await asyncio.sleep(_ORPHAN_CHECK_SECONDS)
    stop.ask("the parent process is gone")
