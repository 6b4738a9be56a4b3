"""The words of products' titles: written with each product, asked for by whoever looks for a thing by its name."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Select, delete, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet import pricing
from mistnet.domain.links import Shop
from mistnet.domain.products import ProductId
from mistnet.store.driver_values import storable
from mistnet.store.inserts import insert_of
from mistnet.store.tables import product_words

ASKED: Final = 24
"""So many words of a title are asked for, those that tell most."""

PER_WORD: Final = 1_000
"""So many products are looked at for each word, the newest. A rare word finds all that have it."""

CANDIDATES: Final = 200


async def write_words(connection: AsyncConnection, product_id: ProductId, platform: Shop, title: str) -> None:
    """A title that is what it was costs one question."""
    wanted = set(map(storable, pricing.title_words(title)))
    asked = select(product_words.c.word).where(product_words.c.product_id == product_id)
    known = set((await connection.execute(asked)).scalars())
    if gone := sorted(known - wanted):
        own = product_words.c.product_id == product_id
        await connection.execute(delete(product_words).where(own, product_words.c.word.in_(gone)))
    if new := sorted(wanted - known):
        rows = [{"product_id": product_id, "word": word, "lane": platform.lane} for word in new]
        adding = insert_of(connection.dialect.name)(product_words)
        await connection.execute(adding.on_conflict_do_nothing(), rows)


def products_called(lane: str, title: str) -> Select[Any] | None:
    """Products of a lane that share words with a title, those that share the rarest first. None: it has no words."""
    words = pricing.title_words(title)[:ASKED]
    if not words:
        return None
    found = union_all(*(_having(lane, word) for word in words)).subquery()
    rarity = 1.0 / func.count().over(partition_by=found.c.word)
    weighed = select(found.c.product_id, rarity.label("rarity")).subquery()
    return (
        select(weighed.c.product_id)
        .group_by(weighed.c.product_id)
        .order_by(func.sum(weighed.c.rarity).desc(), weighed.c.product_id.desc())
        .limit(CANDIDATES)
    )


def _having(lane: str, word: str) -> Select[Any]:
    own = (product_words.c.lane == lane, product_words.c.word == word)
    newest = select(product_words.c.word, product_words.c.product_id).where(*own)
    limited = newest.order_by(product_words.c.product_id.desc()).limit(PER_WORD).subquery()
    return select(limited.c.word, limited.c.product_id)
