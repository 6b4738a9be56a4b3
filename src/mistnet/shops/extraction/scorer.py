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

from mistnet.shops.extraction.facts import PriceCandidate

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
    """The groups of a page in the order of their first candidates."""
    groups: dict[Decimal, PriceGroup] = {}
    for each in candidates:
        source = source_of(each.path)
        group = groups.setdefault(each.amount, PriceGroup(amount=each.amount, best={}, features={}))
        held = group.best.get(source)
        if held is None or weigh(each.features, by) > weigh(held.features, by):
            group.best[source] = each
    shown = [
        each for each in candidates if source_of(each.path) == "visible" and not _NOT_CURRENT & each.features.keys()
    ]
    current = {each.amount for each in shown}
    bids = {each.amount for each in shown if each.features.keys() & _BIDS}
    for group in groups.values():
        data = len(_STRUCTURED & group.best.keys())
        is_shown = "visible" in group.best
        is_former = data > 0 and is_shown and group.amount not in current
        known = {
            "data_agree": data > 1 and not is_former,
            "data_and_visible": _is_of_the_page(group) and group.amount in current,
            "data_only_former": is_former,
            "data_unseen": data > 0 and not is_shown and bool(current),
            "script_agrees": "script" in group.best and len(group.best) > 1 and not is_former,
            "not_the_bid": bool(bids) and group.amount not in bids,
        }
        group.features.update((name, 1.0) for name, is_so in known.items() if is_so)
    return [*groups.values()]


def _is_of_the_page(group: PriceGroup) -> bool:
    """Whether data name the amount as that of the page's own thing, not only of one of many or of another."""
    data = (each for name, each in group.best.items() if name in _STRUCTURED)
    return any(_OF_OTHERS.isdisjoint(each.features) for each in data)


_OF_OTHERS: Final = frozenset({"crowded", "aside_data"})
_BIDS: Final = frozenset({"left_bid", "name_bid"})
_NOT_CURRENT: Final = frozenset(
    {"struck", "card", "linked", "related", "left_list", "left_start_bid", "name_old", "hidden", "former_of_pair"}
)


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
