"""Price watches as rows: what is read of one, and what a verdict makes of it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, RowMapping, and_

from mistnet.domain.items import PointId
from mistnet.domain.products import Availability
from mistnet.domain.watches import Look, Suspicion, Wanted, Watch, WatchKind
from mistnet.store.tables import price_watches

ACTIVE: Final = "active"
REMOVED: Final = "removed"

WATCH: Final = [
    price_watches.c[name]
    for name in (
        *("id", "item_id", "product_id", "kind", "percent", "target", "currency", "automatic", "added_at"),
        *("amount", "amount_currency", "availability", "known_at", "rests_on", "suspected", "problem", "told_at"),
        "events",
    )
]

_PLAIN: Final = ("id", "item_id", "product_id", "percent", "target", "currency", "automatic", "added_at")
_SUSPICION: Final = msgspec.json.Decoder(Suspicion)
_POINTS: Final = msgspec.json.Decoder(list[PointId])


def watches_of(wanted: Wanted) -> ColumnElement[bool]:
    """Those of one thing that are not taken back."""
    own = price_watches.c
    thing = own.item_id == wanted.item_id if wanted.item_id is not None else own.product_id == wanted.product_id
    return and_(thing, own.state == ACTIVE)


def watch_of(row: RowMapping) -> Watch:
    return Watch(
        kind=WatchKind(row["kind"]),
        known=_known(row),
        suspected=None if row["suspected"] is None else _SUSPICION.decode(row["suspected"]),
        problem=row["problem"],
        told_at=row["told_at"],
        events=row["events"],
        **{name: row[name] for name in _PLAIN},
    )


def _known(row: RowMapping) -> Look | None:
    if row["known_at"] is None:
        return None
    return Look(
        at=row["known_at"],
        amount=row["amount"],
        currency=row["amount_currency"],
        availability=None if row["availability"] is None else Availability(row["availability"]),
        rests_on=() if row["rests_on"] is None else _POINTS.decode(row["rests_on"]),
    )


def new_row(wanted: Wanted, now: datetime, *, automatic: bool = False) -> dict[str, Any]:
    return {
        "item_id": wanted.item_id,
        "product_id": wanted.product_id,
        "kind": wanted.kind,
        "percent": wanted.percent,
        "target": wanted.target,
        "currency": wanted.currency,
        "state": ACTIVE,
        "automatic": automatic,
        "added_at": now,
    }


def suspected_values(seen: Suspicion) -> dict[str, Any]:
    return {"suspected": msgspec.json.encode(seen), "suspected_at": seen.at, "problem": None}


def known_values(known: Look) -> dict[str, Any]:
    """Nothing is suspected any more."""
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


def look_at_offer(row: Any) -> Look | None:
    """What is stored of a product's price, as the look that last saw it."""
    if row is None:
        return None
    amount: Decimal | None = row.amount
    return Look(
        at=row.last_seen_at,
        amount=amount,
        currency=row.currency,
        availability=None if row.availability is None else Availability(row.availability),
        link_id=row.link_id,
    )
