"""Slows down whoever tries tokens."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

_SPAN_SECONDS: Final = 60.0
_BY_ADDRESS: Final = 10
_IN_ALL: Final = 100
_ADDRESSES: Final = 10_000


class Throttle:
    """Counts failed tries of the last minute: from each address, and in all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_address: dict[str, deque[float]] = {}
        self._in_all: deque[float] = deque()

    def failed(self, address: str) -> None:
        now = self._clock()
        if len(self._by_address) >= _ADDRESSES:
            self._by_address = {each: tries for each, tries in self._by_address.items() if self._recent(tries, now)}
        tries = self._by_address.setdefault(address, deque(maxlen=_BY_ADDRESS))
        for noted in (tries, self._in_all):
            noted.append(now)

    def wait(self, address: str) -> int | None:
        """For how many seconds this address must not try again; None: it may."""
        now = self._clock()
        waits = [
            math.ceil(tries[0] + _SPAN_SECONDS - now)
            for tries, most in ((self._by_address.get(address), _BY_ADDRESS), (self._in_all, _IN_ALL))
            if tries and len(self._recent(tries, now)) >= most
        ]
        return max(waits, default=None)

    def _recent(self, tries: deque[float], now: float) -> deque[float]:
        while tries and tries[0] <= now - _SPAN_SECONDS:
            tries.popleft()
        return tries
