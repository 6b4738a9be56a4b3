"""Prices in the data that a page keeps for its own scripts: application state, data layers, lists of variants."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Final

from mistnet.shops.extraction.price_words import name_says
from mistnet.shops.extraction.reading import PriceCandidate

_QUOTE: Final = r"""(?:\\{0,3}["']|&quot;|&\#34;)?"""
# The letters that every such key holds come first: they are found fast.
_PRICE: Final = re.compile(
    rf"rice(?P<rest>[A-Za-z_]{{0,24}}){_QUOTE}\s{{0,2}}[:=]\s{{0,2}}"
    rf"(?:\{{\s{{0,9}}{_QUOTE}(?:amount|value|current|raw|sale|final|now|price){_QUOTE}\s{{0,2}}:\s{{0,2}})?{_QUOTE}"
    r"(?P<number>\d{1,9}+(?:\.\d{1,4}+)?+)(?![\d%]|,\d)"
)
_BEGINNING: Final = re.compile(r"-?\w*$")
_MOST: Final = 400
_MOST_AMOUNTS: Final = 24
_FEW: Final = 3
_CENTS: Final = 100


def embedded_candidates(html: str) -> Iterator[PriceCandidate]:
    """One candidate for each amount, in the order in which they first stand there."""
    keys = _amounts(html)
    few = ["few"] if len(keys) <= _FEW else []
    for order, (amount, names) in enumerate([*keys.items()][:_MOST_AMOUNTS]):
        said = [*few, *(["first"] if order == 0 else []), *(["again"] if len(names) > 1 else [])]
        if all(name_says(name).roles & _FORMER for name in names):
            said.append("former")
        yield _candidate(amount, names[0], amount, ["script", *(f"script_{each}" for each in said)])
        if amount >= _CENTS and amount == amount.to_integral_value():
            yield _candidate(
                amount / _CENTS, names[0], amount, ["script_cents", *(f"script_{each}_cents" for each in few)]
            )


def _candidate(amount: Decimal, name: str, written: Decimal, features: Sequence[str]) -> PriceCandidate:
    return PriceCandidate(
        amount=amount, path=f"script:{name}", snippet=f"{name}: {written}", features=dict.fromkeys(features, 1.0)
    )


def _amounts(html: str) -> Mapping[Decimal, Sequence[str]]:
    """The amounts that keys named for a price hold, each with its keys."""
    keys: dict[Decimal, list[str]] = {}
    read = [*_json_ld(html)]
    for found in islice(_PRICE.finditer(html), _MOST):
        place = bisect_right(read, (found.start(), len(html)))
        amount = Decimal(found["number"])
        begin = _BEGINNING.search(html[max(found.start() - 24, 0) : found.start()])
        is_attribute = begin is None or begin[0].startswith("-")
        if amount > 0 and not is_attribute and not (place and found.start() < read[place - 1][1]):
            keys.setdefault(amount, []).append(f"{begin[0] if begin else ''}rice{found['rest']}")
    return keys


def _json_ld(html: str) -> Iterator[tuple[int, int]]:
    """The parts of a page that are JSON-LD: they are read elsewhere, and would agree with themselves."""
    begin = html.find(_LD)
    while begin >= 0:
        end = html.find("</script", begin)
        end = end if end >= 0 else len(html)
        yield begin, end
        begin = html.find(_LD, end)


_LD: Final = "ld+json"
_FORMER: Final = frozenset({"old", "saving", "shipping", "unit", "instalment", "from"})
