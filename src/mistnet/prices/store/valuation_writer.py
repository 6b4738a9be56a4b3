"""Works out what items are worth, in the transaction that changed what it depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final

import msgspec
from sqlalchemy import BindParameter, bindparam, delete, func, insert, select, type_coerce, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import NullType

from mistnet.governor.model import SourceName
from mistnet.kit.errors import WriteRefused
from mistnet.kit.statements import insert_of
from mistnet.prices.exchange import Rates
from mistnet.prices.model import ItemId, PointId, Valuation
from mistnet.prices.store.rates import rates_between
from mistnet.prices.store.valuations import WORTH, worth_of
from mistnet.prices.tables import items, price_points, valuation_history, valuations
from mistnet.prices.valuation import value_points
from mistnet.shops.model import PriceKind

REMEMBERED: Final = 20
"""So many carriers are named in the history, and so many that were left out."""

_KINDS: Final = {kind.value: kind for kind in PriceKind}
_SAID: Final = tuple(name for name in WORTH if name not in ("newest_at", "carriers", "left_out"))
"""What makes a valuation another one. Points that are merely seen again change what it rests on, not what it says."""


class KnownPoint(msgspec.Struct, frozen=True):
    """As much of a stored point as a valuation wants to know."""

    id: PointId
    item_id: ItemId
    source: SourceName
    dedupe_key: str
    kind: PriceKind
    amount: Decimal
    currency: str
    match_strength: float
    observed_at: datetime
    doubt: str | None


class Revalued(msgspec.Struct, frozen=True, kw_only=True):
    """What an item was worth, and what it is now."""

    before: Valuation | None
    after: Valuation | None


# Made once: to make them anew at each look would take longer than to ask.
_ITEMS: Final[BindParameter[Any]] = bindparam("item_ids", expanding=True)
_LOCK: Final = (
    select(items.c.id, items.c.currency)
    .where(items.c.id.in_(_ITEMS))
    .order_by(items.c.id)
    .with_for_update(key_share=True)
)
# As the driver gives it: there may be thousands of rows, and a processor for each value takes longer than the rest.
_KNOWN: Final = select(*(type_coerce(price_points.c[name], NullType()) for name in KnownPoint.__struct_fields__)).where(
    price_points.c.item_id.in_(_ITEMS)
)
_CURRENT: Final = select(*(valuations.c[name] for name in ("item_id", *WORTH))).where(valuations.c.item_id.in_(_ITEMS))


async def lock_items(connection: AsyncConnection, item_ids: Iterable[ItemId]) -> dict[ItemId, str | None]:
    """Each item with the currency it is to be valued in. Nobody else changes its points until the transaction ends."""
    wanted = sorted(set(item_ids))
    rows = await connection.execute(_LOCK, {"item_ids": wanted})
    found: dict[ItemId, str | None] = {row[0]: row[1] for row in rows}
    if missing := [each for each in wanted if each not in found]:
        raise WriteRefused(f"there is no item {missing[0]}; `mistnet items list` shows those there are")
    return found


async def known_points(connection: AsyncConnection, item_ids: Collection[ItemId]) -> dict[ItemId, list[KnownPoint]]:
    """All points of these items. Ask only while the items are locked."""
    found: dict[ItemId, list[KnownPoint]] = {each: [] for each in item_ids}
    if not found:
        return found
    rows: Iterable[Any] = await connection.execute(_KNOWN, {"item_ids": sorted(found)})
    as_text = connection.dialect.name != "postgresql"
    for point_id, item_id, source, key, kind, amount, currency, strength, at, doubt in rows:
        exact = Decimal(amount) if as_text else amount
        seen_at = datetime.fromisoformat(f"{at}+00:00") if as_text else at
        told = KnownPoint(point_id, item_id, source, key, _KINDS[kind], exact, currency, strength, seen_at, doubt)
        found[item_id].append(told)
    return found


async def value_items(
    connection: AsyncConnection,
    currencies: Mapping[ItemId, str | None],
    points: Mapping[ItemId, Sequence[KnownPoint]],
    now: datetime,
    *,
    unvalued: Collection[ItemId] = (),
) -> dict[ItemId, Revalued]:
    """Writes what these items are worth now, and keeps what they were worth if that is something else.

    `unvalued` items had no points before, and so no value that need be asked for.
    """
    rates = await _rates(connection, currencies, points)
    before = await current_valuations(connection, points.keys() - set(unvalued))
    after = {each: value_points(points[each], currency=currencies[each], rates=rates) for each in points}
    await _write(connection, {each: worth for each, worth in after.items() if worth != before.get(each)}, before, now)
    return {each: Revalued(before=before.get(each), after=after[each]) for each in points}


async def current_valuations(connection: AsyncConnection, item_ids: Iterable[ItemId]) -> dict[ItemId, Valuation]:
    wanted = sorted(set(item_ids))
    if not wanted:
        return {}
    rows = await connection.execute(_CURRENT, {"item_ids": wanted})
    return {row["item_id"]: Valuation(**worth_of(dict(row))) for row in rows.mappings()}


async def _rates(
    connection: AsyncConnection,
    currencies: Mapping[ItemId, str | None],
    points: Mapping[ItemId, Sequence[KnownPoint]],
) -> Rates:
    """Most items have points of one currency: then nobody is asked."""
    wanted: set[str] = set()
    times: list[datetime] = []
    for item_id, own in points.items():
        spoken = {point.currency for point in own} | {currencies[item_id]} - {None}
        if len(spoken) > 1:
            wanted |= {each for each in spoken if each}
            times += [min(point.observed_at for point in own), max(point.observed_at for point in own)]
    if not times:
        return Rates()
    return await rates_between(connection, wanted, min(times).date(), max(times).date())


async def _write(
    connection: AsyncConnection,
    changed: Mapping[ItemId, Valuation | None],
    before: Mapping[ItemId, Valuation],
    now: datetime,
) -> None:
    rows = {each: _row(each, worth, now) for each, worth in sorted(changed.items()) if worth is not None}
    if rows:
        await connection.execute(_upsert(connection.dialect.name), list(rows.values()))
    news = [_lean(rows[each], changed[each]) for each in rows if said(changed[each]) != said(before.get(each))]
    if news:
        await connection.execute(_REMEMBER, news)
    ended = [{"of_item": each, "now": now} for each, worth in sorted(changed.items()) if worth is None]
    if ended:
        await connection.execute(_END_HISTORY, ended)
        await connection.execute(
            delete(valuations).where(valuations.c.item_id.in_([each["of_item"] for each in ended]))
        )


def _row(item_id: ItemId, worth: Valuation, now: datetime) -> dict[str, Any]:
    plain = {name: getattr(worth, name) for name in WORTH}
    told = {name: msgspec.json.encode(plain[name]) for name in ("carriers", "left_out")}
    return {**plain, **told, "item_id": item_id, "valued_at": now}


def _lean(row: dict[str, Any], worth: Valuation | None) -> dict[str, Any]:
    """There is a row for each change: a few names of points must do."""
    if worth is None or max(len(worth.carriers), len(worth.left_out)) <= REMEMBERED:
        return row
    few = {name: msgspec.json.encode(getattr(worth, name)[:REMEMBERED]) for name in ("carriers", "left_out")}
    return {**row, **few}


def said(worth: Valuation | None) -> tuple[Any, ...] | None:
    return None if worth is None else tuple(getattr(worth, name) for name in _SAID)


@cache
def _upsert(dialect: str) -> Any:
    adding = insert_of(dialect)(valuations)
    told = {name: adding.excluded[name] for name in (*WORTH, "valued_at")}
    return adding.on_conflict_do_update(index_elements=["item_id"], set_=told)


_LATEST: Final = (
    select(func.max(valuation_history.c.id))
    .where(valuation_history.c.item_id == bindparam("of_item"))
    .scalar_subquery()
)
_REMEMBER: Final = insert(valuation_history)
_END_HISTORY: Final = (
    update(valuation_history)
    .where(valuation_history.c.id == _LATEST)
    .values(ended_at=bindparam("now", type_=valuation_history.c.ended_at.type))
)
