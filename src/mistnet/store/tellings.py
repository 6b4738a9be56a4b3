"""What the looks of one write say of each point, made fit to be compared with what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Final, TypeAlias

import msgspec

from mistnet.domain.items import ItemId, PriceAsked, PricePoint
from mistnet.domain.sources import SourceName
from mistnet.pricing.ranking import rank
from mistnet.store.driver_values import storable

Identity: TypeAlias = tuple[ItemId, SourceName, str]
"""What makes a point one and the same: item, source, dedupe key."""

_TEXTS: Final = ("dedupe_key", "title", "url", "external_id", "condition", "doubt")


class Telling(msgspec.Struct, frozen=True):
    """What the looks of one write say of a point: the strongest of their tellings, and how many looks saw it.

    A remembered answer tells of a point, and is no look.
    """

    point: PricePoint
    looks: int


def tellings(given: Sequence[PriceAsked]) -> dict[Identity, Telling]:
    """Each point once, however often it is told, in an order all writers share."""
    told: dict[Identity, Telling] = {}
    for asked in given:
        seen: dict[Identity, PricePoint] = {}
        for each in map(_clean, asked.points):
            identity = (asked.item_id, asked.source, each.dedupe_key)
            other = seen.get(identity)
            seen[identity] = each if other is None else max(each, other, key=rank)
        for identity, point in seen.items():
            before, looks = told.get(identity), 0 if asked.cached else 1
            told[identity] = Telling(point, looks) if before is None else _both(before, point, looks)
    return dict(sorted(told.items()))


def _both(before: Telling, point: PricePoint, looks: int) -> Telling:
    return Telling(max(before.point, point, key=rank), before.looks + looks)


def _clean(point: PricePoint) -> PricePoint:
    """As it will be read again: what is compared must be what is stored. Nearly all are so already."""
    texts = f"{point.dedupe_key}{point.title}{point.url}{point.external_id}{point.condition}{point.doubt}"
    if point.observed_at.tzinfo is UTC and storable(texts) == texts:
        return point
    clean = {name: storable(getattr(point, name)) for name in _TEXTS}
    return msgspec.structs.replace(point, **clean, observed_at=point.observed_at.astimezone(UTC))
