"""The credits a process has set aside for its next calls."""

from __future__ import annotations

from datetime import datetime, timedelta

from mistnet.engine.grants import midnight


class Purse:
    """Whole credits of one day (UTC). What was counted yesterday is not there to be spent today."""

    __slots__ = ("left", "until")

    def __init__(self) -> None:
        self.left = 0
        self.until = 0.0
        """The end of its day, in seconds since 1970; also what its day is known by."""

    def begin_day(self, now: datetime) -> None:
        """Empties it if its day is over."""
        if now.timestamp() >= self.until:
            self.left = 0
            self.until = midnight(now + timedelta(days=1)).timestamp()

    def put_back(self, unspent: int, day: float) -> None:
        """What a call of that day had set aside and did not cost; less than nothing if it cost more."""
        if day == self.until:
            self.left += unspent
