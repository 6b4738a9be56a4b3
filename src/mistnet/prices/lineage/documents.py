"""Posts, products and prices as programs see them: ids and amounts as strings."""

from collections.abc import Mapping
from typing import Any

import msgspec

from mistnet.prices.lineage.account_products import LinkedProduct
from mistnet.prices.lineage.model import Around, PriceChange, SeenPrice, snippet
from mistnet.prices.lineage.store import ItemProduct, Lined
from mistnet.shops.store.product_pages import ProductLine


def lined_fields(lined: Lined) -> Mapping[str, Any]:
    post = lined.post
    told = {name: getattr(post, name) for name in post.__struct_fields__ if name != "urls"}
    ids = {name: _text(told[name]) for name in ("post_id", "author_id", "conversation_id")}
    urls = [{"link_id": str(each.link_id), "url": each.url, "place": each.place} for each in post.urls]
    return {**told, **ids, "text": snippet(post.text), "urls": urls, "prices": _around(lined.prices)}


def _around(prices: Around) -> Mapping[str, Any]:
    return {
        "before": price_fields(prices.before),
        "before_age_seconds": None if prices.age is None else int(prices.age.total_seconds()),
        "at_post": price_fields(prices.at),
        "after": price_fields(prices.after),
        "after_delay_seconds": None if prices.delay is None else int(prices.delay.total_seconds()),
        "unchanged": prices.unchanged,
        "change": _change(prices.change),
        "lowest": [
            {"days": each.days, "price": price_fields(each.price), "change": _change(each.change), "over": each.over}
            for each in prices.lowest
        ],
    }


def linked_fields(linked: LinkedProduct) -> Mapping[str, Any]:
    mentions = {name: getattr(linked.mentions, name) for name in linked.mentions.__struct_fields__}
    del mentions["highest_id"]
    ids = {name: str(mentions[name]) for name in ("first_post_id", "latest_post_id")}
    prices = {name: price_fields(getattr(linked, name)) for name in ("at_first", "lowest", "highest", "latest")}
    course = [price_fields(each) for each in linked.course]
    told = {"change": _change(linked.change), "course": course, "earlier": linked.earlier}
    return {"product": product_fields(linked.product), **mentions, **ids, **prices, **told}


def price_fields(price: SeenPrice | None) -> Mapping[str, Any] | None:
    if price is None:
        return None
    most = None if price.amount_max is None else f"{price.amount_max:f}"
    return {**msgspec.structs.asdict(price), "amount": f"{price.amount:f}", "amount_max": most}


def _change(change: PriceChange) -> Mapping[str, Any]:
    return {"percent": None if change.percent is None else f"{change.percent:f}", "why_not": change.why_not}


def product_fields(line: ProductLine) -> Mapping[str, Any]:
    amounts = {name: getattr(line, name) for name in ("amount", "amount_max", "list_amount")}
    exact = {name: None if each is None else f"{each:f}" for name, each in amounts.items()}
    return {**msgspec.structs.asdict(line), "offer_id": _text(line.offer_id), **exact}


def item_fields(each: ItemProduct) -> Mapping[str, Any]:
    return {**msgspec.structs.asdict(each), "product": product_fields(each.product)}


def _text(given: int | None) -> str | None:
    return None if given is None else str(given)
