"""Clocks: the machine's, and one that follows the database server's time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class SystemClock:
    """The machine's clock. It is enough for SQLite, because all workers run on one machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class ServerClock:
    """The database server's time, carried forward by a monotonic count between corrections.

    The machine's own wall clock plays no part, so a worker whose clock is wrong cannot steal leases.
    """

    def __init__(self) -> None:
        self._server_at: datetime | None = None
        self._learned = 0.0

    def learn(self, server_time: datetime, *, asked: float, answered: float) -> timedelta:
        """Set the server's time as of the middle of the round trip. Return how far this clock had drifted.

        A difference within the uncertainty of the round trip changes nothing, so that time does not jump.
        """
        middle = (asked + answered) / 2
        drift = server_time - self._at(middle) if self._server_at else None
        if drift is None or abs(drift) > timedelta(seconds=(answered - asked) / 2):
            self._server_at, self._learned = server_time, middle
        return drift or timedelta()

    def now(self) -> datetime:
        return self._at(time.monotonic())

    def _at(self, moment: float) -> datetime:
        if self._server_at is None:
            return datetime.now(UTC)
        return self._server_at + timedelta(seconds=moment - self._learned)


class Clock(Protocol):
    """The current time. In production it is the database's, so that a wrong clock on one machine does no harm."""

    def now(self) -> datetime: ...
