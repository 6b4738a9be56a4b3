"""Writes what sources returned: new price points, stronger ones in place of weaker, and the time of each fetch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import SourceName
from mistnet.kit.statements import insert_of, insert_rows, run_directly
from mistnet.kit.types import moment, storable
from mistnet.kit.view import columns_of, record_of
from mistnet.prices.model import ItemId, KnownPoint, PointId, PriceFetch, PricePoint, Valuation
from mistnet.prices.store.valuations import Revalued, current_valuations, known_points, lock_items, value_items
from mistnet.prices.tables import item_looks, odd_listings, price_points
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
        seen: dict[str, PricePoint] = {}
        for found in each.points:
            # As it will be read again, because it is compared with stored ones. All texts in one check: a fetch brings
            # hundreds of points, and hardly any needs cleaning.
            texts = f"{found.dedupe_key}{found.title}{found.url}{found.external_id}{found.condition}{found.doubt}"
            point = found
            if found.observed_at.tzinfo is not UTC or storable(texts) != texts:
                clean = {name: storable(getattr(found, name)) for name in _TEXTS}
                point = msgspec.structs.replace(found, **clean, observed_at=found.observed_at.astimezone(UTC))
            other = seen.get(point.dedupe_key)
            # Ranks are slow to compare, and few points come twice.
            seen[point.dedupe_key] = point if other is None else max(point, other, key=rank)
        for key, point in seen.items():
            identity, fetches = (each.item_id, each.source, key), int(not each.cached)
            before = merged.get(identity)
            merged[identity] = (
                PointObservation(max(before.point, point, key=rank), before.fetches + fetches)
                if before
                else PointObservation(point, fetches)
            )
    return dict(sorted(merged.items()))


_AT_ONCE: Final = 10_000
_REPLACED: Final = (
    *("kind", "amount", "currency", "condition", "title", "url", "external_id", "bid_count", "match_strength"),
    *("observed_at", "product_id", "offer_id", "doubt"),
)
_COLUMNS: Final = ("item_id", "source", "dedupe_key", *_REPLACED, "first_seen_at", "last_seen_at", "times_seen")
_OR_REPLACE: Final = (
    "ON CONFLICT (item_id, source, dedupe_key) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _REPLACED)
    + ", last_seen_at = CASE WHEN excluded.times_seen > 0 THEN excluded.last_seen_at ELSE price_points.last_seen_at END"
    ", times_seen = price_points.times_seen + excluded.times_seen RETURNING id, item_id, source, dedupe_key"
)


async def upsert_points(
    connection: AsyncConnection,
    observed: Mapping[Identity, PointObservation],
    known: Mapping[ItemId, Sequence[KnownPoint]],
    now: datetime,
) -> dict[ItemId, list[KnownPoint]]:
    """Write observations and return all points of these items as they are now. The items must be locked."""
    stored = {(each.item_id, each.source, each.dedupe_key): each for points in known.values() for each in points}
    again = {identity: each for identity, each in observed.items() if identity in stored}
    stronger = await _stronger(connection, again, stored)
    changed = [stored[each].id for each in stronger if _price_of(stored[each]) != _price_of(again[each].point)]
    for some in _slices(changed):
        await run_directly(connection, "keep_versions", {"point_ids": some, "now": now})
    by_fetches: dict[int, list[PointId]] = {}
    for identity, seen in again.items():
        if identity not in stronger and seen.fetches:
            by_fetches.setdefault(seen.fetches, []).append(stored[identity].id)
    for fetches, point_ids in by_fetches.items():
        for some in _slices(point_ids):
            binds = {"point_ids": some, "fetches": fetches, "now": now}
            await run_directly(connection, "see_points_again", binds)
    # A cached answer is no fetch, but a point that is new was seen once.
    written = {
        identity: (each.point, each.fetches if identity in stored else max(each.fetches, 1))
        for identity, each in observed.items()
        if identity in stronger or identity not in stored
    }
    rows = _rows(connection.dialect.name, written, now)
    for row in await insert_rows(connection, price_points, rows, _OR_REPLACE, names=_COLUMNS) if rows else ():
        identity = (row[1], row[2], row[3])
        new = written[identity][0]
        strength, at = new.match_strength, new.observed_at
        stored[identity] = KnownPoint(row[0], *identity, new.kind, new.amount, new.currency, strength, at, new.doubt)
    found: dict[ItemId, list[KnownPoint]] = {each: [] for each in known}
    for point in stored.values():
        found[point.item_id].append(point)
    return found


async def _stronger(
    connection: AsyncConnection, again: Mapping[Identity, PointObservation], stored: Mapping[Identity, KnownPoint]
) -> set[Identity]:
    """Those that are stronger than what is stored. Where `head` is equal, all values are compared."""
    heads = {each: (head(new.point), head(stored[each])) for each, new in again.items()}
    won = {each for each, (new, old) in heads.items() if new > old}
    tied = [each for each, (new, old) in heads.items() if new == old]
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


def _price_of(point: KnownPoint | PricePoint) -> tuple[Any, ...]:
    return point.kind, point.amount, point.currency, point.match_strength


def _rows(dialect: str, written: Mapping[Identity, tuple[PricePoint, int]], now: datetime) -> list[tuple[Any, ...]]:
    """Values as the driver takes them, past SQLAlchemy: one fetch brings hundreds of points."""
    as_text, noted_at = dialect != "postgresql", moment(dialect, now)
    rows = []
    for identity, (point, times_seen) in written.items():
        amount: Decimal | str = point.amount
        if as_text:
            # All digits, without an exponent. Formatting every amount would take six times as long as `str`.
            plain = str(amount)
            amount = f"{amount:f}" if "E" in plain else plain
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
            # It is in UTC, which SQLite stores without a zone.
            point.observed_at.isoformat(" ", "microseconds")[:26] if as_text else point.observed_at,
            point.product_id,
            point.offer_id,
            point.doubt,
            noted_at,
            noted_at,
            times_seen,
        )
        rows.append(row)
    return rows


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
        at = moment(connection.dialect.name, now)
        # A cached answer does not move the time of the fetch, unless the source was never fetched.
        for cached, ending in ((True, _FETCHED_FROM_CACHE), (False, _FETCHED)):
            rows = {}
            for each in fetched:
                if each.cached is cached:
                    points = len({point.dedupe_key for point in each.points})
                    key, found_at = (each.item_id, each.source), at if points else None
                    rows[key] = (*key, at, each.listings, points, found_at, storable(each.problem))
            # In the order of their keys for all writers, or two of them could deadlock.
            if rows:
                ordered = [row for _, row in sorted(rows.items())]
                await insert_rows(connection, item_looks, ordered, ending, names=_FETCH)
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


_FETCH: Final = ("item_id", "source", "looked_at", "listings", "points", "found_at", "problem")
# While a source has problems, what its last answer held stays known.
_KEPT: Final = ", ".join(
    f"{name} = CASE WHEN excluded.problem IS NULL THEN excluded.{name} ELSE item_looks.{name} END"
    for name in ("listings", "points")
)
_NOTE: Final = f"ON CONFLICT (item_id, source) DO UPDATE SET problem = excluded.problem, {_KEPT}, "
_FETCHED: Final = f"{_NOTE} looked_at = excluded.looked_at, found_at = coalesce(excluded.found_at, item_looks.found_at)"
_FETCHED_FROM_CACHE: Final = f"{_NOTE} found_at = coalesce(item_looks.found_at, excluded.found_at)"
