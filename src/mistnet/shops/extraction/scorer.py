"""Chooses the price of a page among its candidates by weighted features, and says how sure the choice is.

Candidates of one amount are a group. A group's score is the sum of the best candidate of each kind of source, and of
what their agreement is worth. No price is an option too: its score is what speaks against a page that sells one thing.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib.resources import files
from typing import Final

import msgspec

from mistnet.shops.extraction.reading import PriceCandidate

_STRUCTURED: Final = frozenset({"json-ld", "microdata", "rdfa", "meta", "shop"})


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """What each feature is worth: those of a candidate, of a group, and of a page (for no price)."""

    candidate: Mapping[str, float]
    group: Mapping[str, float]
    page: Mapping[str, float]


OWN: Final = msgspec.toml.decode(files(__package__).joinpath("weights.toml").read_bytes(), type=Weights)


def source_of(path: str) -> str:
    return path.partition(":")[0].partition("[")[0]


def weigh(features: Mapping[str, float], by: Mapping[str, float]) -> float:
    return sum(value * by.get(name, 0.0) for name, value in features.items())


class PriceGroup(msgspec.Struct, kw_only=True):
    """All candidates of one amount: the best of each source, and the features of their agreement."""

    amount: Decimal
    best: dict[str, PriceCandidate]
    features: dict[str, float]
    score: float = 0.0


def group_candidates(candidates: Sequence[PriceCandidate], by: Mapping[str, float]) -> list[PriceGroup]:
    groups: dict[Decimal, PriceGroup] = {}
    seen_plain: set[Decimal] = set()
    seen: set[Decimal] = set()
    for each in candidates:
        source = source_of(each.path)
        group = groups.setdefault(each.amount, PriceGroup(amount=each.amount, best={}, features={}))
        held = group.best.get(source)
        if held is None or weigh(each.features, by) > weigh(held.features, by):
            group.best[source] = each
        if source == "visible" and "hidden" not in each.features:
            seen.add(each.amount)
            if not _NOT_CURRENT & each.features.keys():
                seen_plain.add(each.amount)
    for group in groups.values():
        sources = set(group.best)
        data = len(sources & _STRUCTURED)
        if data > 1:
            group.features["data_agree"] = 1.0
        if data and "visible" in sources:
            group.features["data_and_visible" if group.amount in seen_plain else "data_only_former"] = 1.0
        elif data and seen_plain:
            group.features["data_unseen"] = 1.0
        if "script" in sources and len(sources) > 1:
            group.features["script_agrees"] = 1.0
    return [*groups.values()]


_NOT_CURRENT: Final = frozenset({"struck", "card", "linked", "left_list", "name_old", "hidden"})


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The winner, how sure it is, the score of no price, and all groups, the highest score first."""

    winner: PriceGroup | None
    confidence: float
    none_score: float
    groups: Sequence[PriceGroup]

    @property
    def rivals(self) -> Sequence[PriceGroup]:
        return self.groups[1:] if self.winner else self.groups


def choose(candidates: Sequence[PriceCandidate], page: Mapping[str, float], by: Weights = OWN) -> Choice:
    groups = group_candidates(candidates, by.candidate)
    for group in groups:
        parts = (weigh(each.features, by.candidate) for each in group.best.values())
        group.score = weigh(group.features, by.group) + sum(parts)
    groups.sort(key=lambda each: -each.score)
    none = weigh(page, by.page)
    scores = [none, *(each.score for each in groups)]
    most = max(scores)
    won = bool(groups) and groups[0].score > none
    confidence = 1 / sum(math.exp(each - most) for each in scores)
    return Choice(winner=groups[0] if won else None, confidence=confidence, none_score=none, groups=groups)


def ranked(choice: Choice) -> Sequence[PriceCandidate]:
    """The best candidate of each source of each group with the score of its group, the highest first."""
    return [
        msgspec.structs.replace(
            each,
            features={**each.features, **group.features},
            score=round(group.score, 2),
            chosen=group is choice.winner,
        )
        for group in choice.groups
        for each in group.best.values()
    ]
