"""Rows as Arrow record batches, with real types: what Parquet files, polars, pandas and DuckDB are made of."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from functools import cache
from typing import Any, Final, get_type_hints

import msgspec

from mistnet.kit.columns import ColumnShape, Field, as_text, field_of
from mistnet.kit.errors import UsageError
from mistnet.kit.extras import require_extra

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
            [arrow.field(each.name, _type(arrow, each), metadata=_described(each)) for each in self._fields]
        )

    def batch(self, rows: Sequence[Sequence[Any]]) -> Any:
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._fields)
        arrays = [
            self._arrow.array([None if value is None else write(value) for value in column] if write else column, kind)
            for column, write, kind in zip(columns, self._writers, self.schema.types, strict=True)
        ]
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)


def _described(field: Field) -> Mapping[str, str] | None:
    return {"description": field.meaning} if field.meaning else None


def _type(arrow: Any, field: Field) -> Any:
    if field.shape is not ColumnShape.LIST:
        return _TYPES[field.shape](arrow)
    return arrow.list_(_item_type(arrow, field.item))


def _item_type(arrow: Any, item: Any) -> Any:
    if not isinstance(item, type) or not issubclass(item, msgspec.Struct):
        return arrow.string()
    return arrow.struct([(each.name, _type(arrow, each)) for each in _members(item)])


@cache
def _members(item: type[msgspec.Struct]) -> Sequence[Field]:
    hints = get_type_hints(item)
    return [field_of(name, hints[name]) for name in item.__struct_fields__]


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
    if not isinstance(item, type) or not issubclass(item, msgspec.Struct):
        return str
    writers = {each.name: write for each in _members(item) if (write := _writer(each))}

    def plain(value: msgspec.Struct) -> dict[str, Any]:
        values = msgspec.structs.asdict(value)
        return values | {name: write(values[name]) for name, write in writers.items() if values[name] is not None}

    return plain


def _rounded(amount: Decimal) -> Decimal:
    try:
        return amount.quantize(_LAST_PLACE, context=_ROUNDING)
    except InvalidOperation:
        raise AmountTooLarge(amount) from None
