"""Writes the values a handler returned, each by its own writer, in foreign-key order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.errors import MistnetError, WriteRefused
from mistnet.domain.jobs import Write

W = TypeVar("W", bound=Write)


class Writer(msgspec.Struct, Generic[W], frozen=True):
    """How values of one type are written: many at a time, inside the caller's transaction."""

    of: type[W]
    write: Callable[[AsyncConnection, Sequence[W], datetime], Awaitable[object]]


class Writers:
    """All writers in the order their tables depend on each other."""

    def __init__(self, writers: Sequence[Writer[Write]]) -> None:
        self._writers = tuple(writers)
        self._known = {writer.of for writer in writers}

    async def write(self, connection: AsyncConnection, writes: Sequence[Write], now: datetime) -> None:
        unknown = {type(value).__name__ for value in writes if type(value) not in self._known}
        if unknown:
            raise WriteRefused(f"no writer is known for {', '.join(sorted(unknown))}")
        for writer in self._writers:
            values = [value for value in writes if type(value) is writer.of]
            if values:
                await _guarded(writer, connection, values, now)


async def _guarded(writer: Writer[Write], connection: AsyncConnection, values: Sequence[Write], now: datetime) -> None:
    """A writer that stumbles over a value is one job's failed attempt, not the end of a worker."""
    try:
        await writer.write(connection, values, now)
    except (MistnetError, SQLAlchemyError, OSError):
        raise
    except Exception as error:
        raise WriteRefused(f"the writer of {writer.of.__name__} failed: {type(error).__name__}: {error}") from error
