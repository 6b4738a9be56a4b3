"""What somebody does with items: has them followed, changes them, and has their prices asked for now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from mistnet.governor.model import SourceName
from mistnet.kit.errors import did_you_mean
from mistnet.prices.errors import BadItem, ItemNotFound
from mistnet.prices.item_validation import fields_of, item_request_of, name_of
from mistnet.prices.model import Item, ItemId, ItemRequest, ItemState, PointId, Valuation
from mistnet.prices.store.item_pages import ItemLine, WorthThen
from mistnet.prices.store.items import Items, StoredItem
from mistnet.prices.store.valuations import CurrentValuation, LookLine, PastValuation, PointLine, PointVersion
from mistnet.queue.model import Enqueued
from mistnet.shops.store.links import LinkWriter

if TYPE_CHECKING:
    from mistnet.app import App


def items_of(app: App) -> Items:
    """The items of an app: the pages that belong to them are crawled where their lanes are."""
    return Items(app.database, LinkWriter(app.job_writer, app.crawling.lanes))


def sources_of(app: App) -> Sequence[SourceName]:
    """Those that can be asked for prices here."""
    return sorted(app.valuing.by_name)


async def known_item(app: App, item_id: ItemId, *, removed: bool = False) -> Item:
    """With `removed`, also one that is not followed any more."""
    found = await items_of(app).get(item_id)
    if found is None or (found.state is ItemState.REMOVED and not removed):
        raise ItemNotFound(item_id, removed=found is not None)
    return found


async def change_item(app: App, item_id: ItemId, changes: Mapping[str, Any]) -> tuple[Item, StoredItem]:
    """What is named changes, None takes it away. Attributes change one by one."""
    before = await known_item(app, item_id)
    request = changed_item_request(before, changes, sources=sources_of(app))
    kept = await items_of(app).change(item_id, request, app.database.clock.now())
    return await known_item(app, item_id), kept


def changed_item_request(item: Item, changes: Mapping[str, Any], *, sources: Sequence[SourceName]) -> ItemRequest:
    """A source that the item has and this machine has not may stay."""
    attributes = dict(item.attributes)
    for name, value in (changes.get("attributes") or {}).items():
        attributes[name_of(name)] = value
    after = {**fields_of(item), **changes, "attributes": attributes}
    return item_request_of(after, sources={*sources, *item.sources})


def named_sources(app: App, names: Sequence[str]) -> Sequence[SourceName]:
    """Sources somebody names to be asked; none named are all."""
    known = sources_of(app)
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none are set up here"
            guess = did_you_mean(name.lower(), known)
            raise BadItem([("source", name, f"there is no such source.{guess} Sources that serve items: {listed}")])
    return [SourceName(name) for name in dict.fromkeys(names)]


async def ask_now(app: App, item_ids: Sequence[ItemId], names: Sequence[str] = ()) -> Enqueued:
    """Makes the jobs that ask. One that is under way already is joined."""
    wanted = named_sources(app, names)
    for item_id in item_ids:
        found = await known_item(app, item_id)
        if found.state is ItemState.PAUSED:
            raise BadItem([("item", str(item_id), f"it is paused; `mistnet items resume {item_id}` first")])
    return await app.valuing.ask(item_ids, wanted or None, app.job_writer)


class Bearing(msgspec.Struct, frozen=True, kw_only=True):
    """What a valuation makes of a point: its share of the weight, or why it is left out; its amount there."""

    weight: float | None = None
    why: str | None = None
    amount: Decimal | None = None
    rate: str | None = None


class Bearings:
    """Of all points a valuation names, and of those whose own doubt tells why they do not count."""

    def __init__(self, valuation: Valuation | None) -> None:
        carriers = valuation.carriers if valuation else ()
        left_out = valuation.left_out if valuation else ()
        self._named: Mapping[PointId, Bearing] = {
            **{each.point_id: Bearing(why=each.why, amount=each.amount) for each in left_out},
            **{each.point_id: Bearing(weight=each.weight, amount=each.amount, rate=each.rate) for each in carriers},
        }

    def of(self, point: PointLine) -> Bearing:
        return self._named.get(point.id) or Bearing(why=point.doubt)


def item_fields(item: Item) -> dict[str, Any]:
    told = {name: getattr(item, name) for name in item.__struct_fields__}
    return {**told, "id": str(item.id)}


def line_fields(line: ItemLine) -> dict[str, Any]:
    """An item of a list."""
    return {
        **item_fields(line.item),
        "next_look_at": line.next_look_at,
        "worth": None if line.worth is None else _exact(line.worth),
        "earlier": None if line.earlier is None else _exact(line.earlier),
        "change": line.change,
    }


def valuation_fields(valuation: CurrentValuation | None) -> dict[str, Any] | None:
    """With the points it rests on and those it leaves out."""
    if valuation is None:
        return None
    named = {
        "carriers": [_named(each) for each in valuation.carriers],
        "left_out": [_named(each) for each in valuation.left_out],
    }
    place = {"id": str(valuation.id)} if isinstance(valuation, PastValuation) else {}
    return {**_exact(valuation), **place, **named}


def worth_fields(worth: WorthThen) -> dict[str, Any]:
    return _exact(worth)


def point_fields(point: PointLine, bearing: Bearing) -> dict[str, Any]:
    ids = {name: _text(getattr(point, name)) for name in ("id", "product_id", "offer_id")}
    told = {name: value for name, value in _exact(point).items() if name != "item_id"}
    return {**told, **ids, "weight": bearing.weight, "left_out": bearing.why, "rate": bearing.rate}


def version_fields(version: PointVersion) -> dict[str, Any]:
    return {name: value for name, value in _exact(version).items() if name != "point_id"}


def look_fields(looks: Sequence[LookLine]) -> list[dict[str, Any]]:
    return [{name: getattr(each, name) for name in each.__struct_fields__ if name != "item_id"} for each in looks]


def _named(each: msgspec.Struct) -> dict[str, Any]:
    told = _exact(each)
    return {**told, "point_id": str(told["point_id"])}


def _exact(value: msgspec.Struct) -> dict[str, Any]:
    told = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: f"{each:f}" if isinstance(each, Decimal) else each for name, each in told.items()}


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
