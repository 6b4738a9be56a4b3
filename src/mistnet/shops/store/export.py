"""Writes offers out, each with its product, in the formats of every other export."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from sqlalchemy import select

from mistnet.kit.database import Database
from mistnet.kit.export import FORMATS, ColumnShape, Field, Format, Target, instant
from mistnet.shops.tables import offers, products

_PAGE: Final = 1_000
_PRODUCT: Final = ("platform", "region", "shop_id", "item_id", "url", "title", "brand", "sku", "gone_at")
_OFFER: Final = (
    *("observed_at", "last_seen_at", "times_seen", "amount", "amount_max", "list_amount", "currency"),
    *("availability", "sold_count", "rating_count", "path", "confidence", "doubt"),
)
_COUNTS: Final = ("times_seen", "sold_count", "rating_count")


async def export_offers(database: Database, format_: Format, target: Target, *, doubted: bool = False) -> int:
    """All offers that are believed, and on wish the others too, in the order in which they were seen; how many."""
    rows = 0
    with FORMATS[format_]("offers", _fields(), target) as write:
        async with aclosing(_pages(database, doubted=doubted)) as pages:
            async for page in pages:
                write(page)
                rows += len(page)
    return rows


async def _pages(database: Database, *, doubted: bool) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
    asked = select(
        offers.c.id, offers.c.product_id, *(products.c[name] for name in _PRODUCT), *(offers.c[name] for name in _OFFER)
    ).join(products, products.c.id == offers.c.product_id)
    if not doubted:
        asked = asked.where(offers.c.doubt.is_(None))
    last = 0
    while True:
        async with database.read() as connection:
            page = asked.where(offers.c.id > last).order_by(offers.c.id).limit(_PAGE)
            found = (await connection.execute(page)).mappings().all()
        if not found:
            return
        yield [[_told(name, row[name]) for name in _names()] for row in found]
        last = found[-1]["id"]


def _names() -> Sequence[str]:
    return ("id", "product_id", *_PRODUCT, *_OFFER)


def _fields() -> Sequence[Field]:
    return [Field(name, _shape(name), None) for name in _names()]


def _shape(name: str) -> ColumnShape:
    if name in _COUNTS:
        return ColumnShape.WHOLE
    return ColumnShape.REAL if name == "confidence" else ColumnShape.TEXT


def _told(name: str, value: Any) -> Any:
    """Amounts as their digits: a float would change them."""
    if value is None or name in _COUNTS or name == "confidence":
        return value
    if name.endswith("_at"):
        return instant(value)
    return f"{value:f}" if name in ("amount", "amount_max", "list_amount") else str(value)
