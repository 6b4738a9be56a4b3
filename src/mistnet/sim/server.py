"""Serves a simulated world over HTTP, with `/_sim` endpoints that tests use to control it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl

from mistnet.sim.clock import SimClock
from mistnet.sim.faults import PRESETS, Faults, SimFault
from mistnet.sim.market import ROUGH, SHOPS_FILE, MarketService, MarketStats
from mistnet.sim.market_goods import Market, truth
from mistnet.sim.service import (
    DEFAULT_KEY,
    Key,
    NeverAnswers,
    NeverConnects,
    ServiceStats,
    SimAnswer,
    Stats,
    XService,
    json_answer,
)
from mistnet.sim.shops import ShopService
from mistnet.sim.threads import ThreadsService
from mistnet.sim.threads_world import ThreadsTruth
from mistnet.sim.truth import Cost, Truth, least_by_endpoint
from mistnet.sim.world import World

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
        reads = (self.now, self.accounts, self.account, self.post, self.thread, self.follows, self.threads, self.feed)
        reads_too = (self.market, self.good, self.cost, self.stats, self.repeats)
        changes = (self.advance, self.faults, self.balance, self.threads_token, self.threads_usage, self.reset)
        self._routes = {("GET", each.__name__): each for each in (*reads, *reads_too)}
        self._routes |= {("POST", each.__name__): each for each in changes}

    def answer(self, method: str, path: str, query: str, body: bytes) -> SimAnswer:
        name = path.removeprefix(PREFIX)
        route = self._routes.get((method, name))
        if route is None:
            known = sorted(f"{each} {PREFIX}{name}" for each, name in self._routes)
            return json_answer(404, {"error": f"no {method} {path}", "known": known})
        try:
            given = json.loads(body) if body else dict(parse_qsl(query))
            return json_answer(200, _plain(route(given)))
        except (KeyError, ValueError, TypeError) as wrong:
            return json_answer(400, {"error": f"{type(wrong).__name__}: {wrong}"})

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
        """The open and closed feeds on Threads, and the requests so far."""
        at = self._clock.now()
        feeds = {"handles": self._threads_truth.accounts(at), "closed": self._threads_truth.closed(at)}
        return {**feeds, **vars(self._threads.stats)}

    def feed(self, given: Given) -> object:
        found = self._threads_truth.feed(given["handle"], self._clock.now())
        return {"feed": asdict(found) if found else None}

    def threads_token(self, given: Given) -> object:
        """Let the tokens expire after this many seconds; negative: they have expired."""
        until = self._clock.now() + timedelta(seconds=float(given["seconds"]))
        for token in self._threads.tokens.values():
            token.expires_at = until
        return {"expires_at": until}

    def threads_usage(self, given: Given) -> object:
        self._threads.usage = float(given["percent"])
        return {"percent": self._threads.usage}

    def market(self, _: Given) -> object:
        """The requests to the markets, and the file that describes two of them for the setting `price_sources`."""
        return {"goods": self._market.goods, "price_sources": SHOPS_FILE, **vars(self._market.stats)}

    def good(self, given: Given) -> object:
        """One of the goods, and what a collector must find out about it in each market."""
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
        return {name: count for name, count in vars(self._service.stats).items() if name != "pages"}

    def repeats(self, _: Given) -> object:
        """Requests that were answered and billed more than once."""
        pages = self._service.stats.pages
        return {"answered": len(pages), "repeated": {asked: times for asked, times in pages.items() if times > 1}}

    def advance(self, given: Given) -> object:
        return {"now": self._clock.advance(timedelta(seconds=float(given["seconds"])))}

    def faults(self, given: Given) -> object:
        """A preset by name, or rates by fault. Counts start at zero again."""
        rates = {SimFault(name): float(rate) for name, rate in given.get("rates", {}).items()}
        low, high = given.get("latency_seconds", (0.0, 0.0))
        chosen = {**PRESETS[given.get("preset", "none")], **rates}
        seed = int(given.get("seed", self._service.faults.seed))
        # A false end that was just given must still be followed by a true page.
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
        self._threads.stats = ServiceStats()
        self._market.stats = MarketStats()
        self._threads.faults.forget()
        return {"reset": True}


def _plain(value: object) -> object:
    """JSON with ids as strings."""
    match value:
        # Before int, of which it is a subclass.
        case bool():
            return value
        # Many readers of JSON round larger integers.
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


GOODS = 5_000
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]", "testserver", "sim")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class NotLoopback(ValueError):
    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not a loopback address: the simulator has no defences and stays on this machine")


class BodyCut(Exception):
    """The rest of the body is never sent."""


def asgi(service: XService, clock: SimClock | None = None, threads: ThreadsService | None = None) -> App:
    """Without a clock there are no `/_sim` endpoints."""
    threads = threads or ThreadsService(service.world, service.now)
    rough = ROUGH if service.faults.rates else None
    market = MarketService(service.now, seed=service.world.seed, goods=GOODS, faults=rough)
    control = Control(service, clock, threads, market) if clock else None
    shops = ShopService(service.now, seed=service.world.seed)

    async def answer(scope: MutableMapping[str, Any], body: bytes) -> SimAnswer:
        method, path, query = scope["method"], scope["path"], scope["query_string"].decode("latin-1")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if control and path.startswith(PREFIX):
            return control.answer(method, path, query, body)
        host = headers.get("host", "")
        if market.knows(host, path):
            return market.handle(method, host, path, query, headers, body)
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if name and name not in LOCAL_HOSTS:
            return shops.handle(host, path, query, headers)
        return await (threads if threads.knows(path) else service).handle(method, path, query, headers, body)

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _read_body(receive)
        try:
            await _send(await answer(scope, body), send)
        except NeverConnects:
            # A server whose socket is open cannot refuse a connection any more; it can only say that it is down.
            await _send(SimAnswer(status=503, headers={"content-length": "0"}, body=b""), send)
        except NeverAnswers:
            while (await receive())["type"] != "http.disconnect":
                pass

    return app


async def _read_body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return body


async def _send(answer: SimAnswer, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": answer.cut})
    if answer.cut:
        raise BodyCut


@asynccontextmanager
async def serving(app: App, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve until the end of the block; yields the base URL. Port 0 chooses a free one."""
    import uvicorn  # noqa: PLC0415 - the simulator works in process without a server

    if host != "localhost" and not ip_address(host).is_loopback:
        raise NotLoopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off, which delays answers.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            # Requests that are never answered would keep the server from ending.
            timeout_graceful_shutdown=1,
            date_header=False,  # the world has its own clock
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not running.done():  # noqa: ASYNC110 - the server offers no event
            await asyncio.sleep(0.01)
        try:
            bound = listener.getsockname()[1]
            yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
        finally:
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await running


async def serve(
    app: App, *, host: str = "127.0.0.1", port: int = 8765, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancelled or interrupted."""
    async with serving(app, host=host, port=port) as url:
        if ready:
            ready(url)
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    clock: SimClock
    service: XService
    threads: ThreadsService

    @property
    def truth(self) -> Truth:
        return Truth(self.service.world)

    @property
    def handles(self) -> list[str]:
        """The current handles of accounts worth tracking."""
        return self.truth.accounts(self.clock.now())

    def asgi(self) -> App:
        return asgi(self.service, self.clock, self.threads)


def pack(
    *,
    seed: int = 7,
    size: str = "small",
    faults: str = "none",
    latency_seconds: tuple[float, float] = (0.0, 0.0),
    speed: float = 0.0,
    key: Key = DEFAULT_KEY,
    restless: bool = False,
    quiet: bool = False,
    page_limit: int = 100,
) -> Box:
    """The world and its faults follow from the seed; `speed` is simulated seconds per real second."""
    clock = SimClock(speed=speed)
    trouble = Faults(seed, PRESETS[faults], latency_seconds=latency_seconds)
    world = World(seed, size, restless=restless, quiet=quiet)
    threads = ThreadsService(
        world, clock.now, faults=Faults(seed, PRESETS[faults], latency_seconds=latency_seconds), page_limit=page_limit
    )
    service = XService(world, clock.now, keys=[key], faults=trouble)
    return Box(clock=clock, service=service, threads=threads)
