"""What a process knows of a database that fails: it waits and tries again, and says so once."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Final

from loguru import logger

from mistnet.domain.errors import DatabaseBusy, DatabaseError
from mistnet.domain.ports import Clock

_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 5.0
_BUSY_WAIT: Final = 0.5
"""Others who write are done soon; a database that fails may take its time."""


class Outage:
    """Shared by all parts of a worker. They report every failure and every success.

    While nobody can write, nobody can renew a lease, so leases run out that are not lost. After an outage their
    workers get `mercy` to renew them before anybody else takes the jobs and counts an attempt.
    """

    def __init__(self, clock: Clock, *, mercy: timedelta, chance: random.Random) -> None:
        self._clock = clock
        self._mercy = mercy
        self._chance = chance
        self._wait = _FIRST_WAIT
        self._began_at: datetime | None = None
        self._ended_at: datetime | None = None

    def failed(self, error: DatabaseError) -> float:
        """Take note of a failure. Returns after how many seconds to try again: longer each time, with a spread."""
        is_busy = type(error) is DatabaseBusy
        if not is_busy and (self._began_at is None or self._ended_at is not None):
            logger.warning("the database fails: {problem}; trying again until it answers", problem=str(error))
            self._began_at = self._began_at if self._in_mercy() else self._clock.now()
            self._ended_at = None
        self._wait = min(self._wait * 2, _BUSY_WAIT if is_busy else _LONGEST_WAIT)
        return self._wait * (0.5 + self._chance.random() / 2)

    def over(self) -> None:
        """Take note that the database did what it was asked to."""
        self._wait = _FIRST_WAIT
        if self._began_at is not None and self._ended_at is None:
            self._ended_at = self._clock.now()
            lasted = (self._ended_at - self._began_at).total_seconds()
            logger.info("the database answers again after {seconds:.0f} s", seconds=lasted)

    def lost_before(self, now: datetime) -> datetime:
        """Leases that ran out before this moment are lost; later ones could perhaps not be renewed."""
        return self._began_at if self._began_at is not None and self._in_mercy() else now

    def _in_mercy(self) -> bool:
        if self._began_at is None:
            return False
        return self._ended_at is None or self._clock.now() < self._ended_at + self._mercy
