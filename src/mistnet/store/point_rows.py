"""Writes points as a set: new ones added, stronger ones in the place of weaker, the rest seen once more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from sqlalchemy import Insert, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.items import ItemId, PointId, PricePoint
from mistnet.domain.products import PriceKind
from mistnet.pricing.ranking import head, rank
from mistnet.store.tables import price_point_versions, price_points
from mistnet.store.tellings import Identity, Telling
from mistnet.store.worth import KnownPoint

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
    told: Mapping[Identity, Telling],
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
    connection: AsyncConnection, again: Mapping[Identity, Telling], stored: Mapping[Identity, KnownPoint]
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
    connection: AsyncConnection, won: Mapping[Identity, Telling], stored: Mapping[Identity, KnownPoint], now: datetime
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
    connection: AsyncConnection, added: Mapping[Identity, Telling], now: datetime
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


def _rows(connection: AsyncConnection, told: Mapping[Identity, Telling], now: datetime) -> list[Row]:
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


def _row(identity: Identity, telling: Telling, amount: Any, observed_at: Any, now: Any) -> Row:
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
