"""How shops of a country write amounts of money, and the words they use."""

import tomllib
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from mistnet.shops.extraction.currencies import THOUSANDTHS

FILE: Final = Path(__file__).with_name("locales.toml")
WITHOUT_CENTS: Final = frozenset({"JPY", "KRW", "TWD", "VND"})
WORTH: Final = {
    "USD": 1, "GBP": 1, "EUR": 1, "CHF": 1, "OMR": 0.4, "PLN": 4, "ILS": 4, "BRL": 5, "SEK": 10, "TWD": 30, "INR": 80,
    "JPY": 150, "KRW": 1300, "VND": 25_000,
}  # fmt: skip
"""About how many units of each currency one dollar is: only the size of prices follows from it."""


class Locale(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tld: str
    currency: str
    number: tuple[str, str]
    marks: list[str]
    words: dict[str, Any]
    rtl: bool = False

    @property
    def language(self) -> str:
        return self.name[:2]

    @property
    def decimals(self) -> int:
        return 0 if self.currency in WITHOUT_CENTS else 3 if self.currency in THOUSANDTHS else 2

    def amount(self, rng: Random, low: float = 4, high: float = 2_000) -> Decimal:
        """An amount that a shop of the country might ask for something worth this many dollars."""
        worth = low * (high / low) ** rng.random() * WORTH[self.currency]
        return self.rounded(Decimal(worth), rng)

    def rounded(self, worth: Decimal, rng: Random) -> Decimal:
        """To an amount as shops like them: 19.99, 20, 2,490, 149.000."""
        worth = max(worth, Decimal(2))
        if self.decimals == 0:
            step = Decimal(10) ** max(len(f"{int(worth)}") - rng.choice([1, 2, 2, 3]), 0)
            return max((worth // step) * step, step) - (rng.choice([0, 0, 1]) if step > 10 else 0)
        cents = rng.choice(["0.99", "0.99", "0.95", "0.90", "0.50", "0.00", "0.00", f"0.{rng.randrange(10, 100)}"])
        if self.decimals == 3:
            cents = rng.choice(["0.500", "0.900", "0.000", "0.250", f"0.{rng.randrange(100, 1000)}"])
        return Decimal(int(worth)) + Decimal(cents)

    def part(self, whole: Decimal, by: float) -> Decimal:
        """A share of an amount, in the currency's smallest unit; an instalment for example."""
        return round(whole * Decimal(by), self.decimals) if self.decimals else Decimal(int(whole * Decimal(by)))

    def write(self, amount: Decimal, *, bare: bool = False) -> str:
        """The number alone, with its groups. `bare` leaves out cents that are zero."""
        whole, _, cents = f"{amount:.{self.decimals}f}".partition(".")
        if self.currency == "INR" and len(whole) > 3:
            head, groups = whole[:-3], [whole[-3:]]
            while head:
                head, groups = head[:-2], [head[-2:], *groups]
        else:
            groups = [whole[max(end - 3, 0) : end] for end in range(len(whole), 0, -3)][::-1]
        said = self.number[0].join(groups)
        return said if not cents or (bare and not int(cents)) else f"{said}{self.number[1]}{cents}"


@cache
def locales() -> dict[str, Locale]:
    found = {}
    for name, words in tomllib.loads(FILE.read_text(encoding="utf-8")).items():
        own = {key: words.pop(key) for key in ("tld", "currency", "number", "marks", "rtl") if key in words}
        found[name] = msgspec.convert({"name": name, "words": words, **own}, Locale)
    return found
