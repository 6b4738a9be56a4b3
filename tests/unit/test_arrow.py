"""Rows become Arrow tables with real types, and keep every digit that Arrow can hold."""

import importlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from mistnet.kit.columns import AmountTooLarge, ArrowTable, ColumnShape, fields_of

arrow: Any = importlib.import_module("pyarrow")

NOON = datetime(2026, 3, 1, 12, 0, 0, 5, UTC)


class Part(msgspec.Struct, omit_defaults=True):
    kind: str
    amount: Decimal | None = None
    width: int | None = None
    names: Sequence[str] = ()


class Line(msgspec.Struct):
    id: Annotated[int, "Which one."]
    count: int | None
    share: float
    known: bool | None
    at: datetime | None
    amount: Decimal | None
    parts: list[Part] | None
    free: Any


FIELDS = fields_of(Line)


def read(*rows: Sequence[Any], **about: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = ArrowTable("test", FIELDS, **about).batch(rows).to_pylist()
    return made


def test_the_types_of_a_table_come_from_its_record() -> None:
    assert [(each.shape, each.required) for each in FIELDS] == [
        (ColumnShape.ID, True),
        (ColumnShape.WHOLE, False),
        (ColumnShape.REAL, True),
        (ColumnShape.FLAG, False),
        (ColumnShape.TIME, False),
        (ColumnShape.AMOUNT, False),
        (ColumnShape.LIST, False),
        (ColumnShape.JSON, False),
    ]
    schema = ArrowTable("test", FIELDS).schema
    item = "struct<kind: string, amount: decimal128(38, 10), width: int64, names: list<item: string>>"
    assert [str(kind) for kind in schema.types] == [
        *("int64", "int64", "double", "bool", "timestamp[us, tz=UTC]", "decimal128(38, 10)"),
        *(f"list<item: {item}>", "string"),
    ]
    assert schema.field("id").metadata == {b"description": b"Which one."}


def test_values_keep_all_their_digits() -> None:
    parts = b'[{"kind":"photo","amount":"1.10","width":7,"names":["a"]},{"kind":"video"}]'
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    (row,) = read([2**63 - 1, None, 0.1, True, elsewhere, Decimal("1E+3"), parts, b'{"a": 1}'])
    assert row == {
        "id": 2**63 - 1,
        "count": None,
        "share": 0.1,
        "known": True,
        "at": NOON,
        "amount": Decimal(1000),
        "parts": [
            {"kind": "photo", "amount": Decimal("1.1"), "width": 7, "names": ["a"]},
            {"kind": "video", "amount": None, "width": None, "names": []},
        ],
        "free": '{"a": 1}',
    }
    assert read() == []


def test_amounts_are_rounded_beyond_ten_places_and_refused_beyond_28_digits() -> None:
    rest = (1, None, 0.0, None, None)
    (row,) = read([*rest, Decimal("0.00000000015"), None, None])
    assert row["amount"] == Decimal("0.0000000002")
    with pytest.raises(AmountTooLarge, match="more than 28 digits"):
        read([*rest, Decimal(10**28), None, None])


def test_ids_can_be_text() -> None:
    (row,) = read([2**60, 5, 0.0, None, None, None, None, None], ids_as_text=True)
    assert (row["id"], row["count"]) == (str(2**60), 5)
