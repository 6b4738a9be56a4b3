"""Amounts look the same wherever people read them."""

from decimal import Decimal

import pytest

from mistnet.kit.text import money
from mistnet.sources.x.client import format_dollars
from mistnet.web.pages import render


@pytest.mark.parametrize(
    ("credits_spent", "shown"),
    [(0, "$0.00"), (15, "<$0.01"), (999, "<$0.01"), (1_000, "$0.01"), (80_123, "$0.80"), (123_456_789, "$1,234.57")],
)
def test_dollars_have_two_digits_and_a_little_is_not_nothing(credits_spent: int, shown: str) -> None:
    assert format_dollars(credits_spent) == shown
    assert render.dollars(credits_spent) == shown


def test_amounts_keep_all_their_digits_and_are_grouped_by_thousands() -> None:
    assert money(Decimal("1370.00"), "TWD") == "1,370.00 TWD"
    assert money(Decimal("1370.00"), "TWD", Decimal("1400.00")) == "1,370.00 to 1,400.00 TWD"
    assert money(Decimal("0.0001"), None) == "0.0001"
    assert money(None, "TWD") == ""


def test_the_command_and_the_pages_show_amounts_alike() -> None:
    assert render.money(Decimal("1370.00"), "TWD") == money(Decimal("1370.00"), "TWD")
