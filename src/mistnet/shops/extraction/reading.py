"""What a page was read as: its kind, every amount that could be its price, and what the decision was made on."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Final

import msgspec

from mistnet.shops.model import Evidence, PageFacts, PageKind

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
