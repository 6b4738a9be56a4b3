"""A shop's own price history, read as crawls read it, with invented answers among the true ones.

The recorded history has no invented answers. They are put in by the pattern under which a shop was seen to give them
for three months: 1.1 to 1.8 times the price, list price alike, parts of the smallest unit in nearly every answer, a new
value at each look, and a count that falls to less than half in about one answer of eight.
"""

import csv
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec
import pytest

from mistnet.shops.extraction.facts import EarlierPrice
from mistnet.shops.jobs import judge_price
from mistnet.shops.model import PageFacts, PageVerdict, content_hash
from tests.corpora import Score, corpus

SECOND_LOOK: Final = timedelta(seconds=30)
REMEMBERED: Final = 20
SEEDS: Final = (20230217, 1, 2, 3, 4, 5)
FRACTIONAL, COUNTS_FALL, TRUE_BUT_FOR_THE_PRICE = "parts of a cent", "whole cents, counts fall", "whole cents"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the shop: when, what it says, and whether that is invented."""

    at: datetime
    facts: PageFacts
    invented: bool = False


def history() -> list[Look]:
    with corpus("shopee", "my_price_history_5118016952.dev.csv").open() as lines:
        looks = [_look(row) for row in csv.DictReader(lines)]
    return sorted(looks, key=lambda each: each.at)


def _look(row: dict[str, str]) -> Look:
    def amount(name: str) -> Decimal | None:
        raw = int(row[name])
        return Decimal(raw) / 100_000 if raw > 0 else None

    facts = PageFacts(
        verdict=PageVerdict.OFFER,
        amount=amount("price"),
        amount_max=amount("price_max"),
        list_amount=amount("price_before_discount"),
        currency="MYR",
        sold_count=int(row["historical_sold"]),
    )
    return Look(at=datetime.fromisoformat(row["observed_at"]), facts=facts)


def is_fractional(facts: PageFacts) -> bool:
    """The mark by which the invented answers of that shop are known afterwards."""
    return facts.amount is not None and facts.amount != round(facts.amount, 2)


def invented(true: PageFacts, chance: random.Random, pattern: str) -> PageFacts:
    times = Decimal(chance.randrange(110_000, 180_000)) / 100_000
    places = 5 if pattern == FRACTIONAL else 2
    told = {name: getattr(true, name) for name in ("amount", "amount_max", "list_amount")}
    noisy = {name: round(each * times, places) if each is not None else None for name, each in told.items()}
    sold = true.sold_count or 0
    falls = chance.random() < (1 if pattern == COUNTS_FALL else 0.12 if pattern == FRACTIONAL else 0)
    return msgspec.structs.replace(true, **noisy, sold_count=int(sold * chance.uniform(0.2, 0.48)) if falls else sold)


class Crawled:
    """What a crawl believes, as its store would remember it: an offer seen again is the same one, seen later."""

    def __init__(self) -> None:
        self._believed: list[tuple[str, EarlierPrice]] = []

    def believes(self, look: Look, again: Callable[[], PageFacts]) -> bool:
        """A price that is doubted gets a second look; what that sees is believed or not."""
        if self._judged(look.facts, look.at, seen_before=None):
            return True
        return self._judged(again(), look.at + SECOND_LOOK, seen_before=content_hash(look.facts))

    def _judged(self, facts: PageFacts, at: datetime, *, seen_before: str | None) -> bool:
        earlier = [each for _, each in self._believed[-REMEMBERED:]]
        if judge_price(facts, earlier, seen_before=seen_before, now=at) is not None:
            return False
        assert facts.amount is not None
        assert facts.currency is not None
        seen = content_hash(facts)
        if self._believed and self._believed[-1][0] == seen:
            self._believed.pop()
        told = EarlierPrice(amount=facts.amount, currency=facts.currency, observed_at=at, sold_count=facts.sold_count)
        self._believed.append((seen, told))
        return True


def scored(looks: Sequence[Look], chance: random.Random, pattern: str) -> tuple[Score, int]:
    """How well invented answers are told from true ones, and how many true ones were not believed."""
    crawled, score, lost = Crawled(), Score(), 0
    for look in looks:
        answers = invented(look.facts, chance, pattern) if look.invented else look.facts

        def again(look: Look = look) -> PageFacts:
            return invented(look.facts, chance, pattern) if look.invented else look.facts

        kept = crawled.believes(msgspec.structs.replace(look, facts=answers), again)
        score.there += look.invented
        score.told += not kept
        score.right += look.invented and not kept
        lost += not look.invented and not kept
    return score, lost


def in_a_window(looks: Sequence[Look], chance: random.Random) -> Iterator[Look]:
    """From some day on every answer is invented, until they end again, as it was seen."""
    begin = chance.randrange(10, len(looks) // 2)
    for place, look in enumerate(looks):
        yield msgspec.structs.replace(look, invented=begin <= place < begin + len(looks) // 3)


def here_and_there(looks: Sequence[Look], chance: random.Random) -> Iterator[Look]:
    for place, look in enumerate(looks):
        yield msgspec.structs.replace(look, invented=place > 0 and chance.random() < 0.25)


def summed(scores: Sequence[tuple[Score, int]]) -> tuple[Score, int]:
    whole = Score()
    for score, _ in scores:
        whole.right, whole.told, whole.there = (
            whole.right + score.right,
            whole.told + score.told,
            whole.there + score.there,
        )
    return whole, sum(lost for _, lost in scores)


def test_the_recorded_history_holds_no_invented_answer_and_is_believed_whole() -> None:
    looks = history()
    assert len(looks) > 150
    assert not any(is_fractional(each.facts) for each in looks)
    score, lost = scored(looks, random.Random(0), FRACTIONAL)
    print(f"{len(looks)} true looks, {lost} not believed")
    assert (score.told, lost) == (0, 0)


@pytest.mark.parametrize("spread", [in_a_window, here_and_there])
@pytest.mark.parametrize("pattern", [FRACTIONAL, COUNTS_FALL])
def test_answers_invented_by_the_known_pattern_are_kept_apart_and_true_ones_kept(
    pattern: str, spread: Callable[[Sequence[Look], random.Random], Iterator[Look]]
) -> None:
    looks = history()
    chances = [random.Random(seed) for seed in SEEDS]
    score, lost = summed([scored(list(spread(looks, chance)), chance, pattern) for chance in chances])
    print(f"{pattern}, {spread.__name__}: {score}; {lost} true rows lost")
    assert score.precision >= 0.99
    assert score.recall >= 0.99


def test_each_answer_in_parts_of_the_smallest_unit_is_doubted_whatever_its_past() -> None:
    """The rule by which they are labelled is one the crawl itself has: none of them slips through."""
    chance = random.Random(SEEDS[0])
    looks = [msgspec.structs.replace(each, facts=invented(each.facts, chance, FRACTIONAL)) for each in history()]
    labelled = [each for each in looks if is_fractional(each.facts)]
    assert len(labelled) >= 0.99 * len(looks)
    assert all(judge_price(each.facts, (), seen_before=content_hash(each.facts), now=each.at) for each in labelled)


def test_invented_answers_that_look_like_any_rise_of_a_price_are_told_only_by_their_unrest() -> None:
    """Whole cents and true counts: the first of them is a rise like any other. What changes at each look is doubted."""
    looks = history()
    chances = [random.Random(seed) for seed in SEEDS]
    windows = [list(in_a_window(looks, chance)) for chance in chances]
    score, lost = summed(
        [scored(window, chance, TRUE_BUT_FOR_THE_PRICE) for window, chance in zip(windows, chances, strict=True)]
    )
    print(f"{TRUE_BUT_FOR_THE_PRICE}, in a window: {score}; {lost} true rows lost")
    assert score.precision >= 0.9
    assert score.recall >= 0.5
