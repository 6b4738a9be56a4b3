"""One visit at a time to each host, with a pause between, whichever worker makes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from mistnet.domain.crawling import HostBook
from mistnet.domain.errors import NotNow
from mistnet.domain.ports import Clock

_MOST_HELD = 10_000


class Turns:
    """Takes turns from the shared book. Those turned away come back one after the other, not all at once."""

    def __init__(self, book: HostBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._queued_until: dict[str, datetime] = {}

    async def take(self, host: str, delay: float) -> None:
        """Raises NotNow with the time to come back if it is not our turn."""
        if delay <= 0:
            return
        free_at = await self._book.claim(host, now=self._clock.now(), delay=delay)
        if free_at is None:
            return
        if len(self._queued_until) > _MOST_HELD:
            self._queued_until.clear()
        last = self._queued_until.get(host)
        until = last + timedelta(seconds=delay) if last is not None and last >= free_at else free_at
        self._queued_until[host] = until
        raise NotNow(until, f"{host} is visited every {delay:g} s")

    async def leave_alone(self, host: str, until: datetime) -> None:
        await self._book.leave_alone(host, until=until)
