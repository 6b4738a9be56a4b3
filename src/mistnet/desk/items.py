"""What somebody does with items: has them followed, changes them, and has their prices asked for now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mistnet.app import App
from mistnet.desk.wishes import fields_of, name_of, wish_of
from mistnet.domain.errors import BadItem, ItemNotFound, did_you_mean
from mistnet.domain.items import Item, ItemId, ItemState, Wish
from mistnet.domain.jobs import Enqueued
from mistnet.domain.sources import SourceName
from mistnet.store.items import Items, Kept
from mistnet.store.links import LinkWriter


def items_of(app: App) -> Items:
    """The items of an app: the pages that belong to them are crawled where their lanes are."""
    return Items(app.database, LinkWriter(app.job_writer, app.crawling.lanes))


def sources_of(app: App) -> Sequence[SourceName]:
    """Those that can be asked for prices here."""
    return sorted(app.valuing.sources)


async def known_item(app: App, item_id: ItemId, *, removed: bool = False) -> Item:
    """With `removed`, also one that is not followed any more."""
    found = await items_of(app).get(item_id)
    if found is None or (found.state is ItemState.REMOVED and not removed):
        raise ItemNotFound(item_id, removed=found is not None)
    return found


async def change_item(app: App, item_id: ItemId, changes: Mapping[str, Any]) -> tuple[Item, Kept]:
    """What is named changes, None takes it away. Attributes change one by one."""
    before = await known_item(app, item_id)
    wish = changed_wish(before, changes, sources=sources_of(app))
    kept = await items_of(app).change(item_id, wish, app.database.clock.now())
    return await known_item(app, item_id), kept


def changed_wish(item: Item, changes: Mapping[str, Any], *, sources: Sequence[SourceName]) -> Wish:
    """A source that the item has and this machine has not may stay."""
    attributes = dict(item.attributes)
    for name, value in (changes.get("attributes") or {}).items():
        attributes[name_of(name)] = value
    after = {**fields_of(item), **changes, "attributes": attributes}
    return wish_of(after, sources={*sources, *item.sources})


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
