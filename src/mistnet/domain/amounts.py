"""How amounts of money are written for people: grouped by thousands, with all their digits."""

from __future__ import annotations

from decimal import Decimal


def money(amount: Decimal | None, currency: str | None, most: Decimal | None = None) -> str:
    """`1,370.00 TWD`, or `1,370.00 to 1,400.00 TWD` where it depends; empty without an amount."""
    if amount is None:
        return ""
    upto = f" to {most:,f}" if most is not None and most != amount else ""
    return f"{amount:,f}{upto} {currency or ''}".strip()
