"""Who acts for all processes: a leased row, and the number that makes a late leader's acts void."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

import msgspec


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One holder's time as leader, from the change that made it so to the change that ends it."""

    name: str
    holder: str
    fence: int


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a leadership, or held it last."""

    name: str
    holder: str
    fence: int
    since: datetime
    lease_until: datetime

    def leads_at(self, now: datetime) -> bool:
        return self.lease_until > now


class Leaders(Protocol):
    """The leased rows. Each call is one statement with its own guard. A holder's name is one process's alone."""

    async def take(self, name: str, holder: str, *, lease: timedelta, now: datetime) -> Term | None:
        """Leads from now on if nobody else does. The fence grows when the holder changes."""
        ...

    async def present(self, name: str) -> Leader | None:
        """Who leads, or led last. Asking costs the leader nothing."""
        ...

    async def renew(self, term: Term, *, lease: timedelta, now: datetime) -> bool:
        """Leads for longer, unless somebody else took over."""
        ...

    async def resign(self, term: Term, *, now: datetime) -> None:
        """Leads no more, so that another may at once."""
        ...
