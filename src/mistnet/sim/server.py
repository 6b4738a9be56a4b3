"""The world over HTTP: an ASGI application, and a server for it that only this machine can reach."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode

from mistnet.sim.clock import SimClock
from mistnet.sim.control import PREFIX, Control
from mistnet.sim.faults import PRESETS, Faults
from mistnet.sim.ledger import Key
from mistnet.sim.market import ROUGH, MarketService
from mistnet.sim.service import DEFAULT_KEY, NeverAnswers, NeverConnects, SimAnswer, XService
from mistnet.sim.shops import ShopService
from mistnet.sim.threads import ThreadsService
from mistnet.sim.threads_answers import ThreadsTruth
from mistnet.sim.truth import Truth
from mistnet.sim.world import World

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
    """Without a clock there is no control: the truth can then only be asked in the same process."""
    threads = threads or ThreadsService(service.world, service.now)
    rough = ROUGH if service.faults.rates else None
    market = MarketService(service.now, seed=service.world.seed, goods=GOODS, faults=rough)
    control = Control(service, clock, threads, market) if clock else None
    shops = ShopService(service.now, seed=service.world.seed)

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await _respond(service, control, shops, threads, market, scope, receive, send)

    return app


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _respond(
    service: XService,
    control: Control | None,
    shops: ShopService,
    threads: ThreadsService,
    market: MarketService,
    scope: MutableMapping[str, Any],
    receive: Receive,
    send: Send,
) -> None:
    method, path, query = scope["method"], scope["path"], scope["query_string"].decode("latin-1")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    body = await _body(receive)
    if control and path.startswith(PREFIX):
        await _send(control.answer(method, path, query, body), send)
        return
    try:
        host = headers.get("host", "")
        if market.knows(host, path):
            await _send(market.handle(method, host, path, query, headers, body), send)
            return
        if _is_elsewhere(host):
            await _send(shops.handle(host, path, query, headers), send)
            return
        asked = threads if threads.knows(path) else service
        await _send(await asked.handle(method, path, query, headers, body), send)
    except NeverConnects:
        # A server whose socket is open cannot refuse a connection any more; it can only say that it is down.
        await _send(SimAnswer(status=503, headers={"content-length": "0"}, body=b""), send)
    except NeverAnswers:
        while (await receive())["type"] != "http.disconnect":
            pass


def _is_elsewhere(host: str) -> bool:
    """Whether a request is meant for another host that this one plays."""
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    return bool(name) and name not in LOCAL_HOSTS


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _send(answer: SimAnswer, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": answer.cut})
    if answer.cut:
        raise BodyCut


@asynccontextmanager
async def serving(app: App, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve until the block is left; yields the base URL. Port 0 takes a free one."""
    import uvicorn  # noqa: PLC0415 - the simulator works in process without a server

    with _listening(host, port) as listener:
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            date_header=False,  # the world has its own time
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


def _listening(host: str, port: int) -> socket.socket:
    if host != "localhost" and not ip_address(host).is_loopback:
        raise NotLoopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or answers wait for Nagle
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    clock: SimClock
    service: XService
    threads: ThreadsService

    @property
    def truth(self) -> Truth:
        return Truth(self.service.world)

    @property
    def threads_truth(self) -> ThreadsTruth:
        return ThreadsTruth(self.threads.threads)

    @property
    def handles(self) -> list[str]:
        """Accounts worth tracking, by what they are called now."""
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


SEARCH_PATH = "/twitter/tweet/advanced_search"


class SimVisitor:
    def __init__(self, service: XService, key: str = DEFAULT_KEY.name) -> None:
        self._service, self._key = service, key

    async def ask(self, path: str, **params: object) -> SimAnswer:
        return await self._service.handle("GET", path, urlencode(params), {"X-API-Key": self._key})

    async def get(self, path: str, **params: object) -> Any:
        """The JSON of an answer that must be a 200."""
        answer = await self.ask(path, **params)
        if answer.status != 200:
            raise AssertionError(f"{answer.status}: {answer.body.decode()}")
        return json.loads(answer.body)

    async def search(self, query: str, cursor: str = "") -> Any:
        return await self.get(SEARCH_PATH, query=query, queryType="Latest", cursor=cursor)
