"""Products as people look at them: all of them with what they cost now, one with every offer and its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select, func, literal, or_, select, tuple_

from mistnet.kit.database import Database
from mistnet.kit.types import BigId, UtcTime
from mistnet.shops.model import Evidence, LinkId, OfferId, ProductId
from mistnet.shops.store.link_pages import WINDOW
from mistnet.shops.tables import offers, products

LARGEST_ID: Final = 2**63 - 1
_PLAIN: Final = (
    *("id", "platform", "region", "shop_id", "item_id", "url", "title", "brand", "sku", "image_url"),
    *("first_seen_at", "last_seen_at", "gone_at"),
)
_OFFER: Final = (
    *("id", "product_id", "link_id", "observed_at", "last_seen_at", "times_seen", "amount", "amount_max"),
    *("list_amount", "currency", "availability", "sold_count", "rating_count", "content_hash", "path"),
    *("confidence", "doubt", "evidence"),
)
_NOW: Final = ("amount", "amount_max", "list_amount", "currency", "availability", "observed_at")


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
    content_hash: str
    path: str
    confidence: float
    doubt: str | None
    evidence: Sequence[Evidence]
    unread: str | None = None


class ProductFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which products to list. None and empty: all."""

    shop: str | None = None
    asks: Asks | None = None
    words: str = ""
    before: int | None = None
    limit: int = 50


class ProductPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some products; `next` is the `before` of the page after, None if there is none."""

    products: Sequence[ProductLine]
    next: int | None


class ProductPages:
    """Reads, each by an index and a page at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, wanted: ProductFilter) -> ProductPage:
        """The newest first. Where words or prices are looked for, a page may be short and still have a next."""
        below = products.c.id < (wanted.before or LARGEST_ID)
        own = [below, products.c.platform == wanted.shop] if wanted.shop else [below]
        floor = None
        if wanted.asks or wanted.words.strip():
            floor = await self._floor(own)
            own += [*_asking(wanted.asks), *_named(wanted.words), *([products.c.id >= floor] if floor else [])]
        asked = _LINES.where(*own).order_by(products.c.id.desc()).limit(wanted.limit + 1)
        found = [_line(row) for row in await self._rows(asked)]
        shown = found[: wanted.limit]
        return ProductPage(products=shown, next=shown[-1].id if len(found) > wanted.limit else floor)

    async def one(self, product_id: ProductId) -> ProductLine | None:
        rows = await self._rows(_LINES.where(products.c.id == product_id))
        return _line(rows[0]) if rows else None

    async def some(self, product_ids: Sequence[ProductId]) -> Mapping[ProductId, ProductLine]:
        """Those of them that there are."""
        rows = await self._rows(_LINES.where(products.c.id.in_(product_ids))) if product_ids else []
        return {row["id"]: _line(row) for row in rows}

    async def offers(
        self, product_id: ProductId, *, before: int | None = None, limit: int, doubted: bool | None = None
    ) -> Sequence[OfferLine]:
        """The latest first; the last id of one page is the `before` of the next."""
        own = offers.c
        asked = select(*(own[name] for name in _OFFER)).where(own.product_id == product_id)
        if before is not None:
            rows = await self._rows(select(own.observed_at).where(own.id == before))
            at = rows[0]["observed_at"] if rows else datetime.max.replace(tzinfo=UTC)
            asked = asked.where(tuple_(own.observed_at, own.id) < tuple_(literal(at, UtcTime), literal(before, BigId)))
        if doubted is not None:
            asked = asked.where(own.doubt.is_not(None) if doubted else own.doubt.is_(None))
        rows = await self._rows(asked.order_by(own.observed_at.desc(), own.id.desc()).limit(limit))
        return [_offer(row) for row in rows]

    async def latest(self) -> tuple[int, int]:
        """Other numbers mean that a product or an offer came meanwhile."""
        newest = [select(func.max(table.c.id)).scalar_subquery() for table in (products, offers)]
        (row,) = await self._rows(select(newest[0].label("product"), newest[1].label("offer")))
        return row["product"] or 0, row["offer"] or 0

    async def _floor(self, own: Sequence[ColumnElement[bool]]) -> int | None:
        """Where the window of what is looked through ends; None if all is in it."""
        below = select(products.c.id).where(*own).order_by(products.c.id.desc())
        rows = await self._rows(below.offset(WINDOW - 1).limit(1))
        return rows[0]["id"] if rows else None

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


def _named(words: str) -> list[ColumnElement[bool]]:
    word = words.strip().lower()
    columns = (products.c.title, products.c.brand, products.c.item_id, products.c.sku, products.c.url)
    return [or_(*(func.lower(column).contains(word, autoescape=True) for column in columns))] if word else []


def _asking(asks: Asks | None) -> list[ColumnElement[bool]]:
    match asks:
        case Asks.GONE:
            return [products.c.gone_at.is_not(None)]
        case Asks.PRICED:
            return [products.c.offer_id.is_not(None)]
        case Asks.UNPRICED:
            return [products.c.offer_id.is_(None)]
        case None:
            return []


def _line(row: Any) -> ProductLine:
    return ProductLine(**row)


def _offer(row: Any) -> OfferLine:
    raw = bytes(row["evidence"])
    try:
        evidence, unread = msgspec.json.decode(raw, type=list[Evidence]), None
    except msgspec.DecodeError:
        evidence, unread = [], raw.decode("utf-8", "replace")
    return OfferLine(**{**row, "evidence": evidence, "unread": unread})


_LINES: Final = select(
    *(products.c[name] for name in _PLAIN),
    products.c.offer_id,
    *(offers.c[name] for name in _NOW),
).select_from(products.outerjoin(offers, offers.c.id == products.c.offer_id))
