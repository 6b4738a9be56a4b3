"""Reads Taobao and Tmall: the JSON of their mobile detail calls, and the data in the scripts of their pages."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from mistnet.shops.extraction.documents import loads, nodes
from mistnet.shops.extraction.facts import Origin, PageFinding, finding, settle
from mistnet.shops.extraction.price_text import ParsedPrice, parse_price
from mistnet.shops.extraction.structured import count, text
from mistnet.shops.model import Availability, PageFacts, PageVerdict, Price

_SURE: Final = 0.95
_ANSWER: Final = Origin("taobao:", _SURE)
_REFUSED: Final = re.compile(
    r"USER_VALIDATE|RGV587|TOKEN_(?:EMPTY|EXOIRED|EXPIRED)|SESSION_EXPIRED|ILLEGAL_ACCESS|被挤爆|验证|punish|login|TRAFFIC_LIMIT",
    re.IGNORECASE,
)
_GONE: Final = re.compile(r"ITEM_NOT_FOUND|NOT_EXIST|宝贝不存在|已下架|商品不存在|无此宝贝|DOWN_SHELF", re.IGNORECASE)
_FIELDS: Final = ("apiStack", "mockData", "esi", "value")
_ASSIGNED: Final = re.compile(
    r"(?:_DATA_Detail|_DATA_Mdskip|__INIT_DATA__|__ICE_APP_CONTEXT__|TShop\.Setup\()\s*=?\s*(?=\{)"
)
_QUOTED: Final = r"[\"']?\s*:\s*[\"']([^\"']{1,60})[\"']"
_SCRIPT_PRICES: Final = (("view_price", 0.8), ("priceText", 0.8), ("defaultItemPrice", 0.55), ("reservePrice", 0.55))


def recognizes(payload: object) -> bool:
    if not isinstance(payload, dict):
        return False
    if "mtop" in str(payload.get("api")) or ("ret" in payload and "data" in payload):
        return True
    found = [node for node, _ in nodes(payload)]
    return any("itemId" in node for node in found) and any({"priceText", "priceMoney"} & set(node) for node in found)


def read_answer(payload: object, *, url: str | None = None) -> PageFacts:  # noqa: ARG001 (as all readers are called)
    """The facts of an item answer. A refusal is in its `ret`."""
    said = json.dumps(payload.get("ret"), ensure_ascii=False) if isinstance(payload, dict) and "ret" in payload else ""
    if _GONE.search(said):
        return _ANSWER.verdict(PageVerdict.GONE, "the shop knows no such item", "ret", said)
    whole = _unfold(payload)
    facts = settle(list(_findings(whole)))
    if facts.verdict is PageVerdict.OFFER:
        return facts
    if _REFUSED.search(said) or (said and "SUCCESS" not in said):
        return _ANSWER.verdict(PageVerdict.BLOCKED, f"Taobao refused to answer ({said[:60]})", "ret", said)
    return facts


def _unfold(payload: object) -> list[object]:
    """The answer, and the JSON documents that it holds as text."""
    parts = [payload]
    for node, _ in nodes(payload):
        for key in _FIELDS:
            value = node.get(key)
            if isinstance(value, str) and value.lstrip().startswith("{"):
                with suppress(ValueError, RecursionError):
                    parts.append(loads(value))
    # The innermost document first: of findings that are equally sure, the first counts.
    return parts[::-1] if len(parts) > 1 else parts


def _findings(parts: list[object]) -> Iterator[PageFinding]:
    for node, way in (each for part in parts for each in nodes(part)):
        if "itemId" in node and "title" in node:
            yield from _ANSWER.finding("title", text(node["title"]), "item.title", node["title"])
            yield from _ANSWER.finding("sku", text(node["itemId"]), "item.itemId", node["itemId"])
            image = text(node.get("images")) or ""
            yield from _ANSWER.finding(
                "image_url", f"https:{image}" if image.startswith("//") else image, "item.images", image
            )
            yield from _ANSWER.finding(
                "rating_count", count(node.get("commentCount")), "item.commentCount", node.get("commentCount")
            )
            yield from _ANSWER.finding(
                "sold_count", count(node.get("sellCount")), "item.sellCount", node.get("sellCount")
            )
        if {"confirmGoodsCount", "soldTotalCount"} & set(node):
            sold = node.get("soldTotalCount") or node.get("confirmGoodsCount")
            yield from _ANSWER.finding("sold_count", count(sold), "soldQuantity", sold)
        if isinstance(node.get("buyEnable"), bool | str):
            can = str(node["buyEnable"]).lower() == "true"
            term = Availability.IN_STOCK if can else Availability.OUT_OF_STOCK
            yield from _ANSWER.finding("availability", term, "trade.buyEnable", can)
        if "sku2info" not in way and isinstance(node.get("price"), dict):
            price = node["price"]
            field = "list_price" if price.get("lineThrough") else "price"
            if amounts := _amounts(price):
                yield from _ANSWER.finding(
                    field, _as_price(*amounts), ".".join((*way[-2:], "price")), price.get("priceText")
                )
        if isinstance(node.get("sku2info"), dict):
            yield from _variants(node["sku2info"])


def _amounts(price: Mapping[str, Any]) -> tuple[Decimal, Decimal] | None:
    """The lowest and the highest amount. Text is in yuan and may be a range; `priceMoney` is in fen."""
    found = parse_price(text(price.get("priceText")) or "", currency_hint="CNY")
    if isinstance(found, ParsedPrice) and found.min > 0:
        return found.min, found.max
    fen = count(price.get("priceMoney"))
    return (Decimal(fen) / 100, Decimal(fen) / 100) if fen else None


def _variants(infos: Mapping[str, Any]) -> Iterator[PageFinding]:
    """Variant `0` stands for all variants together."""
    variants = [each for key, each in infos.items() if key != "0" and isinstance(each, dict)]
    known = [span for each in variants if isinstance(each.get("price"), dict) and (span := _amounts(each["price"]))]
    if known:
        price = _as_price(min(low for low, _ in known), max(high for _, high in known))
        yield from finding(
            "price", price, path="taobao:skuCore.sku2info", snippet=price.amount, confidence=_SURE - 0.02
        )
    total = infos.get("0")
    quantity = count(total.get("quantity")) if isinstance(total, dict) else None
    if quantity is not None:
        term = Availability.IN_STOCK if quantity else Availability.OUT_OF_STOCK
        yield from finding("availability", term, path="taobao:quantity", snippet=quantity, confidence=_SURE - 0.02)


def _as_price(low: Decimal, high: Decimal) -> Price:
    return Price(amount=low, amount_max=high if high > low else None, currency="CNY")


def script_findings(html: str) -> Iterator[PageFinding]:
    """The data in the scripts of a Taobao or Tmall page. Old pages have the list price only."""
    for assigned in list(_ASSIGNED.finditer(html))[:6]:
        try:
            value = json.JSONDecoder(strict=False).raw_decode(html, assigned.end())[0]
        except (ValueError, RecursionError):
            continue
        yield from _findings(_unfold(value))
    for key, confidence in _SCRIPT_PRICES:
        written = re.search(rf"[\"']?{key}{_QUOTED}", html)
        found = parse_price(written[1], currency_hint="CNY") if written else None
        if isinstance(found, ParsedPrice) and written:
            yield from finding(
                "price",
                _as_price(found.min, found.max),
                path=f"script:{key}",
                snippet=written[0],
                confidence=confidence,
            )
    sales = re.search(rf"[\"']?(?:view_sales|sellCount|soldTotalCount){_QUOTED}", html)
    if sales and (number := re.search(r"\d+", sales[1])):
        yield from finding("sold_count", int(number[0][:12]), path="script:sales", snippet=sales[0], confidence=0.8)
