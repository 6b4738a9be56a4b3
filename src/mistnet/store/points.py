"""Writes looks at sources: the points they brought, what the item is worth since, and the look itself, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Protocol

from sqlalchemy import case, func
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.items import ItemId, PriceAsked, Valuation
from mistnet.domain.sources import SourceName
from mistnet.store.driver_values import storable
from mistnet.store.inserts import insert_of
from mistnet.store.odd_listings import keep_odd_listings
from mistnet.store.point_rows import upsert_points
from mistnet.store.tables import item_looks
from mistnet.store.tellings import tellings
from mistnet.store.worth import Revalued, current_valuations, known_points, lock_items, said, value_items


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
