"""What was asked for a product over time, as a drawing: what is believed as a line, what is doubted as marks apart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.api.pages.chart_paper import Paper, Rule, across, paper_for
from mistnet.domain.plural import counted
from mistnet.store.product_pages import OfferLine

_BESIDE: Final = timedelta(days=30)


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """One offer. `beyond` is up or down where a doubted amount lies outside of what is drawn."""

    x: float
    y: float
    told: str
    beyond: str | None = None


class OfferChart(msgspec.Struct, frozen=True, kw_only=True):
    """All that a page needs to draw it."""

    line: str
    band: str
    believed: Sequence[Dot]
    doubted: Sequence[Dot]
    rules: Sequence[Rule]
    moments: Sequence[tuple[float, str, str]]
    currency: str
    told: str
    elsewhere: int
    begin: datetime
    end: datetime


def offer_chart(offers: Sequence[OfferLine], moments: Sequence[datetime] = ()) -> OfferChart | None:
    """Of the currency that was asked in last; None where no amount is known. `elsewhere` counts other currencies.

    The paper is as wide as the prices need, and wider where `moments` are not far beyond them.
    """
    known = sorted((each for each in offers if each.amount is not None), key=lambda each: (each.observed_at, each.id))
    believed = [each for each in known if each.doubt is None]
    if not known:
        return None
    currency = (believed or known)[-1].currency or ""
    own = [each for each in known if each.currency == currency]
    line = [each for each in own if each.doubt is None]
    paper = _paper(own, line or own, moments)
    return OfferChart(
        line=_steps(line, paper),
        band=_band(line, paper),
        believed=[_dot(each, paper) for each in line],
        doubted=[_dot(each, paper) for each in own if each.doubt is not None],
        rules=paper.rules,
        moments=paper.moments,
        currency=currency,
        told=_told(own, line, currency),
        elsewhere=len(known) - len(own),
        begin=paper.begin,
        end=paper.end,
    )


def place_on(chart: OfferChart, at: datetime) -> float | None:
    """Where a moment stands from left to right; None if the paper does not reach so far."""
    if not chart.begin <= at <= chart.end:
        return None
    return across(at, chart.begin, chart.end)


def _paper(own: Sequence[OfferLine], scale: Sequence[OfferLine], moments: Sequence[datetime]) -> Paper:
    """The scale is that of what is believed: one amount in cents must not make all others a flat line."""
    begin, end = _span(own[0].observed_at, max(each.last_seen_at for each in own), moments)
    return paper_for([begin, end], [float(amount) for each in scale for amount in _ends(each)])


def _span(begin: datetime, end: datetime, moments: Sequence[datetime]) -> tuple[datetime, datetime]:
    """A post from years before the first price would leave no room for the prices."""
    room = max(end - begin, _BESIDE)
    near = [each for each in moments if abs(each - begin) <= room or abs(each - end) <= room]
    return min([begin, *near]), max([end, *near])


def _ends(offer: OfferLine) -> Sequence[Decimal]:
    """The least and the most that was asked."""
    least = offer.amount or Decimal(0)
    return least, max(least, offer.amount_max or least)


def _steps(line: Sequence[OfferLine], paper: Paper) -> str:
    """An amount holds until the next is seen, and the last for as long as it was seen."""
    parts: list[str] = []
    for each in line:
        x, y = paper.x(each.observed_at), paper.y(float(_ends(each)[0]))
        parts.append(f"H{x}V{y}" if parts else f"M{x} {y}")
    return "".join([*parts, f"H{paper.x(line[-1].last_seen_at)}"]) if line else ""


def _band(line: Sequence[OfferLine], paper: Paper) -> str:
    """Where variants cost more: from the least to the most."""
    parts: list[str] = []
    ends = [*(each.observed_at for each in line[1:]), *(each.last_seen_at for each in line[-1:])]
    for each, until in zip(line, ends, strict=True):
        least, most = (float(amount) for amount in _ends(each))
        if most > least:
            x, right = paper.x(each.observed_at), paper.x(until)
            parts.append(f"M{x} {paper.y(least)}H{right}V{paper.y(most)}H{x}Z")
    return "".join(parts)


def _dot(offer: OfferLine, paper: Paper) -> Dot:
    amount = float(_ends(offer)[0])
    return Dot(x=paper.x(offer.observed_at), y=paper.y(amount), told=_words(offer), beyond=paper.beyond(amount))


def _words(offer: OfferLine) -> str:
    least, most = _ends(offer)
    span = f"{least:,f}" if most == least else f"{least:,f} to {most:,f}"
    doubt = f"; doubted: {offer.doubt}" if offer.doubt else ""
    return f"{span} {offer.currency}, {offer.observed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC{doubt}"


def _told(own: Sequence[OfferLine], line: Sequence[OfferLine], currency: str) -> str:
    """The drawing in words."""
    amounts = [amount for each in line or own for amount in _ends(each)]
    doubted = len(own) - len(line)
    aside = f"; {doubted} doubted" if doubted else ""
    return f"{counted(len(line), 'offer')} from {min(amounts):,f} to {max(amounts):,f} {currency}{aside}"
