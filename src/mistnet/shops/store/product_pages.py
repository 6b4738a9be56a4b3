"""Lists of products: all with what they cost now, one with every offer and its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, func, or_, select

from mistnet.kit.columns import fields_of
from mistnet.kit.database import Database, Store
from mistnet.kit.export import Format, Target, export_pages
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage, View, columns_of, record_of
from mistnet.shops.model import Evidence, LinkId, OfferId, ProductId
from mistnet.shops.store.link_pages import WINDOW
from mistnet.shops.tables import offers, products

_PRICE_NOW: Final = ("amount", "amount_max", "list_amount", "currency", "availability", "observed_at")


class Asks(StrEnum):
    """What is known of a product's price."""

    PRICED = "priced"
    UNPRICED = "unpriced"
    GONE = "gone"


class ProductLine(msgspec.Struct, frozen=True, kw_only=True):
    """One product with the latest offer that is believed."""

    id: ProductId
    platform: str
    region: str
    shop_id: str
    item_id: str
    url: str
    title: str | None
    brand: str | None
    sku: str | None
    image_url: str | None
    first_seen_at: datetime
    last_seen_at: datetime
    gone_at: datetime | None
    offer_id: OfferId | None
    amount: Decimal | None
    amount_max: Decimal | None
    list_amount: Decimal | None
    currency: str | None
    availability: str | None
    observed_at: datetime | None


class OfferLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one page asked for a product, and from where in the page each value was read.

    `unread` is evidence that is not in the form we know, as it is stored.
    """

    id: OfferId
    product_id: ProductId
    link_id: LinkId | None
    observed_at: datetime
    last_seen_at: datetime
    times_seen: int
    amount: Decimal | None
    amount_max: Decimal | None
    list_amount: Decimal | None
    currency: str | None
    availability: str | None
    sold_count: int | None
    rating_count: int | None
    path: str
    confidence: float
    doubt: str | None
    corrected_at: datetime | None
    content_hash: str
    evidence: Sequence[Evidence]
    unread: str | None = None


class ProductFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which products to list. None and empty: all."""

    shop: str | None = None
    asks: Asks | None = None
    words: str = ""
    before: int | None = None
    limit: int = 50


def _offer(row: Mapping[Any, Any]) -> OfferLine:
    raw = bytes(row["evidence"])
    try:
        evidence, unread = msgspec.json.decode(raw, type=list[Evidence]), None
    except msgspec.DecodeError:
        evidence, unread = [], raw.decode("utf-8", "replace")
    return record_of(OfferLine, {**row, "evidence": evidence, "unread": unread})


_PRODUCTS: Final = View(
    ProductLine,
    select(
        *columns_of(ProductLine, products, without=_PRICE_NOW), *(offers.c[name] for name in _PRICE_NOW)
    ).select_from(products.outerjoin(offers, offers.c.id == products.c.offer_id)),
    products.c.id,
)
_OFFERS: Final = View(OfferLine, select(*columns_of(OfferLine, offers)), offers.c.observed_at, offers.c.id, make=_offer)
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)
_ASKS: Final = {
    Asks.GONE: products.c.gone_at.is_not(None),
    Asks.PRICED: products.c.offer_id.is_not(None),
    Asks.UNPRICED: products.c.offer_id.is_(None),
}


def product_conditions(filters: ProductFilter) -> list[ColumnElement[bool]]:
    """Whether a product passes a filter."""
    conditions = [products.c.platform == filters.shop] if filters.shop else []
    if filters.asks:
        conditions.append(_ASKS[filters.asks])
    if word := filters.words.strip().lower():
        columns = (products.c.title, products.c.brand, products.c.item_id, products.c.sku, products.c.url)
        conditions.append(or_(*(func.lower(column).contains(word, autoescape=True) for column in columns)))
    return conditions


class ProductPages(Store):
    """Reads, each by an index and a page at a time."""

    async def list(self, filters: ProductFilter) -> ListPage[ProductLine]:
        """The newest first. Where words or prices are looked for, a page may be short and still have a next."""
        conditions = product_conditions(filters)
        before = filters.before or LARGEST_ID  # a page without a beginning would read as a scan
        floor: int | None = None
        if filters.asks or filters.words.strip():
            # Where the window of what is searched ends; None if everything is in it.
            of_shop = product_conditions(ProductFilter(shop=filters.shop))
            below = select(products.c.id).where(*of_shop, products.c.id < before).order_by(products.c.id.desc())
            floor = await self._database.fetch_value(below.offset(WINDOW - 1).limit(1))
            conditions += [products.c.id >= floor] if floor else []
        page = await _PRODUCTS.page(self._database, *conditions, after=before, limit=filters.limit)
        return ListPage(items=page.items, next=page.next or floor)

    async def one(self, product_id: ProductId) -> ProductLine | None:
        return await _PRODUCTS.first(self._database, products.c.id == product_id)

    async def some(self, product_ids: Sequence[ProductId]) -> Mapping[ProductId, ProductLine]:
        """Those of them that there are."""
        found = await _PRODUCTS.rows(self._database, products.c.id.in_(product_ids)) if product_ids else []
        return {each.id: each for each in found}

    async def offers(
        self, product_id: ProductId, *, before: int | None = None, limit: int, doubted: bool | None = None
    ) -> ListPage[OfferLine]:
        """The latest first. A page begins below the offer with the id `before`."""
        own, after = offers.c, None
        if before is not None:
            at = await self._database.fetch_value(select(own.observed_at).where(own.id == before))
            after = (at or _FOR_EVER, before)
        doubt = [] if doubted is None else [own.doubt.is_not(None) if doubted else own.doubt.is_(None)]
        page = await _OFFERS.page(self._database, own.product_id == product_id, *doubt, after=after, limit=limit)
        return ListPage(items=page.items, next=page.next and page.next[1])

    async def latest(self) -> tuple[int, int]:
        """The newest product and the newest offer: other numbers mean that there is news."""
        newest = [select(func.max(table.c.id)).scalar_subquery() for table in (products, offers)]
        (row,) = await self._database.fetch_rows(select(newest[0].label("product"), newest[1].label("offer")))
        return row["product"] or 0, row["offer"] or 0


_EXPORT_PAGE: Final = 1_000
_EXPORTED: Final = (
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
_KNOWN: Final = {each.name: each for each in (*fields_of(ProductLine), *fields_of(OfferLine))}
_FIELDS: Final = [_KNOWN[column.name] for column in _EXPORTED]
_ALL_OFFERS: Final = View(
    list,
    select(*_EXPORTED).join(products, products.c.id == offers.c.product_id),
    offers.c.id,
    descending=False,
    make=lambda row: list(row.values()),
)


async def export_offers(database: Database, format_: Format, target: Target, *, doubted: bool = False) -> int:
    """Export the offers without a doubt, or with `doubted` all, in the order in which they came. Returns how many."""
    conditions = () if doubted else (offers.c.doubt.is_(None),)
    return await export_pages(
        "offers", _FIELDS, _ALL_OFFERS.pages(database, *conditions, size=_EXPORT_PAGE), format_, target
    )
