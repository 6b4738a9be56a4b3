"""One call on its way through the governor: in with a ticket, out with a note in the ledger."""

from __future__ import annotations

import time
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.governor.grants import CallSlots
from mistnet.governor.model import CallPurpose, KeyLabel

if TYPE_CHECKING:
    from mistnet.governor.governor import Governor


_FIRST_SPAN: Final = 0.05
_LONGEST_SPAN: Final = 0.25
_MORE: Final = 2.0
_SPARE: Final = 1.25


class KeySlots:
    """What this process holds of one key. Times are seconds since 1970."""

    __slots__ = ("emptied", "free_at", "fresh_until", "label", "paused", "refused", "secret", "slots", "span", "unseen")

    def __init__(self, label: KeyLabel, secret: str) -> None:
        self.label, self.secret = label, secret
        self.slots = CallSlots()
        self.span = _FIRST_SPAN
        self.fresh_until = 0.0
        self.free_at: float | None = None
        self.paused = self.refused = False  # as the shared row says; as this process was told itself
        self.unseen = 0
        self.emptied = 0

    def empty(self) -> None:
        """Nobody is to use what is in hand, nor what somebody is just fetching."""
        self.slots = CallSlots()
        self.emptied += 1

    def free_from(self, at: float) -> float:
        """When this key may be used: its next slot, what it was told, or now."""
        if len(self.slots):
            return self.slots.head
        return self.free_at if self.free_at is not None else at

    def next_span(self) -> float:
        """How many seconds of the time line to take: as much as was used lately, more if that was not enough.

        Slots that lie about unused are lost to all the others.
        """
        run = self.slots
        if run.let_go:
            return max(run.used * _SPARE, 1.0) * run.interval
        return min(self.span * _MORE, _LONGEST_SPAN) if run.used else self.span


class Ticket(msgspec.Struct):
    """One call that was let through: the port's Call."""

    key: str
    label: KeyLabel
    reserved: int
    items: int = 0
    cost: int | None = None

    def settle(self, *, items: int, credits_due: int) -> None:
        self.items, self.cost = items, credits_due


class GovernedCall:
    """What `async with` is given. Its own class, because a generator would cost every call more than all the rest."""

    __slots__ = (
        "_begun",
        "_governor",
        "at",
        "day",
        "endpoint",
        "key_slots",
        "most",
        "probe_until",
        "purpose",
        "ticket",
    )

    key_slots: KeySlots
    ticket: Ticket
    at: datetime
    day: float

    def __init__(self, governor: Governor, endpoint: str, most: int, purpose: CallPurpose) -> None:
        self._governor = governor
        self.endpoint, self.most, self.purpose = endpoint, most, purpose
        self.probe_until: datetime | None = None

    async def __aenter__(self) -> Ticket:
        if not self._governor.let_through(self):
            await self._governor.admit(self)
        key_slots = self.key_slots
        self.ticket = ticket = Ticket(key_slots.secret, key_slots.label, self.most)
        self._begun = time.perf_counter()
        return ticket

    async def __aexit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._begun
        try:
            if error is not None:
                await self._governor.went_badly(self, error)
            elif self._governor.failing or self.probe_until is not None or self.key_slots.unseen:
                await self._governor.went_well(self)
        finally:
            self._governor.note(self, seconds, error)
