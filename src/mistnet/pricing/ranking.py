"""Which of two tellings of the same observation is kept: one fixed order, so that it never matters which came first."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from mistnet.domain.items import PricePoint

Rank: TypeAlias = tuple[Any, ...]


def head(point: Any) -> Rank:
    """What decides nearly always: the stronger match, then one that is believed, then the later look."""
    return point.match_strength, point.doubt is None, point.observed_at


def rank(point: PricePoint) -> Rank:
    """Of two that are alike in all of that, the values themselves decide. Equal ranks are equal points."""
    return (
        *head(point),
        (point.amount, f"{point.amount:f}"),
        point.currency,
        point.kind.value,
        *map(_told, (point.bid_count, point.condition, point.title, point.url, point.external_id)),
        *map(_told, (point.product_id, point.offer_id, point.doubt)),
    )


def strongest(points: Iterable[PricePoint]) -> PricePoint:
    return max(points, key=rank)


def _told(value: str | int | None) -> tuple[bool, str | int]:
    """What is told goes before what is not."""
    return value is not None, "" if value is None else value
