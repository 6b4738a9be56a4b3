"""The products an item's price points came from: from there on, the posts that promoted them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import func, select

from mistnet.domain.items import ItemId
from mistnet.domain.products import ProductId
from mistnet.store.database import Database
from mistnet.store.product_pages import ProductLine, ProductPages
from mistnet.store.tables import items, price_points

_TOLD: Final = ("points", "strength", "first_at", "latest_at")


class ItemProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product with the points of an item that came from it; `strength` is how well the best of them fits."""

    product: ProductLine
    points: int
    strength: float
    first_at: datetime
    latest_at: datetime


class ItemProducts:
    """Reads, by the index of an item's points."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def there_is(self, item_id: ItemId) -> bool:
        async with self._database.read() as connection:
            return (await connection.execute(select(items.c.id).where(items.c.id == item_id))).first() is not None

    async def page(self, item_id: ItemId, *, after: int = 0, limit: int) -> Sequence[ItemProduct]:
        """In the order of their ids; the last of one page is the `after` of the next."""
        own = price_points.c
        asked = (
            select(
                own.product_id,
                func.count().label("points"),
                func.max(own.match_strength).label("strength"),
                func.min(own.observed_at).label("first_at"),
                func.max(own.last_seen_at).label("latest_at"),
            )
            .where(own.item_id == item_id, own.product_id > after)
            .group_by(own.product_id)
            .order_by(own.product_id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(asked)).mappings().all()
        lines = await ProductPages(self._database).some([ProductId(row["product_id"]) for row in rows])
        return [ItemProduct(product=lines[row["product_id"]], **{name: row[name] for name in _TOLD}) for row in rows]
