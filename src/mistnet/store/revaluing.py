"""Works out anew what items are worth, after rates came that nobody had told before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Final

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.items import ItemId
from mistnet.pricing.exchange import OLDEST, DatedRate
from mistnet.store.database import Database
from mistnet.store.tables import items, price_points
from mistnet.store.worth import known_points, lock_items, said, value_items

_AT_ONCE: Final = 50
_LOOKED_THROUGH: Final = 500


class _Spoken(msgspec.Struct, frozen=True):
    """The points of one item in one currency: the first and the last of them."""

    currency: str
    first_at: datetime
    last_at: datetime


async def revalue(
    database: Database,
    item_ids: Collection[ItemId] | None = None,
    *,
    on_done: Callable[[int], object] = lambda _count: None,
) -> int:
    """These items, or all of them, a slice per transaction; returns how many are worth something else now."""
    changed = 0
    async for some in _slices(database, item_ids):
        async with database.write() as connection:
            changed += await revalue_locked(connection, await lock_items(connection, some), database.clock.now())
        on_done(len(some))
    return changed


async def revalue_locked(connection: AsyncConnection, currencies: Mapping[ItemId, str | None], now: datetime) -> int:
    """Inside the caller's transaction, which holds these items; returns how many are worth something else now."""
    done = await value_items(connection, currencies, await known_points(connection, currencies), now)
    return sum(said(each.before) != said(each.after) for each in done.values())


async def touched_by(database: Database, rates: Sequence[DatedRate]) -> list[ItemId]:
    """Items whose points these rates may convert: of more than one currency, and seen while one of the rates serves."""
    if not rates:
        return []
    named = {currency for each in rates for currency in (each.base, each.quote)}
    since = datetime.combine(min(each.day for each in rates), time(), UTC)
    until = datetime.combine(max(each.day for each in rates), time(), UTC) + OLDEST + timedelta(days=1)
    touched: list[ItemId] = []
    async for some in _slices(database, None, size=_LOOKED_THROUGH):
        currencies, spoken = await _heard(database, some[0], some[-1])
        for item_id, groups in spoken.items():
            heard = {each.currency for each in groups} | {currencies[item_id]} - {None}
            in_time = any(each.first_at < until and each.last_at >= since for each in groups)
            if len(heard) > 1 and heard & named and in_time:
                touched.append(item_id)
    return touched


async def _heard(
    database: Database, first: ItemId, last: ItemId
) -> tuple[dict[ItemId, str | None], dict[ItemId, list[_Spoken]]]:
    """The currency each item is valued in, and those of its points."""
    own = price_points.c
    asked = (
        select(
            own.item_id, own.currency, func.min(own.observed_at).label("first"), func.max(own.observed_at).label("last")
        )
        .where(own.item_id.between(first, last))
        .group_by(own.item_id, own.currency)
        .order_by(own.item_id)
    )
    spoken: dict[ItemId, list[_Spoken]] = {}
    async with database.read() as connection:
        rows = await connection.execute(select(items.c.id, items.c.currency).where(items.c.id.between(first, last)))
        currencies: dict[ItemId, str | None] = {row.id: row.currency for row in rows}
        for row in await connection.execute(asked):
            spoken.setdefault(row.item_id, []).append(_Spoken(row.currency, row.first, row.last))
    return currencies, spoken


async def _slices(
    database: Database, item_ids: Collection[ItemId] | None, *, size: int = _AT_ONCE
) -> AsyncIterator[list[ItemId]]:
    if item_ids is not None:
        wanted = sorted(set(item_ids))
        for start in range(0, len(wanted), size):
            yield wanted[start : start + size]
        return
    last = 0
    while True:
        asked = select(items.c.id).where(items.c.id > last).order_by(items.c.id).limit(size)
        async with database.read() as connection:
            some = list((await connection.execute(asked)).scalars())
        if not some:
            return
        yield some
        last = some[-1]
