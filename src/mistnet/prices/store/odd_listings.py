"""Keeps listings that could not be read, each once however often it comes, with what was wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.statements import insert_of
from mistnet.kit.types import storable
from mistnet.prices.model import PriceAsked
from mistnet.prices.tables import odd_listings


async def keep_odd_listings(connection: AsyncConnection, given: Sequence[PriceAsked], now: datetime) -> None:
    """A listing that several items brought is told with the first of them."""
    found = {
        (asked.source, hashlib.sha256(each.payload).hexdigest()): (asked.item_id, each)
        for asked in reversed(given)
        for each in asked.unreadable
    }
    rows = [
        {
            "source": source,
            "item_id": item_id,
            "digest": digest,
            "problem": storable(each.problem),
            "payload": each.payload,
            "first_seen_at": now,
            "last_seen_at": now,
        }
        for (source, digest), (item_id, each) in sorted(found.items(), key=lambda pair: pair[0])
    ]
    if not rows:
        return
    adding = insert_of(connection.dialect.name)(odd_listings)
    again = {
        "problem": adding.excluded.problem,
        "last_seen_at": adding.excluded.last_seen_at,
        "times_seen": odd_listings.c.times_seen + 1,
    }
    await connection.execute(adding.on_conflict_do_update(index_elements=["source", "digest"], set_=again), rows)
