"""The products of the simulated shops: their URLs, prices over time, and how requests for them end."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from html import escape
from typing import Any

from mistnet.sim.clock import DAY_MS, mix, number_of, to_ms

PRICE_DAYS = 5
"""How long a price stays the same."""


class Fate(StrEnum):
    """How a request for a product ends."""

    SALE = "sale"
    GONE = "gone"
    CAPTCHA = "captcha"
    DECOY = "decoy"
    NO_PRICE = "no_price"
    SOLD_OUT = "sold_out"
    FORBIDDEN = "forbidden"
    SLOW = "slow"
    HUGE = "huge"
    BOMB = "bomb"
    LOOP = "loop"
    TRAP = "trap"
    PICTURE = "picture"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProduct:
    """`canonical` is the canonical URL of its links; `region` is a top-level domain that ids depend on."""

    shop: str
    canonical: str
    title: str
    base: Decimal
    currency: str
    region: str = ""
    shop_id: str = ""
    item_id: str = ""
    fate: Fate = Fate.SALE
    digits: int = 0

    def price(self, at: datetime) -> Decimal:
        """The price stays for days, then changes by a tenth at most."""
        span = to_ms(at) // (PRICE_DAYS * DAY_MS)
        tenths = Decimal(mix(number_of(self.canonical), span) % 21 - 10) / 100
        return (self.base * (1 + tenths)).quantize(Decimal(1).scaleb(-self.digits))

    def list_price(self, at: datetime) -> Decimal:
        return (self.price(at) * Decimal("1.25")).quantize(Decimal(1).scaleb(-self.digits))

    def sold(self, at: datetime) -> int:
        """The number of sales, which grows with time."""
        return mix(number_of(self.item_id)) % 500 + to_ms(at) // DAY_MS % 100_000


def _shopee(
    tld: str, shop_id: str, item_id: str, title: str, base: str, currency: str, digits: int = 0, fate: Fate = Fate.SALE
) -> SimProduct:
    return SimProduct(
        shop="shopee",
        canonical=f"https://shopee.{tld}/product/{shop_id}/{item_id}",
        title=title,
        base=Decimal(base),
        currency=currency,
        region=tld,
        shop_id=shop_id,
        item_id=item_id,
        digits=digits,
        fate=fate,
    )


def _taobao(item_id: str, title: str, base: str, fate: Fate = Fate.SALE) -> SimProduct:
    return SimProduct(
        shop="taobao",
        canonical=f"https://item.taobao.com/item.htm?id={item_id}",
        title=title,
        base=Decimal(base),
        currency="CNY",
        item_id=item_id,
        digits=2,
        fate=fate,
    )


def _ebay(item_id: str, title: str, base: str, currency: str = "USD", fate: Fate = Fate.SALE) -> SimProduct:
    return SimProduct(
        shop="ebay",
        canonical=f"https://www.ebay.com/itm/{item_id}",
        title=title,
        base=Decimal(base),
        currency=currency,
        item_id=item_id,
        digits=2,
        fate=fate,
    )


def _web(url: str, title: str, base: str = "0", currency: str = "EUR", fate: Fate = Fate.SALE) -> SimProduct:
    return SimProduct(
        shop="web", canonical=url, title=title, base=Decimal(base), currency=currency, digits=2, fate=fate
    )


SHELF = (
    _shopee("tw", "178926468", "21448123549", "銀幣 民國十年", "1280", "TWD"),
    _shopee("sg", "91799978", "2154896123", "Vintage Silver Coin 1921", "59.9", "SGD", 2),
    _shopee("tw", "33012345", "18807712345", "無線耳機 藍牙", "699", "TWD"),
    _shopee("com.my", "40123456", "9912345678", "Kopi tin 500 g", "28.5", "MYR", 2),
    _shopee("vn", "88201679", "2149387213", "Bình giữ nhiệt", "185000", "VND"),
    _shopee("tw", "55512345", "7700112233", "已下架的錢幣", "300", "TWD", fate=Fate.GONE),
    _shopee("tw", "55512345", "7700112244", "驗證碼後的郵票", "450", "TWD", fate=Fate.CAPTCHA),
    _shopee("vn", "77712345", "6600998877", "Tai nghe", "220000", "VND", fate=Fate.DECOY),
    _shopee("tw", "55512345", "7700112255", "售完的懷錶", "2200", "TWD", fate=Fate.SOLD_OUT),
    _taobao("673425618890", "老银元收藏册", "128.00"),
    _taobao("629873314512", "天猫 集邮册", "59.90"),
    _taobao("601122334455", "验证页后的瓷碗", "88.00", Fate.CAPTCHA),
    _ebay("155932418766", "1921 Morgan Dollar", "34.95"),
    _ebay("204512345678", "Penny Black", "129.00", "GBP"),
    _ebay("186600998877", "Ended listing", "10.00", fate=Fate.GONE),
    _web("https://shop.example.com/coins/morgan-1921", "Morgan Dollar 1921", "42.50"),
    _web("https://shop.example.com/coins/denarius", "Denarius of Trajan", "189.00", "USD"),
    _web("https://shop.example.com/coins/gone", "Sold long ago", fate=Fate.GONE),
    _web("https://shop.example.com/checkout/basket", "Basket", fate=Fate.FORBIDDEN),
    _web("https://slow.example.com/thing", "Slow", "5.00", fate=Fate.SLOW),
    _web("https://huge.example.com/thing", "Huge", "5.00", fate=Fate.HUGE),
    _web("https://bomb.example.com/thing", "Bomb", "5.00", fate=Fate.BOMB),
    _web("https://loop.example.com/thing", "Loop", "5.00", fate=Fate.LOOP),
    _web("https://trap.example.com/thing", "Trap", "5.00", fate=Fate.TRAP),
    _web("https://pictures.example.com/coin.png", "Picture", fate=Fate.PICTURE),
    _web("https://example.org/2026/09/why-silver-moved", "Why silver moved", fate=Fate.NO_PRICE),
    _web("https://example.net/a/very/long/path/that/is/cut/in/the/display/url.html", "A page", fate=Fate.NO_PRICE),
    _web("http://example.com/", "Example", fate=Fate.NO_PRICE),
)
"""All products. Anything else is not found."""

SHORT_LINKS = {
    "https://s.shopee.tw/7fKqZ1bXyQ": "https://shopee.tw/product/33012345/18807712345",
    "https://shp.ee/a1B2c3D": "https://shopee.tw/product/178926468/21448123549",
    "https://s.shopee.com.my/8KpQ_x-2Z": "https://shopee.com.my/product/40123456/9912345678",
    "https://m.tb.cn/h.5xYzAbC": "https://item.taobao.com/item.htm?id=673425618890",
    "https://e.tb.cn/h.6AbCdEf": "https://item.taobao.com/item.htm?id=629873314512",
    "https://ebay.us/m/Ab12Cd": "https://www.ebay.com/itm/155932418766",
}
"""Each short link by its canonical URL, with the product it leads to."""

DEAD_SHORT_LINKS = ("https://s.shopee.tw/deadCode99",)
EVIL_SHORT_LINKS = ("https://s.shopee.tw/evilCode66",)
"""One ends on the shop's error page; one leads out of the shop, to an address that must not be visited."""

POSTED = {
    "https://shopee.tw/銀幣-i.178926468.21448123549": "https://shopee.tw/product/178926468/21448123549",
    "https://shopee.sg/Vintage-Silver-Coin-1921-i.91799978.2154896123?sp_atk=1a2b&xptdk=3c": (
        "https://shopee.sg/product/91799978/2154896123"
    ),
    "https://shopee.com.my/product/40123456/9912345678": "https://shopee.com.my/product/40123456/9912345678",
    "https://shopee.vn/product/88201679/2149387213": "https://shopee.vn/product/88201679/2149387213",
    "https://s.shopee.tw/7fKqZ1bXyQ": "https://s.shopee.tw/7fKqZ1bXyQ",
    "https://shp.ee/a1B2c3D": "https://shp.ee/a1B2c3D",
    "https://item.taobao.com/item.htm?spm=a1z10.1.w5003.1&id=673425618890": (
        "https://item.taobao.com/item.htm?id=673425618890"
    ),
    "https://detail.tmall.com/item.htm?id=629873314512&skuId=4718231": (
        "https://item.taobao.com/item.htm?id=629873314512"
    ),
    "https://m.tb.cn/h.5xYzAbC?tk=Wk3d": "https://m.tb.cn/h.5xYzAbC",
    "https://www.ebay.com/itm/1921-Morgan-Dollar/155932418766?hash=item244&var=0": (
        "https://www.ebay.com/itm/155932418766"
    ),
    "https://www.ebay.co.uk/itm/204512345678": "https://www.ebay.com/itm/204512345678",
    "https://shop.example.com/coins/morgan-1921?utm_source=threads": "https://shop.example.com/coins/morgan-1921",
    "https://shop.example.com/coins/denarius": "https://shop.example.com/coins/denarius",
}
"""Links as people post them, with the canonical URLs that they must get."""

BY_CANONICAL = {thing.canonical: thing for thing in SHELF}
BY_ITEM = {(thing.shop, thing.item_id): thing for thing in SHELF if thing.item_id}


def thing_behind(posted: str) -> SimProduct | None:
    """The product that a posted link leads to, after all redirects."""
    named = POSTED.get(posted, posted)
    return BY_CANONICAL.get(SHORT_LINKS.get(named, named))


def page(thing: SimProduct, price: Decimal) -> bytes:
    """A product page as most shops serve it: structured data in the head, the same as text below."""
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
    """A short link that answers 200: its destination is in a script."""
    extra = json.dumps({"title": title, "priceH": "约"}, ensure_ascii=False)
    return (
        f"<!doctype html><html><head><title>淘宝网</title></head><body><script>\n"
        f"var extraData = {extra};\nvar url = '{target}';\n"
        f"if (url) {{ location.replace(url); }}\n</script></body></html>"
    ).encode()


def shopee_item(thing: SimProduct, micro: tuple[int, int], *, sold: int, stock: int) -> dict[str, Any]:
    """The answer of api/v4/item/get: amounts are integers, 100,000 to the unit."""
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


def shopee_pdp(thing: SimProduct, micro: tuple[int, int], *, sold: int, stock: int) -> dict[str, Any]:
    """The answer of api/v4/pdp/get_pc: the same, one level deeper."""
    flat = shopee_item(thing, micro, sold=sold, stock=stock)["data"]
    item = {**flat, "item_id": flat["itemid"], "shop_id": flat["shopid"], "title": flat["name"]}
    return {"error": None, "error_msg": None, "data": {"item": item}}


def shopee_wall() -> dict[str, Any]:
    return {"error": 90309999, "is_login": False, "redirect_to_error_page": True, "action_type": 2}
