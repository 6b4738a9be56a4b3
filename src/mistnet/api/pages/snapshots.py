"""Answers that take long to find: kept, renewed in the background, and never found twice at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from loguru import logger

from mistnet.domain.errors import DatabaseError

T = TypeVar("T")
_SHARE: Final = 20
"""A renewal that takes a second is made every twenty seconds at most."""
_OLD_SECONDS: Final = 30.0
_PATIENCE_SECONDS: Final = 0.1


class Snapshot(Generic[T]):
    """The last answer, at once. Whoever finds it stale starts the next renewal and does not wait for it."""

    def __init__(
        self, find: Callable[[], Awaitable[T]], *, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._find = find
        self._seconds = seconds
        self._clock = clock
        self._kept: T | None = None
        self._found_at = 0.0
        self._due_at = 0.0
        self._renewal: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Waits only for the first answer, and a moment for one in place of an old one."""
        if self._kept is None:
            return await asyncio.shield(self._renewed())
        if self._clock() >= self._due_at:
            renewal = self._renewed()
            if self._clock() - self._found_at > _OLD_SECONDS:
                await asyncio.wait([renewal], timeout=_PATIENCE_SECONDS)
        return self._kept

    @property
    def idle(self) -> bool:
        """Whether no renewal is under way: nobody waits for it, and it may be forgotten."""
        return self._renewal is None or self._renewal.done()

    async def close(self) -> None:
        """Ends a renewal that is under way."""
        if self._renewal is not None and not self._renewal.done():
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    def _renewed(self) -> asyncio.Task[T]:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(), name="snapshot")
            self._renewal.add_done_callback(_told)
        return self._renewal

    async def _renew(self) -> T:
        begun = self._clock()
        try:
            self._kept = await self._find()
            self._found_at = self._clock()
        finally:
            took = self._clock() - begun
            self._due_at = self._clock() + max(self._seconds, took * _SHARE)
        return self._kept


def _told(renewal: asyncio.Task[T]) -> None:
    """A renewal nobody waited for must not fail unheard."""
    if renewal.cancelled():
        return
    error = renewal.exception()
    if isinstance(error, DatabaseError):
        logger.warning("the dashboard shows older figures: {problem}", problem=error)
