"""The prices of a product around a post that promoted it: before, at the post, after. Nothing is interpolated."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Context, Decimal
from enum import StrEnum
from typing import Final

import msgspec

from mistnet.shops.model import OfferId

WINDOWS: Final = (timedelta(days=7), timedelta(days=30))
"""The spans after a post for which the lowest price is reported."""

_CENT: Final = Decimal("0.01")
# More digits than any amount has, so that nothing is rounded before the last step.
_EXACT: Final = Context(prec=60)


class Promotion(StrEnum):
    """How a post promotes: with a link of its own, with one in the quoted post, or as a repost."""

    OWN = "own"
    QUOTE = "quote"
    REPOST = "repost"


class NoChange(StrEnum):
    """Why a change is unknown."""

    NO_PRICE = "no price is known"
    NONE_BEFORE = "no price was known before"
    NONE_AFTER = "no price was seen after"
    OTHER_CURRENCY = "the currencies differ"
    WAS_FREE = "it cost nothing before"


class SeenPrice(msgspec.Struct, frozen=True, kw_only=True):
    """An offer with an amount and without a doubt: first seen at `observed_at`, still the same at `last_seen_at`."""

    id: OfferId
    amount: Decimal
    amount_max: Decimal | None
    currency: str
    availability: str | None
    observed_at: datetime
    last_seen_at: datetime


class PriceChange(msgspec.Struct, frozen=True, kw_only=True):
    """By how many percent a price changed, or why that is unknown."""

    percent: Decimal | None = None
    why_not: NoChange | None = None


class Lowest(msgspec.Struct, frozen=True, kw_only=True):
    """The lowest price within some days after a post, in one currency. Until these are `over` it may still fall."""

    days: int
    price: SeenPrice | None
    change: PriceChange
    over: bool


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """Prices around one moment.

    `before` is the last price up to then; its age is the time since it was last seen (0 if it was seen again later).
    `at_post` is `before` if it is known to hold at that moment. `after` is the first later price, or `before` itself if
    it was only seen again (`unchanged`); its delay is how much later that was.
    """

    before: SeenPrice | None
    before_age_seconds: int | None
    at_post: SeenPrice | None
    after: SeenPrice | None
    after_delay_seconds: int | None
    unchanged: bool
    change: PriceChange
    lowest: Sequence[Lowest]


def around(course: Sequence[SeenPrice], moment: datetime, *, now: datetime) -> Around:
    """`course` must be in the order of time. Amounts in two currencies are never compared."""
    place = bisect_right(course, moment, key=lambda each: each.observed_at)
    before = course[place - 1] if place else None
    seen_later = before is not None and before.last_seen_at > moment
    later = course[place] if place < len(course) else None
    after = later or (before if seen_later else None)
    currency = before.currency if before else after.currency if after else None
    following = [*([before] if before and seen_later else []), *course[place:]]
    held = before is not None and before.last_seen_at >= moment
    after_at = after and (after.last_seen_at if after is before else after.observed_at)
    lowest = []
    for span in WINDOWS:
        until = later_by(moment, span)
        price = cheapest((each for each in following if each.observed_at <= until), currency)
        lowest.append(Lowest(days=span.days, price=price, change=change(before, price), over=until <= now))
    return Around(
        before=before,
        before_age_seconds=max(int((moment - before.last_seen_at).total_seconds()), 0) if before else None,
        at_post=before if held else None,
        after=after,
        after_delay_seconds=int((after_at - moment).total_seconds()) if after_at else None,
        unchanged=after is not None and after is before,
        change=change(before, after),
        lowest=lowest,
    )


def change(before: SeenPrice | None, after: SeenPrice | None) -> PriceChange:
    """The change from one price to another, by their lowest amounts."""
    if before is None or after is None:
        lacking = {(True, True): NoChange.NO_PRICE, (True, False): NoChange.NONE_BEFORE}
        return PriceChange(why_not=lacking.get((before is None, after is None), NoChange.NONE_AFTER))
    if before.currency != after.currency:
        return PriceChange(why_not=NoChange.OTHER_CURRENCY)
    if not before.amount:
        return PriceChange(why_not=NoChange.WAS_FREE)
    share = _EXACT.divide(_EXACT.subtract(after.amount, before.amount), before.amount)
    return PriceChange(percent=_EXACT.quantize(_EXACT.multiply(share, Decimal(100)), _CENT))


def cheapest(course: Iterable[SeenPrice], currency: str | None) -> SeenPrice | None:
    """The lowest price in one currency; of equal ones the first."""
    own = (each for each in course if each.currency == currency)
    return min(own, key=lambda each: (each.amount, each.observed_at, each.id), default=None)


def dearest(course: Iterable[SeenPrice], currency: str | None) -> SeenPrice | None:
    own = [each for each in course if each.currency == currency]
    most = max((each.amount for each in own), default=None)
    return next((each for each in own if each.amount == most), None)


def since(course: Sequence[SeenPrice], moment: datetime) -> Sequence[SeenPrice]:
    """The last price up to then, and all later ones."""
    place = bisect_right(course, moment, key=lambda each: each.observed_at)
    return course[max(place - 1, 0) :]


def snippet(text: str, most: int = 280) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def later_by(moment: datetime, span: timedelta) -> datetime:
    """A platform may report any time, also one at the end of the calendar."""
    try:
        return moment + span
    except OverflowError:
        return moment
