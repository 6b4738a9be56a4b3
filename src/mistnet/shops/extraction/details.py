"""What a page says of a product and its offer beyond the price: condition, seller, shipping, numbers, other amounts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mistnet.shops.extraction.reading import PriceCandidate
from mistnet.shops.model import Evidence

_CONFIDENCE: Final = 0.8
_SEEN: Final = 0.5
_LONGEST: Final = 120
_PRODUCT: Final[Mapping[str, Sequence[str]]] = {
    "gtin": ("gtin", "gtin13", "gtin14", "gtin12", "gtin8", "ean", "isbn"),
    "mpn": ("mpn",),
    "rating": ("aggregateRating.ratingValue",),
}
_OFFER: Final[Mapping[str, Sequence[str]]] = {
    "condition": ("itemCondition",),
    "seller": ("seller.name", "offeredBy.name"),
    "shipping": ("shippingDetails.shippingRate.value",),
    "shipping_currency": ("shippingDetails.shippingRate.currency",),
    "period": ("priceSpecification.billingDuration", "priceSpecification.billingIncrement"),
    "ends_at": ("availabilityEnds", "validThrough", "priceValidUntil"),
}
# Amounts beside the price, by the word or the name that says what they are.
_SHOWN: Final = {
    "unit_price": ("left_unit", "right_unit", "name_unit"),
    "instalment": ("left_instalment", "right_instalment", "name_instalment"),
    "shipping": ("left_shipping", "right_shipping"),
    "saving": ("left_saving", "right_saving"),
    "deposit": ("left_deposit", "right_deposit"),
    "net_price": ("left_net", "right_net"),
    "used_price": ("left_used", "right_used"),
}
_ELSEWHERE: Final = frozenset({"card", "linked", "related", "aside", "hidden", "struck"})


def structured_details(
    product: Mapping[str, Any], offers: Sequence[Mapping[str, Any]], path: str
) -> Iterator[Evidence]:
    """What the data of a product say, each once."""
    for holders, fields, below in (((product,), _PRODUCT, ""), (offers, _OFFER, ".offers")):
        for field, keys in fields.items():
            found = ((key, value) for holder in holders for key in keys if (value := _value(holder, key)))
            for key, value in [*found][:1]:
                plain = value.rstrip("/").rpartition("/")[2] if field == "condition" else value
                snippet = plain[:_LONGEST]
                yield Evidence(field=field, path=f"{path}{below}.{key}", snippet=snippet, confidence=_CONFIDENCE)


def _value(node: Any, key: str) -> str | None:
    for step in key.split("."):
        node = node[0] if isinstance(node, list) and node else node
        if not isinstance(node, dict):
            return None
        node = node.get(step)
    node = node[0] if isinstance(node, list) and node else node
    return (
        " ".join(str(node).split()) or None
        if isinstance(node, str | int | float) or hasattr(node, "as_tuple")
        else None
    )


def shown_details(candidates: Sequence[PriceCandidate]) -> Iterator[Evidence]:
    """The first amount of each kind that people see beside the price."""
    for field, names in _SHOWN.items():
        for each in candidates:
            features = each.features.keys()
            if features & set(names) and not features & _ELSEWHERE:
                amount = f"{each.amount:f} {each.currency or ''}".strip()
                yield Evidence(field=field, path=each.path, snippet=amount, confidence=_SEEN)
                break
