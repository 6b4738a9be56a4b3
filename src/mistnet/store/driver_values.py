"""Values as every driver takes them, for rows that go to it without a compiler between."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, TypeVar

T = TypeVar("T")

_NUL: Final = "\x00"


def storable(value: T) -> T:
    """Databases refuse NUL and broken surrogates in text; raw payloads still have them. What is no text stays."""
    if not isinstance(value, str):
        return value
    text: str = value if value.isascii() else value.encode("utf-8", "replace").decode()
    return text.replace(_NUL, "\N{SYMBOL FOR NULL}") if _NUL in text else text  # type: ignore[return-value]


def moment(dialect: str, at: datetime) -> Any:
    """SQLite keeps text in UTC that sorts as time does; PostgreSQL's driver wants the time itself."""
    if dialect == "postgresql":
        return at
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
