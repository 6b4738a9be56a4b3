"""Columns of exported tables: what each holds and means, declared once by the fields of a record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec


class ColumnShape(StrEnum):
    """What a column holds. Ids are 64-bit numbers, amounts exact decimals, times instants in UTC."""

    TEXT = "text"
    ID = "id"
    WHOLE = "whole"
    REAL = "real"
    FLAG = "flag"
    TIME = "time"
    AMOUNT = "amount"
    LIST = "list"
    JSON = "json"


class Field(msgspec.Struct, frozen=True):
    """A column as it is exported. `item` is what a list holds: `str` or a struct."""

    name: str
    shape: ColumnShape = ColumnShape.TEXT
    meaning: str = ""
    item: Any = None
    required: bool = False


_SHAPES: Final = {
    str: ColumnShape.TEXT,
    int: ColumnShape.WHOLE,
    float: ColumnShape.REAL,
    bool: ColumnShape.FLAG,
    datetime: ColumnShape.TIME,
    Decimal: ColumnShape.AMOUNT,
}


def fields_of(record: type[Any]) -> Sequence[Field]:
    """The columns of a record's table: each field's type, and its meaning from `Annotated[TYPE, "meaning"]`."""
    hints = get_type_hints(record, include_extras=True)
    return [field_of(name, hints[name]) for name in record.__struct_fields__]


def field_of(name: str, hint: Any) -> Field:
    meaning = ""
    if get_origin(hint) is Annotated:
        hint, meaning = get_args(hint)
    members = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    required = NoneType not in members and hint is not Any
    (plain,) = members - {NoneType}
    if get_origin(plain) is not None:
        return Field(name, ColumnShape.LIST, meaning, get_args(plain)[0], required)
    if plain is int and is_id(name):
        return Field(name, ColumnShape.ID, meaning, None, required)
    plain = getattr(plain, "__supertype__", plain)
    return Field(name, _SHAPES.get(plain, ColumnShape.JSON), meaning, None, required)


def is_id(name: str) -> bool:
    """Whether a whole number of this name is an id: spreadsheets and JavaScript must not take it for a quantity."""
    return name == "id" or name.endswith("_id")


def instant(moment: datetime) -> str:
    """Always of the same length, so that text sorts as time does."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def digits(amount: Decimal) -> str:
    """All digits of an amount: a float would change them, and str() may write an exponent."""
    return f"{amount:f}"


def as_text(value: Any) -> str:
    """The text of a value that is no flag."""
    if type(value) is str:  # nearly all are
        return value
    if isinstance(value, datetime):
        return instant(value)
    return digits(value) if isinstance(value, Decimal) else str(value)


def as_json(value: Any) -> Any:
    """JSON as bytes: a driver returns text."""
    return value.encode() if isinstance(value, str) else value
