"""An item with something of everything: points of each kind, left-out ones with reasons, a source that failed."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from mistnet.app import App
from mistnet.governor.model import SourceName
from mistnet.prices.model import ItemId, PriceFetch, PricePoint
from mistnet.prices.store.points import PointWriter
from mistnet.shops.model import PriceKind
from tests.followed import EBAY, follow, point, tell_prices

WEEKS: Final = 12
KINDS: Final = (PriceKind.SOLD, PriceKind.ASK, PriceKind.BID)


async def value(app: App, *, title: str, hostile: str = "") -> ItemId:
    """Looked at once a week, valued each time; in the end with an outlier, a doubt and an unknown currency."""
    now = app.database.clock.now()
    item = await follow(
        app,
        title,
        ref=f"coin-7 {hostile}"[:200],
        attributes={"year": "1909", f"note {hostile}"[:40]: f"{hostile} note"},
        exclude=(f"copy {hostile}"[:90],),
        urls=("https://www.ebay.com/itm/155932418766",),
        currency="USD",
    )
    for week in range(WEEKS, 0, -1):
        await _look(app, item, now - timedelta(weeks=week), week, title)
    odd = [
        point("9000", "far", now, title=title),
        point("70", "doubted", now, title=title, doubt=f"a tenth of the last {hostile}", url="javascript:1"),
        point("650", "eur", now, title=title, currency="EUR", condition=f"used {hostile}"),
    ]
    await tell_prices(app, item, odd)
    await tell_prices(app, item, source=SourceName("shopee"), problem=f"it answers with a riddle {hostile}")
    return item


async def _look(app: App, item: ItemId, at: datetime, week: int, title: str) -> None:
    points: list[PricePoint] = [
        point(
            str(Decimal(700 + 20 * (WEEKS - week)) + 40 * place),
            f"w{week}p{place}",
            at,
            kind=kind,
            title=title,
            bid_count=3 if kind is PriceKind.BID else None,
        )
        for place, kind in enumerate(KINDS)
    ]
    asked = PriceFetch(item_id=item, source=EBAY, points=points, listings=12)
    async with app.database.transaction() as connection:
        await PointWriter().write(connection, [asked], at)
