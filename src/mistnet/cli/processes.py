"""Runs a crew of worker processes: starts them, restarts those that die, passes signals on."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from loguru import logger

from mistnet.settings import Settings

REFUSED: Final = 2
_ENDS: Final = {0, REFUSED, 3, 4, 5}
"""Exit codes of a child that meant to stop; any other end is an accident."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_GOOD_LIFE_SECONDS: Final = 2.0


class CrewPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes, and what each is told."""

    processes: int
    flags: Sequence[str]
    metrics_port: int | None = None


class ChildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a child says when it ends; one that was killed says nothing."""

    settled: int = 0
    gaps: int = 0


class Crew:
    """The children of one parent. None outlives it: each looks whether its parent is still there."""

    def __init__(self, plan: CrewPlan, settings: Settings) -> None:
        self._plan = plan
        self._environment = {**os.environ, **inherited(settings)}
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self.reports: list[ChildReport] = []

    def drain(self) -> None:
        """SIGTERM whatever we got ourselves: a terminal's Ctrl-C does not reach the children."""
        self._stopping.set()
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.terminate()

    def kill(self) -> None:
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.kill()

    async def run(self) -> int:
        """Until every child is done; the worst of their exit codes."""
        return max(await asyncio.gather(*(self._keep(place) for place in range(self._plan.processes))))

    async def _keep(self, place: int) -> int:
        pause = _FIRST_PAUSE
        while True:
            begun = time.monotonic()
            code = await self._child(place)
            if self._stopping.is_set():
                return max(code, 0)
            if code == REFUSED:
                self.drain()  # what one child cannot do, no other can
            if code in _ENDS:
                return code
            pause = _FIRST_PAUSE if time.monotonic() - begun > _GOOD_LIFE_SECONDS else pause
            logger.warning(
                "worker process {place} ended with {code}; starting another in {pause:g} s",
                place=place,
                code=code,
                pause=pause,
            )
            if await self._stopped_within(pause):
                return 0
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _child(self, place: int) -> int:
        metrics = [] if self._plan.metrics_port is None else ["--metrics-port", str(self._plan.metrics_port + place)]
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "mistnet", "work", "--json", "--child-of", str(os.getpid())),
            *(*self._plan.flags, *metrics),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # else Ctrl-C would reach the children twice
        )
        self._children[place] = child
        if self._stopping.is_set():
            child.terminate()
        said, _ = await child.communicate()
        del self._children[place]
        with suppress(msgspec.DecodeError):
            self.reports.append(msgspec.json.decode(said, type=ChildReport))
        return child.returncode if child.returncode is not None else 1

    async def _stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


def inherited(settings: Settings) -> Mapping[str, str]:
    """What a flag may have changed, handed on where no other user of the machine can read it."""
    return {
        "MISTNET_DATABASE_URL": settings.database_url.get_secret_value(),
        "MISTNET_LOG_FORMAT": settings.log_format,
        "MISTNET_LOG_LEVEL": settings.log_level,
    }
