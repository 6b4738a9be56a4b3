"""The shops over HTTP: the answers of each host, with block pages, traps and faults."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from urllib.parse import parse_qs

from mistnet.sim.clock import mix, number_of, unit
from mistnet.sim.faults import Mishaps
from mistnet.sim.service import NeverAnswers, SimAnswer, answer_with
from mistnet.sim.shelf import (
    BY_CANONICAL,
    BY_ITEM,
    DEAD_SHORT_LINKS,
    EVIL_SHORT_LINKS,
    SHELF,
    SHORT_LINKS,
    Fate,
    SimProduct,
    inline_script_page,
    page,
    plain_page,
    shopee_item,
    shopee_pdp,
    shopee_wall,
)

MICRO = 100_000
ROBOTS = "User-agent: *\nDisallow: /checkout/\nCrawl-delay: 1\n"
METADATA = "http://169.254.169.254/latest/meta-data/"
HUGE_BYTES = 12_000_000
BOMB_BYTES = 64_000_000
_TAOBAO_LOGIN = "https://login.taobao.com/member/login.jhtml?redirectURL=https%3A%2F%2Fitem.taobao.com"


class ShopFault(StrEnum):
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CUT_BODY = "cut_body"
    RATE_LIMITED = "rate_limited"
    CAPTCHA = "captcha"


ROUGH: Mapping[ShopFault, float] = {
    ShopFault.SERVER_ERROR: 0.08,
    ShopFault.TIMEOUT: 0.04,
    ShopFault.CUT_BODY: 0.04,
    ShopFault.RATE_LIMITED: 0.04,
    ShopFault.CAPTCHA: 0.05,
}


@dataclass(slots=True)
class ShopStats:
    """Requests by host, and injected faults."""

    visits: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    not_modified: int = 0


class ShopService:
    """All shops, by host. The same seed has the same faults."""

    def __init__(
        self, now: Callable[[], datetime], *, seed: int = 7, faults: Mapping[ShopFault, float] | None = None
    ) -> None:
        self.now = now
        self.stats = ShopStats()
        self._seed = seed
        self._mishaps = Mishaps(faults)

    @staticmethod
    def knows(host: str) -> bool:
        return host.partition(":")[0] in hosts()

    def handle(self, host: str, path: str, query: str, headers: Mapping[str, str]) -> SimAnswer:
        """Answer one request to one host, or raise NeverAnswers."""
        host = host.partition(":")[0]
        url = f"{host}{path}{'?' if query else ''}{query}"
        self.stats.visits[url] += 1
        if path == "/robots.txt":
            if host == "shop.example.com":
                return answer_with(200, ROBOTS.encode(), "text/plain")
            return _html(plain_page("Not Found"), status=404)
        if fault := self._mishaps.strike(url, unit(self._seed, number_of(url), self.stats.visits[url])):
            self.stats.faults[fault] += 1
            return self._faulty(fault, host, path, query)
        answer = self._answer(host, path, query)
        tag = next((value for name, value in headers.items() if name.lower() == "if-none-match"), None)
        if answer.status != 200 or tag is None or tag != answer.headers.get("etag"):
            return answer
        self.stats.not_modified += 1
        return SimAnswer(status=304, headers={"etag": tag, "content-length": "0"}, body=b"")

    def _faulty(self, fault: ShopFault, host: str, path: str, query: str) -> SimAnswer:
        match fault:
            case ShopFault.TIMEOUT:
                raise NeverAnswers
            case ShopFault.SERVER_ERROR:
                return _html(plain_page("502 Bad Gateway"), status=502)
            case ShopFault.RATE_LIMITED:
                answer = _html(plain_page("Too many requests"), status=429)
                return replace(answer, headers={**answer.headers, "retry-after": "2"})
            case ShopFault.CAPTCHA:
                return self._wall(host)
            case ShopFault.CUT_BODY:
                whole = self._answer(host, path, query)
                return replace(whole, body=whole.body[:-9], cut=True)

    def _answer(self, host: str, path: str, query: str) -> SimAnswer:
        short = f"https://{host}{path}"
        if short in EVIL_SHORT_LINKS:
            return _redirect(METADATA)
        if short in DEAD_SHORT_LINKS:
            return _redirect(f"https://{host.removeprefix('s.')}/error_page")
        if short in SHORT_LINKS:
            return self._lead_on(BY_CANONICAL[SHORT_LINKS[short]])
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        if host.startswith("shopee."):
            item_id = asked.get("itemid") or asked.get("item_id") or path.rpartition("/")[2]
            found = BY_ITEM.get(("shopee", item_id))
            thing = found if found and f"shopee.{found.region}" == host else None
        elif host in ("item.taobao.com", "detail.tmall.com"):
            thing = BY_ITEM.get(("taobao", asked.get("id", "")))
        elif "ebay" in host:
            thing = BY_ITEM.get(("ebay", path.rpartition("/")[2]))
        else:
            thing = BY_CANONICAL.get(f"https://{host}{path}") or BY_CANONICAL.get(f"http://{host}{path}")
        if thing is None:
            return _html(plain_page("Not Found"), status=404)
        return self._shown(thing, host, path, asked)

    def _lead_on(self, thing: SimProduct) -> SimAnswer:
        # Taobao's short links answer 200; the destination is in a script.
        if thing.shop == "taobao":
            target = f"https://item.taobao.com/item.htm?ut_sk=1.share&id={thing.item_id}&sourceType=item"
            return _html(inline_script_page(target, thing.title))
        if thing.shop == "shopee":
            return _redirect(f"https://shopee.{thing.region}/opaanlp/{thing.shop_id}/{thing.item_id}?utm_source=an_1")
        return _redirect(f"{thing.canonical}?mkevt=1&mkcid=16")

    def _shown(self, thing: SimProduct, host: str, path: str, asked: Mapping[str, str]) -> SimAnswer:
        match thing.fate:
            case Fate.GONE:
                return _html(plain_page("This item is no longer available"), status=404)
            case Fate.CAPTCHA:
                return self._wall(host)
            case Fate.NO_PRICE | Fate.FORBIDDEN:
                return _html(plain_page(thing.title))
            case Fate.SALE | Fate.DECOY | Fate.SOLD_OUT:
                return self._offer(thing, path)
            case _:
                return _trap(thing, asked)

    def _offer(self, thing: SimProduct, path: str) -> SimAnswer:
        at = self.now()
        price, listed, sold = thing.price(at), thing.list_price(at), thing.sold(at)
        if thing.fate is Fate.DECOY:
            # A decoy changes at every visit, which is how a crawler can tell.
            noise = 1 + Decimal(mix(self._seed, sum(self.stats.visits.values())) % 80_000 + 10_001) / 100_000
            price, listed, sold = _fraction(thing.price(at) * noise), _fraction(thing.list_price(at) * noise), sold // 3
        if thing.shop != "shopee":
            return _html(page(thing, price))
        make = shopee_pdp if path.endswith("/pdp/get_pc") else shopee_item
        micro = int(price * MICRO), int(listed * MICRO)
        return _json(make(thing, micro, sold=sold, stock=0 if thing.fate is Fate.SOLD_OUT else 37))

    def _wall(self, host: str) -> SimAnswer:
        if host.startswith("shopee"):
            return _json(shopee_wall())
        if "taobao" in host or "tmall" in host:
            return _redirect(_TAOBAO_LOGIN)
        return _html(plain_page("Security check: are you a robot? Please complete the captcha"), status=403)


def _fraction(amount: Decimal) -> Decimal:
    """False prices can be recognised: they have fractions that the currency does not have."""
    return amount // 1 + Decimal("0.37")


@cache
def hosts() -> frozenset[str]:
    named = {thing.canonical.split("/")[2] for thing in SHELF}
    short = {url.split("/")[2] for url in (*SHORT_LINKS, *DEAD_SHORT_LINKS, *EVIL_SHORT_LINKS)}
    return frozenset(named | short | {"detail.tmall.com", "www.ebay.co.uk", "login.taobao.com"})


def _trap(thing: SimProduct, asked: Mapping[str, str]) -> SimAnswer:
    """Answers that break a careless crawler."""
    match thing.fate:
        case Fate.HUGE:
            return _html(b"<html><body>" + b"x" * HUGE_BYTES)
        case Fate.BOMB:
            packed = _html(_bomb())
            return replace(packed, headers={**packed.headers, "content-encoding": "gzip"})
        case Fate.LOOP:
            return _redirect(f"{thing.canonical}?n={int(asked.get('n', '0')) + 1}")
        case Fate.TRAP:
            return _redirect(METADATA)
        case Fate.PICTURE:
            return answer_with(200, b"\x89PNG", "image/png")
        case _:
            raise NeverAnswers


@cache
def _bomb() -> bytes:
    return gzip.compress(b"0" * BOMB_BYTES, mtime=0)


def _html(body: bytes, *, status: int = 200) -> SimAnswer:
    tag = f'"{number_of(body[:4096].decode("utf-8", "replace")):x}"'
    return answer_with(status, body, "text/html; charset=utf-8", etag=tag)


def _json(value: object) -> SimAnswer:
    return answer_with(200, json.dumps(value, ensure_ascii=False).encode())


def _redirect(location: str) -> SimAnswer:
    return SimAnswer(status=302, headers={"location": location, "content-length": "0"}, body=b"")
