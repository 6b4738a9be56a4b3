"""Reads the item answers of Shopee's own API: `item/get` and `pdp/get_pc`, with all amounts times 100,000."""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from mistnet.shops.extraction.currencies import code_of, site_currency
from mistnet.shops.extraction.documents import nodes
from mistnet.shops.extraction.facts import Origin, PageFinding, finding, settle
from mistnet.shops.extraction.structured import count, many, text
from mistnet.shops.model import Availability, PageFacts, PageVerdict, Price

_UNIT: Final = Decimal(100_000)
_MOST: Final = 10**18
_SURE: Final = 0.97
_ANSWER: Final = Origin("shopee:", _SURE)
_MISSING: Final = re.compile(r"not.?(?:found|exist)|deleted|no.?item|banned", re.IGNORECASE)
_GONE: Final = frozenset({"banned", "deleted", "offensive_hide", "seller_delete", "shopee_delete", "invalid"})
_MISSING_CODES: Final = frozenset({4, 5})
Item = Mapping[str, Any]


def recognizes(payload: object) -> bool:
    return _item(payload) is not None or (
        isinstance(payload, dict)
        and "error" in payload
        and ("data" in payload or "tracking_id" in payload or "is_login" in payload or "item" in payload)
    )


def read_answer(payload: object, *, url: str | None = None) -> PageFacts:
    item = _item(payload)
    if item is None:
        # The verdict on an answer without an item: the item is gone, or the request was refused.
        answer = payload if isinstance(payload, dict) else {}
        code, said = answer.get("error"), text(answer.get("error_msg")) or text(answer.get("msg")) or ""
        if not answer.get("redirect_to_error_page") and (_MISSING.search(said) or code in _MISSING_CODES):
            return _ANSWER.verdict(
                PageVerdict.GONE, f"the shop knows no such item ({said or code})", "error", said or code
            )
        reason = f"Shopee refused to answer (error {code})" if code else "Shopee answered without an item"
        return _ANSWER.verdict(PageVerdict.BLOCKED, reason, "error", {key: answer[key] for key in list(answer)[:6]})
    status = str(item.get("item_status") or "normal").lower()
    if status in _GONE or item.get("status") == 0:
        return _ANSWER.verdict(PageVerdict.GONE, f"the shop shows the item as {status}", "item_status", status)
    if hidden := text(item.get("hidden_price_display")):
        return _ANSWER.verdict(PageVerdict.NO_PRICE, "part of the amount is hidden", "hidden_price_display", hidden)
    return settle(list(_findings(item, payload, url)))


def script_findings(html: str) -> Iterable[PageFinding]:  # noqa: ARG001 (as all readers are called)
    """Its pages hold no data."""
    return ()


def _item(payload: object) -> Item | None:
    """The item, anywhere in the answer."""
    for node, _ in nodes(payload):
        names = set(node)
        if names & {"itemid", "item_id"} and names & {"shopid", "shop_id"} and names & {"price", "price_min", "models"}:
            return node
    return None


def _findings(item: Item, payload: object, url: str | None) -> Iterator[PageFinding]:
    for field, keys in (("title", ("name", "title")), ("brand", ("brand",)), ("sku", ("itemid", "item_id"))):
        for key in keys:
            yield from _ANSWER.finding(field, text(item.get(key)), key, item.get(key))
    if image := text(item.get("image")):
        yield from _ANSWER.finding("image_url", f"https://cf.shopee.com/file/{image}", "image", image)
    currency = code_of(text(item.get("currency")))
    low = _amount(item, "price_min") or _amount(item, "price") or _of_models(item, min)
    high = _amount(item, "price_max") or _of_models(item, max)
    if low:
        price = Price(amount=low, amount_max=high if high and high > low else None, currency=currency)
        seen = {key: item.get(key) for key in ("price", "price_min", "price_max")}
        yield from _ANSWER.finding("price", price, "price_min" if _amount(item, "price_min") else "price", seen)
    if before := _amount(item, "price_min_before_discount") or _amount(item, "price_before_discount"):
        listed = Price(amount=before, currency=currency)
        yield from _ANSWER.finding("list_price", listed, "price_before_discount", item.get("price_before_discount"))
    yield from finding("currency", site_currency(url), path="url:country", snippet=url, confidence=0.9)
    status = str(item.get("item_status") or "").lower()
    stocks = [value for key in ("stock", "normal_stock") if isinstance(value := item.get(key), int)]
    if status == "sold_out" or (stocks and max(stocks) <= 0):
        yield from _ANSWER.finding("availability", Availability.OUT_OF_STOCK, "item_status", status or stocks)
    elif item.get("is_pre_order") is True:
        yield from _ANSWER.finding("availability", Availability.PREORDER, "is_pre_order", "true")
    elif status == "normal" or stocks:
        yield from _ANSWER.finding("availability", Availability.IN_STOCK, "stock", stocks or status)
    yield from _counts(item, payload)


def _amount(holder: Item, key: str) -> Decimal | None:
    """An amount in the shop's unit; 0 and -1 mean that it is unknown."""
    value = holder.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or not 0 < value < _MOST:
        return None
    amount = Decimal(value) / _UNIT
    return amount.quantize(Decimal("0.01")) if amount == amount.quantize(Decimal("0.01")) else amount


def _of_models(item: Item, pick: Any) -> Decimal | None:
    models = [each for each in many(item.get("models")) if isinstance(each, dict)]
    amounts = [amount for each in models if (amount := _amount(each, "price"))]
    return pick(amounts) if amounts else None


def _counts(item: Item, payload: object) -> Iterator[PageFinding]:
    """Counts of sales and ratings only grow, so they help to detect invented answers later."""
    reviews = (node["product_review"] for node, _ in nodes(payload) if isinstance(node.get("product_review"), dict))
    review: Item = next(reviews, {})
    for holder, where in ((item, ""), (review, "product_review.")):
        for key in ("historical_sold", "global_sold", "sold"):
            yield from _ANSWER.finding("sold_count", count(holder.get(key)), where + key, holder.get(key))
    rating = item.get("item_rating")
    for holder, key in (
        (rating if isinstance(rating, dict) else {}, "rating_count"),
        (review, "total_rating_count"),
        (review, "rating_count"),
        (item, "cmt_count"),
    ):
        counts = many(holder.get(key))
        yield from _ANSWER.finding("rating_count", count(counts[0]) if counts else None, key, counts)
