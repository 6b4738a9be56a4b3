"""Errors of items, price watches and exchange rates."""

from __future__ import annotations

from collections.abc import Sequence

from mistnet.kit.errors import MOST_LISTED, UsageError, list_problems


class BadWatch(UsageError):
    """A request for a price watch that is not valid."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"this cannot be watched: {problem}")
        self.problem = problem


class WatchNotFound(UsageError):
    """No price watch has this id, or it was removed."""

    def __init__(self, watch_id: int) -> None:
        super().__init__(f"there is no price watch {watch_id}; `mistnet prices watches` shows them")
        self.watch_id = watch_id


class BadItem(UsageError):
    """Fields of an item are not valid: each problem names its field and its value."""

    def __init__(self, problems: Sequence[tuple[str, str, str]]) -> None:
        super().__init__(
            "; ".join(f"{field} {value[:200]!r}: {problem}" for field, value, problem in problems[:MOST_LISTED])
        )
        self.problems = tuple(problems)


class ItemNotFound(UsageError):
    """No item has this id, or it was removed."""

    def __init__(self, item_id: int, *, removed: bool = False) -> None:
        why = f"item {item_id} was removed; add it again to follow it" if removed else f"there is no item {item_id}"
        super().__init__(f"{why}; `mistnet items list` shows those that are followed")
        self.item_id, self.removed = item_id, removed


class PointNotFound(UsageError):
    """No price point has this id."""

    def __init__(self, point_id: int) -> None:
        super().__init__(f"there is no point {point_id}; `mistnet items points ID` shows those of an item")
        self.point_id = point_id


class BadRates(UsageError):
    """Rows of a file are not valid rates; nothing was written."""

    def __init__(self, file: str, rows: int, problems: Sequence[str]) -> None:
        super().__init__(
            f"{len(problems)} of {rows} rows of {file} cannot be taken, and nothing was written: "
            f"{list_problems(problems)}. "
            f"Correct them, or leave them out with --skip-bad"
        )
        self.file, self.rows, self.problems = file, rows, tuple(problems)
