"""How a process behaves while the database fails: it waits, retries, and logs it once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from loguru import logger

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseBusy, DatabaseError, DatabaseUnreachable

_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 5.0
# The longest wait for a busy database: other writers finish soon, while a failure may last.
_BUSY_WAIT: Final = 0.5
# A database that is busy for longer than this counts as failing.
_SOON_OVER: Final = timedelta(seconds=1)
# How long nothing must fail before an outage is over: by then all that failed was retried.
_CALM: Final = timedelta(seconds=_LONGEST_WAIT + 1)


class Outage:
    """Shared by all parts of a worker. They report every failure and every success.

    While nothing can be written, no lease can be renewed, so leases expire although their workers live. Once the
    database answers, these have `renewal_grace` to renew them before others take the jobs and count an attempt.
    """

    def __init__(self, clock: Clock, *, renewal_grace: timedelta, chance: random.Random) -> None:
        self._clock = clock
        self._renewal_grace = renewal_grace
        self._chance = chance
        self._wait = _FIRST_WAIT
        self._failing_since: datetime | None = None
        self._last_failed_at: datetime | None = None
        self._began_at: datetime | None = None
        self._is_logged = False
        self._lost_before: datetime | None = None
        self._renewable_since: datetime | None = None

    def failed(self, error: DatabaseError, *, renewing: bool = False) -> float:
        """Record a failure. Return after how many seconds to retry: longer each time, with jitter.

        `renewing`: a worker could not renew its leases or its presence, so others cannot either.
        """
        now, is_busy = self._clock.now(), type(error) is DatabaseBusy
        if renewing:
            self._renewable_since = None
        self._failing_since = self._failing_since or now
        self._last_failed_at = now
        if not is_busy or now - self._failing_since >= _SOON_OVER:
            self._began_at = self._began_at or self._failing_since
            self._lost_before = self._lost_before or self._failing_since
            if not self._is_logged:
                self._is_logged = True
                problem = f"{str(error).removesuffix('.')}."
                logger.warning("the database fails: {problem} Trying again until it answers.", problem=problem)
        self._wait = min(self._wait * 2, _BUSY_WAIT if is_busy else _LONGEST_WAIT)
        return self._wait * (0.5 + self._chance.random() / 2)

    def over(self, *, wrote: bool = True) -> None:
        """Record a success.

        Reading succeeds on a full or read-only disk, too: only what was written shows that leases can be renewed.
        """
        self._wait = _FIRST_WAIT
        self._failing_since = None
        if self._lost_before is None or not wrote:
            return
        now = self._clock.now()
        self._renewable_since = self._renewable_since or now
        if self._began_at and self._last_failed_at and now - self._last_failed_at >= _CALM:
            lasted = (self._last_failed_at - self._began_at).total_seconds()
            logger.warning("the database answers again; it failed for {seconds:.0f} s", seconds=lasted)
            self._began_at, self._is_logged = None, False

    def lost_before(self, now: datetime) -> datetime:
        """Leases that expired before this moment are lost; later ones could perhaps not be renewed."""
        if self._renewable_since and now >= self._renewable_since + self._renewal_grace:
            # Living workers have renewed their leases by now. If more failed since, the wait begins again.
            self._lost_before = self._renewable_since if self._began_at else None
            self._renewable_since = None
        return self._lost_before or now


class OutageLog:
    """Logs an outage for the scheduler's parts: one line when it begins, one when it is over.

    It is over when a part succeeds that had failed. Another part may succeed because it needs less.
    """

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def failed(self, part: str, error: Exception) -> None:
        problem = str(error) or "the database gives no answer in time"
        if self._failing:
            logger.debug("{part}: {problem}", part=part, problem=problem)
        else:
            again = "the scheduler tries again until it answers"
            logger.warning("{part}: {problem}; {again}", part=part, problem=problem, again=again)
        self._failing.add(part)

    def answered(self, part: str) -> None:
        if part in self._failing:
            self._failing.clear()
            logger.warning("the database answers the scheduler again")


T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.5


async def patiently(ask: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """Retry until the database answers, for this many seconds at most. Log once that it waits."""
    deadline, logged = time.monotonic() + seconds, False
    while True:
        try:
            return await ask()
        except (DatabaseBusy, DatabaseUnreachable) as error:
            if time.monotonic() + _PAUSE_SECONDS > deadline:
                raise
            if not logged:
                waiting = "waiting up to {seconds:g} s for the database: {problem}"
                logger.warning(waiting, seconds=seconds, problem=str(error))
                logged = True
        await asyncio.sleep(_PAUSE_SECONDS)


_TRIES: Final = 5


async def retry_while_busy(
    write: Callable[[], Awaitable[object]],
    *,
    pause_seconds: float = 0.1,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Write what no job would repeat, such as what was paid for or pushed: a busy database gets five attempts."""
    # The last attempt raises its error.
    for tries_left in reversed(range(_TRIES)):
        try:
            await write()
        except DatabaseBusy:
            if not tries_left:
                raise
            await sleep(pause_seconds)
        else:
            return
