"""Price watches at work: called in the transactions that write offers and valuations, and told with them or not at all.

Only looks that came to a price arrive here. A fetch that failed, a wall, a doubted offer, a page without a price or a
thing that is gone never does, so none of them is a change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, RowMapping, Select, and_, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.prices.errors import BadWatch, ItemNotFound, WatchNotFound
from mistnet.prices.model import ItemId, ItemState, PointId, Valuation
from mistnet.prices.store.second_looks import SecondLooks
from mistnet.prices.store.valuation_writer import current_valuations
from mistnet.prices.tables import items, price_points, price_watches, valuations
from mistnet.prices.watches.model import (
    Cleared,
    Confirmed,
    Observation,
    PriceWatch,
    Suspected,
    Suspended,
    Suspicion,
    Unchanged,
    Verdict,
    WatchId,
    WatchKind,
    WatchRequest,
    checked,
    judge,
    lost,
    payload,
    subject,
    told,
)
from mistnet.queue.events import NewEvent
from mistnet.queue.outbox import write_events
from mistnet.queue.store.enqueue import JobWriter
from mistnet.shops.errors import ProductNotFound
from mistnet.shops.model import Availability, LinkId, PageFacts, PriceKind, ProductId, content_hash
from mistnet.shops.tables import offers, products

ACTIVE: Final = "active"
REMOVED: Final = "removed"

WATCH: Final = [
    price_watches.c[name]
    for name in (
        *("id", "item_id", "product_id", "kind", "percent", "target", "currency", "automatic", "added_at"),
        *("amount", "amount_currency", "availability", "known_at", "rests_on", "suspected", "problem", "told_at"),
        "events",
    )
]

_PLAIN: Final = ("id", "item_id", "product_id", "percent", "target", "currency", "automatic", "added_at")
_SUSPICION: Final = msgspec.json.Decoder(Suspicion)
_POINTS: Final = msgspec.json.Decoder(list[PointId])


def watches_of(wanted: WatchRequest) -> ColumnElement[bool]:
    """Those of one thing that are not taken back."""
    own = price_watches.c
    thing = own.item_id == wanted.item_id if wanted.item_id is not None else own.product_id == wanted.product_id
    return and_(thing, own.state == ACTIVE)


def watch_of(row: RowMapping) -> PriceWatch:
    return PriceWatch(
        kind=WatchKind(row["kind"]),
        known=_known(row),
        suspected=None if row["suspected"] is None else _SUSPICION.decode(row["suspected"]),
        problem=row["problem"],
        told_at=row["told_at"],
        events=row["events"],
        **{name: row[name] for name in _PLAIN},
    )


def _known(row: RowMapping) -> Observation | None:
    if row["known_at"] is None:
        return None
    return Observation(
        at=row["known_at"],
        amount=row["amount"],
        currency=row["amount_currency"],
        availability=None if row["availability"] is None else Availability(row["availability"]),
        rests_on=() if row["rests_on"] is None else _POINTS.decode(row["rests_on"]),
    )


def new_row(wanted: WatchRequest, now: datetime, *, automatic: bool = False) -> dict[str, Any]:
    return {
        "item_id": wanted.item_id,
        "product_id": wanted.product_id,
        "kind": wanted.kind,
        "percent": wanted.percent,
        "target": wanted.target,
        "currency": wanted.currency,
        "state": ACTIVE,
        "automatic": automatic,
        "added_at": now,
    }


def suspected_values(seen: Suspicion) -> dict[str, Any]:
    return {"suspected": msgspec.json.encode(seen), "suspected_at": seen.at, "problem": None}


def known_values(known: Observation) -> dict[str, Any]:
    """Nothing is suspected any more."""
    return {
        "amount": known.amount,
        "amount_currency": known.currency,
        "availability": known.availability,
        "known_at": known.at,
        "rests_on": msgspec.json.encode(known.rests_on) if known.rests_on else None,
        "suspected": None,
        "suspected_at": None,
        "problem": None,
    }


def look_at_offer(row: Any) -> Observation | None:
    """What is stored of a product's price, as the look that last saw it."""
    if row is None:
        return None
    amount: Decimal | None = row.amount
    return Observation(
        at=row.last_seen_at,
        amount=amount,
        currency=row.currency,
        availability=None if row.availability is None else Availability(row.availability),
        link_id=row.link_id,
    )


PAUSE: Final = timedelta(minutes=10)


class Watches:
    """All watches of a database. With `percent`, whatever has none of its own is watched for changes above it."""

    def __init__(self, job_writer: JobWriter, *, pause: timedelta = PAUSE, percent: float | None = None) -> None:
        self._second = SecondLooks(job_writer, pause)
        self._pause = pause
        self._percent = percent

    async def offer_seen(
        self, connection: AsyncConnection, product_id: ProductId, link_id: LinkId, facts: PageFacts, now: datetime
    ) -> None:
        """A visit saw an offer that is believed. The caller has written the product, and so holds its row."""
        look = Observation(
            at=now, amount=facts.amount, currency=facts.currency, availability=facts.availability, link_id=link_id
        )
        usual = WatchRequest(kind=WatchKind.CHANGED, product_id=product_id, percent=self._percent)
        asks = False
        for watch in await self._watching(connection, usual, now):
            asks |= await _apply(connection, watch, judge(watch, look, pause=self._pause), now)
        if asks:
            await self._second.at_page(connection, link_id, seen=content_hash(facts), now=now, since=now)

    async def valued(
        self,
        connection: AsyncConnection,
        item_id: ItemId,
        before: Valuation | None,
        after: Valuation | None,
        sources: Collection[str],
        now: datetime,
    ) -> None:
        """An item was valued after these sources were asked. The caller holds the item's row.

        Without a source there was no look: new rates alone are no change of price.
        """
        if after is None or not sources:
            return
        look = look_at_valuation(after, before, source=min(sources), at=now)
        usual = WatchRequest(kind=WatchKind.CHANGED, item_id=item_id, percent=self._percent)
        moved_by: set[PointId] = set()
        for watch in await self._watching(connection, usual, now):
            verdict = await self._judge_valuation(connection, watch, look, after)
            if await _apply(connection, watch, verdict, now) and isinstance(verdict, Suspected):
                moved_by.update(verdict.seen.moved_by or verdict.seen.rests_on)
        if moved_by:
            await self._second.at_sources(connection, item_id, sorted(moved_by), now=now, since=now)

    async def begin(
        self, connection: AsyncConnection, watch: PriceWatch, look: Observation, *, sure: bool, now: datetime
    ) -> None:
        """A watch starts from what is stored. What was seen once only, or is to be told of, is looked at once more."""
        verdict = judge(watch, look, pause=self._pause)
        if isinstance(verdict, Suspected) and sure and told(watch, look) is None:
            verdict = Confirmed(verdict.seen, look, None)
        if await _apply(connection, watch, verdict, now) and isinstance(verdict, Suspected):
            await self._ask(connection, watch, verdict.seen, now)

    async def _ask(self, connection: AsyncConnection, watch: PriceWatch, seen: Suspicion, now: datetime) -> None:
        if watch.item_id is not None:
            await self._second.at_sources(connection, watch.item_id, seen.rests_on, now=now, since=seen.at)
        elif seen.link_id is not None:
            await self._second.at_page(connection, seen.link_id, seen="", now=now, since=seen.at)

    async def _watching(self, connection: AsyncConnection, usual: WatchRequest, now: datetime) -> Sequence[PriceWatch]:
        """The watches of one thing, locked. If the settings want it watched and nobody else does, one is added."""
        asked = select(*WATCH).where(watches_of(usual)).order_by(price_watches.c.id)
        rows = (await connection.execute(asked.with_for_update())).mappings().all()
        found = [watch_of(row) for row in rows]
        if self._percent is None:
            return [watch for watch in found if not watch.automatic]
        if not any(watch.kind is WatchKind.CHANGED for watch in found):
            adding = insert(price_watches).values(new_row(usual, now, automatic=True)).returning(*WATCH)
            found.append(watch_of((await connection.execute(adding)).mappings().one()))
        return [await _as_set(connection, watch, self._percent) for watch in found]

    async def _judge_valuation(
        self, connection: AsyncConnection, watch: PriceWatch, look: Observation, after: Valuation
    ) -> Verdict:
        why = lost(set(watch.known.rests_on), after) if watch.known else None
        if why is not None:
            return Unchanged() if watch.problem == why else Suspended(why)
        verdict = judge(watch, look, pause=self._pause)
        if isinstance(verdict, Confirmed) and not await _seen_again(connection, verdict.first):
            return Unchanged()
        return verdict


def look_at_valuation(after: Valuation, before: Valuation | None, *, source: str | None, at: datetime) -> Observation:
    """The points that moved it are those it did not rest on before, or not at that amount."""
    known = {(each.point_id, each.amount) for each in before.carriers} if before else set()
    return Observation(
        at=at,
        amount=after.estimate,
        currency=after.currency,
        source=source,
        rests_on=[each.point_id for each in after.carriers],
        moved_by=[each.point_id for each in after.carriers if (each.point_id, each.amount) not in known],
    )


async def _apply(connection: AsyncConnection, watch: PriceWatch, verdict: Verdict, now: datetime) -> bool:
    """Writes down what a look means; answers whether a second one is wanted."""
    match verdict:
        case Suspended(problem):
            await _set(connection, watch, {"problem": problem})
        case Suspected(seen):
            await _set(connection, watch, suspected_values(seen))
        case Cleared(known):
            await _set(connection, watch, known_values(known))
        case Confirmed():
            await _settle(connection, watch, verdict, now)
        case Unchanged():
            pass
    return isinstance(verdict, Suspected) and verdict.ask


async def _settle(connection: AsyncConnection, watch: PriceWatch, settled: Confirmed, now: datetime) -> None:
    values = known_values(settled.second)
    if settled.event is not None:
        values |= {"told_at": now, "events": price_watches.c.events + 1}
        said = payload(watch, settled, await _about(connection, watch, settled.second))
        await write_events(connection, [NewEvent(kind=settled.event, subject=subject(watch), payload=said)], now)
    await _set(connection, watch, values)


async def _seen_again(connection: AsyncConnection, first: Suspicion) -> bool:
    """Whether most of what moved the valuation was observed anew. A sale happens once: it need not be.

    Where a source has no ids, the same listing is another point on another day: its page and amount tell.
    """
    moved, same = price_points.alias("moved").c, price_points.alias("same").c
    asked = (
        select(moved.id, moved.kind, func.max(same.observed_at).label("latest_at"))
        .where(moved.id.in_(sorted(first.moved_by or first.rests_on)))
        .where(same.item_id == moved.item_id, same.source == moved.source, same.url == moved.url)
        .where(same.amount == moved.amount, same.currency == moved.currency)
        .group_by(moved.id, moved.kind)
    )
    rows = (await connection.execute(asked)).all()
    anew = sum(row.kind == PriceKind.SOLD or row.latest_at > first.at for row in rows)
    return bool(anew * 2 > len(rows))


async def _as_set(connection: AsyncConnection, watch: PriceWatch, percent: float) -> PriceWatch:
    """An automatic watch follows the setting."""
    if not watch.automatic or watch.percent == percent:
        return watch
    await _set(connection, watch, {"percent": percent})
    return msgspec.structs.replace(watch, percent=percent)


async def _set(connection: AsyncConnection, watch: PriceWatch, values: dict[str, Any]) -> None:
    await connection.execute(update(price_watches).where(price_watches.c.id == watch.id).values(**values))


async def _about(connection: AsyncConnection, watch: PriceWatch, look: Observation) -> dict[str, Any]:
    """What an event's reader wants to know of the thing itself. An item is shown by the listing that weighs most."""
    if watch.product_id is not None:
        columns = (products.c.title, products.c.url, products.c.platform.label("source"))
        asked = select(*columns).where(products.c.id == watch.product_id)
        return dict((await connection.execute(asked)).mappings().one())
    heaviest = select(price_points.c.url).where(price_points.c.id == next(iter(look.rests_on), 0)).scalar_subquery()
    about = select(items.c.title, heaviest.label("url")).where(items.c.id == watch.item_id)
    return dict((await connection.execute(about)).mappings().one())


LARGEST_ID: Final = 2**63 - 1
_SURE: Final = 2
"""Looks that saw an offer before it needs no second one."""


class WatchLine(PriceWatch, frozen=True, kw_only=True):
    """A watch with the name of what is watched."""

    title: str
    url: str | None = None


class AddedWatch(msgspec.Struct, frozen=True, kw_only=True):
    """`added` is whether nobody had asked for the very same."""

    watch: WatchLine
    added: bool


class WatchStore:
    """All watches of a database."""

    def __init__(self, database: Database, watches: Watches) -> None:
        self._database = database
        self._watches = watches

    async def add(self, wanted: WatchRequest) -> AddedWatch:
        """Watches from now on, beginning with what is known. The very same is there once."""
        checked(wanted)
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            await _hold(connection, wanted)
            known = await _same(connection, wanted)
            if known is None:
                watch = await self._begin(connection, wanted, now)
            line = await _line(connection, known or watch.id)
        return AddedWatch(watch=line, added=known is None)

    async def _begin(self, connection: AsyncConnection, wanted: WatchRequest, now: datetime) -> PriceWatch:
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
        async with self._database.transaction() as connection:
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


async def _hold(connection: AsyncConnection, wanted: WatchRequest) -> None:
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


async def _same(connection: AsyncConnection, wanted: WatchRequest) -> WatchId | None:
    own = price_watches.c
    asked = select(own.id, own.percent, own.target, own.currency).where(
        watches_of(wanted), own.kind == wanted.kind, ~own.automatic
    )
    rows = (await connection.execute(asked.order_by(own.id))).all()
    line = (wanted.percent, wanted.target, wanted.currency)
    return next((row.id for row in rows if (row.percent, row.target, row.currency) == line), None)


async def _stored(connection: AsyncConnection, wanted: WatchRequest) -> tuple[Observation | None, bool]:
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
