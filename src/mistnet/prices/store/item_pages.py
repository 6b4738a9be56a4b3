"""Items as people look at them: a page at a time, each with what it is worth now and what it was a month ago."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Interval, Select, Subquery, func, literal, or_, select, text, union_all

from mistnet.governor.model import SourceName
from mistnet.kit.database import Database
from mistnet.kit.export import ColumnShape, Field, Format, Target, export_pages
from mistnet.kit.view import View
from mistnet.prices.model import KNOWN_ATTRIBUTES, PRICE, Item, ItemId, ItemState, price_key
from mistnet.prices.store.items import read_item
from mistnet.prices.tables import HAS_REF, item_looks, items, valuation_history, valuations
from mistnet.queue.tables import LIVE_KEY, jobs
from mistnet.shops.store.link_pages import WINDOW

LARGEST_ID: Final = 2**63 - 1
FIRST_LOOK: Final = timedelta(hours=1)
"""Valuations within this time after the first belong to it: sources are asked one after another."""

MONTH: Final = timedelta(days=30)
"""How far back the valuation is that the present one is compared with."""

_LIVE: Final = (ItemState.ACTIVE, ItemState.PAUSED)
_EARLIER: Final = ("estimate", "currency", "valued_at")


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """A valuation in a list: what it says, not what it rests on."""

    estimate: Decimal
    low: Decimal
    high: Decimal
    currency: str
    points: int
    points_left_out: int
    confidence: float
    newest_at: datetime
    valued_at: datetime


class WorthThen(Worth, frozen=True, kw_only=True):
    """What was said from `valued_at` on. `ended_at`: it was taken back then, and nothing took its place."""

    ended_at: datetime | None


class EarlierValuation(msgspec.Struct, frozen=True, kw_only=True):
    """What an item was worth a month ago, or once its first look was over."""

    estimate: Decimal
    currency: str
    valued_at: datetime


class ItemLine(msgspec.Struct, frozen=True, kw_only=True):
    """One item with its worth, now and earlier. Only what is active has a next look."""

    item: Item
    next_look_at: datetime | None
    worth: Worth | None
    earlier: EarlierValuation | None

    @property
    def change(self) -> float | None:
        """By which share of the earlier estimate the present one differs. Other currencies do not compare."""
        now, then = self.worth, self.earlier
        if now is None or then is None or now.currency != then.currency or not then.estimate:
            return None
        return round(float((now.estimate - then.estimate) / then.estimate), 6)


class ItemFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which items to list. Without a state: all that were not removed."""

    state: ItemState | None = None
    words: str = ""
    ref: str | None = None
    valued: bool | None = None
    before: int | None = None
    limit: int = 50


class ItemPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some items; `next` is the `before` of the page after, None if there is none."""

    items: Sequence[ItemLine]
    next: int | None


class ItemPages:
    """Reads, each by an index and a page at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, wanted: ItemFilter) -> ItemPage:
        """The newest first. Where words are looked for, a page may be short and still have a next."""
        narrowed = bool(wanted.words.strip()) or wanted.valued is not None
        floor = await self._floor(wanted) if narrowed and wanted.ref is None else None
        found = await self._lines(_candidates(wanted, floor))
        shown = found[: wanted.limit]
        return ItemPage(items=shown, next=shown[-1].item.id if len(found) > wanted.limit else floor)

    async def questions(self, item_id: ItemId, sources: Sequence[SourceName]) -> int:
        """How many of these sources are being asked for an item, or will be once a worker is free."""
        own = jobs.c.key.in_([price_key(item_id, each) for each in sources])
        asked = select(func.count()).select_from(jobs).where(jobs.c.kind == PRICE, own, text(LIVE_KEY))
        async with self._database.read() as connection:
            return (await connection.execute(asked)).scalar_one()

    async def one(self, item_id: ItemId) -> ItemLine | None:
        """Also one that was removed."""
        found = await self._lines(select(items.c.id).where(items.c.id == item_id).subquery())
        return found[0] if found else None

    async def course(self, item_id: ItemId, *, limit: int) -> Sequence[WorthThen]:
        """The latest valuations without the points they name, the oldest of them first."""
        own = valuation_history.c
        asked = select(*(own[name] for name in WorthThen.__struct_fields__)).where(own.item_id == item_id)
        rows = await self._rows(asked.order_by(own.id.desc()).limit(limit))
        return [WorthThen(**row) for row in reversed(rows)]

    async def latest(self) -> tuple[object, ...]:
        """Other values mean that an item, a look or a valuation came meanwhile."""
        newest_item = select(func.max(items.c.id)).scalar_subquery()
        newest_worth = select(func.max(valuation_history.c.id)).scalar_subquery()
        newest_look = select(item_looks.c.looked_at).order_by(item_looks.c.looked_at.desc()).limit(1).scalar_subquery()
        asked = select(newest_item.label("item"), newest_worth.label("worth"), newest_look.label("look"))
        (row,) = await self._rows(asked)
        return row["item"], row["worth"], row["look"]

    async def _floor(self, wanted: ItemFilter) -> int | None:
        """Where the window of what is looked through ends; None if all is in it."""
        every = _candidates(msgspec.structs.replace(wanted, words="", valued=None, limit=WINDOW), None)
        rows = await self._rows(select(every.c.id).order_by(every.c.id.desc()).offset(WINDOW - 1).limit(1))
        return rows[0]["id"] if rows else None

    async def _lines(self, ids: Subquery) -> Sequence[ItemLine]:
        """What is shown is looked up for the few that are."""
        then = self._database.clock.now() - MONTH
        joined = ids.join(items, items.c.id == ids.c.id).outerjoin(valuations, valuations.c.item_id == items.c.id)
        columns = [
            *(items.c[name] for name in (*Item.__struct_fields__, "next_look_at")),
            *(valuations.c[name].label(f"worth_{name}") for name in Worth.__struct_fields__),
            _earlier_id(self._database.dialect, then).label("earlier_id"),
        ]
        rows = await self._rows(select(*columns).select_from(joined).order_by(items.c.id.desc()))
        earlier = await self._earlier([row["earlier_id"] for row in rows if row["earlier_id"] is not None])
        return [_line(row, earlier.get(row["earlier_id"])) for row in rows]

    async def _earlier(self, history_ids: Sequence[int]) -> Mapping[int, EarlierValuation]:
        """By their keys, apart from the rest: joined, a planner may read the whole history for them."""
        if not history_ids:
            return {}
        own = valuation_history.c
        rows = await self._rows(select(own.id, *(own[name] for name in _EARLIER)).where(own.id.in_(history_ids)))
        return {row["id"]: EarlierValuation(**{name: row[name] for name in _EARLIER}) for row in rows}

    async def _rows(self, asked: Select[Any]) -> Sequence[Any]:
        async with self._database.read() as connection:
            return list((await connection.execute(asked)).mappings())


def _candidates(wanted: ItemFilter, floor: int | None) -> Subquery:
    """Ids in order. The index is read once for each state: each part is in order."""
    limit = wanted.limit + 1
    narrowed = [items.c.id < (wanted.before or LARGEST_ID), *_named(wanted), *_valued_or_not(wanted.valued)]
    if floor is not None:
        narrowed.append(items.c.id >= floor)
    parts = [
        select(items.c.id)
        .where(items.c.state == state, *narrowed)
        .order_by(items.c.id.desc())
        .limit(limit)
        .subquery(f"of_{state}")
        for state in ([wanted.state] if wanted.state else _LIVE)
    ]
    every = union_all(*(select(part.c.id) for part in parts)).subquery("every")
    return select(every.c.id).order_by(every.c.id.desc()).limit(limit).subquery("page")


def _named(wanted: ItemFilter) -> list[ColumnElement[bool]]:
    word = wanted.words.strip().lower()
    named = [func.lower(column).contains(word, autoescape=True) for column in (items.c.title, items.c.ref)]
    by_words = [or_(*named)] if word else []
    if wanted.ref is None:
        return by_words
    live = [text(HAS_REF)] if wanted.state is not ItemState.REMOVED else []
    return [items.c.ref == wanted.ref, *live, *by_words]  # type: ignore[list-item]  # text is a condition as well


def _valued_or_not(valued: bool | None) -> list[ColumnElement[bool]]:
    if valued is None:
        return []
    known = select(valuations.c.item_id).where(valuations.c.item_id == items.c.id).correlate(items).exists()
    return [known if valued else ~known]


def _earlier_id(dialect: str, then: datetime) -> ColumnElement[int]:
    """The valuation that stood then; of an item that had none yet, the one its first look ended with."""
    past = valuation_history.alias("past")
    stood = (
        select(past.c.id)
        .where(past.c.item_id == items.c.id, past.c.valued_at <= then)
        .order_by(past.c.id.desc())
        .limit(1)
        .correlate(items)
        .scalar_subquery()
    )
    begun = (
        select(past.c.valued_at)
        .where(past.c.item_id == items.c.id)
        .order_by(past.c.id)
        .limit(1)
        .correlate(items)
        .scalar_subquery()
    )
    over = valuation_history.alias("over")
    first = (
        select(func.max(over.c.id))
        .where(over.c.item_id == items.c.id, over.c.valued_at <= _later(dialect, begun, FIRST_LOOK))
        .correlate(items)
        .scalar_subquery()
    )
    return func.coalesce(stood, first)


def _later(dialect: str, moment: ColumnElement[Any], by: timedelta) -> ColumnElement[Any]:
    if dialect == "postgresql":
        return moment + literal(by, Interval())
    return func.strftime("%Y-%m-%d %H:%M:%f", moment, f"+{by.total_seconds():g} seconds")


def _line(row: Any, earlier: EarlierValuation | None) -> ItemLine:
    worth = {name: row[f"worth_{name}"] for name in Worth.__struct_fields__}
    item = read_item(row)
    return ItemLine(
        item=item,
        next_look_at=row["next_look_at"] if item.state is ItemState.ACTIVE else None,
        worth=Worth(**worth) if worth["estimate"] is not None else None,
        earlier=earlier if earlier and earlier.valued_at != worth["valued_at"] else None,
    )


_PAGE: Final = 1_000
_VALUATION: Final = ("estimate", "low", "high", "currency", "points", "confidence", "newest_at", "valued_at")
_ITEM: Final = ("id", "state", "added_at", "changed_at", "next_look_at")
_LISTS: Final = ("attributes", "exclude", "sources", "urls")
_SHAPES: Final = {
    **dict.fromkeys(_LISTS, ColumnShape.JSON),
    **dict.fromkeys(("every_hours", "valuation_confidence"), ColumnShape.REAL),
    "valuation_points": ColumnShape.WHOLE,
}
_NAMES: Final = (
    *("ref", "title", *KNOWN_ATTRIBUTES, "attributes", "exclude", "sources", "urls", "currency", "every_hours"),
    *(f"item_{name}" for name in _ITEM),
    *(f"valuation_{name}" for name in _VALUATION),
)


async def export_items(database: Database, format_: Format, target: Target, *, removed: bool = False) -> int:
    """All items, with `removed` also the removed ones, in the order in which they were added; how many.

    Lists are texts in CSV, their members separated by semicolons, so that an import reads them again.
    """
    is_csv = format_ is Format.CSV
    fields = [
        Field(name, ColumnShape.TEXT if is_csv and name in _LISTS else _SHAPES.get(name, ColumnShape.TEXT))
        for name in _NAMES
    ]
    conditions = () if removed else (items.c.state != ItemState.REMOVED,)
    rows = (_ITEMS_IN_CELLS if is_csv else _ITEMS_AS_JSON).pages(database, *conditions, size=_PAGE)
    return await export_pages("items", fields, rows, format_, target)


def _row(row: Mapping[Any, Any], write_list: Callable[[Any], Any]) -> list[Any]:
    item = read_item(row)
    free = {name: value for name, value in item.attributes.items() if name not in KNOWN_ATTRIBUTES}
    lists = [write_list(list(each)) for each in (item.exclude, item.sources, item.urls)]
    known = [item.attributes.get(name) for name in KNOWN_ATTRIBUTES]
    request = [item.ref, item.title, *known, write_list(free), *lists, item.currency, item.every_hours]
    about = [item.id, item.state, item.added_at, item.changed_at, row["next_look_at"]]
    return [*request, *about, *(row[f"valuation_{name}"] for name in _VALUATION)]


def _in_cells(value: Any) -> str | None:
    """Several URLs stand on lines of their own: a semicolon may be part of one."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode() if value else None
    return ("\n".join(value) if any("://" in each for each in value) else "; ".join(value)) or None


_EXPORTED: Final = select(
    *(items.c[name] for name in (*Item.__struct_fields__, "next_look_at")),
    *(valuations.c[name].label(f"valuation_{name}") for name in _VALUATION),
).select_from(items.outerjoin(valuations, valuations.c.item_id == items.c.id))
_ITEMS_IN_CELLS, _ITEMS_AS_JSON = (
    View(list, _EXPORTED, items.c.id, descending=False, make=partial(_row, write_list=write_list))
    for write_list in (_in_cells, msgspec.json.encode)
)
