"""Values on their way: whole numbers as text, so that all 64 bits arrive; bytes as base64."""

from __future__ import annotations

import math
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

Plain: TypeAlias = int | float | str | bytes | None
Sent: TypeAlias = Mapping[str, Any]

_NULL: Final[Sent] = {"type": "null"}
_LEAST, _MOST = -(2**63), 2**63 - 1


class Value(msgspec.Struct):
    """One value as the server writes it."""

    type: str
    value: str | float | None = None
    base64: str | None = None


def to_server(value: object) -> Sent:
    """Takes what the sqlite3 module takes, and refuses what cannot arrive as it is."""
    match value:
        case None:
            return _NULL
        case str():
            return {"type": "text", "value": value}
        case int():
            return {"type": "integer", "value": str(_whole(value))}
        case float():
            return _float(value)
        case bytes() | bytearray() | memoryview():
            return {"type": "blob", "base64": b64encode(value).decode()}
        case _:
            raise sqlite3.ProgrammingError(f"values of type {type(value).__name__!r} cannot be sent")


def from_server(value: Value) -> Plain:
    match value.type:
        case "integer":
            return int(value.value or 0)
        case "float":
            return None if value.value is None else float(value.value)
        case "text":
            return str(value.value)
        case "blob":
            return _bytes(value.base64 or "")
        case "null":
            return None
        case _:
            raise sqlite3.DataError(f"the server sent a value of unknown type {value.type!r}")


def rows_of(found: Sequence[Sequence[Value]]) -> list[tuple[Plain, ...]]:
    return [tuple([from_server(value) for value in row]) for row in found]


def _whole(value: int) -> int:
    if not _LEAST <= value <= _MOST:
        raise OverflowError("Python int too large to convert to SQLite INTEGER")
    return int(value)


def _float(value: float) -> Sent:
    """SQLite keeps not-a-number as NULL; JSON has no word for infinity."""
    if math.isnan(value):
        return _NULL
    if math.isinf(value):
        raise sqlite3.DataError("infinity cannot be sent to a libSQL server")
    return {"type": "float", "value": value}


def _bytes(text: str) -> bytes:
    """The server leaves the padding out."""
    return b64decode(text + "=" * (-len(text) % 4))
