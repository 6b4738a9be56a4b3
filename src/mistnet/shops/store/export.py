"""Exports offers, each with its product."""

from __future__ import annotations

from typing import Final

from sqlalchemy import select

from mistnet.kit.database import Database
from mistnet.kit.export import ColumnShape, Field, Format, Target, export_pages
from mistnet.kit.view import View
from mistnet.shops.tables import offers, products

_PAGE: Final = 1_000
_COLUMNS: Final = (
    *(offers.c[name] for name in ("id", "product_id")),
    *(
        products.c[name]
        for name in ("platform", "region", "shop_id", "item_id", "url", "title", "brand", "sku", "gone_at")
    ),
    *(offers.c[name] for name in ("observed_at", "last_seen_at", "times_seen", "amount", "amount_max", "list_amount")),
    *(
        offers.c[name]
        for name in ("currency", "availability", "sold_count", "rating_count", "path", "confidence", "doubt")
    ),
)
_SHAPES: Final = {
    **dict.fromkeys(("times_seen", "sold_count", "rating_count"), ColumnShape.WHOLE),
    "confidence": ColumnShape.REAL,
}
_FIELDS: Final = [Field(column.name, _SHAPES.get(column.name, ColumnShape.TEXT)) for column in _COLUMNS]
_OFFERS: Final = View(
    list,
    select(*_COLUMNS).join(products, products.c.id == offers.c.product_id),
    offers.c.id,
    descending=False,
    make=lambda row: list(row.values()),
)


async def export_offers(database: Database, format_: Format, target: Target, *, doubted: bool = False) -> int:
    """All offers without a doubt, or with `doubted` all offers, in the order in which they were seen; how many."""
    conditions = () if doubted else (offers.c.doubt.is_(None),)
    return await export_pages("offers", _FIELDS, _OFFERS.pages(database, *conditions, size=_PAGE), format_, target)
