"""The tables' metadata, and column and bind types that mean the same on every database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import ARRAY, BigInteger, Column, DateTime, Integer, MetaData, Numeric, String, Table, Text, text
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator, TypeEngine

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
        "pk": "%(table_name)s_pkey",
    }
)
"""How constraints and indexes are named."""

BigId = BigInteger().with_variant(Integer(), "sqlite")
"""A 64-bit id. On SQLite it must be INTEGER to be the table's own row id."""


def stored_table(name: str, *items: SchemaItem, **options: Any) -> Table:
    """A table of the schema: its columns, constraints and indexes."""
    return Table(name, metadata, *items, **options)


def numbered_table(name: str, *items: SchemaItem, **options: Any) -> Table:
    """The same with an `id` that the database counts up. The id of a deleted row is never given to another one."""
    own_id = Column("id", BigId, primary_key=True, autoincrement=True)
    return stored_table(name, own_id, *items, sqlite_autoincrement=True, **options)


class UtcTime(TypeDecorator[datetime]):
    """An instant. PostgreSQL: timestamptz. SQLite: text in UTC that sorts as time does."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(26))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002 (SQLAlchemy's signature)
        return None if value is None else datetime.fromisoformat(value).replace(tzinfo=UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        """PostgreSQL's driver answers in UTC already: nothing to do, and nothing done, per value."""
        return super().result_processor(dialect, coltype) if dialect.name == "sqlite" else None


class Money(TypeDecorator[Decimal]):
    """An exact amount. PostgreSQL: numeric. SQLite, which has none: its digits as text."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Text())
        return dialect.type_descriptor(Numeric())

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        return f"{value:f}" if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:  # noqa: ARG002 (SQLAlchemy's signature)
        return None if value is None else Decimal(value)


class Values(TypeDecorator[Sequence[Any]]):
    """Many values in one bind: an array on PostgreSQL, JSON for json_each elsewhere."""

    impl = Text
    cache_ok = True

    def __init__(self, item: TypeEngine[Any]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(ARRAY(self.item))
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: Sequence[Any] | None, dialect: Dialect) -> Any:
        if value is None or dialect.name == "postgresql":
            return value
        return msgspec.json.encode(value).decode()


class RowsParameter(TypeDecorator[Sequence[Sequence[Any]]]):
    """Many rows in one bind, as JSON for SQLite's json_each. Times are written as their columns keep them."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[Sequence[Any]] | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        plain = [[moment(dialect.name, item) if isinstance(item, datetime) else item for item in row] for row in value]
        return msgspec.json.encode(plain).decode()


IDS = Values(BigInteger())


class RawJson(TypeDecorator[bytes]):
    """JSON as it came, byte for byte where the database allows it. Never parsed on the way in or out."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(_postgres_json_text()())
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        return None if value is None else value.decode("utf-8", "replace")

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """A driver may have parsed it on the way."""
        if value is None:
            return None
        return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


@cache
def _postgres_json_text() -> type[TypeEngine[Any]]:
    from sqlalchemy.dialects.postgresql import JSON  # noqa: PLC0415 (its driver's dialect takes long to load)

    class PostgresJsonText(JSON):
        """PostgreSQL's json without a Python object on either side."""

        def bind_processor(self, _dialect: Dialect) -> None:
            return None

        def result_processor(self, _dialect: Dialect, _coltype: object) -> None:
            return None

    return PostgresJsonText


T = TypeVar("T")

_NUL: Final = "\x00"


def storable(value: T) -> T:
    """Databases refuse NUL and broken surrogates in text; raw payloads still have them. What is no text stays."""
    if not isinstance(value, str):
        return value
    readable: str = value if value.isascii() else value.encode("utf-8", "replace").decode()
    return readable.replace(_NUL, "\N{SYMBOL FOR NULL}") if _NUL in readable else readable  # type: ignore[return-value]


def only_where(condition: str) -> dict[str, Any]:
    """The options of a partial index, which each dialect takes under a name of its own."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


def moment(dialect: str, at: datetime) -> Any:
    """SQLite keeps text in UTC that sorts as time does; PostgreSQL's driver wants the time itself."""
    if dialect == "postgresql":
        return at
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
