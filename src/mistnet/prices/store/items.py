"""Items as somebody wants them: kept once each, changed, paused, removed; and which of them are due for a look."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import RowMapping, bindparam, delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.governor.model import SourceName
from mistnet.kit.database import Database
from mistnet.prices.errors import BadItem, ItemNotFound
from mistnet.prices.model import Item, ItemId, ItemRequest, ItemState
from mistnet.prices.store.revaluing import rematch
from mistnet.prices.tables import FOLLOWED, HAS_NO_REF, HAS_REF, item_links, item_looks, items
from mistnet.queue.store.enqueue import JobWriter
from mistnet.shops import links as link_rules
from mistnet.shops.model import LinkTarget, bounded
from mistnet.shops.store.links import LinkWriter
from mistnet.social.store.account_jobs import slices

AT_ONCE: Final = 500
"""So many items are found due at a time."""

_LISTED: Final = 2_000
_NAMING_LOCK: Final = 0x6974656D  # items are named one at a time, so that nobody takes a ref that was just taken
_FIELDS: Final = Item.__struct_fields__
_JSON: Final = ("attributes", "exclude", "sources", "urls")
_Key: TypeAlias = tuple[bool, str]
"""What makes a wish one that is kept already: its ref, or without one all that it says."""


class ItemOutcome(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    SAME = "same"


class StoredItem(msgspec.Struct, frozen=True, kw_only=True):
    """The item that a wish became, or was already."""

    item_id: ItemId
    outcome: ItemOutcome


class Items:
    """Without a writer of links those of items are written down, and nobody visits them."""

    def __init__(self, database: Database, links: LinkWriter | None = None) -> None:
        self._database = database
        self._links = links or LinkWriter(JobWriter({}), ())

    async def add(self, requests: Sequence[ItemRequest], now: datetime) -> Sequence[StoredItem]:
        """All or none, in one transaction. A ref that is known changes its item, if the wish says anything new."""
        kept: dict[int, StoredItem] = {}
        async with self._database.transaction() as connection:
            await _one_at_a_time(connection)
            for wave in _waves(requests):
                done = await _keep(connection, {key: requests[place] for key, place in wave.items()}, now)
                kept |= {wave[key]: each for key, each in done.items()}
            new = {
                each.item_id: requests[place] for place, each in kept.items() if each.outcome is not ItemOutcome.SAME
            }
            await self._ensure_links(connection, new, now)
        return [kept[place] for place in range(len(requests))]

    async def get(self, item_id: ItemId) -> Item | None:
        """Also one that was removed."""
        asked = select(*(items.c[name] for name in _FIELDS)).where(items.c.id == item_id)
        async with self._database.read_quickly() as connection:
            row = (await connection.execute(asked)).mappings().first()
        return read_item(row) if row else None

    async def some(self, item_ids: Sequence[ItemId]) -> Mapping[ItemId, Item]:
        """Those of these that there are."""
        if not item_ids:
            return {}
        asked = select(*(items.c[name] for name in _FIELDS)).where(items.c.id.in_(sorted(set(item_ids))))
        async with self._database.read() as connection:
            return {row["id"]: read_item(row) for row in (await connection.execute(asked)).mappings()}

    async def page(self, *, state: ItemState = ItemState.ACTIVE, after: int = 0, limit: int = 200) -> Sequence[Item]:
        """In the order in which they were added; the last id of one page is the `after` of the next."""
        asked = (
            select(*(items.c[name] for name in _FIELDS))
            .where(items.c.state == state, items.c.id > after)
            .order_by(items.c.id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [read_item(row) for row in (await connection.execute(asked)).mappings()]

    async def change(self, item_id: ItemId, request: ItemRequest, now: datetime) -> StoredItem:
        """The item is what this wish says from now on, and is looked at anew if that is something else."""
        async with self._database.transaction() as connection:
            await _one_at_a_time(connection)
            before = await _locked(connection, item_id)
            if (before["ref"], before["digest"]) == (request.ref, digest_of(request)):
                return StoredItem(item_id=item_id, outcome=ItemOutcome.SAME)
            await _require_alone(connection, item_id, request)
            await _update(connection, {item_id: request}, now)
            await self._ensure_links(connection, {item_id: request}, now)
        return StoredItem(item_id=item_id, outcome=ItemOutcome.CHANGED)

    async def set_state(self, item_id: ItemId, state: ItemState, now: datetime) -> tuple[Item, bool]:
        """The item, and whether it was otherwise before. What was removed stays so; its points stay as well."""
        async with self._database.transaction() as connection:
            before = read_item(await _locked(connection, item_id))
            if before.state is state:
                return before, False
            due = {"next_look_at": now} if state is ItemState.ACTIVE else {}
            changed = update(items).where(items.c.id == item_id).values(state=state, changed_at=now, **due)
            await connection.execute(changed)
        return msgspec.structs.replace(before, state=state, changed_at=now), True

    async def _ensure_links(
        self, connection: AsyncConnection, requests: Mapping[ItemId, ItemRequest], now: datetime
    ) -> None:
        """Each item with the links it names: what is read there is its price at once."""
        targets = {item_id: _targets(request) for item_id, request in requests.items()}
        every = {name: target for own in targets.values() for name, target in own.items()}
        link_ids = await self._links.ensure(connection, every, now) if every else {}
        for part in slices(sorted(requests)):
            await connection.execute(delete(item_links).where(item_links.c.item_id.in_(part)))
        rows = {(link_ids[name], item_id) for item_id, own in targets.items() for name in own}
        if rows:
            named = [{"link_id": link_id, "item_id": item_id} for link_id, item_id in sorted(rows)]
            await connection.execute(insert(item_links), named)


def _targets(request: ItemRequest) -> dict[str, LinkTarget]:
    named = ((url, link_rules.canonical_link(url)) for url in request.urls)
    return {
        bounded(name.url_norm): LinkTarget(url=url, canonical=name)
        for url, name in named
        if not isinstance(name, link_rules.RefusedUrl)
    }


async def items_due(
    connection: AsyncConnection, *, now: datetime, default_every: timedelta, sources: Sequence[SourceName]
) -> Sequence[tuple[ItemId, SourceName]]:
    """What is to be asked now, of at most AT_ONCE items: those that waited longest. Their next look is set with it.

    A source that was asked within the last half of an item's rhythm waits for the next round, unless the item has
    changed since. Ask again until there is nothing.
    """
    waited = (
        select(items.c.id, items.c.sources, items.c.every_hours, items.c.changed_at)
        .where(text(FOLLOWED), items.c.next_look_at <= now)
        .order_by(items.c.next_look_at, items.c.id)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True, key_share=True)
    )
    rows = (await connection.execute(waited)).all()
    if not rows:
        return []
    every = {row.id: timedelta(hours=row.every_hours) if row.every_hours else default_every for row in rows}
    await _set_next_looks(connection, every, now)
    looks = select(item_looks.c.item_id, item_looks.c.source, item_looks.c.looked_at)
    found = await connection.execute(looks.where(item_looks.c.item_id.in_(sorted(every))))
    looked = {(row.item_id, row.source): row.looked_at for row in found}
    return [
        (ItemId(row.id), source)
        for row in rows
        for source in _wanted(row.sources, sources)
        if not _is_fresh(looked.get((row.id, source)), row.changed_at, now - every[row.id] / 2)
    ]


def _wanted(named: bytes, sources: Sequence[SourceName]) -> Sequence[SourceName]:
    own = set(msgspec.json.decode(named, type=list[str]))
    return [source for source in sources if source in own] if own else sources


def _is_fresh(looked_at: datetime | None, changed_at: datetime, since: datetime) -> bool:
    return looked_at is not None and looked_at > since and looked_at >= changed_at


async def _set_next_looks(connection: AsyncConnection, every: Mapping[int, timedelta], now: datetime) -> None:
    groups: dict[timedelta, list[int]] = defaultdict(list)
    for item_id, pause in every.items():
        groups[pause].append(item_id)
    for pause, ids in groups.items():
        await connection.execute(update(items).where(items.c.id.in_(sorted(ids))).values(next_look_at=now + pause))


def read_item(row: RowMapping | Mapping[str, Any]) -> Item:
    """From the columns of its table."""
    known = {name: row[name] for name in _FIELDS}
    lists = {name: tuple(msgspec.json.decode(row[name], type=list[str])) for name in _JSON[1:]}
    read = {"attributes": msgspec.json.decode(row["attributes"], type=dict[str, str]), **lists}
    return Item(**{**known, **read, "id": ItemId(row["id"]), "state": ItemState(row["state"])})


def digest_of(request: ItemRequest) -> str:
    """Over all that a wish says but its ref. The order of what has none does not count."""
    every = None if request.every_hours is None else float(request.every_hours)
    lists = (
        sorted(request.attributes.items()),
        sorted(request.exclude),
        sorted(request.sources),
        list(request.urls),
    )
    return hashlib.sha256(msgspec.json.encode((request.title, *lists, request.currency, every))).hexdigest()[:32]


def _waves(requests: Sequence[ItemRequest]) -> list[dict[_Key, int]]:
    """Places by key: what is named a second time comes after the first, as if it had been handed in later."""
    waves: list[dict[_Key, int]] = []
    times: dict[_Key, int] = defaultdict(int)
    for place, request in enumerate(requests):
        key = _key(request)
        if times[key] == len(waves):
            waves.append({})
        waves[times[key]][key] = place
        times[key] += 1
    return waves


def _key(request: ItemRequest) -> _Key:
    return (False, digest_of(request)) if request.ref is None else (True, request.ref)


async def _keep(
    connection: AsyncConnection, wanted: Mapping[_Key, ItemRequest], now: datetime
) -> Mapping[_Key, StoredItem]:
    known = await _known(connection, wanted)
    added = await _insert(connection, [wanted[key] for key in wanted if key not in known], now)
    changed = {key: item_id for key, (item_id, digest) in known.items() if digest != digest_of(wanted[key])}
    await _update(connection, {item_id: wanted[key] for key, item_id in changed.items()}, now)
    return {
        **{key: StoredItem(item_id=item_id, outcome=ItemOutcome.SAME) for key, (item_id, _) in known.items()},
        **{key: StoredItem(item_id=item_id, outcome=ItemOutcome.CHANGED) for key, item_id in changed.items()},
        **{key: StoredItem(item_id=item_id, outcome=ItemOutcome.ADDED) for key, item_id in added.items()},
    }


async def _known(connection: AsyncConnection, keys: Iterable[_Key]) -> dict[_Key, tuple[ItemId, str]]:
    """Ids and digests of those that are kept, held fast until the end of the transaction."""
    found: dict[_Key, tuple[ItemId, str]] = {}
    given = sorted(keys)
    for has_ref, column, condition in ((True, items.c.ref, HAS_REF), (False, items.c.digest, HAS_NO_REF)):
        named = [name for own, name in given if own is has_ref]
        for start in range(0, len(named), _LISTED):
            asked = select(items.c.id, column.label("name"), items.c.digest).where(
                column.in_(named[start : start + _LISTED]), text(condition)
            )
            rows = await connection.execute(asked.order_by(items.c.id).with_for_update())
            found |= {(has_ref, row.name): (ItemId(row.id), row.digest) for row in rows}
    return found


async def _insert(connection: AsyncConnection, requests: Sequence[ItemRequest], now: datetime) -> dict[_Key, ItemId]:
    if not requests:
        return {}
    new = {"state": ItemState.ACTIVE, "added_at": now, "changed_at": now, "next_look_at": now}
    rows = await connection.execute(_ADDING, [{**_row(request), **new} for request in requests])
    return {(row.ref is not None, row.ref or row.digest): ItemId(row.id) for row in rows}


_ADDING: Final = insert(items).returning(items.c.id, items.c.ref, items.c.digest)


async def _update(connection: AsyncConnection, requests: Mapping[ItemId, ItemRequest], now: datetime) -> None:
    if not requests:
        return
    changed = {"changed_at": now, "next_look_at": now}
    rows = [{"item": item_id, **_row(request), **changed} for item_id, request in sorted(requests.items())]
    await connection.execute(update(items).where(items.c.id == bindparam("item")), rows)
    await rematch(connection, requests, now)


def _row(request: ItemRequest) -> dict[str, Any]:
    return {
        "ref": request.ref,
        "title": request.title,
        **{name: msgspec.json.encode(getattr(request, name)) for name in _JSON},
        "currency": request.currency,
        "every_hours": request.every_hours,
        "digest": digest_of(request),
    }


async def _one_at_a_time(connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_NAMING_LOCK})"))


async def _locked(connection: AsyncConnection, item_id: ItemId) -> RowMapping:
    asked = select(*(items.c[name] for name in _FIELDS), items.c.digest).where(items.c.id == item_id).with_for_update()
    row = (await connection.execute(asked)).mappings().first()
    if row is None or row["state"] == ItemState.REMOVED:
        raise ItemNotFound(item_id, removed=row is not None)
    return row


async def _require_alone(connection: AsyncConnection, item_id: ItemId, request: ItemRequest) -> None:
    """Two items may not have one ref, nor without one say the same."""
    other = next((found for found, _ in (await _known(connection, [_key(request)])).values() if found != item_id), None)
    if other is not None and request.ref is not None:
        raise BadItem([("ref", request.ref, f"item {other} has it; choose another, or change that item")])
    if other is not None:
        raise BadItem([("title", request.title, f"item {other} says all the same; give this one a ref to keep both")])
