"""What the simulated shops' pages and answers look like."""

import json
from decimal import Decimal
from html import escape
from typing import Any

from mistnet.sim.shelf import Thing


def page(thing: Thing, price: Decimal) -> bytes:
    """A product page as most shops serve it: structured data in the head, the same for people below."""
    told = {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": thing.title,
        "sku": thing.item_id or thing.canonical.rpartition("/")[2],
        "offers": {
            "@type": "Offer",
            "price": str(price),
            "priceCurrency": thing.currency,
            "availability": "https://schema.org/InStock",
            "url": thing.canonical,
        },
    }
    script = json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
    title = escape(thing.title)
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title>'
        f'<link rel="canonical" href="{escape(thing.canonical)}">'
        f'<script type="application/ld+json">{script}</script></head>'
        f'<body><h1>{title}</h1><p class="price">{thing.currency} {price}</p><p>In stock</p></body></html>'
    ).encode()


def plain_page(title: str) -> bytes:
    shown = escape(title)
    return f"<!doctype html><html><head><title>{shown}</title></head><body><h1>{shown}</h1></body></html>".encode()


def inline_script_page(target: str, title: str) -> bytes:
    """A short link that answers 200: where it leads stands in a script."""
    extra = json.dumps({"title": title, "priceH": "约"}, ensure_ascii=False)
    return (
        f"<!doctype html><html><head><title>淘宝网</title></head><body><script>\n"
        f"var extraData = {extra};\nvar url = '{target}';\n"
        f"if (url) {{ location.replace(url); }}\n</script></body></html>"
    ).encode()


def shopee_item(thing: Thing, micro: tuple[int, int], *, sold: int, stock: int) -> dict[str, Any]:
    """As api/v4/item/get answers: amounts are integers, a hundred thousand to the unit."""
    price, listed = micro
    return {
        "error": None,
        "error_msg": None,
        "data": {
            "itemid": int(thing.item_id),
            "shopid": int(thing.shop_id),
            "name": thing.title,
            "currency": thing.currency,
            "price": price,
            "price_min": price,
            "price_max": price,
            "price_before_discount": listed,
            "stock": stock,
            "sold": sold % 40,
            "historical_sold": sold,
            "item_status": "sold_out" if stock == 0 else "normal",
            "cmt_count": sold // 7,
            "item_rating": {"rating_star": 4.8, "rating_count": [sold // 7, 0, 0, 0, 1, sold // 7 - 1]},
            "image": "7d2a3c",
        },
    }


def shopee_pdp(thing: Thing, micro: tuple[int, int], *, sold: int, stock: int) -> dict[str, Any]:
    """As api/v4/pdp/get_pc answers: the same, a level deeper."""
    flat = shopee_item(thing, micro, sold=sold, stock=stock)["data"]
    item = {**flat, "item_id": flat["itemid"], "shop_id": flat["shopid"], "title": flat["name"]}
    return {"error": None, "error_msg": None, "data": {"item": item}}


def shopee_wall() -> dict[str, Any]:
    return {"error": 90309999, "is_login": False, "redirect_to_error_page": True, "action_type": 2}
