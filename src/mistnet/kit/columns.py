"""Columns of exported tables, declared once by the fields of a record, and rows of them as Arrow record batches."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from mistnet.kit.errors import UsageError, require_extra


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
    if len(members - {NoneType}) > 1:
        return Field(name, ColumnShape.JSON, meaning, None, required)
    (plain,) = members - {NoneType}
    if get_origin(plain) is not None:
        return Field(name, ColumnShape.LIST, meaning, get_args(plain)[0], required)
    if getattr(plain, "__supertype__", plain) is int and is_id(name):
        return Field(name, ColumnShape.ID, meaning, None, required)
    plain = getattr(plain, "__supertype__", plain)
    shape = ColumnShape.TEXT if isinstance(plain, type) and issubclass(plain, str) else ColumnShape.JSON
    return Field(name, _SHAPES.get(plain, shape), meaning, None, required)


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


_DIGITS: Final = 38
_PLACES: Final = 10
"""Amounts are decimal(38, 10): 28 digits before the point, and what is beyond ten places is rounded."""

_LAST_PLACE: Final = Decimal(1).scaleb(-_PLACES)
_ROUNDING: Final = Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN)

_TYPES: Final[Mapping[ColumnShape, Callable[[Any], Any]]] = {
    ColumnShape.TEXT: lambda arrow: arrow.string(),
    ColumnShape.JSON: lambda arrow: arrow.string(),
    ColumnShape.ID: lambda arrow: arrow.int64(),
    ColumnShape.WHOLE: lambda arrow: arrow.int64(),
    ColumnShape.REAL: lambda arrow: arrow.float64(),
    ColumnShape.FLAG: lambda arrow: arrow.bool_(),
    ColumnShape.TIME: lambda arrow: arrow.timestamp("us", tz="UTC"),
    ColumnShape.AMOUNT: lambda arrow: arrow.decimal128(_DIGITS, _PLACES),
}


class AmountTooLarge(UsageError):
    """An amount has more digits than an Arrow decimal holds."""

    def __init__(self, amount: Decimal) -> None:
        super().__init__(
            f"the amount {amount:.40} has more than {_DIGITS - _PLACES} digits before the point, "
            f"which Arrow cannot hold; export CSV or JSON lines"
        )
        self.amount = amount


class ArrowTable:
    """Makes record batches of one schema. `ids_as_text`: for programs whose numbers have fewer than 64 bits."""

    def __init__(self, what: str, fields: Sequence[Field], *, ids_as_text: bool = False) -> None:
        require_extra("parquet", what)
        self._arrow = arrow = importlib.import_module("pyarrow")
        text = {ColumnShape.ID} if ids_as_text else set()
        self._fields = [Field(each.name, meaning=each.meaning) if each.shape in text else each for each in fields]
        self._writers = [_writer(field) for field in self._fields]
        self.schema = arrow.schema(
            [
                arrow.field(
                    each.name,
                    _type(arrow, each),
                    metadata={"description": each.meaning} if each.meaning else None,
                )
                for each in self._fields
            ]
        )

    def batch(self, rows: Sequence[Sequence[Any]]) -> Any:
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._fields)
        arrays = [
            self._arrow.array([None if value is None else write(value) for value in column] if write else column, kind)
            for column, write, kind in zip(columns, self._writers, self.schema.types, strict=True)
        ]
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)


def _type(arrow: Any, field: Field) -> Any:
    if field.shape is not ColumnShape.LIST:
        return _TYPES[field.shape](arrow)
    members = _members(field.item)
    return arrow.list_(
        arrow.struct([(each.name, _type(arrow, each)) for each in members]) if members else arrow.string()
    )


@cache
def _members(item: Any) -> Sequence[Field]:
    """The fields of the structs in a list. None if it holds texts."""
    return fields_of(item) if isinstance(item, type) and issubclass(item, msgspec.Struct) else ()


def _writer(field: Field) -> Callable[[Any], Any] | None:
    """How a value becomes one that Arrow takes; None for values that it takes as they are."""
    match field.shape:
        case ColumnShape.TEXT:
            return as_text
        case ColumnShape.JSON:
            return lambda value: value.decode() if isinstance(value, bytes) else value
        case ColumnShape.AMOUNT:
            return _rounded
        case ColumnShape.LIST:
            decode = msgspec.json.Decoder(list[field.item], strict=False).decode  # type: ignore[name-defined]  # made at run time
            plain = _item_writer(field.item)
            return lambda value: [plain(each) for each in (decode(value) if isinstance(value, str | bytes) else value)]
        case _:
            return None


def _item_writer(item: Any) -> Callable[[Any], Any]:
    if not (members := _members(item)):
        return str
    writers = {each.name: write for each in members if (write := _writer(each))}

    def plain(value: msgspec.Struct) -> dict[str, Any]:
        values = msgspec.structs.asdict(value)
        return values | {name: write(values[name]) for name, write in writers.items() if values[name] is not None}

    return plain


def _rounded(amount: Decimal) -> Decimal:
    try:
        return amount.quantize(_LAST_PLACE, context=_ROUNDING)
    except InvalidOperation:
        raise AmountTooLarge(amount) from None
