"""For how long something is kept."""

from __future__ import annotations

from datetime import datetime, timedelta


def kept_since(now: datetime, days: float) -> datetime | None:
    """What is older may go. None if nothing may: 0 days means for ever."""
    return now - timedelta(days=days) if days else None
