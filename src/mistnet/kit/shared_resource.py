"""A resource that opens with its first user and closes with its last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

Part = Callable[[], AbstractAsyncContextManager[Any]]


class SharedResource:
    """Opens its parts in order and closes them in reverse."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._lock = asyncio.Lock()
        self._users = 0
        self._open = AsyncExitStack()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self._lock:
            if not self._users:
                async with AsyncExitStack() as opening:  # if one of them fails, those before it are closed again
                    for part in self._parts:
                        await opening.enter_async_context(part())
                    self._open = opening.pop_all()
            self._users += 1
        try:
            yield
        finally:
            async with self._lock:
                self._users -= 1
                if not self._users:
                    await self._open.aclose()
