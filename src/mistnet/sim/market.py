"""The simulated markets over HTTP: eBay's API with its tokens, a shop in JSON, a shop in HTML, and their faults."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qs, urlencode

from mistnet.sim.clock import mix, number_of, unit
from mistnet.sim.faults import Mishaps
from mistnet.sim.market_goods import (
    Good,
    Market,
    cabinet_card,
    cabinet_page,
    ebay_sale,
    ebay_summary,
    good_named,
    hub_record,
    offers,
    sales,
)
from mistnet.sim.service import NeverAnswers, SimAnswer, answer_with

T = TypeVar("T")

TOKENS = "/identity/v1/oauth2/token"
BROWSE = "/buy/browse/v1/item_summary/search"
INSIGHTS = "/buy/marketplace_insights/v1_beta/item_sales/search"
EBAY_PATHS = (TOKENS, BROWSE, INSIGHTS)
CLIENT_ID = "sim-client-id"
CLIENT_SECRET = "sim-client-secret"  # noqa: S105 - valid in the simulator only
HUB_HOST, CABINET_HOST = "hub.example.com", "cabinet.example.net"
HUB_KEY = "sim-hub-key"
HUB_VARIABLE = "SIM_HUB_KEY"
TOKEN_SECONDS = 7_200
# Small, so that a few offers already need several pages.
SHOP_PAGE = 5

SHOPS_FILE = f"""\
[shops.hub]
url = "https://{HUB_HOST}/api/coins?q={{query}}"
format = "json"
listings = "found.coins.*"
next = "found.next"
pages = 5
minor_units = 100
rate_per_minute = 600

[shops.hub.fields]
id = "sku"
title = "name"
price = "offer.cents"
currency = "offer.currency"
kind = "offer.type"
bids = "offer.bids"
url = "link"
sold_at = "sold_at"
condition = "grading.state"

[shops.hub.kinds]
fixed = "ask"
auction = "bid"

[shops.hub.secret_headers]
X-Hub-Key = "{HUB_VARIABLE}"

[shops.cabinet]
url = "https://{CABINET_HOST}/search?words={{title}}&year={{year}}"
format = "html"
listings = "li.coin"
empty = "p.none"
next = "a[rel=next]"
pages = 5
currency = "USD"
rate_per_minute = 600

[shops.cabinet.fields]
title = "a.name"
price = "b.price"
url = "a.name@href"
condition = "@data-state"
"""
"""Describes both shops, for the setting `price_sources`."""


class MarketFault(StrEnum):
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    CUT_BODY = "cut_body"
    BROKEN_BODY = "broken_body"
    TOKEN_FORGOTTEN = "token_forgotten"  # noqa: S105 - a fault, not a secret


ROUGH: Mapping[MarketFault, float] = {
    MarketFault.SERVER_ERROR: 0.06,
    MarketFault.TIMEOUT: 0.04,
    MarketFault.RATE_LIMITED: 0.04,
    MarketFault.CUT_BODY: 0.03,
    MarketFault.BROKEN_BODY: 0.03,
    MarketFault.TOKEN_FORGOTTEN: 0.03,
}


@dataclass
class MarketStats:
    """Requests, complete answers, and injected faults."""

    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    tokens: int = 0


class MarketService:
    """All markets. The same seed has the same goods and faults."""

    def __init__(
        self,
        now: Callable[[], datetime],
        *,
        seed: int = 7,
        goods: int = 60,
        faults: Mapping[MarketFault, float] | None = None,
    ) -> None:
        self.now = now
        self.seed = seed
        self.goods = goods
        self.stats = MarketStats()
        self.closed_with: int | None = None
        """The status of every answer while the markets are closed."""
        self._mishaps = Mishaps(faults)
        self._tokens: dict[str, datetime] = {}

    @staticmethod
    def knows(host: str, path: str) -> bool:
        return path in EBAY_PATHS or host.partition(":")[0] in (HUB_HOST, CABINET_HOST)

    def good(self, index: int) -> Good:
        return Good(self.seed, index)

    def handle(
        self, method: str, host: str, path: str, query: str, headers: Mapping[str, str], body: bytes = b""
    ) -> SimAnswer:
        """Answer one request, or raise NeverAnswers."""
        given = {name.lower(): value for name, value in headers.items()}
        host = host.partition(":")[0]
        if self.closed_with is not None or path == "/robots.txt":
            return _json(self.closed_with or 404, {"error": "there is nothing here"})
        question = f"{path}?{query}" if path in EBAY_PATHS else f"{host}{path}?{query}"
        self.stats.asked[question] += 1
        # Half a page of HTML is still a page, and only searches of eBay send a token.
        impossible = {MarketFault.BROKEN_BODY} if path == "/search" else set()
        impossible |= {MarketFault.TOKEN_FORGOTTEN} if path not in (BROWSE, INSIGHTS) else set()
        luck = unit(self.seed, number_of(question), self.stats.asked[question], 77)
        if fault := self._mishaps.strike(question, luck, impossible):
            self.stats.faults[fault] += 1
        match fault:
            case MarketFault.TIMEOUT:
                raise NeverAnswers
            case MarketFault.SERVER_ERROR:
                return _errors(503, 12999, "There was a problem with an eBay internal system or process")
            case MarketFault.RATE_LIMITED:
                limited = _errors(429, 2001, "Too many requests. The request limit has been reached.")
                return replace(limited, headers={**limited.headers, "retry-after": "2"})
        answer = self._answer(method, host, path, query, given, body)
        match fault:
            case MarketFault.TOKEN_FORGOTTEN:
                self._tokens.clear()
                return _errors(401, 1001, "Invalid access token")
            case MarketFault.CUT_BODY:
                answer = replace(answer, body=answer.body[:-5], cut=True)
            case MarketFault.BROKEN_BODY:
                half = answer.body[: len(answer.body) // 2]
                answer = answer_with(answer.status, half, answer.headers["content-type"])
            case None if answer.status == 200:
                self.stats.answered[question] += 1
        return answer

    def _answer(
        self, method: str, host: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> SimAnswer:
        asked = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
        if path == TOKENS:
            return self._token(headers, body) if method == "POST" else _errors(405, 1, "Method Not Allowed")
        if path in (BROWSE, INSIGHTS):
            return self._ebay(path, asked, headers)
        shops = {(HUB_HOST, "/api/coins"): (Market.HUB, "q"), (CABINET_HOST, "/search"): (Market.CABINET, "words")}
        if (host, path) not in shops:
            return _json(404, {"error": "not found"})
        market, words = shops[host, path]
        if market is Market.HUB and headers.get("x-hub-key") != HUB_KEY:
            return _json(401, {"error": "who are you?"})
        good, now = good_named(self.seed, asked.get(words, ""), self.goods), self.now()
        records = [*offers(good, market, now), *sales(good, market, now)] if good else []
        page = int(asked.get("page", "1"))
        more = page * SHOP_PAGE < len(records)
        onward = f"{path}?{urlencode({**asked, 'page': str(page + 1)})}" if more else None
        shown = _drifted(records, (page - 1) * SHOP_PAGE, SHOP_PAGE)
        if market is Market.HUB:
            return _json(200, {"found": {"coins": [hub_record(each) for each in shown], "next": onward}})
        found = cabinet_page([cabinet_card(each) for each in shown], next_url=onward)
        return answer_with(200, found.encode(), "text/html; charset=utf-8")

    def _token(self, headers: Mapping[str, str], body: bytes) -> SimAnswer:
        wanted = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        form = parse_qs(body.decode())
        if headers.get("authorization") != f"Basic {wanted}":
            return _json(401, {"error": "invalid_client", "error_description": "client authentication failed"})
        if form.get("grant_type") != ["client_credentials"] or not form.get("scope"):
            return _json(400, {"error": "invalid_request", "error_description": "grant_type or scope is missing"})
        self.stats.tokens += 1
        token = f"v^1.1#{mix(self.seed, self.stats.tokens):x}"
        self._tokens[token] = self.now() + timedelta(seconds=TOKEN_SECONDS)
        return _json(
            200, {"access_token": token, "expires_in": TOKEN_SECONDS, "token_type": "Application Access Token"}
        )

    def _ebay(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> SimAnswer:
        until = self._tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        if until is None or until <= self.now():
            return _errors(401, 1001, "Invalid access token")
        if not headers.get("x-ebay-c-marketplace-id"):
            return _errors(400, 12011, "The marketplace is missing")
        limit, offset = int(asked.get("limit", "50")), int(asked.get("offset", "0"))
        if not asked.get("q") or not 1 <= limit <= 200 or offset % limit:
            return _errors(400, 12001, "The call must have a 'q', and an offset that is a multiple of its limit")
        good = good_named(self.seed, asked["q"], self.goods)
        listed: Sequence[object] = []
        if good and path == INSIGHTS:
            listed = [ebay_sale(offer) for offer in sales(good, Market.EBAY, self.now())]
        elif good:
            shown = [ebay_summary(offer) for offer in offers(good, Market.EBAY, self.now())]
            # Without a filter, only fixed-price items are returned.
            is_all = "AUCTION" in asked.get("filter", "")
            listed = [each for each in shown if is_all or "FIXED_PRICE" in each["buyingOptions"]]
        page = _drifted(listed, offset, limit)
        payload: dict[str, object] = {"total": len(listed), "limit": limit, "offset": offset}
        if page:
            payload["itemSummaries" if path == BROWSE else "itemSales"] = page
        if offset + limit < len(listed):
            payload["next"] = f"https://api.ebay.com{path}?{urlencode({**asked, 'offset': str(offset + limit)})}"
        return _json(200, payload)


def _drifted(listed: Sequence[T], offset: int, limit: int) -> list[T]:
    """One page. Between two pages a record moves and is returned twice."""
    before = [listed[offset - 1]] if 0 < offset < len(listed) else []
    return [*before, *listed[offset : offset + limit]]


def _errors(status: int, number: int, message: str) -> SimAnswer:
    return _json(status, {"errors": [{"errorId": number, "domain": "API_BROWSE", "message": message}]})


def _json(status: int, value: object) -> SimAnswer:
    return answer_with(status, json.dumps(value, ensure_ascii=False).encode())
