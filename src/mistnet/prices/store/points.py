"""Writes price points as a set: new ones added, stronger ones in the place of weaker, the rest seen once more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from sqlalchemy import Insert, bindparam, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import SourceName
from mistnet.kit.statements import insert_of
from mistnet.kit.types import storable
from mistnet.prices.model import ItemId, PointId, PriceAsked, PricePoint, Valuation
from mistnet.prices.store.odd_listings import keep_odd_listings
from mistnet.prices.store.valuation_writer import (
    KnownPoint,
    Revalued,
    current_valuations,
    known_points,
    lock_items,
    said,
    value_items,
)
from mistnet.prices.tables import item_looks, price_point_versions, price_points
from mistnet.prices.valuation import head, rank
from mistnet.shops.model import PriceKind

Identity: TypeAlias = tuple[ItemId, SourceName, str]
"""What makes a point one and the same: item, source, dedupe key."""

_TEXTS: Final = ("dedupe_key", "title", "url", "external_id", "condition", "doubt")


class PointObservation(msgspec.Struct, frozen=True):
    """What the looks of one write say of a point: the strongest of their tellings, and how many looks saw it.

    A remembered answer tells of a point, and is no look.
    """

    point: PricePoint
    looks: int


def tellings(given: Sequence[PriceAsked]) -> dict[Identity, PointObservation]:
    """Each point once, however often it is told, in an order all writers share."""
    told: dict[Identity, PointObservation] = {}
    for asked in given:
        seen: dict[Identity, PricePoint] = {}
        for each in map(_clean, asked.points):
            identity = (asked.item_id, asked.source, each.dedupe_key)
            other = seen.get(identity)
            seen[identity] = each if other is None else max(each, other, key=rank)
        for identity, point in seen.items():
            before, looks = told.get(identity), 0 if asked.cached else 1
            told[identity] = PointObservation(point, looks) if before is None else _both(before, point, looks)
    return dict(sorted(told.items()))


def _both(before: PointObservation, point: PricePoint, looks: int) -> PointObservation:
    return PointObservation(max(before.point, point, key=rank), before.looks + looks)


def _clean(point: PricePoint) -> PricePoint:
    """As it will be read again: what is compared must be what is stored. Nearly all are so already."""
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


_TOLD: Final = slice(3, 16)
"""Of these, what a stronger telling replaces: from its kind to its doubt."""


async def upsert_points(
    connection: AsyncConnection,
    told: Mapping[Identity, PointObservation],
    known: Mapping[ItemId, Sequence[KnownPoint]],
    now: datetime,
) -> dict[ItemId, list[KnownPoint]]:
    """All points of these items as they are now. The items must be locked."""
    stored = {(each.item_id, each.source, each.dedupe_key): each for points in known.values() for each in points}
    added = {identity: each for identity, each in told.items() if identity not in stored}
    again = {identity: each for identity, each in told.items() if identity in stored}
    won = await _winners(connection, again, stored)
    await _replace(connection, {identity: again[identity] for identity in won}, stored, now)
    seen = [(stored[each].id, telling.looks) for each, telling in again.items() if telling.looks and each not in won]
    await _see_again(connection, seen, now)
    for identity in won:
        stored[identity] = _known(stored[identity].id, identity, again[identity].point)
    for identity, point_id in (await _add(connection, added, now)).items():
        stored[identity] = _known(point_id, identity, added[identity].point)
    found: dict[ItemId, list[KnownPoint]] = {each: [] for each in known}
    for point in stored.values():
        found[point.item_id].append(point)
    return found


def _known(point_id: PointId, identity: Identity, point: PricePoint) -> KnownPoint:
    item_id, source, key = identity
    strength, at = point.match_strength, point.observed_at
    return KnownPoint(
        point_id, item_id, source, key, point.kind, point.amount, point.currency, strength, at, point.doubt
    )


async def _winners(
    connection: AsyncConnection, again: Mapping[Identity, PointObservation], stored: Mapping[Identity, KnownPoint]
) -> set[Identity]:
    """Those that are stronger than what is stored. Where all that usually decides is equal, the values do."""
    won = {each for each, telling in again.items() if head(telling.point) > head(stored[each])}
    tied = [each for each, telling in again.items() if head(telling.point) == head(stored[each])]
    if tied:
        rows = await _stored_points(connection, [stored[each].id for each in tied])
        won |= {each for each in tied if rank(again[each].point) > rank(rows[stored[each].id])}
    return won


async def _stored_points(connection: AsyncConnection, point_ids: Collection[PointId]) -> dict[PointId, PricePoint]:
    names = PricePoint.__struct_fields__
    asked = select(price_points.c.id, *(price_points.c[name] for name in names))
    found: dict[PointId, PricePoint] = {}
    for some in _slices(point_ids):
        for row in (await connection.execute(asked.where(price_points.c.id.in_(some)))).mappings():
            told = {name: row[name] for name in names} | {"kind": PriceKind(row["kind"])}
            found[row["id"]] = PricePoint(**told)
    return found


def _slices(point_ids: Collection[PointId]) -> Iterator[list[PointId]]:
    """As many as every driver takes as values of one statement."""
    ordered = sorted(point_ids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]


async def _replace(
    connection: AsyncConnection,
    won: Mapping[Identity, PointObservation],
    stored: Mapping[Identity, KnownPoint],
    now: datetime,
) -> None:
    """What they said before is kept if it was another price, or another match."""
    if not won:
        return
    turned = [stored[each].id for each, new in won.items() if _said(stored[each]) != _said(new.point)]
    for some in _slices(turned):
        await connection.execute(_KEEP_VERSIONS, {"point_ids": some, "now": now})
    rows = [
        (*row[_TOLD], row[-2], won[each].looks, stored[each].id)
        for each, row in zip(won, _rows(connection, won, now), strict=True)
    ]
    if connection.dialect.name == "postgresql":
        await connection.exec_driver_sql(_REPLACE_ARRAYS, _arrays(rows))
    else:
        await connection.exec_driver_sql(_REPLACE_ROWS, [(*row[:-3], row[-2], *row[-3:]) for row in rows])


def _said(point: KnownPoint | PricePoint) -> tuple[Any, ...]:
    return point.kind, point.amount, point.currency, point.match_strength


async def _see_again(connection: AsyncConnection, seen: Iterable[tuple[PointId, int]], now: datetime) -> None:
    by_looks: dict[int, list[PointId]] = {}
    for point_id, looks in seen:
        by_looks.setdefault(looks, []).append(point_id)
    for looks, point_ids in by_looks.items():
        once_more = {"last_seen_at": now, "times_seen": price_points.c.times_seen + looks}
        for some in _slices(point_ids):
            await connection.execute(update(price_points).where(price_points.c.id.in_(some)).values(**once_more))


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
    last: int = (await connection.exec_driver_sql(_LAST_ID)).scalar_one()
    return dict(zip(added, map(PointId, range(last - len(added) + 1, last + 1)), strict=True))


def _rows(connection: AsyncConnection, told: Mapping[Identity, PointObservation], now: datetime) -> list[Row]:
    """As the driver takes them, with no compiler between: a look brings hundreds."""
    if connection.dialect.name == "postgresql":
        return [_row(identity, each, each.point.amount, each.point.observed_at, now) for identity, each in told.items()]
    at = _as_text(now)
    return [
        _row(identity, each, _digits(each.point.amount), _as_text(each.point.observed_at), at)
        for identity, each in told.items()
    ]


def _arrays(rows: Sequence[Row]) -> tuple[list[Any], ...]:
    """An array for each column: one statement for all rows."""
    return tuple(map(list, zip(*rows, strict=True)))


def _row(identity: Identity, telling: PointObservation, amount: Any, observed_at: Any, now: Any) -> Row:
    point = telling.point
    return (
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
        observed_at,
        point.product_id,
        point.offer_id,
        point.doubt,
        now,
        now,
        max(telling.looks, 1),
    )


def _digits(amount: Decimal) -> str:
    """All of them; to format every amount for the sake of those that come with an exponent takes six times as long."""
    text = str(amount)
    return f"{amount:f}" if "E" in text else text


def _as_text(at: datetime) -> str:
    """A time in UTC as SQLite keeps it, without the zone it ends with."""
    return at.isoformat(" ", "microseconds")[:26]


_ADD_ARRAYS: Final = (
    f"INSERT INTO price_points ({', '.join(_COLUMNS)}) "
    f"SELECT * FROM unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate(_COLUMNS.values(), 1))}) "
    f"RETURNING id, item_id, source, dedupe_key"
)
_ADD_ROWS: Final = f"INSERT INTO price_points ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_LAST_ID: Final = "SELECT last_insert_rowid()"
"""Where only one writes at a time, the ids of rows added together follow each other."""

_SAID: Final = tuple(_COLUMNS)[_TOLD]
_NEW: Final = {name: _COLUMNS[name] for name in (*_SAID, "last_seen_at")}
_REPLACE_ARRAYS: Final = (
    f"UPDATE price_points SET {', '.join(f'{name} = told.{name}' for name in _SAID)}, "
    f"last_seen_at = CASE WHEN told.looks > 0 THEN told.last_seen_at ELSE price_points.last_seen_at END, "
    f"times_seen = price_points.times_seen + told.looks "
    f"FROM unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate((*_NEW.values(), 'integer', 'bigint'), 1))}) "
    f"AS told({', '.join(_NEW)}, looks, id) WHERE price_points.id = told.id"
)
_REPLACE_ROWS: Final = (
    f"UPDATE price_points SET {', '.join(f'{name} = ?' for name in _SAID)}, "
    "last_seen_at = CASE WHEN ? > 0 THEN ? ELSE last_seen_at END, times_seen = times_seen + ? WHERE id = ?"
)


def _copy_of_points() -> Insert:
    """Before they are replaced: what these points say, each under the next number of its own."""
    own, versions = price_points.c, price_point_versions.c
    said = ("kind", "amount", "currency", "match_strength", "observed_at")
    latest = select(func.coalesce(func.max(versions.nr), 0)).where(versions.point_id == own.id).scalar_subquery()
    now = bindparam("now", type_=versions.replaced_at.type)
    copied = select(own.id, latest + 1, *(own[name] for name in said), now)
    copied = copied.where(own.id.in_(bindparam("point_ids", expanding=True)))
    return insert(price_point_versions).from_select(["point_id", "nr", *said, "replaced_at"], copied)


_KEEP_VERSIONS: Final = _copy_of_points()


class Watching(Protocol):
    """Whoever wants to know what a look made of an item's worth, in the same transaction."""

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
    """The writer of looks. Two of them never write to one item at the same time, so no telling is lost."""

    def __init__(self, watches: Watching | None = None) -> None:
        self._watches = watches

    async def write(self, connection: AsyncConnection, given: Sequence[PriceAsked], now: datetime) -> None:
        revalued = await self._upsert(connection, given, now)
        await keep_odd_listings(connection, given, now)
        await _note_looks(connection, given, now)
        await self._tell(connection, given, revalued, now)

    async def push(self, connection: AsyncConnection, given: Sequence[PriceAsked], now: datetime) -> None:
        """Points that came without a question: no look is noted."""
        await self._tell(connection, given, await self._upsert(connection, given, now), now)

    async def _upsert(
        self, connection: AsyncConnection, given: Sequence[PriceAsked], now: datetime
    ) -> Mapping[ItemId, Revalued]:
        currencies = await lock_items(connection, (each.item_id for each in given))
        told = tellings(given)
        touched = {item_id: currencies[item_id] for item_id, _, _ in told}
        known = await known_points(connection, touched)
        points = await upsert_points(connection, told, known, now)
        new = [item_id for item_id, before in known.items() if not before]
        return await value_items(connection, touched, points, now, unvalued=new) if touched else {}

    async def _tell(
        self,
        connection: AsyncConnection,
        given: Sequence[PriceAsked],
        revalued: Mapping[ItemId, Revalued],
        now: datetime,
    ) -> None:
        """Of looks that were answered, whether they changed anything or not: a second look may agree with the first.

        A remembered answer agrees with itself: it is told only if it changed what the item is worth.
        """
        if self._watches is None:
            return
        answered: dict[ItemId, list[SourceName]] = {}
        for each in given:
            if each.problem is None and (not each.cached or _changed(revalued.get(each.item_id))):
                answered.setdefault(each.item_id, []).append(each.source)
        still = await current_valuations(connection, answered.keys() - revalued.keys())
        for item_id in sorted(answered):
            same = Revalued(before=still.get(item_id), after=still.get(item_id))
            found = revalued.get(item_id, same)
            sources = sorted(set(answered[item_id]))
            await self._watches.valued(connection, item_id, found.before, found.after, sources, now)


def _changed(revalued: Revalued | None) -> bool:
    return revalued is not None and said(revalued.before) != said(revalued.after)


async def _note_looks(connection: AsyncConnection, given: Sequence[PriceAsked], now: datetime) -> None:
    """A remembered answer does not move the time of the look; it is one only where there was none."""
    for cached in (True, False):
        rows = {(each.item_id, each.source): _look(each, now) for each in given if each.cached is cached}
        if rows:
            noting = _noting(connection.dialect.name, cached=cached)
            await connection.execute(noting, [row for _, row in sorted(rows.items())])


def _look(asked: PriceAsked, now: datetime) -> dict[str, Any]:
    return {
        "item_id": asked.item_id,
        "source": asked.source,
        "looked_at": now,
        "listings": asked.listings,
        "points": len({each.dedupe_key for each in asked.points}),
        "found_at": now if asked.points else None,
        "problem": storable(asked.problem),
    }


@cache
def _noting(dialect: str, *, cached: bool) -> Any:
    """What the last answer held stays known while a source has problems."""
    adding = insert_of(dialect)(item_looks)
    new, own = adding.excluded, item_looks.c
    answered = new.problem.is_(None)
    found_at = (own.found_at, new.found_at) if cached else (new.found_at, own.found_at)
    told = {name: case((answered, new[name]), else_=own[name]) for name in ("listings", "points")}
    return adding.on_conflict_do_update(
        index_elements=["item_id", "source"],
        set_={
            **told,
            "looked_at": own.looked_at if cached else new.looked_at,
            "found_at": func.coalesce(*found_at),
            "problem": new.problem,
        },
    )
