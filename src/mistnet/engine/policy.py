"""How patient the engine is: leases, beats, waits and limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

RENEW_AGAIN: Final = timedelta(seconds=1)
"""After a lease could not be renewed: it is to be renewed before others take it for lost."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Every number of the engine that somebody may want to set. Without a retention, history is kept for ever."""

    lease: timedelta = timedelta(seconds=300)
    heartbeat: timedelta = timedelta(seconds=20)
    reclaim: timedelta = timedelta(seconds=60)
    idle_poll: timedelta = timedelta(seconds=60)
    backoff_base: timedelta = timedelta(seconds=60)
    backoff_cap: timedelta = timedelta(hours=24)
    job_timeout: timedelta = timedelta(seconds=600)
    grace: timedelta = timedelta(seconds=30)
    retention: timedelta | None = timedelta(days=30)
    aging: timedelta | None = None
    lane_caps: Mapping[str, int] = {}
    settle_group: int = 500
    settlers: int = 1
    error_limit: int = 8_000

    @property
    def mercy(self) -> timedelta:
        """How long workers have, after the database failed, to renew leases that ran out meanwhile."""
        return max(2 * self.heartbeat, 5 * RENEW_AGAIN)  # shorter, and a worker that lives may not get to try
