"""What only the leader does, again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """A chore for one process of all. It never overlaps itself; one that fails is tried again at its next time."""

    name: str
    every: timedelta
    run: Callable[[], Awaitable[object]]
