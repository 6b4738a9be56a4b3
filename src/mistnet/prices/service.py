"""What an operator can do with items: add, change and show them, and have their prices fetched now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mistnet.governor.model import SourceName
from mistnet.kit.errors import did_you_mean
from mistnet.kit.view import ListPage
from mistnet.prices.item_validation import fields_of, item_request_of, name_of
from mistnet.prices.model import (
    BadItem,
    Item,
    ItemId,
    ItemLine,
    ItemNotFound,
    ItemPoint,
    ItemState,
    PointFilter,
    PointLine,
    Valuation,
    WholeItem,
)
from mistnet.prices.store.crawled_prices import OfferFollowers
from mistnet.prices.store.item_listing import ItemListing
from mistnet.prices.store.items import Items, StoredItem
from mistnet.prices.store.valuations import Valuations
from mistnet.prices.store.watches import Watches
from mistnet.queue.model import Enqueued
from mistnet.shops.store.corrections import Correction, CorrectionPages, DoubtedOffer, write_correction
from mistnet.shops.store.links import LinkWriter

if TYPE_CHECKING:
    from mistnet.app import App


def items_of(app: App) -> Items:
    """The items of an app, whose pages are crawled in its lanes."""
    return Items(app.database, LinkWriter(app.job_writer, app.crawling.lanes))


async def correct_offer(app: App, wanted: Correction) -> DoubtedOffer:
    """Correct an offer by hand, and value the items again that rest on it. Watches hear of it at the next visit."""
    followers, now = OfferFollowers(Watches.from_settings(app.settings, app.job_writer)), app.database.clock.now()
    async with app.database.transaction() as connection:
        product_id = await write_correction(connection, wanted, now)
        await followers.push(connection, product_id, now, cached=True)
    return await CorrectionPages(app.database).offer(wanted.offer_id)


def sources_of(app: App) -> Sequence[SourceName]:
    """The price sources that are set up here."""
    return sorted(app.valuing.by_name)


async def known_item(app: App, item_id: ItemId) -> Item:
    """An item that was not removed."""
    found = await items_of(app).get(item_id)
    if found is None or found.state is ItemState.REMOVED:
        raise ItemNotFound(item_id, removed=found is not None)
    return found


async def item_line(app: App, item_id: ItemId) -> ItemLine:
    """An item with its valuation. A removed one is found too: its points are kept."""
    found = await ItemListing(app.database).one(item_id)
    if found is None:
        raise ItemNotFound(item_id)
    return found


async def whole_item(app: App, item_id: ItemId) -> WholeItem:
    line, valuations = await item_line(app, item_id), Valuations(app.database)
    valuation = (await valuations.current([item_id])).get(item_id)
    fetches = await valuations.fetches(item_id)
    return WholeItem(**msgspec.structs.asdict(line), valuation=valuation, looks=fetches)


async def item_points(
    app: App, item_id: ItemId, filters: PointFilter, *, after: int | None, limit: int
) -> ListPage[ItemPoint]:
    """The points of an item with their part in its valuation, those that were found last first."""
    valuations = Valuations(app.database)
    page = await valuations.points(item_id, filters, after=after, limit=limit)
    valuation = (await valuations.current([item_id])).get(item_id)
    return ListPage(items=weigh_points(page.items, valuation), next=page.next)


def weigh_points(points: Sequence[PointLine], valuation: Valuation | None) -> Sequence[ItemPoint]:
    """Points with their part in a valuation. It names those that matter most; of others the doubt is known."""
    carriers = {each.point_id: each for each in valuation.carriers} if valuation else {}
    left_out = {each.point_id: each for each in valuation.left_out} if valuation else {}
    weighed = []
    for point in points:
        carrier, omission = carriers.get(point.id), left_out.get(point.id)
        named = carrier or omission
        item_point = ItemPoint(
            **msgspec.structs.asdict(point),
            weight=carrier.weight if carrier else None,
            left_out=None if carrier else omission.why if omission else point.doubt,
            rate=carrier.rate if carrier else None,
            converted=named.amount if named else None,
        )
        weighed.append(item_point)
    return weighed


async def change_item(app: App, item_id: ItemId, changes: Mapping[str, Any]) -> tuple[Item, StoredItem]:
    """Change the named fields; None clears a field. Attributes change one by one."""
    item = await known_item(app, item_id)
    attributes = dict(item.attributes)
    for name, value in (changes.get("attributes") or {}).items():
        attributes[name_of(name)] = value
    after = {**fields_of(item), **changes, "attributes": attributes}
    # A source that the item names may stay, even if it is not set up on this machine.
    request = item_request_of(after, sources={*sources_of(app), *item.sources})
    kept = await items_of(app).change(item_id, request, app.database.clock.now())
    return await known_item(app, item_id), kept


async def fetch_now(app: App, item_ids: Sequence[ItemId], names: Sequence[str] = ()) -> Enqueued:
    """Enqueue fetches from the named sources, or from all. Fetches that are already enqueued count as duplicates."""
    known = sources_of(app)
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none are set up here"
            guess = did_you_mean(name.lower(), known)
            raise BadItem([("source", name, f"there is no such source.{guess} Sources that serve items: {listed}")])
    sources = [SourceName(name) for name in dict.fromkeys(names)]
    for item_id in item_ids:
        found = await known_item(app, item_id)
        if found.state is ItemState.PAUSED:
            raise BadItem([("item", str(item_id), f"it is paused; `mistnet items resume {item_id}` first")])
    return await app.valuing.ask(item_ids, sources or None, app.job_writer)
