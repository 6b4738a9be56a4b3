"""Short ways to follow things and to have sources tell what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from mistnet.app import App
from mistnet.governor.model import SourceName
from mistnet.prices.model import ItemId, ItemRequest, PriceFetch, PricePoint
from mistnet.prices.service import items_of
from mistnet.prices.store.points import PointWriter
from mistnet.shops.model import PriceKind

EBAY = SourceName("ebay")


async def follow(app: App, title: str = "1909-S VDB Lincoln cent", **about: Any) -> ItemId:
    (kept,) = await items_of(app).add([ItemRequest(title=title, **about)], app.database.clock.now())
    return kept.item_id


def point(amount: str, key: str, at: datetime, **about: Any) -> PricePoint:
    told = {
        "kind": PriceKind.ASK,
        "amount": Decimal(amount),
        "currency": "USD",
        "title": "1909-S VDB Lincoln cent, a fine one",
        "url": f"https://www.ebay.com/itm/{key}",
        "observed_at": at,
        "match_strength": 1.0,
        "dedupe_key": f"ext_{key}",
    }
    return PricePoint(**{**told, **about})


async def tell_prices(
    app: App, item_id: ItemId, points: Sequence[PricePoint] = (), *, source: SourceName = EBAY, **about: Any
) -> None:
    """One look at a source, as a settled job writes it."""
    asked = PriceFetch(item_id=item_id, source=source, points=points, **{"listings": len(points), **about})
    async with app.database.transaction() as connection:
        await PointWriter().write(connection, [asked], app.database.clock.now())
