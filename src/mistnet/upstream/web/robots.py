"""Asks each host's robots.txt before its pages, and remembers the answer for a day, for all workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.domain.crawling import AnswerBook, CachedAnswer
from mistnet.domain.ports import Clock
from mistnet.upstream.web.doors import Door
from mistnet.upstream.web.port import WebAnswer

if TYPE_CHECKING:
    from protego import Protego

REMEMBERED: Final = timedelta(hours=24)
_HELD: Final = timedelta(hours=1)
_MOST_HELD: Final = 1_000
_LARGEST: Final = 512 * 1024
_SLOWEST: Final = 60.0
_OK: Final = range(200, 300)


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """What a host asks of visitors such as us."""

    rules: Protego
    until: datetime

    def allow(self, url: str, agent: str) -> bool:
        return bool(self.rules.can_fetch(url, agent))

    def delay(self, agent: str) -> float:
        """Seconds between visits; nobody is believed who asks for more than a minute."""
        rate = self.rules.request_rate(agent)
        asked = [self.rules.crawl_delay(agent) or 0.0, rate.seconds / rate.requests if rate and rate.requests else 0.0]
        return min(float(max(asked)), _SLOWEST)


class Robots:
    """Every host's manners, each asked for once a day."""

    def __init__(self, book: AnswerBook, clock: Clock, fetch: Callable[[Door, str], Awaitable[WebAnswer]]) -> None:
        self._book = book
        self._clock = clock
        self._fetch = fetch
        self._held: dict[str, Manners] = {}

    async def manners(self, door: Door, lane: str) -> Manners:
        """As held here, as stored by any worker, or as the host says now. Raises SourceDown if it does not say."""
        now = self._clock.now()
        held = self._held.get(door.origin)
        if held is not None and held.until > now:
            return held
        stored = await self._book.get(_key(door))
        if stored is None or stored.fresh_until <= now:
            stored = await self._asked(door, lane, now)
        manners = Manners(rules=_parsed(stored.status, stored.body), until=min(stored.fresh_until, now + _HELD))
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[door.origin] = manners
        return manners

    async def _asked(self, door: Door, lane: str, now: datetime) -> CachedAnswer:
        answer = await self._fetch(door, lane)
        found = CachedAnswer(
            key=_key(door),
            source=lane,
            stored_at=now,
            fresh_until=now + REMEMBERED,
            status=answer.status,
            headers={},
            body=answer.body[:_LARGEST] if answer.status in _OK else b"",
        )
        await self._book.put(found)
        return found


def _key(door: Door) -> str:
    return f"robots {door.origin}"


def _parsed(status: int, body: bytes) -> Protego:
    """A host without such a file allows everything."""
    from protego import Protego  # noqa: PLC0415 (only those who visit pages wait for it)

    return Protego.parse(body.decode("utf-8", "replace") if status in _OK else "")
