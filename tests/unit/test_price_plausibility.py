"""Invented prices are doubted; true ones are not."""

import csv
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from mistnet.shops.extraction.facts import EarlierPrice, find_doubt
from mistnet.shops.model import PageFacts, PageVerdict
from tests.corpora import corpus

DAY = timedelta(days=1)
START = datetime(2026, 3, 1, tzinfo=UTC)


def offer(
    amount: str | Decimal, currency: str | None = "VND", *, sold: int | None = None, ratings: int | None = None
) -> PageFacts:
    return PageFacts(
        verdict=PageVerdict.OFFER, amount=Decimal(amount), currency=currency, sold_count=sold, rating_count=ratings
    )


def seen(*amounts: str, currency: str = "VND", apart: timedelta = DAY, sold: int | None = None) -> list[EarlierPrice]:
    return [
        EarlierPrice(amount=Decimal(each), currency=currency, observed_at=START + apart * place, sold_count=sold)
        for place, each in enumerate(amounts)
    ]


@pytest.mark.parametrize(
    ("amount", "currency"),
    [("125000.5", "VND"), ("1280.40", "TWD"), ("12.345", "MYR"), ("980.5", "JPY"), ("1.2345", "KWD")],
)
def test_an_amount_below_the_smallest_unit_is_doubted(amount: str, currency: str) -> None:
    assert "smallest unit" in str(find_doubt(offer(amount, currency), ()))


@pytest.mark.parametrize(
    ("amount", "currency"), [("125000", "VND"), ("1280.00", "TWD"), ("12.90", "MYR"), ("4.250", "KWD")]
)
def test_a_whole_amount_is_believed(amount: str, currency: str) -> None:
    assert find_doubt(offer(amount, currency), ()) is None


def test_a_list_price_in_parts_of_a_dong_is_doubted_as_well() -> None:
    facts = PageFacts(verdict=PageVerdict.OFFER, amount=Decimal(5000), list_amount=Decimal("9000.7"), currency="VND")
    assert find_doubt(facts, ()) is not None


@pytest.mark.parametrize("amount", ["10", "5000"])
def test_a_jump_is_doubted(amount: str) -> None:
    assert "jumped" in str(find_doubt(offer(amount, "TWD"), seen("100", "110", "100", currency="TWD")))


@pytest.mark.parametrize("amount", ["50", "99", "180", "300"])
def test_a_sale_or_a_rise_is_believed(amount: str) -> None:
    assert find_doubt(offer(amount, "TWD", sold=105), seen("100", "110", "100", currency="TWD", sold=100)) is None


def test_another_currency_is_doubted() -> None:
    assert "currency" in str(find_doubt(offer("100", "USD"), seen("100", currency="TWD")))


def test_a_price_of_unknown_currency_is_doubted() -> None:
    assert "currency" in str(find_doubt(offer("100", None), ()))


def test_counts_that_fall_to_half_are_doubted() -> None:
    assert "sold" in str(find_doubt(offer("100000", sold=400), seen("100000", sold=1000)))


def test_counts_that_fall_a_little_are_doubted_only_if_the_price_moved() -> None:
    earlier = seen("100000", sold=1000)
    assert find_doubt(offer("100000", sold=940), earlier) is None
    assert "moved" in str(find_doubt(offer("143000", sold=940), earlier))


def test_a_new_price_at_every_look_is_doubted() -> None:
    shaky = seen("100000", "143000", "151000", "128000", apart=timedelta(hours=3))
    assert "different prices" in str(find_doubt(offer("160000"), shaky))
    assert find_doubt(offer("160000"), seen("100000", "143000", "151000", "128000", apart=30 * DAY)) is None


def test_two_looks_minutes_apart_must_agree() -> None:
    earlier = seen("100000")
    soon = START + timedelta(minutes=2)
    assert "minutes apart" in str(find_doubt(offer("120000"), earlier, now=soon))
    assert find_doubt(offer("120000"), earlier, now=START + DAY) is None


@pytest.mark.parametrize(("amount", "currency"), [("99999", "TWD"), ("111111", "MYR"), ("123456", "TWD")])
def test_a_placeholder_is_doubted(amount: str, currency: str) -> None:
    assert "placeholder" in str(find_doubt(offer(amount, currency), ()))
    assert find_doubt(offer("99999", "IDR"), ()) is None


def test_no_price_gives_nothing_to_doubt() -> None:
    assert find_doubt(PageFacts(verdict=PageVerdict.BLOCKED), ()) is None


def history() -> Iterator[tuple[Decimal, int, datetime]]:
    with corpus("shopee", "my_price_history_5118016952.dev.csv").open() as lines:
        for row in csv.DictReader(lines):
            at = datetime.fromisoformat(row["observed_at"])
            yield Decimal(row["price"]) / 100_000, int(row["historical_sold"]), at


def test_true_history_is_believed_and_invented_answers_among_it_are_not() -> None:
    """Decoys as they were seen: 1.1 to 1.8 times the price, a new value each time, often with falling counts."""
    chance = random.Random(20230217)
    earlier: list[EarlierPrice] = []
    false_doubts = looks = 0
    caught = {"parts of the smallest unit": 0, "falling counts": 0, "ten times the price": 0}
    for amount, sold, at in history():
        looks += 1
        false_doubts += find_doubt(offer(amount, "MYR", sold=sold), earlier) is not None
        if earlier:
            invented = amount * Decimal(str(round(chance.uniform(1.1, 1.8), 6)))
            fewer = int(sold * chance.uniform(0.3, 0.95))
            caught["parts of the smallest unit"] += find_doubt(offer(invented, "MYR", sold=sold), earlier) is not None
            caught["falling counts"] += find_doubt(offer(round(invented, 2), "MYR", sold=fewer), earlier) is not None
            caught["ten times the price"] += find_doubt(offer(amount * 10, "MYR", sold=sold), earlier) is not None
        earlier.append(EarlierPrice(amount=amount, currency="MYR", observed_at=at, sold_count=sold))
    print(f"{looks} true looks, {false_doubts} doubted; caught of {looks - 1} each: {caught}")
    assert false_doubts == 0
    assert min(caught.values()) >= 0.97 * (looks - 1)


def test_a_run_of_whole_decoys_without_counts_is_caught_after_a_few() -> None:
    chance = random.Random(7)
    earlier = seen(*["100000"] * 10, apart=timedelta(hours=2))
    doubts = []
    for step in range(30):
        at = earlier[-1].observed_at + timedelta(hours=1 + step)
        amount = Decimal(chance.randrange(110, 180) * 1000 + chance.randrange(1000))
        doubts.append(find_doubt(offer(amount), earlier) is not None)
        if not doubts[-1]:
            earlier.append(EarlierPrice(amount=amount, currency="VND", observed_at=at))
    print(f"caught {sum(doubts)} of {len(doubts)}, the first at look {doubts.index(True) + 1}")
    assert sum(doubts) >= 20
