"""Writes what sources returned: new price points, stronger ones in place of weaker, and the time of each fetch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from sqlalchemy import bindparam, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import SourceName
from mistnet.kit.statements import insert_of
from mistnet.kit.types import storable
from mistnet.kit.view import columns_of, record_of
from mistnet.prices.model import ItemId, KnownPoint, PointId, PriceFetch, PricePoint, Valuation
from mistnet.prices.store.valuations import Revalued, current_valuations, known_points, lock_items, value_items
from mistnet.prices.tables import item_looks, odd_listings, price_point_versions, price_points
from mistnet.prices.valuation import head, rank

Identity: TypeAlias = tuple[ItemId, SourceName, str]
"""What identifies a point: item, source and dedupe key."""

_TEXTS: Final = ("dedupe_key", "title", "url", "external_id", "condition", "doubt")


class PointObservation(msgspec.Struct, frozen=True):
    """The strongest observation of a point in one write, and how many fetches saw it. A cached answer is no fetch."""

    point: PricePoint
    fetches: int


def merge_observations(fetched: Sequence[PriceFetch]) -> dict[Identity, PointObservation]:
    """Each point once, in an order that all writers share."""
    merged: dict[Identity, PointObservation] = {}
    for each in fetched:
        seen: dict[Identity, PricePoint] = {}
        for point in map(_as_stored, each.points):
            identity = (each.item_id, each.source, point.dedupe_key)
            seen[identity] = max(point, seen.get(identity, point), key=rank)
        for identity, point in seen.items():
            before = merged.get(identity, PointObservation(point, 0))
            fetches = before.fetches + (not each.cached)
            merged[identity] = PointObservation(max(before.point, point, key=rank), fetches)
    return dict(sorted(merged.items()))


def _as_stored(point: PricePoint) -> PricePoint:
    """The point as it will be read again: it is compared with stored ones. Nearly all are unchanged."""
    # All texts in one check: a fetch brings hundreds of points, and hardly any needs cleaning.
    texts = f"{point.dedupe_key}{point.title}{point.url}{point.external_id}{point.condition}{point.doubt}"
    if point.observed_at.tzinfo is UTC and storable(texts) == texts:
        return point
    clean = {name: storable(getattr(point, name)) for name in _TEXTS}
    return msgspec.structs.replace(point, **clean, observed_at=point.observed_at.astimezone(UTC))


Row: TypeAlias = tuple[Any, ...]
_AT_ONCE: Final = 10_000
_COLUMNS: Final[Mapping[str, str]] = {
    "item_id": "bigint",
    "source": "text",
    "dedupe_key": "text",
    "kind": "text",
    "amount": "numeric",
    "currency": "text",
    "condition": "text",
    "title": "text",
    "url": "text",
    "external_id": "text",
    "bid_count": "integer",
    "match_strength": "float8",
    "observed_at": "timestamptz",
    "product_id": "bigint",
    "offer_id": "bigint",
    "doubt": "text",
    "first_seen_at": "timestamptz",
    "last_seen_at": "timestamptz",
    "times_seen": "integer",
}
_REPLACED: Final = slice(3, 16)
"""The columns that a stronger observation replaces: from kind to doubt."""


async def upsert_points(
    connection: AsyncConnection,
    observed: Mapping[Identity, PointObservation],
    known: Mapping[ItemId, Sequence[KnownPoint]],
    now: datetime,
) -> dict[ItemId, list[KnownPoint]]:
    """Write observations and return all points of these items as they are now. The items must be locked."""
    stored = {(each.item_id, each.source, each.dedupe_key): each for points in known.values() for each in points}
    added = {identity: each for identity, each in observed.items() if identity not in stored}
    again = {identity: each for identity, each in observed.items() if identity in stored}
    stronger = await _stronger(connection, again, stored)
    await _replace(connection, {identity: again[identity] for identity in stronger}, stored, now)
    by_fetches: dict[int, list[PointId]] = {}
    for identity, seen in again.items():
        if identity not in stronger and seen.fetches:
            by_fetches.setdefault(seen.fetches, []).append(stored[identity].id)
    for fetches, point_ids in by_fetches.items():
        values = {"last_seen_at": now, "times_seen": price_points.c.times_seen + fetches}
        for some in _slices(point_ids):
            await connection.execute(update(price_points).where(price_points.c.id.in_(some)).values(**values))
    new_ids = await _add(connection, added, now)
    for identity in (*stronger, *added):
        point_id, new = new_ids.get(identity) or stored[identity].id, observed[identity].point
        strength, at = new.match_strength, new.observed_at
        stored[identity] = KnownPoint(point_id, *identity, new.kind, new.amount, new.currency, strength, at, new.doubt)
    found: dict[ItemId, list[KnownPoint]] = {each: [] for each in known}
    for point in stored.values():
        found[point.item_id].append(point)
    return found


async def _stronger(
    connection: AsyncConnection, again: Mapping[Identity, PointObservation], stored: Mapping[Identity, KnownPoint]
) -> set[Identity]:
    """Those that are stronger than what is stored. Where `head` is equal, all values are compared."""
    won = {each for each, new in again.items() if head(new.point) > head(stored[each])}
    tied = [each for each, new in again.items() if head(new.point) == head(stored[each])]
    query = select(price_points.c.id, *columns_of(PricePoint, price_points))
    found: dict[PointId, PricePoint] = {}
    for some in _slices([stored[each].id for each in tied]):
        rows = await connection.execute(query.where(price_points.c.id.in_(some)))
        found |= {row["id"]: record_of(PricePoint, row) for row in rows.mappings()}
    return won | {each for each in tied if rank(again[each].point) > rank(found[stored[each].id])}


def _slices(point_ids: Collection[PointId]) -> Iterator[list[PointId]]:
    """Slices of as many values as every driver accepts in one statement."""
    ordered = sorted(point_ids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]


async def _replace(
    connection: AsyncConnection,
    won: Mapping[Identity, PointObservation],
    stored: Mapping[Identity, KnownPoint],
    now: datetime,
) -> None:
    """What a point said before is kept as a version if the price or the match was different."""
    if not won:
        return
    changed = [stored[each].id for each, new in won.items() if _price_of(stored[each]) != _price_of(new.point)]
    for some in _slices(changed):
        await connection.execute(_KEEP_VERSIONS, {"point_ids": some, "now": now})
    rows = [
        (*row[_REPLACED], row[-2], won[each].fetches, stored[each].id)
        for each, row in zip(won, _rows(connection, won, now), strict=True)
    ]
    if connection.dialect.name == "postgresql":
        await connection.exec_driver_sql(_REPLACE_ARRAYS, _arrays(rows))
    else:
        # Its placeholders have no numbers, so the fetches that it uses twice are given twice.
        await connection.exec_driver_sql(_REPLACE_ROWS, [(*row[:-3], row[-2], *row[-3:]) for row in rows])


def _price_of(point: KnownPoint | PricePoint) -> tuple[Any, ...]:
    return point.kind, point.amount, point.currency, point.match_strength


async def _add(
    connection: AsyncConnection, added: Mapping[Identity, PointObservation], now: datetime
) -> dict[Identity, PointId]:
    """The ids of new points."""
    if not added:
        return {}
    rows = _rows(connection, added, now)
    if connection.dialect.name == "postgresql":
        found = await connection.exec_driver_sql(_ADD_ARRAYS, _arrays(rows))
        added_rows: list[Any] = list(found)
        return {(row.item_id, row.source, row.dedupe_key): row.id for row in added_rows}
    await connection.exec_driver_sql(_ADD_ROWS, rows)
    # Only one connection writes to SQLite at a time, so the ids of rows that are added together are consecutive.
    last: int = (await connection.exec_driver_sql("SELECT last_insert_rowid()")).scalar_one()
    return dict(zip(added, map(PointId, range(last - len(added) + 1, last + 1)), strict=True))


def _rows(connection: AsyncConnection, observed: Mapping[Identity, PointObservation], now: datetime) -> list[Row]:
    """Values as the driver takes them, past SQLAlchemy: one fetch brings hundreds of points."""
    as_text = connection.dialect.name != "postgresql"
    noted_at = _as_text(now) if as_text else now
    rows = []
    for identity, each in observed.items():
        point = each.point
        amount: Decimal | str = point.amount
        if as_text:
            # All digits, without an exponent. Formatting every amount would take six times as long as `str`.
            amount = str(amount) if "E" not in str(amount) else f"{amount:f}"
        row = (
            *identity,
            point.kind.value,
            amount,
            point.currency,
            point.condition,
            point.title,
            point.url,
            point.external_id,
            point.bid_count,
            point.match_strength,
            _as_text(point.observed_at) if as_text else point.observed_at,
            point.product_id,
            point.offer_id,
            point.doubt,
            noted_at,
            noted_at,
            # A cached answer is no fetch, but a point that is stored was seen once.
            max(each.fetches, 1),
        )
        rows.append(row)
    return rows


def _arrays(rows: Sequence[Row]) -> tuple[list[Any], ...]:
    """An array for each column: one statement for all rows."""
    return tuple(map(list, zip(*rows, strict=True)))


def _as_text(at: datetime) -> str:
    """A time in UTC as SQLite stores it: without a zone."""
    return at.isoformat(" ", "microseconds")[:26]


_ADD_ARRAYS: Final = (
    f"INSERT INTO price_points ({', '.join(_COLUMNS)}) "
    f"SELECT * FROM unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate(_COLUMNS.values(), 1))}) "
    f"RETURNING id, item_id, source, dedupe_key"
)
_ADD_ROWS: Final = f"INSERT INTO price_points ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_VALUES: Final = tuple(_COLUMNS)[_REPLACED]
_NEW: Final = {name: _COLUMNS[name] for name in (*_VALUES, "last_seen_at")}
_REPLACE_ARRAYS: Final = (
    f"UPDATE price_points SET {', '.join(f'{name} = new.{name}' for name in _VALUES)}, "
    f"last_seen_at = CASE WHEN new.fetches > 0 THEN new.last_seen_at ELSE price_points.last_seen_at END, "
    f"times_seen = price_points.times_seen + new.fetches "
    f"FROM unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate((*_NEW.values(), 'integer', 'bigint'), 1))}) "
    f"AS new({', '.join(_NEW)}, fetches, id) WHERE price_points.id = new.id"
)
_REPLACE_ROWS: Final = (
    f"UPDATE price_points SET {', '.join(f'{name} = ?' for name in _VALUES)}, "
    "last_seen_at = CASE WHEN ? > 0 THEN ? ELSE last_seen_at END, times_seen = times_seen + ? WHERE id = ?"
)
_COPIED: Final = ("kind", "amount", "currency", "match_strength", "observed_at")
_LAST_NR: Final = (
    select(func.coalesce(func.max(price_point_versions.c.nr), 0))
    .where(price_point_versions.c.point_id == price_points.c.id)
    .scalar_subquery()
)
_KEEP_VERSIONS: Final = insert(price_point_versions).from_select(
    ["point_id", "nr", *_COPIED, "replaced_at"],
    select(
        price_points.c.id,
        _LAST_NR + 1,
        *(price_points.c[name] for name in _COPIED),
        bindparam("now", type_=price_point_versions.c.replaced_at.type),
    ).where(price_points.c.id.in_(bindparam("point_ids", expanding=True))),
)
"""Copies points into versions before they are replaced, each under the next number of its own."""


class ValuationListener(Protocol):
    """What is called after items were valued, in the same transaction."""

    async def valued(
        self,
        connection: AsyncConnection,
        item_id: ItemId,
        before: Valuation | None,
        after: Valuation | None,
        sources: Sequence[SourceName],
        now: datetime,
    ) -> None: ...


class PointWriter:
    """The writer of fetched prices. It locks the items, so two writers never merge points of one item at a time."""

    def __init__(self, listener: ValuationListener | None = None) -> None:
        self._listener = listener

    async def write(self, connection: AsyncConnection, fetched: Sequence[PriceFetch], now: datetime) -> None:
        revalued = await self._upsert(connection, fetched, now)
        await _store_unreadable(connection, fetched, now)
        await _note_fetches(connection, fetched, now)
        await self._notify(connection, fetched, revalued, now)

    async def push(self, connection: AsyncConnection, fetched: Sequence[PriceFetch], now: datetime) -> None:
        """Write points of crawled offers. No source was fetched for them, so none is noted."""
        await self._notify(connection, fetched, await self._upsert(connection, fetched, now), now)

    async def _upsert(
        self, connection: AsyncConnection, fetched: Sequence[PriceFetch], now: datetime
    ) -> Mapping[ItemId, Revalued]:
        # Locked before their points are read: what is merged here must not change until it is written.
        currencies = await lock_items(connection, (each.item_id for each in fetched))
        observed = merge_observations(fetched)
        if not observed:
            return {}
        touched = {item_id: currencies[item_id] for item_id, _, _ in observed}
        known = await known_points(connection, touched)
        points = await upsert_points(connection, observed, known, now)
        new = [item_id for item_id, before in known.items() if not before]
        return await value_items(connection, touched, points, now, unvalued=new)

    async def _notify(
        self,
        connection: AsyncConnection,
        fetched: Sequence[PriceFetch],
        revalued: Mapping[ItemId, Revalued],
        now: datetime,
    ) -> None:
        """Call the listener for every successful fetch, changed or not: a second one may confirm the first.

        A cached answer confirms nothing: it counts only if it changed the valuation.
        """
        if self._listener is None:
            return
        answered: dict[ItemId, set[SourceName]] = {}
        for each in fetched:
            changed = each.item_id in revalued and revalued[each.item_id].changed
            if each.problem is None and (not each.cached or changed):
                answered.setdefault(each.item_id, set()).add(each.source)
        unchanged = await current_valuations(connection, answered.keys() - revalued.keys())
        for item_id, sources in sorted(answered.items()):
            same = Revalued(before=unchanged.get(item_id), after=unchanged.get(item_id))
            found = revalued.get(item_id, same)
            await self._listener.valued(connection, item_id, found.before, found.after, sorted(sources), now)


async def _store_unreadable(connection: AsyncConnection, fetched: Sequence[PriceFetch], now: datetime) -> None:
    """Store each unreadable listing once. One that several items brought belongs to the first of them."""
    found = {
        (fetch.source, hashlib.sha256(each.payload).hexdigest()): (fetch.item_id, each)
        for fetch in reversed(fetched)
        for each in fetch.unreadable
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


async def _note_fetches(connection: AsyncConnection, fetched: Sequence[PriceFetch], now: datetime) -> None:
    """A cached answer does not move the time of the fetch, unless the source was never fetched."""
    for cached in (True, False):
        rows = {
            (each.item_id, each.source): {
                "item_id": each.item_id,
                "source": each.source,
                "looked_at": now,
                "listings": each.listings,
                "points": len({point.dedupe_key for point in each.points}),
                "found_at": now if each.points else None,
                "problem": storable(each.problem),
            }
            for each in fetched
            if each.cached is cached
        }
        if rows:
            upsert = _fetch_upsert(connection.dialect.name, cached=cached)
            # In the order of their keys for all writers, or two of them could deadlock.
            await connection.execute(upsert, [row for _, row in sorted(rows.items())])


@cache
def _fetch_upsert(dialect: str, *, cached: bool) -> Any:
    """While a source has problems, what its last answer held stays known."""
    adding = insert_of(dialect)(item_looks)
    new, own = adding.excluded, item_looks.c
    succeeded = new.problem.is_(None)
    found_at = (own.found_at, new.found_at) if cached else (new.found_at, own.found_at)
    counts = {name: case((succeeded, new[name]), else_=own[name]) for name in ("listings", "points")}
    return adding.on_conflict_do_update(
        index_elements=["item_id", "source"],
        set_={
            **counts,
            "looked_at": own.looked_at if cached else new.looked_at,
            "found_at": func.coalesce(*found_at),
            "problem": new.problem,
        },
    )
