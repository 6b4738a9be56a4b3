"""Prices corrected by hand: doubted offers to look at, corrections, and what became of them as test cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Store
from mistnet.kit.view import ListPage, View, columns_of, record_of
from mistnet.shops import extraction
from mistnet.shops.model import Availability, OfferId, OfferNotFound, ProductId
from mistnet.shops.tables import offer_corrections, offers, products


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """What an offer says in truth, and who says so. Without an amount, the page tells no price."""

    offer_id: OfferId
    author: str
    amount: Decimal | None
    currency: str | None
    list_amount: Decimal | None = None
    availability: Availability | None = None
    note: str | None = None


class DoubtedOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer that is not believed, to be looked at by a person."""

    id: OfferId
    product_id: ProductId
    observed_at: datetime
    last_seen_at: datetime
    amount: Decimal | None
    currency: str | None
    list_amount: Decimal | None
    availability: str | None
    confidence: float
    doubt: str
    path: str
    title: str | None
    url: str


class CorrectionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One correction: what was read, and what is true."""

    id: int
    offer_id: OfferId
    product_id: ProductId
    at: datetime
    author: str
    note: str | None
    read_amount: Decimal | None
    read_currency: str | None
    amount: Decimal | None
    currency: str | None
    list_amount: Decimal | None
    availability: str | None
    title: str | None
    url: str
    reading: extraction.KeptReading | None


def read_kept(raw: bytes | None) -> extraction.KeptReading | None:
    """A stored reading; None if none was stored, or it has a form of another version."""
    try:
        return msgspec.json.decode(raw, type=extraction.KeptReading) if raw else None
    except msgspec.DecodeError:
        return None


_OFFERS = select(*columns_of(DoubtedOffer, offers, without=("title", "url")), products.c.title, products.c.url).join(
    products, products.c.id == offers.c.product_id
)
_DOUBTED = View(DoubtedOffer, _OFFERS.where(offers.c.doubt.is_not(None)), offers.c.id)
_OTHERS = ("product_id", "title", "url", "reading")
_CORRECTIONS = View(
    CorrectionLine,
    select(
        *columns_of(CorrectionLine, offer_corrections, without=_OTHERS),
        *(offers.c[name] for name in ("product_id", "reading")),
        *(products.c[name] for name in ("title", "url")),
    )
    .join(offers, offers.c.id == offer_corrections.c.offer_id)
    .join(products, products.c.id == offers.c.product_id),
    offer_corrections.c.id,
    make=lambda row: record_of(CorrectionLine, {**row, "reading": read_kept(row["reading"])}),
)


class CorrectionPages(Store):
    """Reads what is doubted and what was corrected, the newest first."""

    async def doubted(self, *, before: int | None = None, limit: int) -> ListPage[DoubtedOffer]:
        return await _DOUBTED.page(self._database, after=before, limit=limit)

    async def corrections(self, *, before: int | None = None, limit: int) -> ListPage[CorrectionLine]:
        return await _CORRECTIONS.page(self._database, after=before, limit=limit)

    async def offer(self, offer_id: OfferId) -> DoubtedOffer:
        """An offer, doubted or not. Raises OfferNotFound."""
        found = await self._database.fetch_row(_OFFERS.where(offers.c.id == offer_id))
        if found is None:
            raise OfferNotFound(offer_id)
        return record_of(DoubtedOffer, {**found, "doubt": found["doubt"] or ""})

    async def readings(self, offer_ids: Sequence[OfferId]) -> Mapping[OfferId, extraction.KeptReading]:
        """What the prices of these offers were chosen from, where that was stored."""
        query = select(offers.c.id, offers.c.reading).where(offers.c.id.in_(offer_ids), offers.c.reading.is_not(None))
        rows = await self._database.fetch_rows(query) if offer_ids else []
        return {row["id"]: kept for row in rows if (kept := read_kept(row["reading"])) is not None}


async def write_correction(connection: AsyncConnection, wanted: Correction, now: datetime) -> ProductId:
    """Change the offer, note what it was, and make it the product's current one if it is the latest.

    The hash of what was read stays: when the page is read the same way again, the corrected offer is seen again.
    """
    query = select(offers.c.product_id).where(offers.c.id == wanted.offer_id)
    product_id = (await connection.execute(query)).scalar()
    if product_id is None:
        raise OfferNotFound(wanted.offer_id)
    # Visits lock the product before they write its offers.
    await connection.execute(select(products.c.id).where(products.c.id == product_id).with_for_update())
    read = select(offers.c.amount, offers.c.currency).where(offers.c.id == wanted.offer_id)
    row = (await connection.execute(read)).one()
    values = {name: getattr(wanted, name) for name in ("amount", "currency", "list_amount", "availability")}
    about = {"offer_id": wanted.offer_id, "at": now, "author": wanted.author, "note": wanted.note}
    before = {"read_amount": row.amount, "read_currency": row.currency}
    await connection.execute(insert(offer_corrections).values(**about, **before, **values))
    corrected = update(offers).where(offers.c.id == wanted.offer_id)
    await connection.execute(corrected.values(**values, amount_max=None, doubt=None, corrected_at=now))
    believed = select(offers.c.id).where(offers.c.product_id == product_id, offers.c.doubt.is_(None))
    latest = believed.order_by(offers.c.last_seen_at.desc(), offers.c.id.desc()).limit(1)
    offer_id = (await connection.execute(latest)).scalar_one()
    await connection.execute(update(products).where(products.c.id == product_id).values(offer_id=offer_id))
    return ProductId(product_id)


def case_of(line: CorrectionLine) -> dict[str, Any]:
    """A correction without what is the page's own: no address, no title, no text of the page."""
    reading = line.reading
    return {
        "page_kind": reading.page_kind if reading else None,
        "read": {"amount": line.read_amount, "currency": line.read_currency},
        "expected": {"amount": line.amount, "currency": line.currency, "list_amount": line.list_amount},
        "availability": line.availability,
        "candidates": [
            {
                name: getattr(each, name)
                for name in ("amount", "amount_max", "currency", "path", "role", "features", "score", "chosen")
            }
            for each in (reading.candidates if reading else ())
        ],
    }
