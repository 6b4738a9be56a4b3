"""Price watches as somebody sets them up, looks at them and takes them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.errors import BadWatch, ItemNotFound, ProductNotFound, WatchNotFound
from mistnet.domain.items import ItemId, ItemState, Valuation
from mistnet.domain.products import ProductId
from mistnet.domain.watches import Look, Wanted, Watch, WatchId, WatchKind, checked
from mistnet.store.database import Database
from mistnet.store.tables import items, offers, price_watches, products, valuations
from mistnet.store.watch_rows import ACTIVE, REMOVED, WATCH, look_at_offer, new_row, watch_of, watches_of
from mistnet.store.watches import Watches, look_at_valuation
from mistnet.store.worth import current_valuations

LARGEST_ID: Final = 2**63 - 1
_SURE: Final = 2
"""Looks that saw an offer before it needs no second one."""


class WatchLine(Watch, frozen=True, kw_only=True):
    """A watch with the name of what is watched."""

    title: str
    url: str | None = None


class AddedWatch(msgspec.Struct, frozen=True, kw_only=True):
    """`added` is whether nobody had asked for the very same."""

    watch: WatchLine
    added: bool


class WatchBook:
    """All watches of a database."""

    def __init__(self, database: Database, watches: Watches) -> None:
        self._database = database
        self._watches = watches

    async def add(self, wanted: Wanted) -> AddedWatch:
        """Watches from now on, beginning with what is known. The very same is there once."""
        checked(wanted)
        now = self._database.clock.now()
        async with self._database.write() as connection:
            await _hold(connection, wanted)
            known = await _same(connection, wanted)
            if known is None:
                watch = await self._begin(connection, wanted, now)
            line = await _line(connection, known or watch.id)
        return AddedWatch(watch=line, added=known is None)

    async def _begin(self, connection: AsyncConnection, wanted: Wanted, now: datetime) -> Watch:
        if wanted.kind is WatchKind.CHANGED:
            replaced = update(price_watches).where(watches_of(wanted), price_watches.c.automatic)
            await connection.execute(replaced.values(state=REMOVED))
        adding = insert(price_watches).values(new_row(wanted, now)).returning(*WATCH)
        watch = watch_of((await connection.execute(adding)).mappings().one())
        look, sure = await _stored(connection, wanted)
        if look is not None:
            await self._watches.begin(connection, watch, look, sure=sure, now=now)
        return watch

    async def get(self, watch_id: WatchId) -> WatchLine:
        async with self._database.read() as connection:
            return await _line(connection, watch_id)

    async def remove(self, watch_id: WatchId) -> WatchLine:
        """It tells of nothing any more. What the settings watch by themselves is not taken back one by one."""
        async with self._database.write() as connection:
            line = await _line(connection, watch_id)
            if line.automatic:
                raise BadWatch(f"{watch_id} is there because `price_watch_percent` is set; unset it, or leave it be")
            await connection.execute(update(price_watches).where(price_watches.c.id == watch_id).values(state=REMOVED))
        return line

    async def list(
        self,
        *,
        product_id: ProductId | None = None,
        item_id: ItemId | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[WatchLine]:
        """The newest first; the last id of one page is the `before` of the next."""
        asked = _lines().where(price_watches.c.id < (before or LARGEST_ID))
        if product_id is not None:
            asked = asked.where(price_watches.c.product_id == product_id)
        if item_id is not None:
            asked = asked.where(price_watches.c.item_id == item_id)
        async with self._database.read() as connection:
            rows = (await connection.execute(asked.order_by(price_watches.c.id.desc()).limit(limit))).mappings()
            return [_line_of(row) for row in rows]


def _lines() -> Select[Any]:
    return (
        select(*WATCH, func.coalesce(products.c.title, items.c.title, products.c.url).label("title"), products.c.url)
        .outerjoin(products, products.c.id == price_watches.c.product_id)
        .outerjoin(items, items.c.id == price_watches.c.item_id)
        .where(price_watches.c.state == ACTIVE)
    )


async def _line(connection: AsyncConnection, watch_id: WatchId) -> WatchLine:
    row = (await connection.execute(_lines().where(price_watches.c.id == watch_id))).mappings().first()
    if row is None:
        raise WatchNotFound(watch_id)
    return _line_of(row)


def _line_of(row: Any) -> WatchLine:
    watch = watch_of(row)
    fields = {name: getattr(watch, name) for name in watch.__struct_fields__}
    return WatchLine(**fields, title=row["title"], url=row["url"])


async def _hold(connection: AsyncConnection, wanted: Wanted) -> None:
    """Locks the thing, so that two who ask for the same at once are one after the other."""
    if wanted.product_id is not None:
        asked = select(products.c.id).where(products.c.id == wanted.product_id).with_for_update(key_share=True)
        if (await connection.execute(asked)).first() is None:
            raise ProductNotFound(str(wanted.product_id))
        return
    state = select(items.c.state).where(items.c.id == wanted.item_id).with_for_update(key_share=True)
    found = (await connection.execute(state)).scalar()
    if found is None or found == ItemState.REMOVED:
        raise ItemNotFound(wanted.item_id or 0, removed=found is not None)


async def _same(connection: AsyncConnection, wanted: Wanted) -> WatchId | None:
    own = price_watches.c
    asked = select(own.id, own.percent, own.target, own.currency).where(
        watches_of(wanted), own.kind == wanted.kind, ~own.automatic
    )
    rows = (await connection.execute(asked.order_by(own.id))).all()
    line = (wanted.percent, wanted.target, wanted.currency)
    return next((row.id for row in rows if (row.percent, row.target, row.currency) == line), None)


async def _stored(connection: AsyncConnection, wanted: Wanted) -> tuple[Look | None, bool]:
    """What is known of its price, and whether more than one look saw it."""
    if wanted.product_id is not None:
        columns = [offers.c[name] for name in ("amount", "currency", "availability", "last_seen_at", "link_id")]
        asked = (
            select(*columns, offers.c.times_seen)
            .join(products, products.c.offer_id == offers.c.id)
            .where(products.c.id == wanted.product_id)
        )
        row = (await connection.execute(asked)).first()
        return look_at_offer(row), row is not None and row.times_seen >= _SURE
    assert wanted.item_id is not None  # noqa: S101 (it was checked: one of the two)
    worth: Valuation | None = (await current_valuations(connection, [wanted.item_id])).get(wanted.item_id)
    if worth is None:
        return None, False
    valued_at = select(valuations.c.valued_at).where(valuations.c.item_id == wanted.item_id)
    at = (await connection.execute(valued_at)).scalar_one()
    return look_at_valuation(worth, None, source=None, at=at), False
