"""Values read from a page, each with its evidence; how they become the page's facts; why a price is not believed yet.

A reading is all that a page was read as: its kind, every amount that could be its price, and why one was chosen.

A well-formed response is no proof of a true price: shops are known to serve invented amounts to crawlers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from statistics import median
from typing import Any, Final

import msgspec

from mistnet.kit.text import web_url
from mistnet.shops.extraction.currencies import THOUSANDTHS, WHOLE
from mistnet.shops.model import Availability, Evidence, PageFacts, PageKind, PageVerdict, Price, PriceKind

_SURE: Final = 0.8
_SNIPPET: Final = 160
_TOO_DEAR: Final = Decimal(10) ** 13
# The fields of a page, in the order of their evidence.
_FIELDS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("title", "brand", "sku", "image_url", "canonical_url"), str),
    **dict.fromkeys(("price", "list_price"), Price),
    "availability": Availability,
    **dict.fromkeys(("sold_count", "rating_count", "bid_count"), int),
    "kind": PriceKind,
    "currency": str,
}
_ADDRESSES: Final = ("image_url", "canonical_url")
_FACTS: Final = {"price": "amount", "list_price": "list_amount"}
Value = str | int | Price | Availability | PriceKind


class PageFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one field, where it was read, and the confidence."""

    field: str
    value: Value
    path: str
    snippet: str
    confidence: float
    features: Mapping[str, float] = {}
    """What the scorer weighs, for prices."""

    @property
    def evidence(self) -> Evidence:
        return Evidence(
            field=_FACTS.get(self.field, self.field), path=self.path, snippet=self.snippet, confidence=self.confidence
        )


def finding(
    field: str,
    value: Value | None,
    *,
    path: str,
    snippet: object,
    confidence: float,
    features: Mapping[str, float] | None = None,
) -> Iterable[PageFinding]:
    """One finding, or none if there is no usable value."""
    if value is None or value == "" or (isinstance(value, Price) and not 0 < value.amount < _TOO_DEAR):
        return ()
    short = " ".join(str(snippet).split())[:_SNIPPET]
    return (
        PageFinding(field=field, value=value, path=path, snippet=short, confidence=confidence, features=features or {}),
    )


class Origin(msgspec.Struct, frozen=True):
    """Where values are read, the confidence in them, and what the scorer weighs for a price that stands there."""

    path: str
    confidence: float
    features: Mapping[str, float] = {}

    def finding(
        self,
        field: str,
        value: Value | None,
        key: str,
        seen: object,
        *,
        weight: float = 1.0,
        features: Sequence[str] = (),
    ) -> Iterable[PageFinding]:
        """The value of one key: `path` goes on with it."""
        weighed = {**self.features, **dict.fromkeys(features, 1.0)} if field == "price" else None
        confidence = self.confidence * weight
        return finding(field, value, path=self.path + key, snippet=seen, confidence=confidence, features=weighed)

    def verdict(self, verdict: PageVerdict, reason: str, key: str, seen: object) -> PageFacts:
        """The facts of a page that shows no product, with what says so."""
        snippet = str(seen)[:_SNIPPET]
        evidence = Evidence(field="verdict", path=self.path + key, snippet=snippet, confidence=self.confidence)
        kind = PageKind.BLOCKED if verdict is PageVerdict.BLOCKED else PageKind.GONE
        return PageFacts(verdict=verdict, reason=reason, page_kind=kind, evidence=(evidence,))


def best(findings: Sequence[PageFinding], field: str) -> PageFinding | None:
    """The finding of a field with the highest confidence; of equals, the first."""
    return max((each for each in findings if each.field == field), key=lambda each: each.confidence, default=None)


def is_sure(found: PageFinding | None) -> bool:
    return found is not None and found.confidence >= _SURE


def settle(findings: Sequence[PageFinding]) -> PageFacts:
    """The facts of a page that shows a product, with or without a price."""
    findings = [each for each in findings if each.field not in _ADDRESSES or web_url(str(each.value))]
    chosen = {field: found for field in _FIELDS if (found := best(findings, field))}
    values: dict[str, Any] = {
        field: found.value for field, found in chosen.items() if isinstance(found.value, _FIELDS[field])
    }
    price: Price | None = values.pop("price", None)
    listed: Price | None = values.pop("list_price", None)
    if price is None:
        chosen.pop("currency", None)
        values.pop("currency", None)
    elif price.currency:  # before the page's own
        seen = chosen["price"]
        chosen |= {
            each.field: each
            for each in finding(
                "currency", price.currency, path=seen.path, snippet=seen.snippet, confidence=seen.confidence
            )
        }
        values["currency"] = price.currency
    # A list price is above the price, and in the same currency.
    currencies = (None, price.currency) if price and price.currency else None
    if listed and price and listed.amount > price.amount and (not currencies or listed.currency in currencies):
        values["list_amount"] = listed.amount
    else:
        chosen.pop("list_price", None)
    return PageFacts(
        verdict=PageVerdict.OFFER if price else PageVerdict.NO_PRICE,
        reason=None if price else "no price on the page",
        amount=price.amount if price else None,
        amount_max=price.amount_max if price else None,
        evidence=tuple(each.evidence for each in chosen.values()),
        **values,
    )


_RECENT: Final = 20
_JUMP: Final = Decimal(5)
_MOVED: Final = Decimal("0.05")
_SLACK: Final = 0.02
_FELL: Final = 0.75
_SHAKY_WINDOW: Final = timedelta(hours=48)
_SHAKY_LOOKS: Final = 3
_MINUTES_APART: Final = timedelta(minutes=10)
# Currencies whose everyday prices have five and more digits.
_SMALL_UNITS: Final = frozenset(("VND", "IDR", "KRW", "LAK", "KHR", "MMK", "PYG", "COP", "CLP", "HUF"))


class EarlierPrice(msgspec.Struct, frozen=True, kw_only=True):
    """One earlier observation of the same product."""

    amount: Decimal
    currency: str
    observed_at: datetime
    sold_count: int | None = None
    rating_count: int | None = None


def find_doubt(new: PageFacts, earlier: Sequence[EarlierPrice], *, now: datetime | None = None) -> str | None:
    """Why an offer is doubted; None if nothing speaks against it.

    `earlier` are observations of the same product in any order, without the doubted ones. With `now`, two visits
    minutes apart are compared too.
    """
    if new.amount is None:
        return None
    known = sorted(earlier, key=lambda each: each.observed_at)[-_RECENT:]
    return new.doubt or next(_doubts(new, new.amount, known, now), None)


def _doubts(new: PageFacts, amount: Decimal, known: Sequence[EarlierPrice], now: datetime | None) -> Iterator[str]:
    """What is odd about the amounts themselves, then what speaks against them in the light of earlier ones."""
    if new.currency is None:
        yield "nothing tells the currency"
    # No price has parts of a dong, or thousandths of a dollar.
    places = 0 if new.currency in WHOLE else 3 if new.currency in THOUSANDTHS else 2
    for each in (amount, new.amount_max, new.list_amount):
        if each is not None and each != round(each, places):
            yield f"{each} {new.currency} is not a whole number of the currency's smallest unit"
    # Sellers write 99,999 for products that are not for sale.
    digits = f"{amount:f}".split(".")[0]
    least = 8 if new.currency in _SMALL_UNITS else 5
    is_odd = len(digits) >= least and (set(digits) in ({"9"}, {"1"}) or "123456789".startswith(digits))
    if is_odd and all(each.amount != amount for each in known):
        yield f"{amount} looks like a placeholder, not a price"
    if not known:
        return
    last = known[-1]
    if new.currency not in {each.currency for each in known}:
        yield f"the currency changed from {last.currency} to {new.currency}"
    amounts = [each.amount for each in known if each.currency == new.currency and each.amount > 0]
    usual = [Decimal(median(amounts)), amounts[-1]] if amounts else []
    if usual and all(amount >= each * _JUMP or amount * _JUMP <= each for each in usual):
        yield f"the price jumped from {amounts[-1]} to {amount}"
    has_moved = bool(last.amount) and abs(amount / last.amount - 1) >= _MOVED
    yield from _fallen_counts(new, known, has_moved=has_moved)
    # A new price at every visit, within two days.
    late = known[-_SHAKY_LOOKS:]
    values = {*(each.amount for each in late), amount}
    is_quick = len(late) == _SHAKY_LOOKS and late[-1].observed_at - late[0].observed_at <= _SHAKY_WINDOW
    if is_quick and len(values) > _SHAKY_LOOKS and all(each.currency == new.currency for each in late):
        yield f"{len(values)} different prices in {len(values)} looks within two days"
    if now is not None and has_moved and now - last.observed_at <= _MINUTES_APART:
        yield f"two looks minutes apart disagree: {last.amount} and {amount}"


def _fallen_counts(new: PageFacts, known: Sequence[EarlierPrice], *, has_moved: bool) -> Iterator[str]:
    """Sales and ratings only grow. A fall by a quarter is enough to doubt, a smaller one if the price moved with it."""
    for name, count, before in (
        ("sold", new.sold_count, [each.sold_count for each in known if each.sold_count is not None]),
        ("ratings", new.rating_count, [each.rating_count for each in known if each.rating_count is not None]),
    ):
        if count is None or not before:
            continue
        most = before[-1]
        if most >= 10 and count < most * _FELL:
            yield f"the count of {name} fell from {most} to {count}"
        if has_moved and count < most - max(2, int(most * _SLACK)):
            yield f"the price moved while the count of {name} fell from {most} to {count}"


_MOST_KEPT: Final = 12


class PriceRole(StrEnum):
    """What an amount on a page is. Only those of role `price` compete for the page's price."""

    PRICE = "price"
    LIST_PRICE = "list_price"
    INSTALMENT = "instalment"
    UNIT_PRICE = "unit_price"
    SHIPPING = "shipping"
    SAVING = "saving"
    BID = "bid"
    OTHER = "other"


class PriceCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One amount of a page, where it stands, and what speaks for and against it.

    `path` is like that of evidence: `json-ld:Product.offers.price`, `visible:span.price`. `features` are the values
    that the scorer weighs; `score` is their weighted sum.
    """

    amount: Decimal
    amount_max: Decimal | None = None
    currency: str | None = None
    path: str
    snippet: str
    role: PriceRole = PriceRole.PRICE
    features: Mapping[str, float] = {}
    score: float = 0.0
    chosen: bool = False


class PageReading(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a page, what says what kind of page it is, and its candidates, the highest score first."""

    facts: PageFacts
    kind_evidence: Sequence[Evidence] = ()
    candidates: Sequence[PriceCandidate] = ()

    @property
    def page_kind(self) -> PageKind:
        return self.facts.page_kind

    @property
    def confidence(self) -> float | None:
        """How sure the price is, from 0 to 1; None without a price."""
        return self.facts.confidence

    @property
    def is_doubtful(self) -> bool:
        return self.facts.doubt is not None

    def kept(self) -> bytes:
        """What is stored with the offer, as JSON: the candidates that came closest are enough to judge the decision."""
        return msgspec.json.encode(
            KeptReading(
                page_kind=self.page_kind,
                kind_evidence=self.kind_evidence,
                candidates=[each for place, each in enumerate(self.candidates) if place < _MOST_KEPT or each.chosen],
            )
        ).replace(b"\\u0000", b"\\ufffd")


class KeptReading(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a reading that is stored with its offer."""

    page_kind: PageKind
    kind_evidence: Sequence[Evidence] = ()
    candidates: Sequence[PriceCandidate] = ()
