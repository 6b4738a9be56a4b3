"""Short ways to put feeds, links, mentions, crawls, products and offers into a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import Table, insert, update

from mistnet.kit.database import Database
from mistnet.queue.tables import jobs
from mistnet.shops.model import Evidence, LinkId, OfferId, ProductId
from mistnet.shops.tables import crawls, links, offers, post_links, products
from mistnet.social.model import Platform, X
from mistnet.social.tables import feeds
from tests.support import START

DAY = timedelta(days=1)


async def _put(database: Database, table: Table, row: Mapping[str, Any]) -> int:
    async with database.transaction() as connection:
        return int((await connection.execute(insert(table).values(**row).returning(table.c.id))).scalar_one())


async def link(
    database: Database, url_norm: str, *, lane: str = "shopee", kind: str = "item", state: str = "new", **about: Any
) -> LinkId:
    return LinkId(await _put(database, links, link_row(url_norm, lane, kind=kind, state=state, **about)))


def link_row(url_norm: str, lane: str = "shopee", **about: Any) -> dict[str, Any]:
    row = {"url_norm": url_norm, "url": url_norm, "host": url_norm.split("/")[2], "lane": lane, "platform": lane}
    return {**row, "kind": "item", "state": "new", "first_seen_at": START, **about}


async def mention(
    database: Database, link_id: int, post_id: int, *, platform: Platform = X, nr: int = 0, **about: Any
) -> None:
    row = {"platform": platform, "post_id": post_id, "nr": nr, "link_id": link_id, "place": "text", "seen_at": START}
    async with database.transaction() as connection:
        await connection.execute(insert(post_links), {**row, "url": "https://s.example/a", **about})


async def product(database: Database, item_id: str = "2", *, platform: str = "shopee", **about: Any) -> ProductId:
    row = {
        "platform": platform,
        "region": "tw",
        "shop_id": "1",
        "item_id": item_id,
        "title": f"Thing {item_id}",
        "url": f"https://shopee.tw/product/1/{item_id}",
        "first_seen_at": START,
        "last_seen_at": START,
    }
    return ProductId(await _put(database, products, {**row, **about}))


def evidence(amount: str = "199") -> Sequence[Evidence]:
    return [
        Evidence(field="amount", path="json-ld:offers.price", snippet=f'"price": "{amount}"', confidence=0.95),
        Evidence(field="currency", path="json-ld:offers.priceCurrency", snippet='"TWD"', confidence=0.9),
    ]


async def offer(
    database: Database, product_id: int, amount: str | None, *, at: datetime = START, **about: Any
) -> OfferId:
    """The product's current one, unless it is doubted."""
    row = {
        "product_id": product_id,
        "observed_at": at,
        "last_seen_at": at,
        "amount": None if amount is None else Decimal(amount),
        "currency": None if amount is None else "TWD",
        "availability": "in_stock",
        "content_hash": f"{at}",
        "path": "json-ld",
        "confidence": 0.95,
        "evidence": msgspec.json.encode(evidence(amount or "")),
    }
    made = await _put(database, offers, {**row, **about})
    if about.get("doubt") is None:
        async with database.transaction() as connection:
            await connection.execute(update(products).where(products.c.id == product_id).values(offer_id=made))
    return OfferId(made)


async def crawl(database: Database, link_id: int, outcome: str = "offer", *, at: datetime = START, **about: Any) -> int:
    row = {"link_id": link_id, "at": at, "outcome": outcome, "http_status": 200, "bytes": 1_000, "duration_ms": 250}
    return await _put(database, crawls, {**row, **about})


async def job(database: Database, lane: str, state: str = "pending", *, key: str | None = None, **about: Any) -> int:
    """A crawl as the queue holds it."""
    leased = {"worker": "w", "lease_until": START + DAY} if state == "running" else {}
    spent = {"attempts": 5, "last_error": "it broke"} if state in ("dead", "failed") else {"attempts": 0}
    row = {
        "kind": "crawl",
        "key": key,
        "lane": lane,
        "class": 2,
        "state": state,
        "args": {"link_id": 1},
        "max_attempts": 5,
        "run_at": START,
        "created_at": START,
        **leased,
        **spent,
    }
    return await _put(database, jobs, {**row, **about})


async def feed(database: Database, handle: str, *, state: str = "active", **about: Any) -> int:
    row = {"platform": "threads", "handle": handle, "handle_key": handle.lower(), "state": state, "added_at": START}
    return await _put(database, feeds, {**row, **about})
