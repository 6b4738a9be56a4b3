"""How well the points of an item that has changed fit what it says now, and what that makes it worth."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet import links as link_rules
from mistnet import pricing
from mistnet.domain.items import ItemId, Listing, Wish
from mistnet.domain.products import PriceKind
from mistnet.store.tables import price_points
from mistnet.store.worth import known_points, lock_items, value_items

MISFIT: Final = "does not fit the item as it is now"
_READ: Final = (
    *("id", "item_id", "kind", "amount", "currency", "title", "url", "observed_at", "match_strength", "doubt"),
)
_MOVE: Final = (
    update(price_points)
    .where(price_points.c.id == bindparam("point"))
    .values(match_strength=bindparam("strength"), doubt=bindparam("why", type_=price_points.c.doubt.type))
)


async def rematch(connection: AsyncConnection, changed: Mapping[ItemId, Wish], now: datetime) -> None:
    """Points that fit no more stay, and say so: no valuation rests on them. One that fits again counts again."""
    if not changed:
        return
    currencies = await lock_items(connection, changed)
    asked = select(*(price_points.c[name] for name in _READ)).where(price_points.c.item_id.in_(sorted(changed)))
    rows = (await connection.execute(asked)).mappings().all()
    if not rows:
        return
    names = {item_id: _names(wish) for item_id, wish in changed.items()}
    moved = [
        told
        for row in rows
        if (told := _told(row, _matched(row, changed[row["item_id"]], names[row["item_id"]]))) is not None
    ]
    if moved:
        await connection.execute(_MOVE, moved)
    touched = {row["item_id"]: currencies[row["item_id"]] for row in rows}
    await value_items(connection, touched, await known_points(connection, touched), now)


def _told(row: Any, found: pricing.Match) -> dict[str, Any] | None:
    """What becomes of a point; None: it stays as it is. Doubts of another kind are not for us to settle."""
    own = row["doubt"] is None or row["doubt"].startswith(MISFIT)
    why = f"{MISFIT}: {found.why or f'by {found.strength:.2f} only'}"
    doubt = (None if found.fits else why) if own else row["doubt"]
    if (found.strength, doubt) == (row["match_strength"], row["doubt"]):
        return None
    return {"point": row["id"], "strength": found.strength, "why": doubt}


def _matched(row: Any, wish: Wish, names: frozenset[str]) -> pricing.Match:
    """The page of a thing that the item itself names fits as well as it did."""
    named = bool(names) and _name(row["url"]) in names
    return pricing.match(
        wish,
        Listing(
            kind=PriceKind(row["kind"]),
            amount=row["amount"],
            currency=row["currency"],
            title=row["title"],
            url=row["url"],
            observed_at=row["observed_at"],
            strength=row["match_strength"] if named else None,
        ),
    )


def _names(wish: Wish) -> frozenset[str]:
    return frozenset(name for url in wish.urls if (name := _name(url)))


def _name(url: str) -> str | None:
    found = link_rules.canonical(url)
    return None if isinstance(found, link_rules.Refused) else found.url_norm
