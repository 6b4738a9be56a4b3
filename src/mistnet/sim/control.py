"""The simulator's own endpoints under /_sim/: ask for the truth, move time, cause trouble."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

from mistnet.sim.clock import SimClock
from mistnet.sim.faults import PRESETS, Faults, SimFault
from mistnet.sim.market import SHOPS_FILE, MarketService, MarketStats
from mistnet.sim.market_goods import Market, truth
from mistnet.sim.service import SimAnswer, Stats, XService
from mistnet.sim.threads import ThreadsService, ThreadsStats
from mistnet.sim.threads_answers import ThreadsTruth
from mistnet.sim.truth import Cost, Truth, least_by_endpoint
from mistnet.sim.users import dump

PREFIX = "/_sim/"

Given = Mapping[str, Any]


class Control:
    def __init__(
        self, service: XService, clock: SimClock, threads: ThreadsService, market: MarketService | None = None
    ) -> None:
        self._service, self._clock, self._threads = service, clock, threads
        self._market = market or MarketService(service.now, seed=service.world.seed)
        self._truth = Truth(service.world)
        self._threads_truth = ThreadsTruth(threads.threads)
        self._routes: dict[tuple[str, str], Callable[[Given], object]] = {
            ("GET", "now"): self.now,
            ("GET", "accounts"): self.accounts,
            ("GET", "account"): self.account,
            ("GET", "post"): self.post,
            ("GET", "thread"): self.thread,
            ("GET", "follows"): self.follows,
            ("GET", "threads"): self.threads,
            ("GET", "feed"): self.feed,
            ("GET", "market"): self.market,
            ("GET", "good"): self.good,
            ("GET", "cost"): self.cost,
            ("GET", "stats"): self.stats,
            ("GET", "repeats"): self.repeats,
            ("POST", "advance"): self.advance,
            ("POST", "faults"): self.faults,
            ("POST", "balance"): self.balance,
            ("POST", "threads_token"): self.threads_token,
            ("POST", "threads_usage"): self.threads_usage,
            ("POST", "reset"): self.reset,
        }

    def answer(self, method: str, path: str, query: str, body: bytes) -> SimAnswer:
        name = path.removeprefix(PREFIX)
        route = self._routes.get((method, name))
        if route is None:
            known = sorted(f"{each} {PREFIX}{name}" for each, name in self._routes)
            return _answer(404, {"error": f"no {method} {path}", "known": known})
        try:
            given = json.loads(body) if body else dict(parse_qsl(query))
            return _answer(200, _plain(route(given)))
        except (KeyError, ValueError, TypeError) as wrong:
            return _answer(400, {"error": f"{type(wrong).__name__}: {wrong}"})

    def now(self, _: Given) -> object:
        return {"now": self._clock.now()}

    def accounts(self, _: Given) -> object:
        return {"handles": self._truth.accounts(self._clock.now())}

    def account(self, given: Given) -> object:
        found = self._truth.account(given["handle"], self._clock.now())
        return {"account": asdict(found) if found else None}

    def post(self, given: Given) -> object:
        post_id = int(given["id"])
        parent = self._truth.parent_of(post_id)
        return {
            "id": post_id,
            "fate": self._truth.fate(post_id, self._clock.now()),
            "parent": asdict(parent) if parent else None,
        }

    def thread(self, given: Given) -> object:
        return asdict(self._truth.chain(int(given["id"]), self._clock.now()))

    def follows(self, given: Given) -> object:
        handle, at = given["handle"], self._clock.now()
        return {"followers": self._truth.followers(handle, at), "followings": self._truth.followings(handle, at)}

    def threads(self, _: Given) -> object:
        """Whose feeds on Threads can be read and whose cannot, and how it was asked."""
        at = self._clock.now()
        asked = {each.name: getattr(self._threads.stats, each.name) for each in fields(self._threads.stats)}
        return {"handles": self._threads_truth.accounts(at), "closed": self._threads_truth.closed(at), **asked}

    def feed(self, given: Given) -> object:
        found = self._threads_truth.feed(given["handle"], self._clock.now())
        return {"feed": asdict(found) if found else None}

    def threads_token(self, given: Given) -> object:
        """Lets the tokens expire so many seconds from now; less than nothing: they have expired."""
        until = self._clock.now() + timedelta(seconds=float(given["seconds"]))
        for token in self._threads.tokens.values():
            token.expires_at = until
        return {"expires_at": until}

    def threads_usage(self, given: Given) -> object:
        self._threads.usage = float(given["percent"])
        return {"percent": self._threads.usage}

    def market(self, _: Given) -> object:
        """How the markets were asked, and the file that describes two of them for the setting `price_sources`."""
        stats = self._market.stats
        asked = {each.name: getattr(stats, each.name) for each in fields(stats)}
        return {"goods": self._market.goods, "price_sources": SHOPS_FILE, **asked}

    def good(self, given: Given) -> object:
        """One of the goods, and what an observer must come to know of it, market by market."""
        good, at = self._market.good(int(given["index"])), self._clock.now()
        points = {
            market: {
                name: [point.kind, str(point.amount), point.currency]
                for name, point in truth(good, market, at, sold=market is Market.HUB or "sold" in given).items()
            }
            for market in Market
        }
        return {"title": good.title, "attributes": dict(good.attributes), "points": points}

    def cost(self, given: Given) -> object:
        handles = given["handles"].split(",")
        retweets = given.get("retweets", "false") == "true"
        least = least_by_endpoint(self._truth, handles, self._clock.now(), retweets=retweets)
        parts = {endpoint: asdict(cost) for endpoint, cost in least.items()}
        return {**asdict(sum(least.values(), Cost())), "by_endpoint": parts}

    def stats(self, _: Given) -> object:
        stats = self._service.stats
        return {each.name: getattr(stats, each.name) for each in fields(stats) if each.name != "pages"}

    def repeats(self, _: Given) -> object:
        """Questions that were answered, and paid for, more than once."""
        pages = self._service.stats.pages
        return {"answered": len(pages), "repeated": {asked: times for asked, times in pages.items() if times > 1}}

    def advance(self, given: Given) -> object:
        return {"now": self._clock.advance(timedelta(seconds=float(given["seconds"])))}

    def faults(self, given: Given) -> object:
        """A preset by name, or rates by fault. Each call counts from nought; no false end is told twice in a row."""
        rates = {SimFault(name): float(rate) for name, rate in given.get("rates", {}).items()}
        low, high = given.get("latency_seconds", (0.0, 0.0))
        chosen = {**PRESETS[given.get("preset", "none")], **rates}
        seed = int(given.get("seed", self._service.faults.seed))
        for service in (self._service, self._threads):
            told = service.faults.false_ends
            service.faults = Faults(seed, chosen, latency_seconds=(float(low), float(high)), false_ends=told)
        return {"rates": {str(fault): rate for fault, rate in self._service.faults.rates.items()}}

    def balance(self, given: Given) -> object:
        self._service.ledger.grant(given["key"], int(given["credits"]))
        return {"key": given["key"], "credits": int(given["credits"])}

    def reset(self, _: Given) -> object:
        self._service.stats = Stats()
        self._service.faults.forget()
        self._threads.stats = ThreadsStats()
        self._market.stats = MarketStats()
        self._threads.faults.forget()
        return {"reset": True}


def _plain(value: object) -> object:
    """Ids are strings here as everywhere in JSON."""
    match value:
        case bool():
            return value
        case int() if abs(value) > 1 << 53:
            return str(value)
        case datetime():
            return value.isoformat()
        case dict():
            return {
                str(key): str(each) if key in {"id", "user_id", "end_id"} else _plain(each)
                for key, each in value.items()
            }
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def _answer(status: int, value: object) -> SimAnswer:
    body = dump(value).encode()
    return SimAnswer(
        status=status, headers={"content-type": "application/json", "content-length": str(len(body))}, body=body
    )
