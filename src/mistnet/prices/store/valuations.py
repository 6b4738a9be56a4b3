"""Values items in the transaction that changed their points or after new exchange rates; stores and reads both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    and_,
    bindparam,
    delete,
    func,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database, Store
from mistnet.kit.errors import WriteRefused
from mistnet.kit.statements import insert_of, insert_rows, run_directly
from mistnet.kit.types import moment, storable
from mistnet.kit.view import ListPage, View, columns_of, record_of
from mistnet.prices.model import (
    CurrentValuation,
    ItemId,
    KnownPoint,
    PastValuation,
    PointFilter,
    PointId,
    PointLine,
    PointVersion,
    SourceFetch,
    Valuation,
)
from mistnet.prices.tables import currency_rates, item_looks, items, price_point_versions, price_points, valuations
from mistnet.prices.tables import valuation_history as history
from mistnet.prices.valuation import OLDEST, DatedRate, Rates, value_points
from mistnet.shops.model import PriceKind

REMEMBERED: Final = 20
"""How many carriers, and how many points left out, one row of the history names."""

_COLUMNS: Final = Valuation.__struct_fields__
_KINDS: Final = {kind.value: kind for kind in PriceKind}
_COMPARED: Final = tuple(name for name in _COLUMNS if name not in ("newest_at", "carriers", "left_out"))


class Revalued(msgspec.Struct, frozen=True, kw_only=True):
    """The valuation of an item before and after a change."""

    before: Valuation | None
    after: Valuation | None

    @property
    def changed(self) -> bool:
        """A point that is only seen again changes the evidence of a valuation, not the valuation itself."""
        return _comparable(self.before) != _comparable(self.after)


def _comparable(valuation: Valuation | None) -> tuple[Any, ...] | None:
    return None if valuation is None else tuple(getattr(valuation, name) for name in _COMPARED)


_CURRENT: Final = select(valuations.c.item_id, *columns_of(CurrentValuation, valuations)).where(
    valuations.c.item_id.in_(bindparam("item_ids", expanding=True))
)


async def lock_items(connection: AsyncConnection, item_ids: Iterable[ItemId]) -> dict[ItemId, str | None]:
    """Lock items, so that nothing else changes their points in this transaction. Returns their currencies."""
    ordered = sorted(set(item_ids))
    rows = await run_directly(connection, "lock_items", {"item_ids": ordered})
    found: dict[ItemId, str | None] = {row[0]: row[1] for row in rows}
    if missing := [each for each in ordered if each not in found]:
        raise WriteRefused(f"there is no item {missing[0]}; `mistnet items list` shows those there are")
    return found


async def known_points(connection: AsyncConnection, item_ids: Collection[ItemId]) -> dict[ItemId, list[KnownPoint]]:
    """All points of these items, which must be locked."""
    found: dict[ItemId, list[KnownPoint]] = {each: [] for each in item_ids}
    if not found:
        return found
    # Values as the driver returns them: for thousands of rows, SQLAlchemy's conversions take longer than all the rest.
    rows = await run_directly(connection, "known_points", {"item_ids": sorted(found)})
    as_text = connection.dialect.name != "postgresql"
    for point_id, item_id, source, key, kind, amount, currency, strength, at, doubt in rows:
        exact = Decimal(amount) if as_text else amount
        seen_at = datetime.fromisoformat(f"{at}+00:00") if as_text else at
        point = KnownPoint(point_id, item_id, source, key, _KINDS[kind], exact, currency, strength, seen_at, doubt)
        found[item_id].append(point)
    return found


async def value_items(
    connection: AsyncConnection,
    currencies: Mapping[ItemId, str | None],
    points: Mapping[ItemId, Sequence[KnownPoint]],
    now: datetime,
    *,
    unvalued: Collection[ItemId] = (),
) -> dict[ItemId, Revalued]:
    """Value these locked items again, and keep the valuation before if it changed.

    `unvalued` items had no points before, so they have no valuation to read.
    """
    # Most items have points in one currency: then no rate is read, and no table is locked.
    codes: set[str] = set()
    times: list[datetime] = []
    for item_id, own in points.items():
        used = {point.currency for point in own} | {currencies[item_id]} - {None}
        if len(used) > 1:
            codes |= {each for each in used if each}
            times += [min(point.observed_at for point in own), max(point.observed_at for point in own)]
    rates = await rates_between(connection, codes, min(times).date(), max(times).date()) if times else Rates()
    before = await current_valuations(connection, points.keys() - set(unvalued))
    after = {each: value_points(points[each], currency=currencies[each], rates=rates) for each in points}
    done = {each: Revalued(before=before.get(each), after=after[each]) for each in points}
    await _store(connection, {each: done[each] for each in sorted(done) if done[each].before != done[each].after}, now)
    return done


async def current_valuations(connection: AsyncConnection, item_ids: Iterable[ItemId]) -> dict[ItemId, Valuation]:
    """Those of these items that have one."""
    ids = sorted(set(item_ids))
    if not ids:
        return {}
    found: dict[ItemId, Valuation] = {}
    for item_id, *values in await run_directly(connection, "current_valuations", {"item_ids": ids}):
        fields = dict(zip(_COLUMNS, values, strict=True))
        if isinstance(fields["newest_at"], str):
            fields["newest_at"] += "+00:00"  # SQLite keeps times in UTC, without a zone
        for name in ("carriers", "left_out"):
            if isinstance(fields[name], str):
                fields[name] = msgspec.json.decode(fields[name])
        found[item_id] = msgspec.convert(fields, Valuation, strict=False)
    return found


async def rates_between(connection: AsyncConnection, currencies: Collection[str], first: date, last: date) -> Rates:
    """All rates that may lead from one of these currencies to another on these days, in one step or two."""
    if connection.dialect.name == "postgresql":
        # A rate that is stored while we value would be missed by us, and this valuation by the one who stores it.
        # With the lock it is stored after this transaction, and its writer then finds the items to value again.
        await connection.exec_driver_sql("LOCK TABLE currency_rates IN SHARE MODE")
    own = currency_rates.c
    days = and_(own.day >= (first - OLDEST).isoformat(), own.day <= last.isoformat())
    codes = sorted(currencies)
    stored = select(own.base, own.quote, own.day, own.rate)
    sides = stored.where(own.base.in_(codes), days), stored.where(own.quote.in_(codes), own.base.not_in(codes), days)
    rows = (await connection.execute(union_all(*sides))).all()
    return Rates(
        DatedRate(base=row.base, quote=row.quote, day=date.fromisoformat(row.day), rate=row.rate) for row in rows
    )


async def _store(connection: AsyncConnection, revalued: Mapping[ItemId, Revalued], now: datetime) -> None:
    dialect = connection.dialect.name
    rows = [_row(dialect, each, done.after, now) for each, done in revalued.items() if done.after]
    if rows:
        await insert_rows(connection, valuations, rows, _OR_REPLACE, names=_STORED)
    # There is a row for each change, so the history names fewer points than the current valuation.
    past = [
        _row(dialect, each, done.after, now, REMEMBERED)
        for each, done in revalued.items()
        if done.after and done.changed
    ]
    if past:
        await insert_rows(connection, history, past, "", names=_STORED)
    ended = [each for each, done in revalued.items() if not done.after]
    if ended:
        await connection.execute(_END_HISTORY, [{"of_item": each, "now": now} for each in ended])
        await connection.execute(delete(valuations).where(valuations.c.item_id.in_(ended)))


def _row(dialect: str, item_id: ItemId, valuation: Valuation, now: datetime, most: int | None = None) -> list[Any]:
    """Values in the order of the columns, as the driver takes them."""
    row: list[Any] = [item_id, moment(dialect, now)]
    for name in _COLUMNS:
        value = getattr(valuation, name)
        match value:
            case list() | tuple():
                value = msgspec.json.encode(value[:most]).decode()
            case datetime():
                value = moment(dialect, value)
            case Decimal() if dialect != "postgresql":
                value = f"{value:f}"
        row.append(value)
    return row


_STORED: Final = ("item_id", "valued_at", *_COLUMNS)
_OR_REPLACE: Final = "ON CONFLICT (item_id) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in _STORED if name != "item_id"
)
_LATEST: Final = select(func.max(history.c.id)).where(history.c.item_id == bindparam("of_item")).scalar_subquery()
_END_HISTORY: Final = (
    update(history).where(history.c.id == _LATEST).values(ended_at=bindparam("now", type_=history.c.ended_at.type))
)

_ALL: Final = PointFilter()
_HISTORY: Final = View(PastValuation, select(*columns_of(PastValuation, history)), history.c.id)
_POINTS: Final = View(PointLine, select(*columns_of(PointLine, price_points)), price_points.c.id)
_VERSIONS: Final = View(PointVersion, select(price_point_versions), price_point_versions.c.nr)
_FETCHES: Final = View(SourceFetch, select(*columns_of(SourceFetch, item_looks)), item_looks.c.source, descending=False)


class Valuations(Store):
    """Reads of valuations and points, each by an index."""

    async def current(self, item_ids: Iterable[ItemId]) -> Mapping[ItemId, CurrentValuation]:
        """Those of these items that have one."""
        ids = sorted(set(item_ids))
        rows = await self._database.fetch_rows(_CURRENT, {"item_ids": ids}) if ids else []
        return {row["item_id"]: record_of(CurrentValuation, row) for row in rows}

    async def history(self, item_id: ItemId, *, after: int | None = None, limit: int = 100) -> ListPage[PastValuation]:
        """The latest first."""
        return await _HISTORY.page(self._database, history.c.item_id == item_id, after=after, limit=limit)

    async def points(
        self, item_id: ItemId, filters: PointFilter = _ALL, *, after: int | None = None, limit: int = 50
    ) -> ListPage[PointLine]:
        """Those that were found last first."""
        own = price_points.c
        chosen = ((own.source, filters.source), (own.kind, filters.kind), (own.doubt.is_not(None), filters.doubted))
        conditions = [own.item_id == item_id, *(column == value for column, value in chosen if value is not None)]
        return await _POINTS.page(self._database, *conditions, after=after, limit=limit)

    async def named_points(self, point_ids: Iterable[PointId]) -> Mapping[PointId, PointLine]:
        """The points that a valuation names, by their ids."""
        ids = sorted(set(point_ids))
        found = await _POINTS.rows(self._database, price_points.c.id.in_(ids)) if ids else []
        return {point.id: point for point in found}

    async def versions(
        self, point_id: PointId, *, after: int | None = None, limit: int = 100
    ) -> ListPage[PointVersion]:
        """The latest first, by `nr`."""
        own = price_point_versions.c
        # Compared as a 64-bit number: a cursor may hold more than the column can.
        earlier = () if after is None else (own.nr < literal(after, BigInteger),)
        return await _VERSIONS.page(self._database, own.point_id == point_id, *earlier, limit=limit)

    async def fetches(self, item_id: ItemId) -> Sequence[SourceFetch]:
        """One for each source that was ever searched, by name."""
        return await _FETCHES.rows(self._database, item_looks.c.item_id == item_id)


class RateLine(msgspec.Struct, frozen=True, kw_only=True):
    """A stored rate: where it came from, and when."""

    base: str
    quote: str
    day: date
    rate: Decimal
    origin: str | None
    told_at: datetime


_SLICE: Final = 1_000
_own = currency_rates.c
_RATES: Final = select(*columns_of(RateLine, currency_rates))
_BY_BASE: Final = View(RateLine, _RATES, _own.base, _own.quote, _own.day, descending=False)
_BY_QUOTE: Final = View(RateLine, _RATES, _own.quote, _own.base, _own.day, descending=False)


class RateStore(Store):
    """All rates that were imported or set."""

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
        page = await _BY_QUOTE.page(self._database, *conditions, after=_swap(after), limit=limit)
        return ListPage(items=page.items, next=_swap(page.next))


def _swap(place: tuple[str, str, str] | None) -> tuple[str, str, str] | None:
    return place and (place[1], place[0], place[2])


async def revalue(
    database: Database,
    item_ids: Collection[ItemId] | None = None,
    *,
    on_done: Callable[[int], object] = lambda _count: None,
) -> int:
    """Value these items, or all, a slice per transaction. Returns how many valuations changed."""
    changed = 0
    if item_ids is None:
        item_ids = [row["id"] for row in await database.fetch_rows(select(items.c.id))]
    ordered = sorted(set(item_ids))
    for start in range(0, len(ordered), _VALUED_AT_ONCE):
        some = ordered[start : start + _VALUED_AT_ONCE]
        async with database.transaction() as connection:
            currencies = await lock_items(connection, some)
            points = await known_points(connection, currencies)
            done = await value_items(connection, currencies, points, database.clock.now())
            changed += sum(each.changed for each in done.values())
        on_done(len(some))
    return changed


async def items_affected_by(database: Database, rates: Sequence[DatedRate]) -> list[ItemId]:
    """Items with points in several currencies that one of these rates may convert."""
    if not rates:
        return []
    named = {currency for each in rates for currency in (each.base, each.quote)}
    since = datetime.combine(min(each.day for each in rates), time(), UTC)
    # A rate serves for so long after its day.
    until = datetime.combine(max(each.day for each in rates), time(), UTC) + OLDEST + timedelta(days=1)
    affected: list[ItemId] = []
    async for page in _ITEM_IDS.pages(database, size=_SEARCHED_AT_ONCE):
        first, last = page[0], page[-1]
        query = _CURRENCIES.where(items.c.id.between(first, last), price_points.c.item_id.between(first, last))
        for item_id, groups in groupby(await database.fetch_rows(query), itemgetter("id")):
            used = list(groups)
            codes = {row["currency"] for row in used} | {used[0]["valued_in"]} - {None}
            in_time = any(row["first_at"] < until and row["last_at"] >= since for row in used)
            if len(codes) > 1 and codes & named and in_time:
                affected.append(item_id)
    return affected


# Items stay locked until the end of a transaction: fetches of them wait for one slice only.
_VALUED_AT_ONCE: Final = 50
_SEARCHED_AT_ONCE: Final = 500
_ITEM_IDS: Final = View(int, select(items.c.id), items.c.id, descending=False, make=itemgetter("id"))
_CURRENCIES: Final = (
    select(
        items.c.id,
        items.c.currency.label("valued_in"),
        price_points.c.currency,
        func.min(price_points.c.observed_at).label("first_at"),
        func.max(price_points.c.observed_at).label("last_at"),
    )
    .join(price_points, price_points.c.item_id == items.c.id)
    .group_by(items.c.id, items.c.currency, price_points.c.currency)
    .order_by(items.c.id)
)
"""The currencies of an item's points, with the times of the first and the last."""
