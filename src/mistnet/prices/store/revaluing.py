"""Recomputes valuations after exchange rates or items changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.prices.exchange import OLDEST, DatedRate
from mistnet.prices.matching import Match, match_listing
from mistnet.prices.model import ItemId, ItemRequest, PriceListing
from mistnet.prices.store.valuation_writer import known_points, lock_items, said, value_items
from mistnet.prices.tables import items, price_points
from mistnet.shops import links as link_rules
from mistnet.shops.model import PriceKind

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
        async with database.transaction() as connection:
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


MISFIT: Final = "does not fit the item as it is now"
_READ: Final = (
    *("id", "item_id", "kind", "amount", "currency", "title", "url", "observed_at", "match_strength", "doubt"),
)
_MOVE: Final = (
    update(price_points)
    .where(price_points.c.id == bindparam("point"))
    .values(match_strength=bindparam("strength"), doubt=bindparam("why", type_=price_points.c.doubt.type))
)


async def rematch(connection: AsyncConnection, changed: Mapping[ItemId, ItemRequest], now: datetime) -> None:
    """Points that fit no more stay, and say so: no valuation rests on them. One that fits again counts again."""
    if not changed:
        return
    currencies = await lock_items(connection, changed)
    asked = select(*(price_points.c[name] for name in _READ)).where(price_points.c.item_id.in_(sorted(changed)))
    rows = (await connection.execute(asked)).mappings().all()
    if not rows:
        return
    names = {item_id: _names(request) for item_id, request in changed.items()}
    moved = [
        told
        for row in rows
        if (told := _told(row, _matched(row, changed[row["item_id"]], names[row["item_id"]]))) is not None
    ]
    if moved:
        await connection.execute(_MOVE, moved)
    touched = {row["item_id"]: currencies[row["item_id"]] for row in rows}
    await value_items(connection, touched, await known_points(connection, touched), now)


def _told(row: Any, found: Match) -> dict[str, Any] | None:
    """What becomes of a point; None: it stays as it is. Doubts of another kind are not for us to settle."""
    own = row["doubt"] is None or row["doubt"].startswith(MISFIT)
    why = f"{MISFIT}: {found.why or f'by {found.strength:.2f} only'}"
    doubt = (None if found.fits else why) if own else row["doubt"]
    if (found.strength, doubt) == (row["match_strength"], row["doubt"]):
        return None
    return {"point": row["id"], "strength": found.strength, "why": doubt}


def _matched(row: Any, request: ItemRequest, names: frozenset[str]) -> Match:
    """The page of a thing that the item itself names fits as well as it did."""
    named = bool(names) and _name(row["url"]) in names
    return match_listing(
        request,
        PriceListing(
            kind=PriceKind(row["kind"]),
            amount=row["amount"],
            currency=row["currency"],
            title=row["title"],
            url=row["url"],
            observed_at=row["observed_at"],
            strength=row["match_strength"] if named else None,
        ),
    )


def _names(request: ItemRequest) -> frozenset[str]:
    return frozenset(name for url in request.urls if (name := _name(url)))


def _name(url: str) -> str | None:
    found = link_rules.canonical_link(url)
    return None if isinstance(found, link_rules.RefusedUrl) else found.url_norm
