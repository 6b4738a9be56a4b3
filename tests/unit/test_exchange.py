"""Amounts go from one currency to another by imported rates, and by no others."""

import random
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.prices.valuation import OLDEST, Converted, DatedRate, Rates, in_units, wrong_with

DAY = date(2026, 11, 1)


def told(base: str, quote: str, rate: str, day: date = DAY) -> DatedRate:
    return DatedRate(base=base, quote=quote, day=day, rate=Decimal(rate))


def converted(amount: str, currency: str, to: str, *rates: DatedRate, on: date = DAY) -> Converted | None:
    return Rates(rates).convert(Decimal(amount), currency, to, on)


def test_the_same_currency_needs_no_rate() -> None:
    assert converted("10.5", "USD", "USD") == Converted(amount=Decimal("10.5"))


def test_a_rate_is_named_with_its_day() -> None:
    assert converted("10", "EUR", "USD", told("EUR", "USD", "1.0800")) == Converted(
        amount=Decimal("10.80"), by="EUR/USD 1.08 of 2026-11-01"
    )


def test_a_rate_serves_backwards_and_says_so() -> None:
    assert converted("10.80", "USD", "EUR", told("EUR", "USD", "1.08")) == Converted(
        amount=Decimal("10.00"), by="EUR/USD 1.08 of 2026-11-01"
    )


def test_one_currency_in_between_is_allowed_and_both_rates_are_named() -> None:
    found = converted("3200", "TWD", "EUR", told("USD", "TWD", "32"), told("EUR", "USD", "1.25"))
    assert found == Converted(amount=Decimal("80.00"), by="USD/TWD 32 of 2026-11-01, EUR/USD 1.25 of 2026-11-01")


def test_two_currencies_in_between_are_not() -> None:
    rates = told("AUD", "CAD", "1"), told("CAD", "CHF", "1"), told("CHF", "DKK", "1")
    assert converted("1", "AUD", "DKK", *rates) is None


def test_a_missing_rate_is_never_guessed() -> None:
    assert converted("1", "EUR", "USD") is None
    assert converted("1", "EUR", "USD", told("EUR", "GBP", "0.9")) is None


@pytest.mark.parametrize(("after", "serves"), [(0, True), (31, True), (32, False), (-1, False)])
def test_a_rate_serves_for_a_month_after_its_day_and_never_before(after: int, serves: bool) -> None:
    found = converted("1", "EUR", "USD", told("EUR", "USD", "1.08"), on=DAY + timedelta(days=after))
    assert (found is not None) == serves


def test_the_latest_rate_that_is_not_later_serves() -> None:
    rates = (
        told("EUR", "USD", "1.1", DAY - timedelta(days=3)),
        told("EUR", "USD", "1.2"),
        told("EUR", "USD", "1.3", DAY + OLDEST),
    )
    found = converted("10", "EUR", "USD", *rates, on=DAY + timedelta(days=1))
    assert found is not None
    assert found.amount == Decimal("12.00")


def test_of_both_ways_round_the_later_day_serves_and_of_one_day_the_straight_one() -> None:
    older, newer = told("EUR", "USD", "1.1", DAY - timedelta(days=1)), told("USD", "EUR", "0.5")
    found = converted("10", "EUR", "USD", older, newer)
    assert found is not None
    assert found.by == "USD/EUR 0.5 of 2026-11-01"
    found = converted("10", "EUR", "USD", told("EUR", "USD", "1.1"), newer)
    assert found is not None
    assert found.by == "EUR/USD 1.1 of 2026-11-01"


@pytest.mark.parametrize(
    ("amount", "currency", "payable"),
    [("10.005", "USD", "10.00"), ("12345.6", "VND", "12346"), ("1.23456", "KWD", "1.235")],
)
def test_amounts_end_in_what_can_be_paid(amount: str, currency: str, payable: str) -> None:
    assert in_units(Decimal(amount), currency) == Decimal(payable)


def test_the_largest_amounts_are_no_trouble() -> None:
    found = converted("999999999999999", "KWD", "VND", told("KWD", "VND", "999999999999999999"))
    assert found is not None
    assert found.amount == Decimal(999999999999999 * 999999999999999999)


RATE = st.decimals("0.0001", "10000", places=4).filter(bool)


@given(st.lists(st.tuples(st.sampled_from(["EUR", "GBP", "TWD"]), RATE, st.integers(0, 60)), max_size=8), st.randoms())
def test_the_order_in_which_rates_are_told_does_not_matter(
    rates: list[tuple[str, Decimal, int]], chance: random.Random
) -> None:
    known = {
        (base, back): DatedRate(base=base, quote="USD", day=DAY - timedelta(days=back), rate=rate)
        for base, rate, back in rates
    }
    shuffled = list(known.values())
    chance.shuffle(shuffled)
    for currency in ("EUR", "GBP", "TWD"):
        for to in ("USD", "EUR"):
            straight = Rates(known.values()).convert(Decimal(100), currency, to, DAY)
            assert straight == Rates(shuffled).convert(Decimal(100), currency, to, DAY)


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        (told("EUR", "USD", "1.08"), None),
        (told("EUR", "USD", "1.08", DAY + timedelta(days=1)), None),
        (told("EUR", "USD", "1.08", DAY + timedelta(days=2)), "not over yet"),
        (told("EUR", "EUR", "1"), "needs no rate"),
        (told("EUR", "XYZ", "1"), "'XYZ' is no currency"),
        (told("EUR", "USD", "0"), "above 0"),
        (told("EUR", "USD", "-1"), "above 0"),
        (told("EUR", "USD", "NaN"), "above 0"),
        (told("EUR", "USD", "Infinity"), "above 0"),
        (told("EUR", "USD", "1E+30"), "more digits"),
        (told("EUR", "USD", "1E-30"), "more digits"),
    ],
)
def test_a_rate_that_cannot_be_is_refused_with_the_reason(rate: DatedRate, problem: str | None) -> None:
    found = wrong_with(rate, today=DAY)
    assert found is None if problem is None else problem in str(found)
