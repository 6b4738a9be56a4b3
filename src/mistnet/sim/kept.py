"""A memory with a limit: what was asked for longest ago is forgotten first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Everything in it can be made again, so forgetting costs time and nothing else."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Value | None:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: Key, value: Value, weight: int = 1) -> Value:
        self._kept[key] = (value, weight)
        self._total += weight
        while self._total > self._most and len(self._kept) > 1:
            self._total -= self._kept.popitem(last=False)[1][1]
        return value
