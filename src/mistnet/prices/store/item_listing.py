"""Lists items with their valuations, now and a month ago, and exports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Interval, Subquery, func, literal, or_, select, text, union_all

from mistnet.governor.model import SourceName
from mistnet.kit.columns import ColumnShape, Field
from mistnet.kit.database import Database, Store
from mistnet.kit.export import Format, Target, export_pages
from mistnet.kit.text import LARGEST_ID
from mistnet.kit.view import ListPage, View, columns_of, record_of
from mistnet.prices.model import (
    KNOWN_ATTRIBUTES,
    PRICE,
    EarlierValuation,
    Item,
    ItemId,
    ItemLine,
    ItemState,
    PastSummary,
    ValuationSummary,
    price_key,
)
from mistnet.prices.store.items import ITEM
from mistnet.prices.tables import HAS_REF, item_looks, items, valuation_history, valuations
from mistnet.queue.tables import LIVE_KEY, jobs
from mistnet.shops.store.link_pages import WINDOW

FIRST_LOOK: Final = timedelta(hours=1)
"""Valuations within this time after the first belong to it: sources are fetched one after another."""

MONTH: Final = timedelta(days=30)
"""The age of the valuation with which the present one is compared."""

_LIVE: Final = (ItemState.ACTIVE, ItemState.PAUSED)
_NOW: Final = {f"worth_{name}": name for name in ValuationSummary.__struct_fields__}
_SUMMARIES: Final = View(PastSummary, select(*columns_of(PastSummary, valuation_history)), valuation_history.c.id)


class ItemFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which items to list. Without a state: all that were not removed."""

    state: ItemState | None = None
    words: str = ""
    ref: str | None = None
    valued: bool | None = None


_ALL: Final = ItemFilter()


class ItemListing(Store):
    """Reads, each by an index."""

    async def page(
        self, filters: ItemFilter = _ALL, *, after: int | None = None, limit: int = 50
    ) -> ListPage[ItemLine]:
        """The newest first. A search by words or valuation reads a window of items, so that a page takes no longer
        for rare words. It may be short and still have a next page."""
        narrowed = bool(filters.words.strip()) or filters.valued is not None
        floor: int | None = None
        if narrowed and filters.ref is None:
            # The last id of the window that is searched; None if all items are in it.
            every = _candidates(msgspec.structs.replace(filters, words="", valued=None), after, WINDOW, None)
            window = select(every.c.id).order_by(every.c.id.desc()).offset(WINDOW - 1).limit(1)
            floor = await self._database.fetch_value(window)
        found = await self._lines(_candidates(filters, after, limit, floor))
        page = ListPage.cut(found, limit, lambda line: line.id)
        return ListPage(items=page.items, next=page.next if page.next is not None else floor)

    async def one(self, item_id: ItemId) -> ItemLine | None:
        """An item, removed or not."""
        found = await self._lines(select(items.c.id).where(items.c.id == item_id).subquery())
        return found[0] if found else None

    async def pending_fetches(self, item_id: ItemId, sources: Sequence[SourceName]) -> int:
        """How many of these sources have a fetch of this item waiting or running."""
        own = jobs.c.key.in_([price_key(item_id, each) for each in sources])
        query = select(func.count()).select_from(jobs).where(jobs.c.kind == PRICE, own, text(LIVE_KEY))
        return int(await self._database.fetch_value(query))

    async def past_summaries(self, item_id: ItemId, *, limit: int) -> Sequence[PastSummary]:
        """The latest valuations, the oldest of them first."""
        rows = await _SUMMARIES.rows(self._database, valuation_history.c.item_id == item_id, limit=limit)
        return rows[::-1]

    async def latest(self) -> tuple[object, ...]:
        """These values change whenever an item, a fetch or a valuation is added."""
        newest_item = select(func.max(items.c.id)).scalar_subquery()
        newest_valuation = select(func.max(valuation_history.c.id)).scalar_subquery()
        newest_fetch = select(item_looks.c.looked_at).order_by(item_looks.c.looked_at.desc()).limit(1).scalar_subquery()
        (row,) = await self._database.fetch_rows(select(newest_item, newest_valuation, newest_fetch))
        return tuple(row.values())

    async def _lines(self, ids: Subquery) -> Sequence[ItemLine]:
        """Valuations are read for the listed items alone."""
        then = self._database.clock.now() - MONTH
        joined = ids.join(items, items.c.id == ids.c.id).outerjoin(valuations, valuations.c.item_id == items.c.id)
        columns = [
            *(*ITEM, items.c.next_look_at),
            *(valuations.c[name].label(label) for label, name in _NOW.items()),
            _earlier_id(self._database.dialect, then).label("earlier_id"),
        ]
        rows = await self._database.fetch_rows(select(*columns).select_from(joined).order_by(items.c.id.desc()))
        earlier: Mapping[int, EarlierValuation] = {}
        if earlier_ids := [row["earlier_id"] for row in rows if row["earlier_id"] is not None]:
            # Read by their keys, apart from the rest: joined, a planner may read the whole history for them.
            past = select(valuation_history.c.id, *columns_of(EarlierValuation, valuation_history))
            found = await self._database.fetch_rows(past.where(valuation_history.c.id.in_(earlier_ids)))
            earlier = {row["id"]: record_of(EarlierValuation, row) for row in found}
        return [_line(row, earlier.get(row["earlier_id"])) for row in rows]


def item_conditions(filters: ItemFilter) -> list[ColumnElement[bool]]:
    """Whether an item passes a filter."""
    return [items.c.state.in_([filters.state] if filters.state else _LIVE), *_searched(filters)]


def _searched(filters: ItemFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if word := filters.words.strip().lower():
        named = [func.lower(each).contains(word, autoescape=True) for each in (items.c.title, items.c.ref)]
        conditions.append(or_(*named))
    if filters.valued is not None:
        known = select(valuations.c.item_id).where(valuations.c.item_id == items.c.id).correlate(items).exists()
        conditions.append(known if filters.valued else ~known)
    return conditions


def _candidates(filters: ItemFilter, after: int | None, limit: int, floor: int | None) -> Subquery:
    """Ids in order. The index is read once for each state, so that no part has to be sorted."""
    narrowed: list[Any] = [items.c.id < (after or LARGEST_ID), *_searched(filters)]
    if filters.ref is not None:
        narrowed.append(items.c.ref == filters.ref)
        if filters.state is not ItemState.REMOVED:
            # The index of refs has this condition: a planner uses it only where the query says the same.
            narrowed.append(text(HAS_REF))
    if floor is not None:
        narrowed.append(items.c.id >= floor)
    parts = [
        select(items.c.id)
        .where(items.c.state == state, *narrowed)
        .order_by(items.c.id.desc())
        .limit(limit + 1)
        .subquery(f"of_{state}")
        for state in ([filters.state] if filters.state else _LIVE)
    ]
    every = union_all(*(select(part.c.id) for part in parts)).subquery("every")
    return select(every.c.id).order_by(every.c.id.desc()).limit(limit + 1).subquery("page")


def _earlier_id(dialect: str, then: datetime) -> ColumnElement[int]:
    """The valuation of that time; for an item without one, the valuation that its first fetches led to."""
    past, first = valuation_history.alias("past"), valuation_history.alias("over")
    own = select(past.c.id).where(past.c.item_id == items.c.id)
    at_that_time = own.where(past.c.valued_at <= then).order_by(past.c.id.desc()).limit(1)
    begun = select(past.c.valued_at).where(past.c.item_id == items.c.id).order_by(past.c.id).limit(1)
    begun_at = begun.correlate(items).scalar_subquery()
    # Relative to a column: PostgreSQL adds an interval, SQLite computes on text.
    seconds = f"+{FIRST_LOOK.total_seconds():g} seconds"
    over_at = (
        begun_at + literal(FIRST_LOOK, Interval())
        if dialect == "postgresql"
        else func.strftime("%Y-%m-%d %H:%M:%f", begun_at, seconds)
    )
    after_first = select(func.max(first.c.id)).where(first.c.item_id == items.c.id, first.c.valued_at <= over_at)
    return func.coalesce(
        at_that_time.correlate(items).scalar_subquery(), after_first.correlate(items).scalar_subquery()
    )


def _line(row: Mapping[Any, Any], earlier: EarlierValuation | None) -> ItemLine:
    item = record_of(Item, row)
    now = {name: row[label] for label, name in _NOW.items()}
    current = ValuationSummary(**now) if now["estimate"] is not None else None
    if current and earlier and earlier.valued_at == current.valued_at:
        earlier = None
    change = None
    if current and earlier and earlier.estimate and current.currency == earlier.currency:
        change = round(float((current.estimate - earlier.estimate) / earlier.estimate), 6)
    return ItemLine(
        **msgspec.structs.asdict(item),
        next_look_at=row["next_look_at"] if item.state is ItemState.ACTIVE else None,
        worth=current,
        earlier=earlier,
        change=change,
    )


_PAGE: Final = 1_000
_VALUATION: Final = ("estimate", "low", "high", "currency", "points", "confidence", "newest_at", "valued_at")
_LISTS: Final = ("attributes", "exclude", "sources", "urls")
_SHAPES: Final = {
    **dict.fromkeys(_LISTS, ColumnShape.JSON),
    **dict.fromkeys(("every_hours", "valuation_confidence"), ColumnShape.REAL),
    "valuation_points": ColumnShape.WHOLE,
    "item_id": ColumnShape.ID,
    **dict.fromkeys(("item_added_at", "item_changed_at", "item_next_look_at"), ColumnShape.TIME),
    **dict.fromkeys(("valuation_newest_at", "valuation_valued_at"), ColumnShape.TIME),
    **dict.fromkeys(("valuation_estimate", "valuation_low", "valuation_high"), ColumnShape.AMOUNT),
}
_NAMES: Final = (
    *("ref", "title", *KNOWN_ATTRIBUTES, *_LISTS, "currency", "every_hours"),
    *(f"item_{name}" for name in ("id", "state", "added_at", "changed_at", "next_look_at")),
    *(f"valuation_{name}" for name in _VALUATION),
)


async def export_items(database: Database, format_: Format, target: Target, *, removed: bool = False) -> int:
    """All items, with `removed` also the removed ones, in the order in which they were added; how many.

    Lists are texts in CSV, their members separated by semicolons, so that an import reads them again.
    """
    is_csv = format_ is Format.CSV
    shapes = {**_SHAPES, **dict.fromkeys(_LISTS, ColumnShape.TEXT)} if is_csv else _SHAPES
    fields = [Field(name, shapes.get(name, ColumnShape.TEXT)) for name in _NAMES]
    conditions = () if removed else (items.c.state != ItemState.REMOVED,)
    rows = (_ITEMS_IN_CELLS if is_csv else _ITEMS_AS_JSON).pages(database, *conditions, size=_PAGE)
    return await export_pages("items", fields, rows, format_, target)


def _row(row: Mapping[Any, Any], *, in_cells: bool) -> list[Any]:
    item = record_of(Item, row)
    free = {name: value for name, value in item.attributes.items() if name not in KNOWN_ATTRIBUTES}
    lists = (item.exclude, item.sources, item.urls)
    written: list[Any] = [msgspec.json.encode(each) for each in (free, *lists)]
    if in_cells:
        # Several URLs stand on lines of their own: a semicolon may be part of one.
        texts = [("\n" if any("://" in each for each in some) else "; ").join(some) for some in lists]
        written = [written[0].decode() if free else None, *(text or None for text in texts)]
    known = [item.attributes.get(name) for name in KNOWN_ATTRIBUTES]
    request = [item.ref, item.title, *known, *written, item.currency, item.every_hours]
    about = [item.id, item.state, item.added_at, item.changed_at, row["next_look_at"]]
    return [*request, *about, *(row[f"valuation_{name}"] for name in _VALUATION)]


_EXPORTED: Final = select(
    *(*ITEM, items.c.next_look_at), *(valuations.c[name].label(f"valuation_{name}") for name in _VALUATION)
).select_from(items.outerjoin(valuations, valuations.c.item_id == items.c.id))
_ITEMS_IN_CELLS, _ITEMS_AS_JSON = (
    View(list, _EXPORTED, items.c.id, descending=False, make=partial(_row, in_cells=in_cells))
    for in_cells in (True, False)
)
