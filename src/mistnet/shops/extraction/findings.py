"""Values read from a page, each with its evidence, and how they become the facts of the page."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final, TypeVar

import msgspec

from mistnet.kit.text import web_url
from mistnet.shops.model import Availability, Evidence, PageFacts, PageVerdict, Price, PriceKind

_SURE: Final = 0.8
_SNIPPET: Final = 160
_TOO_DEAR: Final = Decimal(10) ** 13
_FIELDS: Final = (
    *("title", "brand", "sku", "image_url", "canonical_url", "price", "list_price", "availability"),
    *("sold_count", "rating_count", "bid_count", "kind"),
)
_ADDRESSES: Final = ("image_url", "canonical_url")
_FACTS: Final = {"price": "amount", "list_price": "list_amount"}
Value = str | int | Price | Availability | PriceKind
_T = TypeVar("_T", str, int, Price, Availability, PriceKind)


class PageFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one field, where it was read, and the confidence."""

    field: str
    value: Value
    path: str
    snippet: str
    confidence: float

    @property
    def evidence(self) -> Evidence:
        return Evidence(
            field=_FACTS.get(self.field, self.field), path=self.path, snippet=self.snippet, confidence=self.confidence
        )


def finding(field: str, value: Value | None, *, path: str, snippet: object, confidence: float) -> Iterable[PageFinding]:
    """One finding, or none if there is no usable value."""
    if value is None or value == "" or (isinstance(value, Price) and not 0 < value.amount < _TOO_DEAR):
        return ()
    short = " ".join(str(snippet).split())[:_SNIPPET]
    return (PageFinding(field=field, value=value, path=path, snippet=short, confidence=confidence),)


def best(findings: Sequence[PageFinding], field: str) -> PageFinding | None:
    """The finding of a field with the highest confidence; of equals, the first."""
    return max((each for each in findings if each.field == field), key=lambda each: each.confidence, default=None)


def is_sure(found: PageFinding | None) -> bool:
    return found is not None and found.confidence >= _SURE


def settle(findings: Sequence[PageFinding], *, kind: PriceKind = PriceKind.ASK) -> PageFacts:
    """The facts of a page that shows a product, with or without a price."""
    findings = [each for each in findings if each.field not in _ADDRESSES or web_url(str(each.value))]
    price = best(findings, "price")
    asked = _of(price, Price)
    listed = _of(_listed(findings, asked), Price)
    used = [best(findings, each) for each in _FIELDS]
    currency = _currency(price, best(findings, "currency"))
    return PageFacts(
        verdict=PageVerdict.OFFER if asked else PageVerdict.NO_PRICE,
        reason=None if asked else "no price on the page",
        title=_of(best(findings, "title"), str),
        brand=_of(best(findings, "brand"), str),
        sku=_of(best(findings, "sku"), str),
        image_url=_of(best(findings, "image_url"), str),
        canonical_url=_of(best(findings, "canonical_url"), str),
        amount=asked.amount if asked else None,
        amount_max=asked.amount_max if asked else None,
        list_amount=listed.amount if listed else None,
        currency=_of(currency, str),
        kind=_of(best(findings, "kind"), PriceKind) or kind,
        availability=_of(best(findings, "availability"), Availability),
        sold_count=_of(best(findings, "sold_count"), int),
        rating_count=_of(best(findings, "rating_count"), int),
        bid_count=_of(best(findings, "bid_count"), int),
        evidence=tuple(each.evidence for each in (*used, currency) if each and (each.field != "list_price" or listed)),
    )


def _currency(price: PageFinding | None, of_page: PageFinding | None) -> PageFinding | None:
    """The currency of a price: its own, or the page's."""
    if price is None or not isinstance(price.value, Price):
        return None
    own = finding("currency", price.value.currency, path=price.path, snippet=price.snippet, confidence=price.confidence)
    return next(iter(own), of_page)


def _listed(findings: Sequence[PageFinding], asked: Price | None) -> PageFinding | None:
    """The list price, if it is above the asking price and in the same currency."""
    found = best(findings, "list_price")
    if found is None or asked is None or not isinstance(found.value, Price):
        return None
    same = found.value.currency in (None, asked.currency) or asked.currency is None
    return found if same and found.value.amount > asked.amount else None


def _of(found: PageFinding | None, kind: type[_T]) -> _T | None:
    return found.value if found is not None and isinstance(found.value, kind) else None
