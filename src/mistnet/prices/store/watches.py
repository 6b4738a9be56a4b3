"""Applies price watches in the transactions that write offers and valuations, and lists, adds and removes them.

Only successful fetches get here. A failed fetch, a CAPTCHA, a doubted offer, a page without a price and a product that
is gone do not, so none of them is a change. An event is written with the change it reports, or neither is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from sqlalchemy import ColumnElement, and_, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.view import ListPage, View, columns_of, record_of
from mistnet.prices.model import BadWatch, ItemId, ItemNotFound, ItemState, PointId, Valuation, WatchNotFound
from mistnet.prices.store.price_jobs import SecondLooks
from mistnet.prices.store.valuations import current_valuations
from mistnet.prices.tables import items, price_points, price_watches, valuations
from mistnet.prices.watches import (
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
    WatchLine,
    WatchRequest,
    event_of,
    judge,
    judge_valuation,
    observe_valuation,
    payload,
    require_valid,
    subject,
)
from mistnet.queue.events import NewEvent
from mistnet.queue.outbox import write_events
from mistnet.queue.store.enqueue import JobWriter
from mistnet.shops.model import LinkId, PageFacts, PriceKind, ProductId, ProductNotFound, content_hash
from mistnet.shops.tables import offers, products

if TYPE_CHECKING:
    from mistnet.settings import Settings

ACTIVE: Final = "active"
REMOVED: Final = "removed"
_NOT_COLUMNS: Final = ("known", "suspected")
_WATCH: Final = [
    *columns_of(PriceWatch, price_watches, without=_NOT_COLUMNS),
    *(price_watches.c[name] for name in ("amount", "amount_currency", "availability", "known_at", "rests_on")),
    price_watches.c.suspected,
]
W = TypeVar("W", bound=PriceWatch)


def _watches_of(request: WatchRequest) -> ColumnElement[bool]:
    """The active watches of one item or product."""
    own = price_watches.c
    target = own.item_id == request.item_id if request.item_id is not None else own.product_id == request.product_id
    return and_(target, own.state == ACTIVE)


def _watch_of(row: Mapping[Any, Any], record: type[W]) -> W:
    stored = {name: value for name, value in row.items() if value is not None}
    if "known_at" in stored:
        known = {**stored, "at": stored["known_at"], "currency": stored.get("amount_currency")}
        stored["known"] = record_of(Observation, known)
    return record_of(record, stored)


def _new_row(request: WatchRequest, now: datetime, *, automatic: bool = False) -> dict[str, Any]:
    return {**msgspec.structs.asdict(request), "state": ACTIVE, "automatic": automatic, "added_at": now}


PAUSE: Final = timedelta(minutes=10)


class Watches:
    """All watches of a database. With `percent`, everything without a change watch of its own gets an automatic one."""

    def __init__(self, job_writer: JobWriter, *, pause: timedelta = PAUSE, percent: float | None = None) -> None:
        self._second = SecondLooks(job_writer, pause)
        self._pause = pause
        self._percent = percent

    @classmethod
    def from_settings(cls, settings: Settings, job_writer: JobWriter) -> Watches:
        pause = timedelta(seconds=settings.crawl_second_look_seconds)
        return cls(job_writer, pause=pause, percent=settings.price_watch_percent)

    async def offer_seen(
        self, connection: AsyncConnection, product_id: ProductId, link_id: LinkId, facts: PageFacts, now: datetime
    ) -> None:
        """A crawl saw an offer without doubt. The caller has written the product, so its row is locked."""
        look = Observation(
            at=now, amount=facts.amount, currency=facts.currency, availability=facts.availability, link_id=link_id
        )
        usual = WatchRequest(kind=WatchKind.CHANGED, product_id=product_id, percent=self._percent)
        confirm = False
        for watch in await self._watching(connection, usual, now):
            confirm |= await _apply(connection, watch, judge(watch, look, pause=self._pause), now)
        if confirm:
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
        """An item was valued after a fetch from these sources. The caller has locked the item.

        Without a source nothing was fetched: a new exchange rate alone is no change of price.
        """
        if after is None or not sources:
            return
        look = observe_valuation(after, before, source=min(sources), at=now)
        usual = WatchRequest(kind=WatchKind.CHANGED, item_id=item_id, percent=self._percent)
        moved_by: set[PointId] = set()
        for watch in await self._watching(connection, usual, now):
            verdict = judge_valuation(watch, look, after, pause=self._pause)
            if isinstance(verdict, Confirmed) and not await _seen_again(connection, verdict.first):
                verdict = Unchanged()
            if await _apply(connection, watch, verdict, now) and isinstance(verdict, Suspected):
                moved_by.update(verdict.seen.moved_by or verdict.seen.rests_on)
        if moved_by:
            # One look at the sources serves all watches of the item.
            await self._second.at_sources(connection, item_id, sorted(moved_by), now=now, since=now)

    async def begin(
        self, connection: AsyncConnection, watch: PriceWatch, look: Observation, *, sure: bool, now: datetime
    ) -> None:
        """Start a watch from the stored price. If that was seen only once, or needs an event, it is confirmed first."""
        verdict = judge(watch, look, pause=self._pause)
        if isinstance(verdict, Suspected) and sure and event_of(watch, look) is None:
            verdict = Confirmed(verdict.seen, look, None)
        if not await _apply(connection, watch, verdict, now) or not isinstance(verdict, Suspected):
            return
        seen = verdict.seen
        if watch.item_id is not None:
            await self._second.at_sources(connection, watch.item_id, seen.rests_on, now=now, since=seen.at)
        elif seen.link_id is not None:
            await self._second.at_page(connection, seen.link_id, seen="", now=now, since=seen.at)

    async def _watching(self, connection: AsyncConnection, usual: WatchRequest, now: datetime) -> Sequence[PriceWatch]:
        """The watches of one item or product, locked: two fetches at once would both report the same change."""
        query = select(*_WATCH).where(_watches_of(usual)).order_by(price_watches.c.id).with_for_update()
        found = [_watch_of(row, PriceWatch) for row in (await connection.execute(query)).mappings()]
        if self._percent is None:
            return [watch for watch in found if not watch.automatic]
        if not any(watch.kind is WatchKind.CHANGED for watch in found):
            adding = insert(price_watches).values(_new_row(usual, now, automatic=True)).returning(*_WATCH)
            found.append(_watch_of((await connection.execute(adding)).mappings().one(), PriceWatch))
        for watch in found:
            if watch.automatic and watch.percent != self._percent:  # automatic watches follow the setting
                await _set(connection, watch, {"percent": self._percent})
        automatic = {"percent": self._percent}
        return [msgspec.structs.replace(watch, **automatic) if watch.automatic else watch for watch in found]


async def _apply(connection: AsyncConnection, watch: PriceWatch, verdict: Verdict, now: datetime) -> bool:
    """Store what an observation means. Returns whether to confirm it by a second one."""
    match verdict:
        case Suspended(problem):
            await _set(connection, watch, {"problem": problem})
        case Suspected(seen):
            values = {"suspected": msgspec.json.encode(seen), "suspected_at": seen.at, "problem": None}
            await _set(connection, watch, values)
        case Cleared(known):
            await _set(connection, watch, _known_values(known))
        case Confirmed(second=known, event=event):
            values = _known_values(known)
            if event is not None:
                values |= {"told_at": now, "events": price_watches.c.events + 1}
                if watch.product_id is not None:
                    columns = (products.c.title, products.c.url, products.c.platform.label("source"))
                    query = select(*columns).where(products.c.id == watch.product_id)
                else:
                    # An item has the URL of the listing that weighs most.
                    heaviest = select(price_points.c.url).where(price_points.c.id == next(iter(known.rests_on), 0))
                    named = select(items.c.title, heaviest.scalar_subquery().label("url"))
                    query = named.where(items.c.id == watch.item_id)
                about = (await connection.execute(query)).mappings().one()
                body = payload(watch, verdict, dict(about))
                await write_events(connection, [NewEvent(kind=event, subject=subject(watch), payload=body)], now)
            await _set(connection, watch, values)
        case Unchanged():
            pass
    return isinstance(verdict, Suspected) and verdict.ask


def _known_values(known: Observation) -> dict[str, Any]:
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


async def _set(connection: AsyncConnection, watch: PriceWatch, values: dict[str, Any]) -> None:
    await connection.execute(update(price_watches).where(price_watches.c.id == watch.id).values(**values))


async def _seen_again(connection: AsyncConnection, first: Suspicion) -> bool:
    """Whether most of what moved the valuation was observed again. A sale happens once, so it need not be.

    Where a source has no ids, a listing is another point on another day: its page and amount identify it.
    """
    moved, same = price_points.alias("moved").c, price_points.alias("same").c
    query = (
        select(moved.id, moved.kind, func.max(same.observed_at).label("latest_at"))
        .where(moved.id.in_(sorted(first.moved_by or first.rests_on)))
        .where(same.item_id == moved.item_id, same.source == moved.source, same.url == moved.url)
        .where(same.amount == moved.amount, same.currency == moved.currency)
        .group_by(moved.id, moved.kind)
    )
    rows = (await connection.execute(query)).all()
    again = sum(row.kind == PriceKind.SOLD or row.latest_at > first.at for row in rows)
    return bool(again * 2 > len(rows))


_SURE: Final = 2
"""An offer that was seen this often needs no second look."""


class AddedWatch(msgspec.Struct, frozen=True, kw_only=True):
    """`added` is False if the same watch existed already."""

    watch: WatchLine
    added: bool


_NAME: Final = func.coalesce(products.c.title, items.c.title, products.c.url).label("title")
_LINES: Final = View(
    WatchLine,
    select(*_WATCH, _NAME, products.c.url)
    .outerjoin(products, products.c.id == price_watches.c.product_id)
    .outerjoin(items, items.c.id == price_watches.c.item_id)
    .where(price_watches.c.state == ACTIVE),
    price_watches.c.id,
    make=partial(_watch_of, record=WatchLine),
)


class WatchStore:
    """All watches of a database."""

    def __init__(self, database: Database, watches: Watches) -> None:
        self._database = database
        self._watches = watches

    async def add(self, request: WatchRequest) -> AddedWatch:
        """Watch from now on, starting from the stored price. The same watch is not added twice."""
        require_valid(request)
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            await _lock_watched(connection, request)
            own = price_watches.c
            query = select(own.id, own.percent, own.target, own.currency).where(
                _watches_of(request), own.kind == request.kind, ~own.automatic
            )
            rows = (await connection.execute(query.order_by(own.id))).all()
            # Compared here and not in SQL: SQLite keeps amounts as text, where 10 and 10.0 differ.
            threshold = (request.percent, request.target, request.currency)
            known = (row.id for row in rows if (row.percent, row.target, row.currency) == threshold)
            watch_id: WatchId | None = next(known, None)
            added = watch_id is None
            if watch_id is None:
                if request.kind is WatchKind.CHANGED:
                    replaced = update(price_watches).where(_watches_of(request), own.automatic)
                    await connection.execute(replaced.values(state=REMOVED))
                adding = insert(price_watches).values(_new_row(request, now)).returning(*_WATCH)
                watch = _watch_of((await connection.execute(adding)).mappings().one(), PriceWatch)
                look, sure = await _read_stored_price(connection, request)
                if look is not None:
                    await self._watches.begin(connection, watch, look, sure=sure, now=now)
                watch_id = watch.id
        return AddedWatch(watch=await self.get(watch_id), added=added)

    async def get(self, watch_id: WatchId) -> WatchLine:
        found = await _LINES.first(self._database, price_watches.c.id == watch_id)
        if found is None:
            raise WatchNotFound(watch_id)
        return found

    async def remove(self, watch_id: WatchId) -> WatchLine:
        """Remove a watch. An automatic one comes from a setting and cannot be removed by itself."""
        line = await self.get(watch_id)
        if line.automatic:
            raise BadWatch(f"{watch_id} exists because `price_watch_percent` is set; unset it, or keep the watch")
        # The state guards it: of two removals at once, the second finds nothing left to remove.
        removing = update(price_watches).where(price_watches.c.id == watch_id, price_watches.c.state == ACTIVE)
        async with self._database.transaction() as connection:
            if (await connection.execute(removing.values(state=REMOVED))).rowcount == 0:
                raise WatchNotFound(watch_id)
        return line

    async def page(
        self,
        *,
        product_id: ProductId | None = None,
        item_id: ItemId | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> ListPage[WatchLine]:
        """The newest first."""
        own = price_watches.c
        pairs = ((own.product_id, product_id), (own.item_id, item_id))
        conditions = [column == value for column, value in pairs if value is not None]
        return await _LINES.page(self._database, *conditions, after=after, limit=limit)


async def _lock_watched(connection: AsyncConnection, request: WatchRequest) -> None:
    """Lock the item or product: of two equal requests at once, the second then finds the watch of the first."""
    if request.product_id is not None:
        # With `key_share`, rows that refer to the locked one can still be written meanwhile.
        query = select(products.c.id).where(products.c.id == request.product_id).with_for_update(key_share=True)
        if (await connection.execute(query)).first() is None:
            raise ProductNotFound(str(request.product_id))
        return
    state = select(items.c.state).where(items.c.id == request.item_id).with_for_update(key_share=True)
    found = (await connection.execute(state)).scalar()
    if found is None or found == ItemState.REMOVED:
        raise ItemNotFound(request.item_id or 0, removed=found is not None)


async def _read_stored_price(connection: AsyncConnection, request: WatchRequest) -> tuple[Observation | None, bool]:
    """The stored price, and whether it was seen more than once."""
    if request.product_id is not None:
        columns = [offers.c[name] for name in ("amount", "currency", "availability", "link_id", "times_seen")]
        query = (
            select(*columns, offers.c.last_seen_at.label("at"))
            .join(products, products.c.offer_id == offers.c.id)
            .where(products.c.id == request.product_id)
        )
        row = (await connection.execute(query)).mappings().first()
        return (record_of(Observation, row), row["times_seen"] >= _SURE) if row else (None, False)
    assert request.item_id is not None  # noqa: S101 (it was validated: one of the two is set)
    valuation = (await current_valuations(connection, [request.item_id])).get(request.item_id)
    if valuation is None:
        return None, False
    valued_at = select(valuations.c.valued_at).where(valuations.c.item_id == request.item_id)
    at = (await connection.execute(valued_at)).scalar_one()
    return observe_valuation(valuation, None, source=None, at=at), False
