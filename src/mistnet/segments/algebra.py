"""Set algebra over whatever has the three operations: Python's sets in proofs, questions to a database in the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Protocol, TypeVar, assert_never

from mistnet.domain.segments import Difference, Intersection, Union


class Sets(Protocol):
    """Something that can be joined, met and taken away."""

    def __or__(self, other: Any, /) -> Any: ...

    def __and__(self, other: Any, /) -> Any: ...

    def __sub__(self, other: Any, /) -> Any: ...


S = TypeVar("S", bound=Sets)
M = TypeVar("M")


def combined(rule: Union | Intersection | Difference, parts: Sequence[S]) -> S:
    """The rule's members, given those of its segments in the order in which it names them."""
    match rule:
        case Union():
            return reduce(lambda all_, each: all_ | each, parts)
        case Intersection():
            return reduce(lambda all_, each: all_ & each, parts)
        case Difference():
            return reduce(lambda all_, each: all_ - each, parts)
        case _:
            assert_never(rule)


def replayed(events: Iterable[tuple[str, M]]) -> set[M]:
    """Who is in after these, in order: (`entered` or `left`, member). One that cannot be is an error."""
    members: set[M] = set()
    for kind, member in events:
        if (kind == "entered") == (member in members):
            raise ValueError(f"{member} {kind} out of turn")
        (members.add if kind == "entered" else members.remove)(member)
    return members
