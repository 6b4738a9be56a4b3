"""How a working process is told to stop: politely by the first signal, at once by the second."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from loguru import logger

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked us to stop. The second asking ends the process there and then."""

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
            os._exit(128 + number)
        self.ask(number.name)


@contextmanager
def stopping(drain: Callable[[], None], *, meaning: str, at_once: Callable[[], None] = lambda: None) -> Iterator[Stop]:
    """Listens for signals while the block runs."""
    loop = asyncio.get_running_loop()
    stop = Stop(drain, at_once, meaning)
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.signalled, number)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def ask_when_orphaned(stop: Stop, parent: int, *, look_seconds: float = 0.5) -> None:
    """A child whose parent is gone has nobody left to stop it, so it stops by itself."""
    while os.getppid() == parent:  # noqa: ASYNC110 (the system tells nobody)
        await asyncio.sleep(look_seconds)
    stop.ask("the parent process is gone")
