"""Slows down those who try secrets."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

_SPAN_SECONDS: Final = 60.0
_BY_ADDRESS: Final = 10
_BY_ACCOUNT: Final = 100
_ADDRESSES: Final = 10_000

_Tries: TypeAlias = deque[float]


class Throttle:
    """Counts failed tries of the last minute: from each address, and for each account.

    There is no count of all tries together: strangers would fill it, and everybody else would have to wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, _Tries] = OrderedDict()
        self._by_account: dict[str, _Tries] = {}

    def failed(self, address: str, account: str | None = None) -> None:
        now = self._clock()
        self._forget(now)
        self._by_address.setdefault(address, deque(maxlen=_BY_ADDRESS)).append(now)
        self._by_address.move_to_end(address)
        if account is not None:
            self._by_account.setdefault(account, deque(maxlen=_BY_ACCOUNT)).append(now)

    def wait(self, address: str, account: str | None = None) -> int | None:
        """For how many seconds this address must not try again, or no one for this account; None: they may."""
        now = self._clock()
        counted = (
            (self._by_address.get(address), _BY_ADDRESS),
            (self._by_account.get(account) if account is not None else None, _BY_ACCOUNT),
        )
        waits = [
            math.ceil(tries[0] + _SPAN_SECONDS - now)
            for tries, most in counted
            if tries and len(_recent(tries, now)) >= most
        ]
        return max(waits, default=None)

    def _forget(self, now: float) -> None:
        """The address that failed last is at the end, so that those to forget are at the beginning."""
        while self._by_address:
            tries = next(iter(self._by_address.values()))
            if tries[-1] > now - _SPAN_SECONDS and len(self._by_address) < _ADDRESSES:
                return
            self._by_address.popitem(last=False)


def _recent(tries: _Tries, now: float) -> _Tries:
    while tries and tries[0] <= now - _SPAN_SECONDS:
        tries.popleft()
    return tries
