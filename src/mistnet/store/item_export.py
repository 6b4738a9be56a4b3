"""Writes items out, each with what it is worth, in the formats of every other export."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec
from sqlalchemy import select

from mistnet.domain.items import KNOWN_ATTRIBUTES, Item, ItemState
from mistnet.store.database import Database
from mistnet.store.export import FORMATS, Field, Format, Shape, Target, instant
from mistnet.store.items import read_item
from mistnet.store.tables import items, valuations

_PAGE: Final = 1_000
_WORTH: Final = ("estimate", "low", "high", "currency", "points", "confidence", "newest_at", "valued_at")
_ITEM: Final = ("id", "state", "added_at", "changed_at", "next_look_at")
_SHAPES: Final = {
    **dict.fromkeys(("attributes", "exclude", "sources", "urls"), Shape.JSON),
    **dict.fromkeys(("every_hours", "valuation_confidence"), Shape.REAL),
    "valuation_points": Shape.WHOLE,
}
_NAMES: Final = (
    *("ref", "title", *KNOWN_ATTRIBUTES, "attributes", "exclude", "sources", "urls", "currency", "every_hours"),
    *(f"item_{name}" for name in _ITEM),
    *(f"valuation_{name}" for name in _WORTH),
)


async def export_items(database: Database, format_: Format, target: Target, *, removed: bool = False) -> int:
    """All items that were not removed, on wish those too, in the order in which they were added; how many.

    Lists are texts in CSV, their members parted by semicolons: so an import takes them again.
    """
    fields = [Field(name, _shape(name, format_), None) for name in _NAMES]
    told = _in_cells if format_ is Format.CSV else _in_json
    rows = 0
    with FORMATS[format_]("items", fields, target) as write:
        async with aclosing(_pages(database, removed=removed)) as pages:
            async for page in pages:
                write([_row(each, told) for each in page])
                rows += len(page)
    return rows


def _shape(name: str, format_: Format) -> Shape:
    shape = _SHAPES.get(name, Shape.TEXT)
    return Shape.TEXT if shape is Shape.JSON and format_ is Format.CSV else shape


async def _pages(database: Database, *, removed: bool) -> AsyncGenerator[Sequence[Any], None]:
    asked = select(
        *(items.c[name] for name in (*Item.__struct_fields__, "next_look_at")),
        *(valuations.c[name].label(f"valuation_{name}") for name in _WORTH),
    ).select_from(items.outerjoin(valuations, valuations.c.item_id == items.c.id))
    last = 0
    while True:
        async with database.read() as connection:
            page = asked.where(items.c.id > last).order_by(items.c.id).limit(_PAGE)
            found = (await connection.execute(page)).mappings().all()
        if not found:
            return
        yield [row for row in found if removed or row["state"] != ItemState.REMOVED]
        last = found[-1]["id"]


def _row(row: Any, told: Callable[[Any], Any]) -> Sequence[Any]:
    item = read_item(row)
    free = {name: value for name, value in item.attributes.items() if name not in KNOWN_ATTRIBUTES}
    lists = [told(list(each)) for each in (item.exclude, item.sources, item.urls)]
    known = [item.attributes.get(name) for name in KNOWN_ATTRIBUTES]
    wish = [item.ref, item.title, *known, told(free), *lists, item.currency, item.every_hours]
    about = [str(item.id), item.state.value, *(instant(row[name]) for name in _ITEM[2:])]
    return [*wish, *about, *(_worth(name, row[f"valuation_{name}"]) for name in _WORTH)]


def _worth(name: str, value: Any) -> Any:
    """Amounts as their digits: a float would change them."""
    if value is None or name in ("currency", "points", "confidence"):
        return value
    return instant(value) if name.endswith("_at") else f"{value:f}"


def _in_cells(value: Any) -> str | None:
    """Several URLs stand on lines of their own: a semicolon may be part of one."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode() if value else None
    return ("\n".join(value) if any("://" in each for each in value) else "; ".join(value)) or None


def _in_json(value: Any) -> bytes:
    return msgspec.json.encode(value)
