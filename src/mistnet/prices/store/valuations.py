"""What items are worth, now and before, and the points behind it: as people look at them, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, Select, literal, select

from mistnet.governor.model import SourceName
from mistnet.kit.database import Database
from mistnet.prices.model import Carrier, ItemId, LeftOut, PointId, StoredPoint, Valuation
from mistnet.prices.tables import item_looks, price_point_versions, price_points, valuations
from mistnet.prices.tables import valuation_history as history
from mistnet.shops.model import PriceKind

WORTH: Final = (
    *("estimate", "low", "high", "currency", "points", "points_left_out", "confidence", "newest_at"),
    *("carriers", "left_out"),
)
"""The columns of a valuation, now or then."""

_carriers = msgspec.json.Decoder(list[Carrier]).decode
_left_out = msgspec.json.Decoder(list[LeftOut]).decode


class CurrentValuation(Valuation, frozen=True, kw_only=True):
    """What an item is worth now; `valued_at` is when it came to be so."""

    valued_at: datetime


class PastValuation(CurrentValuation, frozen=True, kw_only=True):
    """What an item was worth from `valued_at` on. `ended_at`: it was taken back then, and nothing took its place."""

    id: int
    ended_at: datetime | None


class PointLine(StoredPoint, frozen=True, kw_only=True):
    """A point with its own story."""

    item_id: ItemId
    first_seen_at: datetime
    last_seen_at: datetime
    times_seen: int


class PointVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a point said before something stronger took its place."""

    point_id: PointId
    nr: int
    kind: PriceKind
    amount: Decimal
    currency: str
    match_strength: float
    observed_at: datetime
    replaced_at: datetime


class LookLine(msgspec.Struct, frozen=True, kw_only=True):
    """The latest look at a source for an item. Counts are those of the latest that was answered."""

    item_id: ItemId
    source: SourceName
    looked_at: datetime
    listings: int
    points: int
    found_at: datetime | None
    problem: str | None


class PointFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which points of an item to list. None: all."""

    source: SourceName | None = None
    kind: PriceKind | None = None
    doubted: bool | None = None
    before: int | None = None
    limit: int = 50


class Valuations:
    """Reads, each by an index."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def current(self, item_ids: Iterable[ItemId]) -> Mapping[ItemId, CurrentValuation]:
        """Of those that have one."""
        wanted = sorted(set(item_ids))
        columns = [valuations.c[name] for name in ("item_id", *WORTH, "valued_at")]
        rows = await self._rows(select(*columns).where(valuations.c.item_id.in_(wanted))) if wanted else []
        return {row["item_id"]: CurrentValuation(**worth_of(row), valued_at=row["valued_at"]) for row in rows}

    async def history(self, item_id: ItemId, *, before: int | None = None, limit: int = 100) -> Sequence[PastValuation]:
        """The latest first; the last id of one page is the `before` of the next."""
        columns = [history.c[name] for name in ("id", *WORTH, "valued_at", "ended_at")]
        asked = select(*columns).where(history.c.item_id == item_id)
        if before is not None:
            asked = asked.where(history.c.id < before)
        rows = await self._rows(asked.order_by(history.c.id.desc()).limit(limit))
        about = ("id", "valued_at", "ended_at")
        return [PastValuation(**worth_of(row), **{name: row[name] for name in about}) for row in rows]

    async def points(self, item_id: ItemId, wanted: PointFilter) -> Sequence[PointLine]:
        """Those that came last first; the last id of one page is the `before` of the next."""
        own = price_points.c
        asked = select(*(own[name] for name in PointLine.__struct_fields__)).where(own.item_id == item_id)
        if wanted.before is not None:
            asked = asked.where(own.id < wanted.before)
        if wanted.source is not None:
            asked = asked.where(own.source == wanted.source)
        if wanted.kind is not None:
            asked = asked.where(own.kind == wanted.kind)
        if wanted.doubted is not None:
            asked = asked.where(own.doubt.is_not(None) if wanted.doubted else own.doubt.is_(None))
        return [_point(row) for row in await self._rows(asked.order_by(own.id.desc()).limit(wanted.limit))]

    async def named(self, point_ids: Iterable[PointId]) -> Mapping[PointId, PointLine]:
        """The points a valuation names, by their ids."""
        wanted = sorted(set(point_ids))
        columns = [price_points.c[name] for name in PointLine.__struct_fields__]
        rows = await self._rows(select(*columns).where(price_points.c.id.in_(wanted))) if wanted else []
        return {row["id"]: _point(row) for row in rows}

    async def versions(self, point_id: PointId, *, before: int | None = None, limit: int = 100) -> list[PointVersion]:
        """The latest first; the last `nr` of one page is the `before` of the next."""
        own = price_point_versions.c
        asked = select(price_point_versions).where(own.point_id == point_id)
        if before is not None:
            asked = asked.where(own.nr < literal(before, BigInteger))  # any number may be asked for
        rows = await self._rows(asked.order_by(own.nr.desc()).limit(limit))
        return [PointVersion(**{**row, "kind": PriceKind(row["kind"])}) for row in rows]

    async def looks(self, item_id: ItemId) -> Sequence[LookLine]:
        """One for each source that was ever asked, by name."""
        own = item_looks.c
        columns = [own[name] for name in LookLine.__struct_fields__]
        rows = await self._rows(select(*columns).where(own.item_id == item_id).order_by(own.source))
        return [LookLine(**row) for row in rows]

    async def _rows(self, asked: Select[Any]) -> list[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


def worth_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a valuation from a row that has its columns."""
    plain = {name: row[name] for name in WORTH}
    return {**plain, "carriers": _carriers(row["carriers"]), "left_out": _left_out(row["left_out"])}


def _point(row: Mapping[str, Any]) -> PointLine:
    return PointLine(**{**row, "kind": PriceKind(row["kind"])})
