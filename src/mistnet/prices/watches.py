"""Rules of price watches: which threshold is crossed, whether a second look confirms it, which event follows. Pure.

An observation that crosses a threshold is only suspected. A later one that agrees confirms it: then an event is
written, and the known price moves, so that no crossing is reported twice. A failed fetch is no observation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from enum import StrEnum
from typing import Any, Final, NewType, TypeAlias, assert_never

import msgspec

from mistnet.prices.model import BadWatch, ItemId, PointId, Valuation
from mistnet.queue.events import EventKind
from mistnet.shops.model import Availability, LinkId, ProductId

WatchId = NewType("WatchId", int)

MOST_ASKED: Final = 3
"""How many second looks in a row are made while each sees something else. After that the usual fetches must do."""

_ALIKE: Final = Decimal("0.02")
"""A second valuation agrees within this share, as it rests on many listings. A page must show the same price."""

LEAST, MOST = 0.01, 1_000_000.0
"""The limits of a watch's percentage."""

_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_LARGEST: Final = Decimal(10) ** 18
_AVAILABLE: Final = frozenset((Availability.IN_STOCK, Availability.LIMITED, Availability.PREORDER))
_UNAVAILABLE: Final = frozenset((Availability.OUT_OF_STOCK, Availability.DISCONTINUED))


class WatchKind(StrEnum):
    CHANGED = "changed"
    BELOW = "below"
    BACK_IN_STOCK = "back_in_stock"


class WatchSide(StrEnum):
    """On which side of a watch's threshold an observation is."""

    UNKNOWN = "unknown"
    SAME = "same"
    UP = "up"
    DOWN = "down"
    ABOVE = "above"
    BELOW = "below"
    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A price or availability at a time. For an item: its valuation, the points it rests on and those that moved it."""

    at: datetime
    amount: Decimal | None = None
    currency: str | None = None
    availability: Availability | None = None
    source: str | None = None
    link_id: LinkId | None = None
    rests_on: Sequence[PointId] = ()
    moved_by: Sequence[PointId] = ()


class Suspicion(Observation, frozen=True, kw_only=True):
    """An observation that crossed a threshold and awaits confirmation. `asked`: how many second looks were made."""

    asked: int = 0


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to watch one item or product for one threshold."""

    kind: WatchKind
    product_id: ProductId | None = None
    item_id: ItemId | None = None
    percent: float | None = None
    target: Decimal | None = None
    currency: str | None = None


class PriceWatch(WatchRequest, frozen=True, kw_only=True):
    """A stored watch. The next observation is compared with `known`; `problem` says why it cannot be."""

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
        """The state in one word."""
        if self.problem:
            return "suspended"
        return "unconfirmed" if self.suspected else "watching" if self.known else "waiting"


class WatchLine(PriceWatch, frozen=True, kw_only=True):
    """A watch with the name of what it watches."""

    title: str
    url: str | None = None


class Unchanged(msgspec.Struct, frozen=True):
    """Nothing changes."""


class Suspended(msgspec.Struct, frozen=True):
    """The observation cannot be compared with the known one. Only the watch's problem changes."""

    problem: str


class Suspected(msgspec.Struct, frozen=True):
    """A threshold may have been crossed. `ask`: make a second look, unless enough were made."""

    seen: Suspicion
    ask: bool


class Cleared(msgspec.Struct, frozen=True):
    """The threshold was not crossed, whatever was suspected. The known price may move on this side of it."""

    known: Observation


class Confirmed(msgspec.Struct, frozen=True):
    """Two observations agree: the second is the known one from now on, and may lead to an event."""

    first: Suspicion
    second: Observation
    event: EventKind | None


Verdict: TypeAlias = Unchanged | Suspended | Suspected | Cleared | Confirmed


def judge(watch: PriceWatch, look: Observation, *, pause: timedelta) -> Verdict:
    """What an observation means for a watch. A second one counts after a pause: wrong prices seldom last."""
    where = place(watch, look)
    # An observation that is not later than the known or suspected one can neither confirm nor refute it.
    is_late = any(each is not None and look.at <= each.at for each in (watch.known, watch.suspected))
    if where is None or is_late:
        return Unchanged()
    if why := incomparable(watch, look):
        return Unchanged() if watch.problem == why else Suspended(why)
    if watch.known is not None and where in (WatchSide.SAME, place(watch, watch.known)):
        known, new = watch.known, look
        if watch.kind is WatchKind.CHANGED:
            # A change is measured from the last reported price, so that many small steps add up to one.
            new = msgspec.structs.replace(known, rests_on=look.rests_on)
        is_same = watch.suspected is None and watch.problem is None and _facts_of(known) == _facts_of(new)
        return Unchanged() if is_same else Cleared(new)
    first = watch.suspected
    if first is None or not agree(watch, first, look):
        # An automatic watch takes its first price from the usual fetches: it is not worth a second look.
        asked = watch.suspected.asked if watch.suspected else 0
        cares = not watch.automatic or watch.known is not None or watch.suspected is not None
        ask = cares and asked < MOST_ASKED
        seen = {name: getattr(look, name) for name in Observation.__struct_fields__}
        return Suspected(Suspicion(**seen, asked=asked + ask), ask)
    if look.at - first.at < pause:
        return Unchanged()
    return Confirmed(first, look, event_of(watch, look))


def judge_valuation(watch: PriceWatch, look: Observation, after: Valuation, *, pause: timedelta) -> Verdict:
    """Like `judge`, for an item. A valuation that lost points it rested on cannot be compared with the known one."""
    why = find_lost_points(set(watch.known.rests_on), after) if watch.known else None
    if why is not None:
        return Unchanged() if watch.problem == why else Suspended(why)
    return judge(watch, look, pause=pause)


def observe_valuation(after: Valuation, before: Valuation | None, *, source: str | None, at: datetime) -> Observation:
    """A valuation as an observation. It was moved by points that it did not rest on before, or not at that amount."""
    known = {(each.point_id, each.amount) for each in before.carriers} if before else set()
    return Observation(
        at=at,
        amount=after.estimate,
        currency=after.currency,
        source=source,
        rests_on=[each.point_id for each in after.carriers],
        moved_by=[each.point_id for each in after.carriers if (each.point_id, each.amount) not in known],
    )


def place(watch: PriceWatch, look: Observation) -> WatchSide | None:
    """The side of the threshold; None if the observation says nothing about it."""
    match watch.kind:
        case WatchKind.BACK_IN_STOCK:
            return stock(look.availability)
        case WatchKind.BELOW:
            if look.amount is None or watch.target is None:
                return None
            return WatchSide.BELOW if look.amount < watch.target else WatchSide.ABOVE
        case WatchKind.CHANGED:
            if look.amount is None:
                return None
            if watch.known is None or watch.known.amount is None:
                return WatchSide.UNKNOWN
            # A float by its text: 0.1 itself is a little more than a tenth, and would miss a change of just that.
            by, enough = look.amount - watch.known.amount, Decimal(str(watch.percent or 0)) * watch.known.amount
            return WatchSide.SAME if abs(by) * 100 <= enough else WatchSide.UP if by > 0 else WatchSide.DOWN
        case _:
            assert_never(watch.kind)


def stock(availability: Availability | None) -> WatchSide | None:
    """Whether it is available. A back order, or an unknown availability, says neither."""
    if availability in _AVAILABLE:
        return WatchSide.AVAILABLE
    return WatchSide.UNAVAILABLE if availability in _UNAVAILABLE else None


def incomparable(watch: PriceWatch, look: Observation) -> str | None:
    """Why an observation cannot be compared: amounts in two currencies never are."""
    if watch.kind is WatchKind.BACK_IN_STOCK:
        return None
    known = watch.currency or (watch.known.currency if watch.known else None)
    if known is None or look.currency == known:
        return None
    return f"the price is in {look.currency or 'no currency'} now, and {known} is watched"


def find_lost_points(known: Collection[PointId], after: Valuation) -> str | None:
    """Why a valuation cannot be compared: it leaves out points that the known one rests on, without an amount.

    Their exchange rate is missing, or they are doubted now. What the other points say is no change of price.
    """
    why = [each.why for each in after.left_out if each.amount is None and each.point_id in known]
    if not why:
        return None
    return f"{len(why)} of the points it rested on no longer count ({why[0]}); set the rate or watch it again"


def agree(watch: PriceWatch, first: Observation, second: Observation) -> bool:
    """Whether two observations agree."""
    if place(watch, first) != place(watch, second):
        return False
    if watch.kind is WatchKind.BACK_IN_STOCK:
        return True
    if first.amount is None or second.amount is None or first.currency != second.currency:
        return False
    slack = _ALIKE if watch.item_id is not None else Decimal(0)
    return abs(first.amount - second.amount) <= slack * max(first.amount, second.amount)


def event_of(watch: PriceWatch, look: Observation) -> EventKind | None:
    """The event that follows once two observations agree.

    A first price is no change, and what was never seen out of stock is not back. A price below its target is reported
    even if it always was.
    """
    match place(watch, look):
        case WatchSide.UP | WatchSide.DOWN:
            return EventKind.PRICE_CHANGED
        case WatchSide.BELOW:
            return EventKind.PRICE_BELOW_TARGET
        case WatchSide.AVAILABLE if watch.known is not None:
            return EventKind.PRICE_BACK_IN_STOCK
        case _:
            return None


def _facts_of(look: Observation) -> tuple[object, ...]:
    return look.amount, look.currency, look.availability, sorted(look.rests_on)


def require_valid(request: WatchRequest) -> None:
    """Raises BadWatch if a request names nothing to watch, or no threshold."""
    if (request.product_id is None) == (request.item_id is None):
        raise BadWatch("name either a product or an item")
    if request.kind is WatchKind.CHANGED and not LEAST <= (request.percent or 0) <= MOST:
        raise BadWatch(f"give the percentage by which the price must change, {LEAST} or more")
    if request.kind is WatchKind.BELOW and not (request.target is not None and 0 < request.target < _LARGEST):
        raise BadWatch("give the amount below which the price must fall, more than 0")
    if request.kind is WatchKind.BELOW and not _CURRENCY.fullmatch(request.currency or ""):
        raise BadWatch("give the currency of the target as three capital letters such as TWD")
    if request.kind is WatchKind.BACK_IN_STOCK and request.product_id is None:
        raise BadWatch("an item has many listings and no stock; watch one of its products")
    if request.kind is not WatchKind.CHANGED and request.percent is not None:
        raise BadWatch("a percentage only goes with `changed`")
    if request.kind is not WatchKind.BELOW and (request.target is not None or request.currency is not None):
        raise BadWatch("a target and its currency only go with `below`")


_PRECISION: Final = 120


def subject(watch: WatchRequest) -> str:
    return f"product:{watch.product_id}" if watch.product_id is not None else f"item:{watch.item_id}"


def payload(watch: PriceWatch, settled: Confirmed, about: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of an event. Ids and amounts are strings."""
    before, after = watch.known, settled.second
    comparable = before is not None and before.currency == after.currency
    change = percent_between(before.amount, after.amount) if before and comparable else None
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
    """With two decimals; None if one of the amounts is missing or the first is 0."""
    if not before or after is None:
        return None
    with localcontext(prec=_PRECISION):  # for prices of any size
        return ((after - before) * 100 / before).quantize(Decimal("0.01"))


def _digits(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
