"""Price watches at work: called in the transactions that write offers and valuations, and told with them or not at all.

Only looks that came to a price arrive here. A fetch that failed, a wall, a doubted offer, a page without a price or a
thing that is gone never does, so none of them is a change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.crawling import content_hash
from mistnet.domain.events import NewEvent
from mistnet.domain.items import ItemId, PointId, Valuation
from mistnet.domain.links import LinkId
from mistnet.domain.price_news import payload, subject
from mistnet.domain.products import PageFacts, PriceKind, ProductId
from mistnet.domain.watches import (
    Cleared,
    Kept,
    Look,
    Settled,
    Suspected,
    Suspended,
    Suspicion,
    Verdict,
    Wanted,
    Watch,
    WatchKind,
    judge,
    lost,
    told,
)
from mistnet.store.enqueue import JobWriter
from mistnet.store.events import write_events
from mistnet.store.second_looks import SecondLooks
from mistnet.store.tables import items, price_points, price_watches, products
from mistnet.store.watch_rows import WATCH, known_values, new_row, suspected_values, watch_of, watches_of

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
        look = Look(
            at=now, amount=facts.amount, currency=facts.currency, availability=facts.availability, link_id=link_id
        )
        usual = Wanted(kind=WatchKind.CHANGED, product_id=product_id, percent=self._percent)
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
        usual = Wanted(kind=WatchKind.CHANGED, item_id=item_id, percent=self._percent)
        moved_by: set[PointId] = set()
        for watch in await self._watching(connection, usual, now):
            verdict = await self._judge_valuation(connection, watch, look, after)
            if await _apply(connection, watch, verdict, now) and isinstance(verdict, Suspected):
                moved_by.update(verdict.seen.moved_by or verdict.seen.rests_on)
        if moved_by:
            await self._second.at_sources(connection, item_id, sorted(moved_by), now=now, since=now)

    async def begin(self, connection: AsyncConnection, watch: Watch, look: Look, *, sure: bool, now: datetime) -> None:
        """A watch starts from what is stored. What was seen once only, or is to be told of, is looked at once more."""
        verdict = judge(watch, look, pause=self._pause)
        if isinstance(verdict, Suspected) and sure and told(watch, look) is None:
            verdict = Settled(verdict.seen, look, None)
        if await _apply(connection, watch, verdict, now) and isinstance(verdict, Suspected):
            await self._ask(connection, watch, verdict.seen, now)

    async def _ask(self, connection: AsyncConnection, watch: Watch, seen: Suspicion, now: datetime) -> None:
        if watch.item_id is not None:
            await self._second.at_sources(connection, watch.item_id, seen.rests_on, now=now, since=seen.at)
        elif seen.link_id is not None:
            await self._second.at_page(connection, seen.link_id, seen="", now=now, since=seen.at)

    async def _watching(self, connection: AsyncConnection, usual: Wanted, now: datetime) -> Sequence[Watch]:
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
        self, connection: AsyncConnection, watch: Watch, look: Look, after: Valuation
    ) -> Verdict:
        why = lost(set(watch.known.rests_on), after) if watch.known else None
        if why is not None:
            return Kept() if watch.problem == why else Suspended(why)
        verdict = judge(watch, look, pause=self._pause)
        if isinstance(verdict, Settled) and not await _seen_again(connection, verdict.first):
            return Kept()
        return verdict


def look_at_valuation(after: Valuation, before: Valuation | None, *, source: str | None, at: datetime) -> Look:
    """The points that moved it are those it did not rest on before, or not at that amount."""
    known = {(each.point_id, each.amount) for each in before.carriers} if before else set()
    return Look(
        at=at,
        amount=after.estimate,
        currency=after.currency,
        source=source,
        rests_on=[each.point_id for each in after.carriers],
        moved_by=[each.point_id for each in after.carriers if (each.point_id, each.amount) not in known],
    )


async def _apply(connection: AsyncConnection, watch: Watch, verdict: Verdict, now: datetime) -> bool:
    """Writes down what a look means; answers whether a second one is wanted."""
    match verdict:
        case Suspended(problem):
            await _set(connection, watch, {"problem": problem})
        case Suspected(seen):
            await _set(connection, watch, suspected_values(seen))
        case Cleared(known):
            await _set(connection, watch, known_values(known))
        case Settled():
            await _settle(connection, watch, verdict, now)
        case Kept():
            pass
    return isinstance(verdict, Suspected) and verdict.ask


async def _settle(connection: AsyncConnection, watch: Watch, settled: Settled, now: datetime) -> None:
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


async def _as_set(connection: AsyncConnection, watch: Watch, percent: float) -> Watch:
    """An automatic watch follows the setting."""
    if not watch.automatic or watch.percent == percent:
        return watch
    await _set(connection, watch, {"percent": percent})
    return msgspec.structs.replace(watch, percent=percent)


async def _set(connection: AsyncConnection, watch: Watch, values: dict[str, Any]) -> None:
    await connection.execute(update(price_watches).where(price_watches.c.id == watch.id).values(**values))


async def _about(connection: AsyncConnection, watch: Watch, look: Look) -> dict[str, Any]:
    """What an event's reader wants to know of the thing itself. An item is shown by the listing that weighs most."""
    if watch.product_id is not None:
        columns = (products.c.title, products.c.url, products.c.platform.label("source"))
        asked = select(*columns).where(products.c.id == watch.product_id)
        return dict((await connection.execute(asked)).mappings().one())
    heaviest = select(price_points.c.url).where(price_points.c.id == next(iter(look.rests_on), 0)).scalar_subquery()
    about = select(items.c.title, heaviest.label("url")).where(items.c.id == watch.item_id)
    return dict((await connection.execute(about)).mappings().one())
