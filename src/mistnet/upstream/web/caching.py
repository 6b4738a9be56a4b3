"""Decides what may be kept of an answer, for how long, and how it is asked for again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from mistnet.domain.crawling import CachedAnswer
from mistnet.upstream.web.port import WebAnswer

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
