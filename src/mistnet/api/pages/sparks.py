"""A price course as a small line, for lists of products."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from mistnet.api.pages.render import money
from mistnet.domain.plural import counted
from mistnet.store.account_products import LinkedProduct

WIDTH, HEIGHT = 140, 32
_MARGIN: Final = 4
_LEAST: Final = timedelta(hours=1)


class Spark(msgspec.Struct, frozen=True, kw_only=True):
    """The line, where it ends, and what it shows in words."""

    line: str
    x: float
    y: float
    mentions: tuple[float, ...]
    told: str


def spark(linked: LinkedProduct) -> Spark | None:
    """Of the currency that was asked in last, since the first mention; None where no price is known."""
    if linked.latest is None or linked.lowest is None or linked.highest is None:
        return None
    own = [each for each in linked.course if each.currency == linked.latest.currency]
    begin = min(own[0].observed_at, linked.mentions.first_at)
    end = max(own[-1].last_seen_at, linked.mentions.latest_at, begin + _LEAST)
    low, high = linked.lowest.amount, linked.highest.amount

    def x(at: datetime) -> float:
        return round(_MARGIN + (at - begin) / (end - begin) * (WIDTH - 2 * _MARGIN), 1)

    def y(share: float) -> float:
        return round(HEIGHT - _MARGIN - share * (HEIGHT - 2 * _MARGIN), 1)

    heights = [y(float((each.amount - low) / (high - low)) if high > low else 0.5) for each in own]
    steps = [
        f"{'H' if place else 'M'}{x(each.observed_at)}{'V' if place else ' '}{height}"
        for place, (each, height) in enumerate(zip(own, heights, strict=True))
    ]
    last = x(own[-1].last_seen_at)
    told = f"from {money(low, linked.latest.currency)} to {money(high, linked.latest.currency)}"
    return Spark(
        line="".join([*steps, f"H{last}"]),
        x=last,
        y=heights[-1],
        mentions=(x(linked.mentions.first_at), x(linked.mentions.latest_at)),
        told=f"{counted(len(own), 'price')} {told}",
    )
