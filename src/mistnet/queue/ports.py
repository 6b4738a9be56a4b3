"""What a worker is given: its tools, and ports for a feed of jobs, a trace of handlers, an observer of outcomes."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from mistnet.kit.clock import Clock
from mistnet.kit.outage import Outage
from mistnet.queue.kinds import Kind, KindRegistry, Policy
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import Lease, Outcome, Settlement

if TYPE_CHECKING:
    from mistnet.queue.store.claims import JobQueue
    from mistnet.queue.store.upkeep import StoreUpkeep
    from mistnet.queue.store.wakeups import LocalWakeups


class JobFeed(Protocol):
    """Where a worker's leases come from: the table itself, or a broker that names jobs."""

    def opened(self) -> AbstractAsyncContextManager[object]:
        """Open while leases are taken or held."""
        ...

    async def take(self, slots: int) -> Sequence[Lease]:
        """Leases for this many free slots; none if no job is due or the database does not answer."""
        ...

    def ring(self) -> None:
        """End a wait now."""
        ...

    async def wait(self, *, leaving: bool) -> None:
        """Wait until there may be a lease to take. `leaving`: the worker ends when no work is left, so wait less."""
        ...

    def ended(self, lease: Lease) -> None:
        """The outcome of this lease is stored, or the lease was lost."""
        ...

    async def stop(self) -> None:
        """Take no more. What was not taken goes back."""
        ...


class Observer(Protocol):
    """Knows what jobs are about, which the queue does not."""

    def account_of(self, lease: Lease) -> str | None:
        """The account that a job works for, as people call it."""
        ...

    def settled(self, settlement: Settlement) -> None:
        """Called for every job whose outcome was stored."""
        ...


Tell: TypeAlias = Callable[[Sequence[Outcome]], None]


class Trace(Protocol):
    """Opened around the run of a handler; what it gives is called with the outcomes, one for each lease."""

    def __call__(self, kind: Kind, batch: Sequence[Lease], /) -> AbstractContextManager[Tell]: ...


# One object for all handlers: a context of its own for each would cost more than many handlers do.
_UNTRACED: Final[AbstractContextManager[Tell]] = nullcontext(lambda _outcomes: None)


def untraced(_kind: Kind, _batch: Sequence[Lease], /) -> AbstractContextManager[Tell]:
    """No trace is made, at no cost."""
    return _UNTRACED


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a worker needs, chosen by the composition root."""

    queue: JobQueue
    upkeep: StoreUpkeep
    wakeup: LocalWakeups
    clock: Clock
    kinds: KindRegistry
    policy: Policy
    metrics: EngineMetrics
    secrets: Sequence[str] = ()
    halted: Callable[[], Awaitable[Collection[str]]] | None = None
    avoided_lanes: Callable[[], Collection[str]] = tuple
    """Lanes from which nothing is claimed for now, because other workers can serve them and this one cannot."""

    upkeep_tasks: Sequence[Callable[[], Awaitable[int]]] = ()
    quick_tasks: Sequence[Callable[[], Awaitable[None]]] = ()
    """Upkeep that cannot wait for the next look, and takes a moment."""

    outage: Outage | None = None
    """Given if the feed shares it."""

    trace: Trace = untraced
    observer: Observer | None = None
    chance: random.Random = msgspec.field(default_factory=random.Random)
