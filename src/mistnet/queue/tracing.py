"""The port to tracing: told when handlers begin and what they answered. Nobody listens unless asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

from mistnet.queue.kinds import Kind
from mistnet.queue.model import Lease, Outcome

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
