"""Writes offers: a new row when the offer changed, else the last one is counted as seen again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, delete, func, insert, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.kit.types import storable
from mistnet.kit.view import records_of
from mistnet.shops import extraction
from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.model import (
    Availability,
    Crawled,
    LinkAtHand,
    LinkId,
    LinkKind,
    LinkState,
    OfferId,
    PageFacts,
    ProductId,
    ProductName,
    content_hash,
)
from mistnet.shops.shop import Shop
from mistnet.shops.tables import links, offers, product_words, products

# More would not be compared.
_REMEMBERED: Final = 20
_LINK: Final = ("id", "url_norm", "url", "host", "lane", "kind", "state", "region", "shop_id", "item_id", "product_id")


class WrittenOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer that was written: what it says, with what a person corrected in it."""

    id: OfferId
    is_new: bool
    is_believed: bool
    facts: PageFacts


async def write_offer(
    connection: AsyncConnection, product_id: ProductId, crawled: Crawled, facts: PageFacts, now: datetime
) -> WrittenOffer:
    """A doubted offer never becomes the product's price, unless a person has said that it is."""
    seen = content_hash(facts)
    believed = await _latest(connection, product_id, doubted=False)
    is_corrected = believed is not None and believed.corrected_at is not None and believed.content_hash == seen
    is_believed = crawled.doubt is None or is_corrected
    if not is_believed:
        believed = None
    doubted = await _latest(connection, product_id, doubted=True)
    if believed is not None and doubted is not None and doubted.id < believed.id:
        doubted = None
    known = next((each for each in (doubted, believed) if each is not None and each.content_hash == seen), None)
    if known is not None and not crawled.cached:  # a cached page is not a new sighting
        again = update(offers).where(offers.c.id == known.id)
        await connection.execute(
            again.values(
                last_seen_at=now,
                times_seen=offers.c.times_seen + 1,
                sold_count=func.coalesce(facts.sold_count, offers.c.sold_count),
                rating_count=func.coalesce(facts.rating_count, offers.c.rating_count),
            )
        )
    offer_id = await _add(connection, product_id, crawled, facts, now) if known is None else OfferId(known.id)
    if is_believed:
        if known is not None and known is doubted:
            await connection.execute(update(offers).where(offers.c.id == offer_id).values(doubt=None))
        await connection.execute(update(products).where(products.c.id == product_id).values(offer_id=offer_id))
    if is_corrected and believed is not None:
        by_hand = {name: getattr(believed, name) for name in ("amount", "currency", "list_amount")}
        stock = Availability(believed.availability) if believed.availability else None
        facts = msgspec.structs.replace(facts, amount_max=None, availability=stock, **by_hand)
    return WrittenOffer(id=offer_id, is_new=known is None, is_believed=is_believed, facts=facts)


_STORED: Final = ("id", "content_hash", "corrected_at", "amount", "currency", "list_amount", "availability")


async def _latest(connection: AsyncConnection, product_id: ProductId, *, doubted: bool) -> Any:
    doubt = offers.c.doubt.is_not(None) if doubted else offers.c.doubt.is_(None)
    query = (
        select(*(offers.c[name] for name in _STORED))
        .where(offers.c.product_id == product_id, doubt)
        .order_by(offers.c.observed_at.desc(), offers.c.id.desc())
        .limit(1)
    )
    return (await connection.execute(query)).first()


async def _add(
    connection: AsyncConnection, product_id: ProductId, crawled: Crawled, facts: PageFacts, now: datetime
) -> OfferId:
    plain = ("currency", "availability", "sold_count", "rating_count")
    # An amount without a currency stays in the evidence alone.
    names = plain if facts.currency is None else ("amount", "amount_max", "list_amount", *plain)
    proof = next((each for each in facts.evidence if each.field == "amount"), next(iter(facts.evidence), None))
    values = {
        "product_id": product_id,
        "link_id": crawled.link_id,
        "observed_at": now,
        "last_seen_at": now,
        **{name: getattr(facts, name) for name in names},
        "content_hash": content_hash(facts),
        "path": proof.path if proof else "unknown",
        "confidence": proof.confidence if proof else 0.0,
        "evidence": msgspec.json.encode(facts.evidence).replace(b"\\u0000", b"\\ufffd"),
        "doubt": crawled.doubt,
        "reading": facts.reading,
    }
    added = await connection.execute(insert(offers).values(values).returning(offers.c.id))
    return OfferId(added.scalar_one())


class StoreCrawlLook:
    """What crawls read before a visit."""

    def __init__(self, database: Database, shops: ShopCatalog = CATALOG) -> None:
        self._database = database
        self._shops = shops

    async def link(self, link_id: LinkId) -> LinkAtHand | None:
        columns = [*(links.c[name] for name in _LINK), links.c.platform]
        async with self._database.read_quickly() as connection:
            row = (await connection.execute(select(*columns).where(links.c.id == link_id))).mappings().first()
        if row is None:
            return None
        known = {name: row[name] for name in _LINK} | {"shop": self._shops[row["platform"]]}
        return LinkAtHand(**known | {"kind": LinkKind(row["kind"]), "state": LinkState(row["state"])})

    async def earlier(self, name: ProductName) -> Sequence[extraction.EarlierPrice]:
        """The earlier prices of a product that were believed, oldest first."""
        same = (
            products.c.platform == name.platform.name,
            products.c.region == name.region,
            products.c.shop_id == name.shop_id,
            products.c.item_id == name.item_id,
        )
        columns = [offers.c[name] for name in ("amount", "currency", "sold_count", "rating_count")]
        query = (
            select(*columns, offers.c.last_seen_at.label("observed_at"))
            .join(products, products.c.id == offers.c.product_id)
            .where(*same, offers.c.doubt.is_(None), offers.c.amount.is_not(None))
            .order_by(offers.c.observed_at.desc(), offers.c.id.desc())
            .limit(_REMEMBERED)
        )
        async with self._database.read_quickly() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return records_of(extraction.EarlierPrice, rows[::-1])


ASKED: Final = 24
"""How many words of a title are searched, the most specific ones."""

PER_WORD: Final = 1_000
"""How many products are read for each word, the newest. A rare word finds all that have it."""

CANDIDATES: Final = 200


async def write_words(connection: AsyncConnection, product_id: ProductId, platform: Shop, title: str) -> None:
    """Update the words of a product. An unchanged title costs one query."""
    words = set(map(storable, extraction.title_words(title)))
    query = select(product_words.c.word).where(product_words.c.product_id == product_id)
    known = set((await connection.execute(query)).scalars())
    if gone := sorted(known - words):
        own = product_words.c.product_id == product_id
        await connection.execute(delete(product_words).where(own, product_words.c.word.in_(gone)))
    if new := sorted(words - known):
        rows = [{"product_id": product_id, "word": word, "lane": platform.lane} for word in new]
        adding = insert_of(connection.dialect.name)(product_words)
        await connection.execute(adding.on_conflict_do_nothing(), rows)


def products_called(lane: str, title: str) -> Select[Any] | None:
    """Products of a lane that share words with a title, those with the rarest first. None: it has no words."""
    words = extraction.title_words(title)[:ASKED]
    if not words:
        return None
    newest = select(product_words.c.word, product_words.c.product_id).order_by(product_words.c.product_id.desc())
    parts = (
        newest.where(product_words.c.lane == lane, product_words.c.word == word).limit(PER_WORD).subquery()
        for word in words
    )
    found = union_all(*(select(part.c.word, part.c.product_id) for part in parts)).subquery()
    rarity = 1.0 / func.count().over(partition_by=found.c.word)
    weighed = select(found.c.product_id, rarity.label("rarity")).subquery()
    return (
        select(weighed.c.product_id)
        .group_by(weighed.c.product_id)
        .order_by(func.sum(weighed.c.rarity).desc(), weighed.c.product_id.desc())
        .limit(CANDIDATES)
    )
