"""One governed call: admitted with a ticket, recorded in the ledger when it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from mistnet.governor.errors import SourceDown
from mistnet.governor.grants import CallSlots
from mistnet.governor.model import CallPurpose, CallRecord, KeyLabel, SourceStore
from mistnet.kit.errors import DatabaseError

if TYPE_CHECKING:
    from mistnet.governor.governor import Governor


_FIRST_SPAN: Final = 0.05
_LONGEST_SPAN: Final = 0.25
_MORE: Final = 2.0
_SPARE: Final = 1.25
_FLUSH_SECONDS: Final = 0.25
_AT_ONCE: Final = 5_000
_REPEAT_SECONDS: Final = 0.5
T = TypeVar("T")


class KeySlots:
    """The slots that this process holds of one key. Times are seconds since 1970."""

    __slots__ = ("emptied", "free_at", "fresh_until", "label", "paused", "refused", "secret", "slots", "span", "unseen")

    def __init__(self, label: KeyLabel, secret: str) -> None:
        self.label, self.secret = label, secret
        self.slots = CallSlots()
        self.span = _FIRST_SPAN
        self.fresh_until = 0.0
        self.free_at: float | None = None
        self.paused = self.refused = False  # paused by the shared row; refused in this process
        self.unseen = 0
        self.emptied = 0

    def empty(self) -> None:
        """Drop the slots of this process, and those that a call is just fetching."""
        self.slots = CallSlots()
        self.emptied += 1

    def free_from(self, at: float) -> float:
        """When this key may be used: at its next slot, after a refusal, or now."""
        if len(self.slots):
            return self.slots.head
        return self.free_at if self.free_at is not None else at

    def next_span(self) -> float:
        """How many seconds of slots to take: as many as were used last time, more if that was too few.

        Unused slots are lost to all other processes.
        """
        run = self.slots
        if run.let_go:
            return max(run.used * _SPARE, 1.0) * run.interval
        return min(self.span * _MORE, _LONGEST_SPAN) if run.used else self.span


class Ticket(msgspec.Struct):
    """One admitted call: implements `Call`."""

    key: str
    label: KeyLabel
    reserved: int
    items: int = 0
    cost: int | None = None

    def settle(self, *, items: int, credits_due: int) -> None:
        self.items, self.cost = items, credits_due


class GovernedCall:
    """The context manager of a call. Not a generator: creating one would cost more than all the rest of a call."""

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
        if not self._governor.try_admit(self):
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
                await self._governor.record_failure(self, error)
            elif self._governor.failing or self.probe_until is not None or self.key_slots.unseen:
                await self._governor.record_success(self)
        finally:
            self._governor.note(self, seconds, error)


async def repeat_if_unanswered(call: Callable[[], Awaitable[T]], sleep: Callable[[float], Awaitable[None]]) -> T:
    """Make a call, and once more if the connection failed. The repetition is a governed call of its own."""
    try:
        return await call()
    except SourceDown as error:
        if error.status is not None:  # it answered: the job's own retry comes later
            raise
    await sleep(_REPEAT_SECONDS)
    return await call()


class CallBuffer:
    """Calls that are not in the ledger yet. If the database cannot be reached, they are kept and written later."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store
        self._unwritten: list[CallRecord] = []
        self.add: Callable[[CallRecord], None] = self._unwritten.append

    def __len__(self) -> int:
        return len(self._unwritten)

    async def flush(self) -> None:
        """Write the buffered calls to the ledger, a few thousand per transaction."""
        while self._unwritten:
            written = self._unwritten[:_AT_ONCE]
            del self._unwritten[: len(written)]
            try:
                await self._store.record(written)
            except DatabaseError:
                self._unwritten[:0] = written
                raise

    async def flush_until(self, over: asyncio.Event, also: Callable[[], Awaitable[None]]) -> None:
        """Write every quarter of a second, and run `also` each time."""
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await over.wait()
            with suppress(DatabaseError):  # the calls stay in the buffer
                await also()
                await self.flush()
