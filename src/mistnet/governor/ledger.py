"""Keeps the records of calls until the ledger has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from mistnet.governor.model import CallRecord, SourceStore
from mistnet.kit.errors import DatabaseError

_FLUSH_SECONDS: Final = 0.25
_AT_ONCE: Final = 5_000


class CallBuffer:
    """What was called and is not written down yet. A database that is away loses nothing."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store
        self._unwritten: list[CallRecord] = []
        self.add: Callable[[CallRecord], None] = self._unwritten.append

    def __len__(self) -> int:
        return len(self._unwritten)

    async def write_down(self) -> None:
        """Adds what was called since the last time to the ledger, a few thousand calls in a transaction."""
        while self._unwritten:
            written = self._unwritten[:_AT_ONCE]
            del self._unwritten[: len(written)]
            try:
                await self._store.record(written)
            except DatabaseError:
                self._unwritten[:0] = written
                raise

    async def write_down_until(self, over: asyncio.Event, also: Callable[[], Awaitable[None]]) -> None:
        """Writes every quarter of a second; `also` is done at each turn."""
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await over.wait()
            with suppress(DatabaseError):  # kept, and tried again
                await also()
                await self.write_down()
