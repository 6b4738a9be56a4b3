"""Waits for a database that does not answer yet, or not now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from loguru import logger

from mistnet.domain.errors import DatabaseBusy, DatabaseUnreachable

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.5


async def patiently(ask: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """Asks until the database answers, for so many seconds at most. Says once that it waits."""
    deadline, told = time.monotonic() + seconds, False
    while True:
        try:
            return await ask()
        except (DatabaseBusy, DatabaseUnreachable) as error:
            if time.monotonic() + _PAUSE_SECONDS > deadline:
                raise
            if not told:
                waiting = "waiting up to {seconds:g} s for the database: {problem}"
                logger.warning(waiting, seconds=seconds, problem=str(error))
                told = True
        await asyncio.sleep(_PAUSE_SECONDS)
