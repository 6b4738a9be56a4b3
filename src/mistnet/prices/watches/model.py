"""Price watches: which line a look crosses, whether a second look agrees, and what is told then. Pure.

A look that crosses a line is only suspected. What settles it is a later look that sees the same: then, and only then,
an event is told, and what is known moves, so that no crossing is told twice. Looks that failed are no looks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from enum import StrEnum
from typing import Any, Final, NewType, TypeAlias, assert_never

import msgspec

from mistnet.prices.errors import BadWatch
from mistnet.prices.model import ItemId, PointId, Valuation
from mistnet.queue.events import EventKind
from mistnet.shops.model import Availability, LinkId, ProductId

WatchId = NewType("WatchId", int)

MOST_ASKED: Final = 3
"""So many second looks in a row are asked for while each sees something else; then the usual ones must do."""

_ALIKE: Final = Decimal("0.02")
"""A valuation rests on many listings: a second one agrees within this share. A page must ask exactly the same."""

LEAST, MOST = 0.01, 1_000_000.0
"""Percent that a change can be watched for."""

_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_LARGEST: Final = Decimal(10) ** 18
_HAD: Final = frozenset((Availability.IN_STOCK, Availability.LIMITED, Availability.PREORDER))
_NOT_HAD: Final = frozenset((Availability.OUT_OF_STOCK, Availability.DISCONTINUED))


class WatchKind(StrEnum):
    CHANGED = "changed"
    BELOW = "below"
    BACK_IN_STOCK = "back_in_stock"


class WatchSide(StrEnum):
    """On which side of a watch's line a look is."""

    SOMEWHERE = "somewhere"
    SAME = "same"
    UP = "up"
    DOWN = "down"
    ABOVE = "above"
    BELOW = "below"
    HAD = "had"
    NOT_HAD = "not_had"


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one look saw. Of an item: what its valuation came to, the points it rests on, and those that moved it."""

    at: datetime
    amount: Decimal | None = None
    currency: str | None = None
    availability: Availability | None = None
    source: str | None = None
    link_id: LinkId | None = None
    rests_on: Sequence[PointId] = ()
    moved_by: Sequence[PointId] = ()


class Suspicion(Observation, frozen=True, kw_only=True):
    """A look that crossed a line and waits for a second one; how many were asked for so far."""

    asked: int = 0


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to be told of: one thing, one line."""

    kind: WatchKind
    product_id: ProductId | None = None
    item_id: ItemId | None = None
    percent: float | None = None
    target: Decimal | None = None
    currency: str | None = None


class PriceWatch(WatchRequest, frozen=True, kw_only=True):
    """A watch as it stands. `known` is what its next look is compared with; `problem` why it cannot be."""

    id: WatchId
    added_at: datetime
    automatic: bool = False
    known: Observation | None = None
    suspected: Suspicion | None = None
    problem: str | None = None
    told_at: datetime | None = None
    events: int = 0

    @property
    def standing(self) -> str:
        """In one word, for people."""
        if self.problem:
            return "suspended"
        return "unconfirmed" if self.suspected else "watching" if self.known else "waiting"


class Unchanged(msgspec.Struct, frozen=True):
    """Nothing new: everything stays as it is."""


class Suspended(msgspec.Struct, frozen=True):
    """The look cannot be compared with what is known. It changes nothing but what is said of the watch."""

    problem: str


class Suspected(msgspec.Struct, frozen=True):
    """A line may have been crossed. `ask` for a second look, unless enough were asked for."""

    seen: Suspicion
    ask: bool


class Cleared(msgspec.Struct, frozen=True):
    """The line was not crossed, whatever was suspected. What is known may move on this side of it."""

    known: Observation


class Confirmed(msgspec.Struct, frozen=True):
    """Two looks agree: this is known from now on, and told if there is an event in it."""

    first: Suspicion
    second: Observation
    event: EventKind | None


Verdict: TypeAlias = Unchanged | Suspended | Suspected | Cleared | Confirmed


def judge(watch: PriceWatch, look: Observation, *, pause: timedelta) -> Verdict:
    """What a look means for a watch. A second one counts once the pause is over: what is false seldom lasts."""
    where = place(watch, look)
    if where is None or _is_late(watch, look):
        return Unchanged()
    if why := incomparable(watch, look):
        return Unchanged() if watch.problem == why else Suspended(why)
    if watch.known is not None and not _crosses(watch, where):
        return _on_this_side(watch, look)
    first = watch.suspected
    if first is None or not agree(watch, first, look):
        return _suspect(watch, look)
    if look.at - first.at < pause:
        return Unchanged()
    return Confirmed(first, look, told(watch, look))


def place(watch: PriceWatch, look: Observation) -> WatchSide | None:
    """None where the look says nothing about this watch's line."""
    match watch.kind:
        case WatchKind.BACK_IN_STOCK:
            return stock(look.availability)
        case WatchKind.BELOW:
            if look.amount is None or watch.target is None:
                return None
            return WatchSide.BELOW if look.amount < watch.target else WatchSide.ABOVE
        case WatchKind.CHANGED:
            return _moved(watch, look)
        case _:
            assert_never(watch.kind)


def stock(availability: Availability | None) -> WatchSide | None:
    """Whether it can be had. A back order, or no word of it, tells neither."""
    return WatchSide.HAD if availability in _HAD else WatchSide.NOT_HAD if availability in _NOT_HAD else None


def _moved(watch: PriceWatch, look: Observation) -> WatchSide | None:
    if look.amount is None:
        return None
    if watch.known is None or watch.known.amount is None:
        return WatchSide.SOMEWHERE
    by, enough = look.amount - watch.known.amount, Decimal(str(watch.percent or 0)) * watch.known.amount
    return WatchSide.SAME if abs(by) * 100 <= enough else WatchSide.UP if by > 0 else WatchSide.DOWN


def incomparable(watch: PriceWatch, look: Observation) -> str | None:
    """Amounts of two currencies are never compared."""
    if watch.kind is WatchKind.BACK_IN_STOCK:
        return None
    known = watch.currency or (watch.known.currency if watch.known else None)
    if known is None or look.currency == known:
        return None
    return f"the price is told in {look.currency or 'no currency'} now, and {known} is watched"


def lost(known: Collection[PointId], after: Valuation) -> str | None:
    """Why a valuation cannot be compared: points that carried the known one were left out without an amount.

    Nobody told their rate, or they came to be doubted: what the others make of it is no change of price.
    """
    why = [each.why for each in after.left_out if each.amount is None and each.point_id in known]
    if not why:
        return None
    return f"{len(why)} of the points it rested on count no more ({why[0]}); tell the rate or watch anew"


def agree(watch: PriceWatch, first: Observation, second: Observation) -> bool:
    """Whether two looks saw the same."""
    if place(watch, first) != place(watch, second):
        return False
    if watch.kind is WatchKind.BACK_IN_STOCK:
        return True
    if first.amount is None or second.amount is None or first.currency != second.currency:
        return False
    slack = _ALIKE if watch.item_id is not None else Decimal(0)
    return abs(first.amount - second.amount) <= slack * max(first.amount, second.amount)


def told(watch: PriceWatch, look: Observation) -> EventKind | None:
    """What others are told once two looks agree.

    A first price is no change, and what nobody saw out of stock does not come back. A price that is below its target is
    told of even if it always was.
    """
    match place(watch, look):
        case WatchSide.UP | WatchSide.DOWN:
            return EventKind.PRICE_CHANGED
        case WatchSide.BELOW:
            return EventKind.PRICE_BELOW_TARGET
        case WatchSide.HAD if watch.known is not None:
            return EventKind.PRICE_BACK_IN_STOCK
        case _:
            return None


def _is_late(watch: PriceWatch, look: Observation) -> bool:
    """A look that is no later than what is known or suspected can neither confirm nor refute it."""
    return any(each is not None and look.at <= each.at for each in (watch.known, watch.suspected))


def _crosses(watch: PriceWatch, where: WatchSide) -> bool:
    if watch.kind is WatchKind.CHANGED:
        return where is not WatchSide.SAME
    return watch.known is not None and where is not place(watch, watch.known)


def _on_this_side(watch: PriceWatch, look: Observation) -> Verdict:
    """A change is measured from what was told last, however slowly the price creeps; other lines stand still."""
    known = watch.known
    assert known is not None  # noqa: S101 (the caller looked)
    new = msgspec.structs.replace(known, rests_on=look.rests_on) if watch.kind is WatchKind.CHANGED else look
    if watch.suspected is None and watch.problem is None and _said(known) == _said(new):
        return Unchanged()
    return Cleared(new)


def _said(look: Observation) -> tuple[object, ...]:
    return look.amount, look.currency, look.availability, sorted(look.rests_on)


def _suspect(watch: PriceWatch, look: Observation) -> Suspected:
    """An automatic watch learns its first price from the usual looks: nobody asked for more."""
    asked = watch.suspected.asked if watch.suspected else 0
    cares = not watch.automatic or watch.known is not None or watch.suspected is not None
    ask = cares and asked < MOST_ASKED
    seen = {name: getattr(look, name) for name in Observation.__struct_fields__}
    return Suspected(Suspicion(**seen, asked=asked + ask), ask)


def checked(wanted: WatchRequest) -> WatchRequest:
    """Raises where there is nothing to watch, or no line to cross."""
    if (wanted.product_id is None) == (wanted.item_id is None):
        raise BadWatch("name a product or an item, one of the two")
    if wanted.kind is WatchKind.CHANGED and not LEAST <= (wanted.percent or 0) <= MOST:
        raise BadWatch(f"say by how many percent the price must change, {LEAST} or more")
    if wanted.kind is WatchKind.BELOW and not (wanted.target is not None and 0 < wanted.target < _LARGEST):
        raise BadWatch("say below which amount the price must fall, more than 0")
    if wanted.kind is WatchKind.BELOW and not _CURRENCY.fullmatch(wanted.currency or ""):
        raise BadWatch("say in which currency the target is, as three capital letters such as TWD")
    if wanted.kind is WatchKind.BACK_IN_STOCK and wanted.product_id is None:
        raise BadWatch("an item is many listings, and has no stock: watch one of its products")
    if wanted.kind is not WatchKind.CHANGED and wanted.percent is not None:
        raise BadWatch("no percent goes with a target or with back in stock")
    if wanted.kind is not WatchKind.BELOW and (wanted.target is not None or wanted.currency is not None):
        raise BadWatch("a target and its currency go with `below` alone")
    return wanted


_PRECISION: Final = 120


def subject(watch: WatchRequest) -> str:
    return f"product:{watch.product_id}" if watch.product_id is not None else f"item:{watch.item_id}"


def payload(watch: PriceWatch, settled: Confirmed, about: Mapping[str, Any]) -> dict[str, Any]:
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


def _same_money(before: Observation, after: Observation) -> bool:
    return before.currency == after.currency


def _digits(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
