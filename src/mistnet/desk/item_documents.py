"""Items, points and valuations as programs see them: ids as text, amounts as their exact digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from mistnet.domain.items import Item, PointId, Valuation
from mistnet.store.item_pages import ItemLine, WorthThen
from mistnet.store.valuations import CurrentValuation, LookLine, PastValuation, PointLine, PointVersion


class Bearing(msgspec.Struct, frozen=True, kw_only=True):
    """What a valuation makes of a point: its share of the weight, or why it is left out; its amount there."""

    weight: float | None = None
    why: str | None = None
    amount: Decimal | None = None
    rate: str | None = None


class Bearings:
    """Of all points a valuation names, and of those whose own doubt tells why they do not count."""

    def __init__(self, valuation: Valuation | None) -> None:
        carriers = valuation.carriers if valuation else ()
        left_out = valuation.left_out if valuation else ()
        self._named: Mapping[PointId, Bearing] = {
            **{each.point_id: Bearing(why=each.why, amount=each.amount) for each in left_out},
            **{each.point_id: Bearing(weight=each.weight, amount=each.amount, rate=each.rate) for each in carriers},
        }

    def of(self, point: PointLine) -> Bearing:
        return self._named.get(point.id) or Bearing(why=point.doubt)


def item_fields(item: Item) -> dict[str, Any]:
    told = {name: getattr(item, name) for name in item.__struct_fields__}
    return {**told, "id": str(item.id)}


def line_fields(line: ItemLine) -> dict[str, Any]:
    """An item of a list."""
    return {
        **item_fields(line.item),
        "next_look_at": line.next_look_at,
        "worth": None if line.worth is None else _exact(line.worth),
        "earlier": None if line.earlier is None else _exact(line.earlier),
        "change": line.change,
    }


def valuation_fields(valuation: CurrentValuation | None) -> dict[str, Any] | None:
    """With the points it rests on and those it leaves out."""
    if valuation is None:
        return None
    named = {
        "carriers": [_named(each) for each in valuation.carriers],
        "left_out": [_named(each) for each in valuation.left_out],
    }
    place = {"id": str(valuation.id)} if isinstance(valuation, PastValuation) else {}
    return {**_exact(valuation), **place, **named}


def worth_fields(worth: WorthThen) -> dict[str, Any]:
    return _exact(worth)


def point_fields(point: PointLine, bearing: Bearing) -> dict[str, Any]:
    ids = {name: _text(getattr(point, name)) for name in ("id", "product_id", "offer_id")}
    told = {name: value for name, value in _exact(point).items() if name != "item_id"}
    return {**told, **ids, "weight": bearing.weight, "left_out": bearing.why, "rate": bearing.rate}


def version_fields(version: PointVersion) -> dict[str, Any]:
    return {name: value for name, value in _exact(version).items() if name != "point_id"}


def look_fields(looks: Sequence[LookLine]) -> list[dict[str, Any]]:
    return [{name: getattr(each, name) for name in each.__struct_fields__ if name != "item_id"} for each in looks]


def _named(each: msgspec.Struct) -> dict[str, Any]:
    told = _exact(each)
    return {**told, "point_id": str(told["point_id"])}


def _exact(value: msgspec.Struct) -> dict[str, Any]:
    told = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: f"{each:f}" if isinstance(each, Decimal) else each for name, each in told.items()}


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
