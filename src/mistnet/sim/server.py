"""The world over HTTP: an ASGI application, and a server for it that only this machine can reach."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any

from mistnet.sim.clock import SimClock
from mistnet.sim.control import PREFIX, Control
from mistnet.sim.market import ROUGH, MarketService
from mistnet.sim.service import Answer, NeverAnswers, NeverConnects, XService
from mistnet.sim.shops import ShopService
from mistnet.sim.threads import ThreadsService

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
        await _send(Answer(status=503, headers={"content-length": "0"}, body=b""), send)
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


async def _send(answer: Answer, send: Send) -> None:
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
