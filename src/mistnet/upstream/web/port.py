"""The port to the web: one request to one URL, no hops. Simulations put their shops behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from mistnet.upstream.web.doors import Door


class WebAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, whatever its status; header names in small letters. `unread`: why the body was left alone."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    unread: str | None = None


Readable: TypeAlias = Callable[[int, Mapping[str, str]], str | None]
"""Looks at an answer's beginning; says why its body is not worth reading, or None."""


class WebTransport(Protocol):
    """Raises Unanswered, or CrawlRefused where the answer is not to be had at any time."""

    async def get(self, door: Door, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer: ...
