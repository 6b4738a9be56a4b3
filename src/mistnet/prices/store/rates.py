"""Stores exchange rates by day, and values the items again that they affect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.statements import insert_of
from mistnet.kit.types import storable
from mistnet.kit.view import ListPage, View, columns_of
from mistnet.prices.exchange import OLDEST, DatedRate
from mistnet.prices.model import ItemId
from mistnet.prices.store.valuations import known_points, lock_items, value_items
from mistnet.prices.tables import currency_rates, items, price_points

_SLICE: Final = 1_000
_VALUED_AT_ONCE: Final = 50
_SEARCHED_AT_ONCE: Final = 500


class RateLine(msgspec.Struct, frozen=True, kw_only=True):
    """A stored rate: where it came from, and when."""

    base: str
    quote: str
    day: date
    rate: Decimal
    origin: str | None
    told_at: datetime


_own = currency_rates.c
_RATES: Final = select(*columns_of(RateLine, currency_rates))
_BY_BASE: Final = View(RateLine, _RATES, _own.base, _own.quote, _own.day, descending=False)
_BY_QUOTE: Final = View(RateLine, _RATES, _own.quote, _own.base, _own.day, descending=False)


class RateStore:
    """All rates that were imported or set."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, rates: Sequence[DatedRate], *, origin: str | None, now: datetime) -> None:
        """All or none. Rates of the same day are replaced; of several in `rates` the last counts."""
        latest = {(each.base, each.quote, each.day.isoformat()): each.rate for each in rates}
        values = [
            {"base": base, "quote": quote, "day": day, "rate": rate, "origin": storable(origin), "told_at": now}
            for (base, quote, day), rate in sorted(latest.items())  # all writers lock rows in this order
        ]
        adding = insert_of(self._database.dialect)(currency_rates)
        again = {name: adding.excluded[name] for name in ("rate", "origin", "told_at")}
        upsert = adding.on_conflict_do_update(index_elements=["base", "quote", "day"], set_=again)
        async with self._database.transaction() as connection:
            for start in range(0, len(values), _SLICE):
                await connection.execute(upsert, values[start : start + _SLICE])

    async def page(
        self,
        *,
        base: str | None = None,
        quote: str | None = None,
        after: tuple[str, str, str] | None = None,
        limit: int = 100,
    ) -> ListPage[RateLine]:
        """By base, quote and day; with only a quote, by quote first. `after` is base, quote and day of a line."""
        by_quote = quote is not None and base is None
        conditions = [column == value for column, value in ((_own.base, base), (_own.quote, quote)) if value]
        if not by_quote:
            return await _BY_BASE.page(self._database, *conditions, after=after, limit=limit)
        page = await _BY_QUOTE.page(self._database, *conditions, after=_swapped(after), limit=limit)
        return ListPage(items=page.items, next=_swapped(page.next))


def _swapped(place: tuple[str, str, str] | None) -> tuple[str, str, str] | None:
    return place and (place[1], place[0], place[2])


async def revalue(
    database: Database,
    item_ids: Collection[ItemId] | None = None,
    *,
    on_done: Callable[[int], object] = lambda _count: None,
) -> int:
    """Value these items, or all, a slice per transaction. Returns how many valuations changed."""
    changed = 0
    async with aclosing(_slices(database, item_ids)) as slices:
        async for some in slices:
            async with database.transaction() as connection:
                currencies = await lock_items(connection, some)
                points = await known_points(connection, currencies)
                done = await value_items(connection, currencies, points, database.clock.now())
                changed += sum(each.changed for each in done.values())
            on_done(len(some))
    return changed


async def _slices(database: Database, item_ids: Collection[ItemId] | None) -> AsyncGenerator[Sequence[ItemId], None]:
    if item_ids is None:
        async for page in _ITEM_KEYS.pages(database, size=_VALUED_AT_ONCE):
            yield [each.id for each in page]
        return
    wanted = sorted(set(item_ids))
    for start in range(0, len(wanted), _VALUED_AT_ONCE):
        yield wanted[start : start + _VALUED_AT_ONCE]


class _ItemKey(msgspec.Struct, frozen=True):
    id: ItemId


_ITEM_KEYS: Final = View(_ItemKey, select(items.c.id), items.c.id, descending=False)


class _Currency(msgspec.Struct, frozen=True):
    """The points of one item in one currency: when the first and the last of them were observed."""

    code: str
    first_at: datetime
    last_at: datetime


async def items_affected_by(database: Database, rates: Sequence[DatedRate]) -> list[ItemId]:
    """Items with points in several currencies that one of these rates may convert."""
    if not rates:
        return []
    named = {currency for each in rates for currency in (each.base, each.quote)}
    since = datetime.combine(min(each.day for each in rates), time(), UTC)
    until = datetime.combine(max(each.day for each in rates), time(), UTC) + OLDEST + timedelta(days=1)
    affected: list[ItemId] = []
    async for some in _ITEM_KEYS.pages(database, size=_SEARCHED_AT_ONCE):
        async with database.read() as connection:
            valued_in, used = await _currencies(connection, some[0].id, some[-1].id)
        for item_id, groups in used.items():
            codes = {each.code for each in groups} | {valued_in[item_id]} - {None}
            in_time = any(each.first_at < until and each.last_at >= since for each in groups)
            if len(codes) > 1 and codes & named and in_time:
                affected.append(item_id)
    return affected


async def _currencies(
    connection: AsyncConnection, first: ItemId, last: ItemId
) -> tuple[Mapping[ItemId, str | None], Mapping[ItemId, Sequence[_Currency]]]:
    """The currency in which each of these items is valued, and the currencies of its points."""
    own = price_points.c
    query = (
        select(
            own.item_id, own.currency, func.min(own.observed_at).label("first"), func.max(own.observed_at).label("last")
        )
        .where(own.item_id.between(first, last))
        .group_by(own.item_id, own.currency)
        .order_by(own.item_id)
    )
    rows = await connection.execute(select(items.c.id, items.c.currency).where(items.c.id.between(first, last)))
    valued_in: dict[ItemId, str | None] = {row.id: row.currency for row in rows}
    used: dict[ItemId, list[_Currency]] = {}
    for row in await connection.execute(query):
        used.setdefault(row.item_id, []).append(_Currency(row.currency, row.first, row.last))
    return valued_in, used
