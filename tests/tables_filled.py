"""Rows for the tables that exports read and that collecting fills by many steps: at least two of each."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import insert

from mistnet.kit.database import Database
from tests import schema as tables
from tests.support import START

DAY: Final = timedelta(days=1)
ANN, BEA = 11, 12

_ITEM = {"exclude": b'["copy"]', "sources": b"[]", "urls": b"[]", "attributes": b'{"year": "1900"}', "state": "active"}
_WORTH = {"low": Decimal("9.5"), "high": Decimal("12.5"), "currency": "EUR", "points": 2, "points_left_out": 1}
_LISTS = {"carriers": b'[{"point_id":1,"amount":"10.10","weight":0.5}]', "left_out": b'[{"point_id":2,"why":"odd"}]'}
_VALUE = {**_WORTH, **_LISTS, "estimate": Decimal("10.10"), "confidence": 0.5, "newest_at": START, "valued_at": START}
_OFFER = {
    "observed_at": START,
    "last_seen_at": START,
    "currency": "EUR",
    "content_hash": "-",
    "path": "json-ld",
    "confidence": 0.75,
    "evidence": b'[{"field":"amount","path":"json-ld:offers.price","snippet":"10,10","confidence":0.75}]',
}
_POINT = {
    "item_id": 1,
    "source": "ebay_api",
    "kind": "ask",
    "currency": "EUR",
    "title": "a net",
    "url": "https://shop.example/1",
    "match_strength": 0.9,
    "observed_at": START,
    "first_seen_at": START,
    "last_seen_at": START,
}

ROWS: Final[dict[str, list[dict[str, Any]]]] = {
    "follows": [
        {"platform": "x", "follower_id": one, "followed_id": other, "seen_in": 1, "ended_at": ended}
        | {"first_seen_at": START, "last_seen_at": START + DAY}
        for one, other, ended in ((ANN, BEA, None), (BEA, ANN, START + 2 * DAY))
    ],
    "follow_events": [
        {"platform": "x", "follower_id": BEA, "followed_id": ANN, "kind": kind, "cause": cause, "at": START + n * DAY}
        for n, (kind, cause) in enumerate((("followed", "seen"), ("unfollowed", "unfollowed")))
    ],
    "segments": [
        {"id": 1, "name": "people", "what": "users", "rule": b"{}", "created_at": START, "changed_at": START},
        {"id": 2, "name": "few", "what": "posts", "rule": b"{}", "created_at": START, "changed_at": START},
    ],
    "segment_members": [
        {"segment_id": 1, "platform": "x", "user_id": BEA, "post_id": None, "since": START},
        {"segment_id": 2, "platform": "x", "user_id": None, "post_id": 1, "since": START},
    ],
    "products": [
        {"id": n, "platform": "shopee", "item_id": str(n), "url": f"https://shop.example/{n}", "title": f"net {n}"}
        | {"first_seen_at": START, "last_seen_at": START + n * DAY, "offer_id": n if n == 1 else None}
        for n in (1, 2)
    ],
    "links": [
        {"id": n, "url": f"https://shop.example/{n}", "url_norm": f"shop.example/{n}", "host": "shop.example"}
        | {"lane": "shopee", "platform": "shopee", "kind": kind, "state": "crawled", "first_seen_at": START}
        | {"leads_to": leads_to, "product_id": product_id}
        for n, kind, leads_to, product_id in ((1, "item", None, 1), (2, "short", 1, None))
    ],
    "post_links": [
        {"platform": "x", "post_id": post_id, "link_id": link_id, "place": "text", "nr": 1, "seen_at": START}
        | {"url": f"https://shop.example/{link_id}?from=post"}
        for post_id, link_id in ((1, 1), (9, 2))
    ],
    "offers": [
        {**_OFFER, "id": 1, "product_id": 1, "link_id": 1, "amount": Decimal("10.10")},
        {**_OFFER, "id": 2, "product_id": 2, "link_id": None, "amount": None, "observed_at": START + DAY},
    ],
    "items": [
        {**_ITEM, "id": n, "ref": ref, "title": f"net {n}", "digest": str(n), "added_at": START, "changed_at": START}
        | {"next_look_at": START + DAY}
        for n, ref in ((1, "one"), (2, None))
    ],
    "price_points": [
        {**_POINT, "dedupe_key": f"ext_{n}", "amount": amount, "external_id": str(n)}
        for n, amount in ((1, Decimal("10.10")), (2, Decimal("0.00000001")))
    ],
    "valuations": [{**_VALUE, "item_id": n} for n in (1, 2)],
    "valuation_history": [{**_VALUE, "item_id": n, "ended_at": None} for n in (1, 2)],
}


async def fill_other_tables(database: Database) -> None:
    """The users 11 and 12, and the posts 1 and 9 of X must be stored."""
    async with database.transaction() as connection:
        for name, rows in ROWS.items():
            await connection.execute(insert(tables.metadata.tables[name]), rows)
