"""Read each host's robots.txt before its pages, and cache it for a day, for all workers."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.kit.clock import Clock
from mistnet.shops.model import AnswerBook, CachedAnswer
from mistnet.sources.web.port import SafeUrl, WebAnswer

if TYPE_CHECKING:
    from protego import Protego


# RFC 9309: a cached robots.txt should not be used for longer than a day.
REMEMBERED: Final = timedelta(hours=24)
# In memory for a shorter time: another worker may have fetched a newer one.
_HELD: Final = timedelta(hours=1)
_MOST_HELD: Final = 1_000
# RFC 9309 requires at least 500 KiB to be read.
_LARGEST: Final = 512 * 1024
_SLOWEST: Final = 60.0
_ROBOTS_OK: Final = range(200, 300)


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """What a host's robots.txt says, and how long that is valid."""

    rules: Protego
    until: datetime

    def allow(self, url: str, agent: str) -> bool:
        return bool(self.rules.can_fetch(url, agent))

    def delay(self, agent: str) -> float:
        """The seconds between visits that the host asks for, at most a minute."""
        rate = self.rules.request_rate(agent)
        asked = [self.rules.crawl_delay(agent) or 0.0, rate.seconds / rate.requests if rate and rate.requests else 0.0]
        return min(float(max(asked)), _SLOWEST)


class Robots:
    """The rules of each host, fetched once a day."""

    def __init__(self, book: AnswerBook, clock: Clock, fetch: Callable[[SafeUrl, str], Awaitable[WebAnswer]]) -> None:
        self._book = book
        self._clock = clock
        self._fetch = fetch
        self._held: dict[str, Manners] = {}

    async def manners(self, target: SafeUrl, lane: str) -> Manners:
        """From memory, from the shared cache, or from the host. Raises SourceDown if the host does not return them."""
        now = self._clock.now()
        held = self._held.get(target.origin)
        if held is not None and held.until > now:
            return held
        stored = await self._book.get(_key(target))
        if stored is None or stored.fresh_until <= now:
            answer = await self._fetch(target, lane)
            stored = CachedAnswer(
                key=_key(target),
                source=lane,
                stored_at=now,
                fresh_until=now + REMEMBERED,
                status=answer.status,
                headers={},
                body=answer.body[:_LARGEST] if answer.status in _ROBOTS_OK else b"",
            )
            await self._book.put(stored)
        from protego import Protego  # noqa: PLC0415 (slow to load; only workers that fetch pages need it)

        # A host without a robots.txt allows everything.
        text = stored.body.decode("utf-8", "replace") if stored.status in _ROBOTS_OK else ""
        manners = Manners(rules=Protego.parse(text), until=min(stored.fresh_until, now + _HELD))
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[target.origin] = manners
        return manners


def _key(target: SafeUrl) -> str:
    return f"robots {target.origin}"


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


def answer_to_store(answer: WebAnswer, url: str, *, lane: str, now: datetime, ttl: timedelta) -> CachedAnswer | None:
    """The answer to store, or None if its headers forbid that or it is not a complete page."""
    cache_control = answer.headers.get("cache-control", "").lower()
    varies = answer.headers.get("vary", "").strip() == "*"
    if answer.status != _OK or answer.unread or "no-store" in cache_control or varies:
        return None
    return CachedAnswer(
        key=key_of(url),
        source=lane,
        stored_at=now,
        fresh_until=now + ttl,
        status=answer.status,
        headers={name: answer.headers[name] for name in _KEPT if name in answer.headers},
        body=answer.body,
    )
