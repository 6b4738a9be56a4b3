"""Made-up looks at a shop: a hundred listings of one item each, the same for every side."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from mistnet.governor.model import SourceName
from mistnet.prices.model import ItemId, PriceFetch, PricePoint
from mistnet.shops.model import PriceKind

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCE = SourceName("ebay_api")
_KINDS = (PriceKind.ASK, PriceKind.ASK, PriceKind.SOLD)


def look(item: int, points: int, *, again: bool = False) -> PriceFetch:
    """The second time the same listings a day later, one in ten of them cheaper."""
    chance = random.Random(item)
    return PriceFetch(
        item_id=ItemId(item),
        source=SOURCE,
        points=[_point(item, nr, chance, again=again) for nr in range(points)],
        listings=points,
    )


def _point(item: int, nr: int, chance: random.Random, *, again: bool) -> PricePoint:
    cents = chance.randrange(8_000, 12_000)
    cheaper = again and nr % 10 == 0
    return PricePoint(
        kind=_KINDS[nr % 3],
        amount=Decimal(cents - 500 * cheaper) / 100,
        currency="USD",
        title=f"1909-S VDB Lincoln wheat cent, certified, number {item} of the collection ({nr})",
        url=f"https://www.ebay.example/itm/{item * 1_000_000 + nr}",
        observed_at=AT - timedelta(days=chance.randrange(120)) + timedelta(days=121 * again),
        match_strength=round(chance.uniform(0.5, 1.0), 4),
        dedupe_key=f"ext_v1|{item * 1_000_000 + nr}|0",
        external_id=f"v1|{item * 1_000_000 + nr}|0",
        condition="Used",
    )
