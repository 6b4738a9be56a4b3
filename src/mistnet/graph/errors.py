"""Errors of segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mistnet.kit.errors import UsageError, did_you_mean


class BadSegment(UsageError):
    """A segment that cannot be as somebody wants it."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"segment {name[:80]!r}: {problem}")
        self.name, self.problem = name, problem


class SegmentCycle(BadSegment):
    """Segments that build on each other in a circle, so that none of them could be worked out first."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(path[0], f"it would build on itself: {' -> '.join(path)}; leave one of these out")
        self.path = tuple(path)


class SegmentNotFound(UsageError):
    """There is no segment of that name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(
            f"there is no segment {name[:80]!r}.{did_you_mean(name[:80], known)} `mistnet segments list` shows them all"
        )
        self.name = name


class SegmentDisabled(UsageError):
    """The segment keeps the members it has until somebody enables it again."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the segment {name!r} is disabled; `mistnet segments enable {name}` changes that")
        self.name = name
