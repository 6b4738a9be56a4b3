"""One event loop for all coroutine tests of a process, so that connections outlive the test that opened them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SharedLoop:
    """Runs one coroutine after another. Tasks that a coroutine leaves behind are cancelled when it ends."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    @property
    def is_running_here(self) -> bool:
        """Whether the caller runs in this loop, and not in one of its own or in a thread without any."""
        try:
            return asyncio.get_running_loop() is self._runner.get_loop()
        except RuntimeError:
            return False

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(main)
        finally:
            self._runner.run(_cancel_others())

    def close(self) -> None:
        self._runner.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


LOOP = SharedLoop()
