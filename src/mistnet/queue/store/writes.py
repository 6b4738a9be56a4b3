"""Store the values that handlers return, each by its own writer, in the order of foreign keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.errors import MistnetError, WriteRefused
from mistnet.kit.merged import Part
from mistnet.queue.model import JobId, Write

W = TypeVar("W", bound=Write)


class Writer(msgspec.Struct, Generic[W], frozen=True):
    """How values of one type are written: many at a time, inside the caller's transaction."""

    of: type[W]
    write: Callable[[AsyncConnection, Sequence[W], datetime], Awaitable[Any]]
    last: Callable[[AsyncConnection, Any, datetime], Awaitable[object]] | None = None
    """Gets what `write` returned, after all writers: for rows that others want too, so that they stay locked for less
    time. As every transaction locks such rows last, two of them cannot deadlock."""

    parts: Callable[[AsyncConnection, Sequence[W], datetime], Awaitable[Sequence[Part] | None]] | None = None
    """On PostgreSQL: the same writes as parts of one statement; None if these values take a transaction. May read."""


class PreparedWrites(msgspec.Struct, frozen=True):
    """Values ready to be written, with those derived from them."""

    writes: Sequence[Write]


GivenUp: TypeAlias = Callable[[AsyncConnection, Sequence[JobId], datetime], Awaitable[object]]
"""Called with jobs that failed or died, in the same transaction: what depends on them ends with them."""


async def ignore_given_up(_connection: AsyncConnection, _job_ids: Sequence[JobId], _now: datetime) -> None:
    """For queues where nothing depends on jobs."""


class Writers:
    """All writers in the order their tables depend on each other.

    What follows from a value, such as the links of a post, is derived by `prepare` before the transaction opens: on
    SQLite and libSQL nothing else can be written while it is open.
    """

    def __init__(
        self,
        writers: Sequence[Writer[Write]],
        finders: Mapping[type[Write], Callable[[Any], Iterable[Write]]] | None = None,
    ) -> None:
        self._writers = tuple(writers)
        self._known = {writer.of for writer in writers}
        self._finders = finders or {}

    def prepare(self, writes: Iterable[Write]) -> PreparedWrites:
        """Derive what follows from these values. This may take a while, so no transaction may be open."""
        prepared: list[Write] = []
        for value in writes:
            prepared.append(value)
            if find := self._finders.get(type(value)):
                try:
                    prepared += find(value)
                except Exception as error:
                    raise _refused(type(value), error) from error
        return PreparedWrites(prepared)

    async def write(self, connection: AsyncConnection, prepared: PreparedWrites, now: datetime) -> None:
        writes = prepared.writes
        unknown = {type(value).__name__ for value in writes if type(value) not in self._known}
        if unknown:
            raise WriteRefused(f"no writer is known for {', '.join(sorted(unknown))}")
        given = _by_type(writes)
        last: list[Callable[[], Awaitable[object]]] = []
        for writer in self._writers:
            if values := given.get(writer.of):
                rest = await _guard(writer.of, partial(writer.write, connection, values, now))
                if writer.last is not None:
                    last.append(partial(_guard, writer.of, partial(writer.last, connection, rest, now)))
        for write in last:
            await write()

    async def parts(self, connection: AsyncConnection, writes: Sequence[Write], now: datetime) -> list[Part] | None:
        """All these writes as parts of one statement of PostgreSQL; None if some of them take a transaction."""
        given = _by_type(writes)
        writers = [writer for writer in self._writers if writer.of in given]
        if len(writers) < len(given) or any(writer.parts is None for writer in writers):
            return None
        parts: list[Part] = []
        for writer in writers:
            if writer.parts is not None:
                more = await _guard(writer.of, partial(writer.parts, connection, given[writer.of], now))
                if more is None:
                    return None
                parts += more
        return parts

    async def store(self, database: Database, writes: Iterable[Write]) -> None:
        """Write these values in a transaction of their own."""
        prepared = self.prepare(writes)
        async with database.transaction() as connection:
            await self.write(connection, prepared, database.clock.now())


def _by_type(writes: Iterable[Write]) -> dict[type[Write], list[Write]]:
    given: dict[type[Write], list[Write]] = {}
    for value in writes:
        given.setdefault(type(value), []).append(value)
    return given


async def _guard(of: type[Write], write: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await write()
    except (MistnetError, SQLAlchemyError, OSError):
        raise
    except Exception as error:
        # An error in a writer is a failed attempt of one job, not the end of the worker.
        raise _refused(of, error) from error


def _refused(of: type[Write], error: Exception) -> WriteRefused:
    return WriteRefused(f"the writer of {of.__name__} failed: {type(error).__name__}: {error}")
