"""What an event about a price says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, localcontext
from typing import Any, Final

from mistnet.domain.watches import Look, Settled, Wanted, Watch

_PRECISION: Final = 120


def subject(watch: Wanted) -> str:
    return f"product:{watch.product_id}" if watch.product_id is not None else f"item:{watch.item_id}"


def payload(watch: Watch, settled: Settled, about: Mapping[str, Any]) -> dict[str, Any]:
    """What an event says. Ids and amounts are strings."""
    before, after = watch.known, settled.second
    change = percent_between(before.amount, after.amount) if before and _same_money(before, after) else None
    return {
        "watch_id": str(watch.id),
        "product_id": _text(watch.product_id),
        "item_id": _text(watch.item_id),
        "title": about.get("title"),
        "url": about.get("url"),
        "source": after.source or about.get("source"),
        "before": _digits(before.amount) if before else None,
        "after": _digits(after.amount),
        "currency": after.currency,
        "percent": _digits(change),
        "target": _digits(watch.target),
        "was": before.availability if before else None,
        "availability": after.availability,
        "before_at": before.at if before else None,
        "first_look_at": settled.first.at,
        "second_look_at": after.at,
    }


def percent_between(before: Decimal | None, after: Decimal | None) -> Decimal | None:
    """With two decimals; None where there is nothing to take a share of."""
    if not before or after is None:
        return None
    with localcontext(prec=_PRECISION):  # whatever a page asks can be told
        return ((after - before) * 100 / before).quantize(Decimal("0.01"))


def _same_money(before: Look, after: Look) -> bool:
    return before.currency == after.currency


def _digits(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
