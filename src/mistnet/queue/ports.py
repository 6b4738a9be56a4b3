"""What a worker can be given: a feed of jobs, a trace of its handlers, an observer of their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

from mistnet.queue.kinds import Kind
from mistnet.queue.model import Lease, Outcome, Settlement


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


def _nothing(_outcomes: Sequence[Outcome]) -> None:
    pass


_UNTRACED: Final = nullcontext(_nothing)


def untraced(_kind: Kind, _batch: Sequence[Lease], /) -> AbstractContextManager[Tell]:
    """No trace is made, at no cost."""
    return _UNTRACED
