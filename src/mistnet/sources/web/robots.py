"""Asks each host's robots.txt before its pages, and remembers the answer for a day, for all workers."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.kit.clock import Clock
from mistnet.shops.model import AnswerBook, CachedAnswer
from mistnet.sources.web.port import WebAnswer
from mistnet.sources.web.safe_url import SafeUrl

if TYPE_CHECKING:
    from protego import Protego


REMEMBERED: Final = timedelta(hours=24)
_HELD: Final = timedelta(hours=1)
_MOST_HELD: Final = 1_000
_LARGEST: Final = 512 * 1024
_SLOWEST: Final = 60.0
_ROBOTS_OK: Final = range(200, 300)


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

    def __init__(self, book: AnswerBook, clock: Clock, fetch: Callable[[SafeUrl, str], Awaitable[WebAnswer]]) -> None:
        self._book = book
        self._clock = clock
        self._fetch = fetch
        self._held: dict[str, Manners] = {}

    async def manners(self, target: SafeUrl, lane: str) -> Manners:
        """As held here, as stored by any worker, or as the host says now. Raises SourceDown if it does not say."""
        now = self._clock.now()
        held = self._held.get(target.origin)
        if held is not None and held.until > now:
            return held
        stored = await self._book.get(_key(target))
        if stored is None or stored.fresh_until <= now:
            stored = await self._asked(target, lane, now)
        manners = Manners(rules=_parsed(stored.status, stored.body), until=min(stored.fresh_until, now + _HELD))
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[target.origin] = manners
        return manners

    async def _asked(self, target: SafeUrl, lane: str, now: datetime) -> CachedAnswer:
        answer = await self._fetch(target, lane)
        found = CachedAnswer(
            key=_key(target),
            source=lane,
            stored_at=now,
            fresh_until=now + REMEMBERED,
            status=answer.status,
            headers={},
            body=answer.body[:_LARGEST] if answer.status in _ROBOTS_OK else b"",
        )
        await self._book.put(found)
        return found


def _key(target: SafeUrl) -> str:
    return f"robots {target.origin}"


def _parsed(status: int, body: bytes) -> Protego:
    """A host without such a file allows everything."""
    from protego import Protego  # noqa: PLC0415 (only those who visit pages wait for it)

    return Protego.parse(body.decode("utf-8", "replace") if status in _ROBOTS_OK else "")


_KEPT: Final = ("content-type", "etag", "last-modified")
_LONGEST_KEY: Final = 1_000
_OK: Final = 200


def key_of(url: str) -> str:
    return f"GET {url}" if len(url) <= _LONGEST_KEY else f"GET sha256:{hashlib.sha256(url.encode()).hexdigest()}"


def conditions(stored: CachedAnswer | None) -> dict[str, str]:
    """Headers that let the server say that nothing changed."""
    if stored is None:
        return {}
    asked = {"If-None-Match": stored.headers.get("etag"), "If-Modified-Since": stored.headers.get("last-modified")}
    return {name: value for name, value in asked.items() if value}


def kept(answer: WebAnswer, url: str, *, lane: str, now: datetime, ttl: timedelta) -> CachedAnswer | None:
    """The answer as it is stored, or None if its sender forbids that or there is nothing worth keeping."""
    told = answer.headers.get("cache-control", "").lower()
    if answer.status != _OK or answer.unread or "no-store" in told or answer.headers.get("vary", "").strip() == "*":
        return None
    return CachedAnswer(
        key=key_of(url),
        source=lane,
        stored_at=now,
        fresh_until=now + ttl,
        status=answer.status,
        headers=_shown(answer.headers),
        body=answer.body,
    )


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _KEPT if name in headers}
