"""Stores items, each once; changes, pauses and removes them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import bindparam, delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.kit.database import Database
from mistnet.kit.view import columns_of, record_of
from mistnet.prices.matching import page_names, rematch
from mistnet.prices.model import BadItem, Item, ItemId, ItemNotFound, ItemRequest, ItemState, PointLine
from mistnet.prices.store.valuations import known_points, lock_items, value_items
from mistnet.prices.tables import HAS_NO_REF, HAS_REF, item_links, items, price_points
from mistnet.queue.store.enqueue import JobWriter
from mistnet.shops import links as link_rules
from mistnet.shops.model import LinkTarget, bounded
from mistnet.shops.store.links import LinkWriter
from mistnet.social.store.accounts import slices

_AT_ONCE: Final = 2_000
# Advisory locks go by number, and each purpose needs its own: this is `item` in ASCII.
_NAMING_LOCK: Final = 0x6974656D
_JSON: Final = ("attributes", "exclude", "sources", "urls")
_Key: TypeAlias = tuple[bool, str]
"""What identifies a request: its ref, or without one the digest of all its fields."""

ITEM: Final = columns_of(Item, items)


class ItemOutcome(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    SAME = "same"


class StoredItem(msgspec.Struct, frozen=True, kw_only=True):
    """The item that a request led to."""

    item_id: ItemId
    outcome: ItemOutcome


class Items:
    """All items. Without a link writer, the pages that items name are stored and not crawled."""

    def __init__(self, database: Database, links: LinkWriter | None = None) -> None:
        self._database = database
        self._links = links or LinkWriter(JobWriter({}), ())

    async def add(self, requests: Sequence[ItemRequest], now: datetime) -> Sequence[StoredItem]:
        """All or none, in one transaction. A known ref changes its item, if the request differs from it."""
        kept: dict[int, StoredItem] = {}
        # Places by key. A key that comes again goes to the next wave, as if it had been sent later.
        waves: list[dict[_Key, int]] = []
        times = Counter[_Key]()
        for place, key in enumerate(map(_key, requests)):
            if times[key] == len(waves):
                waves.append({})
            waves[times[key]][key] = place
            times[key] += 1
        async with self._database.transaction() as connection:
            await _lock_names(connection)
            for wave in waves:
                done = await _keep(connection, {key: requests[place] for key, place in wave.items()}, now)
                kept |= {wave[key]: each for key, each in done.items()}
            new = {
                each.item_id: requests[place] for place, each in kept.items() if each.outcome is not ItemOutcome.SAME
            }
            await self._ensure_links(connection, new, now)
        return [kept[place] for place in range(len(requests))]

    async def get(self, item_id: ItemId) -> Item | None:
        """An item, removed or not."""
        async with self._database.read_quickly() as connection:
            row = (await connection.execute(select(*ITEM).where(items.c.id == item_id))).mappings().first()
        return record_of(Item, row) if row else None

    async def some(self, item_ids: Sequence[ItemId]) -> Mapping[ItemId, Item]:
        """Those of these items that exist."""
        ids = sorted(set(item_ids))
        rows = await self._database.fetch_rows(select(*ITEM).where(items.c.id.in_(ids))) if ids else []
        return {row["id"]: record_of(Item, row) for row in rows}

    async def change(self, item_id: ItemId, request: ItemRequest, now: datetime) -> StoredItem:
        """Make an item what this request says. If that is a change, its prices are fetched again."""
        async with self._database.transaction() as connection:
            await _lock_names(connection)
            # After the lock of names, as in `add`: the other order could deadlock with it.
            before, digest = await _lock_item(connection, item_id)
            if (before.ref, digest) == (request.ref, digest_of(request)):
                return StoredItem(item_id=item_id, outcome=ItemOutcome.SAME)
            known = await _find_known(connection, [_key(request)])
            other = next((found for found, _ in known.values() if found != item_id), None)
            if other is not None and request.ref is not None:
                raise BadItem([("ref", request.ref, f"item {other} has it; choose another, or change that item")])
            if other is not None:
                problem = f"item {other} has the same fields; give this one a ref to keep both"
                raise BadItem([("title", request.title, problem)])
            await _update(connection, {item_id: request}, now)
            await self._ensure_links(connection, {item_id: request}, now)
        return StoredItem(item_id=item_id, outcome=ItemOutcome.CHANGED)

    async def set_state(self, item_id: ItemId, state: ItemState, now: datetime) -> tuple[Item, bool]:
        """The item, and whether this changed it. A removed item cannot come back; its points are kept."""
        async with self._database.transaction() as connection:
            before, _ = await _lock_item(connection, item_id)
            if before.state is state:
                return before, False
            due = {"next_look_at": now} if state is ItemState.ACTIVE else {}
            changed = update(items).where(items.c.id == item_id).values(state=state, changed_at=now, **due)
            await connection.execute(changed)
        return msgspec.structs.replace(before, state=state, changed_at=now), True

    async def _ensure_links(
        self, connection: AsyncConnection, requests: Mapping[ItemId, ItemRequest], now: datetime
    ) -> None:
        """Connect items with the pages they name: an offer that is read there becomes a point of the item."""
        targets: dict[ItemId, dict[str, LinkTarget]] = {}
        for item_id, request in requests.items():
            named = ((url, link_rules.canonical_link(url)) for url in request.urls)
            targets[item_id] = {
                bounded(name.url_norm): LinkTarget(url=url, canonical=name)
                for url, name in named
                if not isinstance(name, link_rules.RefusedUrl)
            }
        every = {name: target for own in targets.values() for name, target in own.items()}
        link_ids = await self._links.ensure(connection, every, now) if every else {}
        # Replaced as a whole: a page that an item no longer names must bring it no more prices.
        for part in slices(sorted(requests)):
            await connection.execute(delete(item_links).where(item_links.c.item_id.in_(part)))
        rows = {(link_ids[name], item_id) for item_id, own in targets.items() for name in own}
        if rows:
            pairs = [{"link_id": link_id, "item_id": item_id} for link_id, item_id in sorted(rows)]
            await connection.execute(insert(item_links), pairs)


def digest_of(request: ItemRequest) -> str:
    """A hash of all fields but the ref. The order of attributes, excluded words and sources does not count."""
    every = None if request.every_hours is None else float(request.every_hours)
    lists = (
        sorted(request.attributes.items()),
        sorted(request.exclude),
        sorted(request.sources),
        list(request.urls),
    )
    return hashlib.sha256(msgspec.json.encode((request.title, *lists, request.currency, every))).hexdigest()[:32]


def _key(request: ItemRequest) -> _Key:
    return (False, digest_of(request)) if request.ref is None else (True, request.ref)


async def _keep(
    connection: AsyncConnection, requests: Mapping[_Key, ItemRequest], now: datetime
) -> Mapping[_Key, StoredItem]:
    known = await _find_known(connection, requests)
    new = {"state": ItemState.ACTIVE, "added_at": now, "changed_at": now, "next_look_at": now}
    values = [{**_row(request), **new} for key, request in requests.items() if key not in known]
    rows = await connection.execute(_ADD, values) if values else ()
    added = {(row.ref is not None, row.ref or row.digest): ItemId(row.id) for row in rows}
    changed = {key: item_id for key, (item_id, digest) in known.items() if digest != digest_of(requests[key])}
    await _update(connection, {item_id: requests[key] for key, item_id in changed.items()}, now)
    outcomes = {
        **dict.fromkeys(known, ItemOutcome.SAME),
        **dict.fromkeys(changed, ItemOutcome.CHANGED),
        **dict.fromkeys(added, ItemOutcome.ADDED),
    }
    ids = {**{key: item_id for key, (item_id, _) in known.items()}, **added}
    return {key: StoredItem(item_id=ids[key], outcome=outcome) for key, outcome in outcomes.items()}


async def _find_known(connection: AsyncConnection, keys: Iterable[_Key]) -> dict[_Key, tuple[ItemId, str]]:
    """Ids and digests of the stored items with these keys, locked until the end of the transaction."""
    found: dict[_Key, tuple[ItemId, str]] = {}
    given = sorted(keys)
    for has_ref, column, condition in ((True, items.c.ref, HAS_REF), (False, items.c.digest, HAS_NO_REF)):
        named = [name for own, name in given if own is has_ref]
        for start in range(0, len(named), _AT_ONCE):
            query = select(items.c.id, column.label("name"), items.c.digest).where(
                column.in_(named[start : start + _AT_ONCE]), text(condition)
            )
            # In the order of their ids for all writers, or two of them could deadlock.
            rows = await connection.execute(query.order_by(items.c.id).with_for_update())
            found |= {(has_ref, row.name): (ItemId(row.id), row.digest) for row in rows}
    return found


_ADD: Final = insert(items).returning(items.c.id, items.c.ref, items.c.digest)


async def _update(connection: AsyncConnection, requests: Mapping[ItemId, ItemRequest], now: datetime) -> None:
    if not requests:
        return
    changed = {"changed_at": now, "next_look_at": now}
    rows = [{"item": item_id, **_row(request), **changed} for item_id, request in sorted(requests.items())]
    await connection.execute(update(items).where(items.c.id == bindparam("item")), rows)
    # Match all points of changed items again. Those that no longer fit are kept and doubted, so they do not count.
    currencies = await lock_items(connection, requests)
    query = select(*columns_of(PointLine, price_points)).where(price_points.c.item_id.in_(sorted(requests)))
    points = [record_of(PointLine, row) for row in (await connection.execute(query)).mappings()]
    if not points:
        return
    pages = {item_id: page_names(request.urls) for item_id, request in requests.items()}
    matched = [rematch(each, requests[each.item_id], pages[each.item_id]) for each in points]
    moved = [
        {"point": new.id, "strength": new.match_strength, "why": new.doubt}
        for old, new in zip(points, matched, strict=True)
        if new != old
    ]
    if moved:
        await connection.execute(_MOVE, moved)
    touched = {each.item_id: currencies[each.item_id] for each in points}
    await value_items(connection, touched, await known_points(connection, touched), now)


def _row(request: ItemRequest) -> dict[str, Any]:
    return {
        "ref": request.ref,
        "title": request.title,
        **{name: msgspec.json.encode(getattr(request, name)) for name in _JSON},
        "currency": request.currency,
        "every_hours": request.every_hours,
        "digest": digest_of(request),
    }


_MOVE: Final = (
    update(price_points)
    .where(price_points.c.id == bindparam("point"))
    .values(match_strength=bindparam("strength"), doubt=bindparam("why", type_=price_points.c.doubt.type))
)


async def _lock_names(connection: AsyncConnection) -> None:
    """One transaction at a time names items: two that add the same ref would both miss it, and one would fail."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_NAMING_LOCK})"))


async def _lock_item(connection: AsyncConnection, item_id: ItemId) -> tuple[Item, str]:
    """A locked item that was not removed, and its digest."""
    query = select(*ITEM, items.c.digest).where(items.c.id == item_id).with_for_update()
    row = (await connection.execute(query)).mappings().first()
    if row is None or row["state"] == ItemState.REMOVED:
        raise ItemNotFound(item_id, removed=row is not None)
    return record_of(Item, row), row["digest"]
