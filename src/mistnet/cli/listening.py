"""Serves ASGI applications: sockets, limits on slow and excess connections, and the server."""

import asyncio
import errno
import logging
import os
import resource
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import h11
import msgspec
import typer
import uvicorn
from loguru import logger
from uvicorn.protocols.http.h11_impl import H11Protocol

from mistnet.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI


_LEAST_CONNECTIONS: Final = 16
_LONGEST_WINDOW_SECONDS: Final = 5.0
_LENGTHS: Final = {b"content-length", b"transfer-encoding"}


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client may take, and how many connections there may be."""

    header_seconds: float = 10.0
    body_seconds: float = 120.0
    idle_seconds: float = 15.0
    body_bytes_per_second: int = 500
    connections: int = 512

    @property
    def window_seconds(self) -> float:
        """The period over which the rate of a body is measured."""
        return min(_LONGEST_WINDOW_SECONDS, self.body_seconds / 4)


def usable_connections(wanted: int, descriptors: int | None = None) -> int:
    """At most half of the files that this process may open: the database and sources need some too."""
    if descriptors is None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if descriptors < 0 else min(wanted, max(descriptors // 2, _LEAST_CONNECTIONS))


def limits_of(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        header_seconds=settings.http_header_seconds,
        body_seconds=settings.http_body_seconds,
        idle_seconds=settings.http_idle_seconds,
        body_bytes_per_second=settings.http_body_bytes_per_second,
        connections=usable_connections(settings.http_connections),
    )


class StrictConnection(h11.Connection):
    """Refuses a request with two lengths: a proxy may use the other one and see different requests (smuggling)."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _LENGTHS:
            raise h11.RemoteProtocolError("a request has either Content-Length or Transfer-Encoding")
        return event


class LimitedProtocol(H11Protocol):
    """Closes connections whose request does not arrive in time, and the longest waiting ones above the limit."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = StrictConnection(h11.SERVER, self.config.h11_max_incomplete_event_size or 16 * 1024)
        self.waiting_since: float | None = None
        """Since when the server waits for the client; None while the client waits for the server."""
        self._phase: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()
        held = [each for each in self.connections if isinstance(each, LimitedProtocol) and each.is_open]
        if len(held) <= self.limits.connections:
            return
        # Above the limit, close the connection that waits for its client the longest, else the newest.
        waiting = [each for each in held if each is not self and each.waiting_since is not None]
        if waiting:
            min(waiting, key=lambda each: each.waiting_since or 0.0).transport.abort()
        else:
            self._refuse(503, b"Service Unavailable")

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._stalled, self._closing):
            if timer:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_deadline()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._set_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.idle_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled:
            self._stalled.cancel()

    def _set_deadline(self) -> None:
        """Set the deadline for what the client has to send next. Sending a part does not extend it."""
        if self.transport.is_closing():
            self._abort_later()
            return
        state = self.conn.their_state
        if state is h11.IDLE and self._has_begun:
            # A second request has begun: it gets the deadline of a head.
            self._unset_keepalive_if_required()
        # Uvicorn closes idle connections itself.
        is_idle = state is h11.IDLE and self.timeout_keep_alive_task is not None
        phase = (state, is_idle, self.cycle)
        # More of the same part: its deadline stays, or one byte a second would extend it forever.
        if phase == self._phase:
            return
        self._phase = phase
        if self._deadline:
            self._deadline.cancel()
        self.waiting_since = time.monotonic() if state in (h11.IDLE, h11.SEND_BODY) else None
        if state is h11.SEND_BODY:
            self._received = 0
            self._deadline = self.loop.call_later(self.limits.window_seconds, self._check_body)
        elif state is h11.IDLE and not is_idle:
            self._deadline = self.loop.call_later(self.limits.header_seconds, self._give_up)

    def _check_body(self) -> None:
        window, begun = self.limits.window_seconds, self.waiting_since or 0.0
        # While reading is paused the server is slow, not the client.
        slow = not self.flow.read_paused and self._received < self.limits.body_bytes_per_second * window
        if slow or time.monotonic() + window > begun + self.limits.body_seconds:
            self._give_up()
            return
        self._received = 0
        self._deadline = self.loop.call_later(window, self._check_body)

    def _give_up(self) -> None:
        # A client that sent nothing expects no response: browsers connect in advance.
        self._refuse(408, b"Request Timeout" if self._has_begun else b"")

    @property
    def _has_begun(self) -> bool:
        """Whether a part of the next request has arrived."""
        return self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    def _refuse(self, status: int, reason: bytes) -> None:
        """Close the connection, with a response if none has begun."""
        if self._deadline:
            self._deadline.cancel()
        if reason and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(reason))), ("Connection", "close")]
            events = (h11.Response(status_code=status, headers=headers, reason=reason), h11.Data(data=reason))
            for event in (*events, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle:
            # The application must not write a second response into this connection.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """Abort if closing takes long: a client that does not read could delay it forever."""
        if not self._closing:
            self._closing = self.loop.call_later(self.limits.idle_seconds, self.transport.abort)


_BACKLOG: Final = 2048
_OWNER_ALONE: Final = 0o177
_SHUTDOWN_SECONDS: Final = 5
_LOGGERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.asgi")
_CAUSED_BY_CLIENTS: Final = ("Invalid HTTP request", "Unsupported upgrade request", "No supported WebSocket library")
"""How warnings begin that any client can cause at will: they are logged as DEBUG."""


class WebServer(uvicorn.Server):
    """A server that leaves signals to the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the service listens: an address and a port, or the file of a Unix socket."""

    host: str = ""
    port: int = 0
    file: Path | None = None

    @contextmanager
    def opened(self) -> Iterator[socket.socket]:
        with listening_on(self.file) if self.file else closing(listen(self.host, self.port)) as listener:
            yield listener


def listen(host: str, port: int) -> socket.socket:
    """A socket on an address. If it is not available, the options are at fault."""
    try:
        return bind(host, port)
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                problem = f"port {port} of {host} is in use: give another, or 0 for any"
            case errno.EACCES:
                problem = f"port {port} needs privileges: give one above 1023"
            case _:
                raise typer.BadParameter(
                    f"cannot listen on {host}: {error.strerror or error}", param_hint="--host"
                ) from None
        raise typer.BadParameter(problem, param_hint="--port") from None


def bind(host: str, port: int) -> socket.socket:
    listener: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # With the protocol named, asyncio sets TCP_NODELAY.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        if listener:
            listener.close()
        raise
    listener.setblocking(False)
    return listener


@contextmanager
def listening_on(path: Path) -> Iterator[socket.socket]:
    """A Unix socket that only its owner can open. Its file is there for as long as the block runs."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_leftover(path)
        # umask, not chmod: between bind and chmod others could open the file.
        before = os.umask(_OWNER_ALONE)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        made = _identity(path)
    except (OSError, ValueError) as error:
        listener.close()
        problem = getattr(error, "strerror", None) or error
        raise typer.BadParameter(f"cannot listen on {path}: {problem}", param_hint="--socket") from None
    except typer.BadParameter:
        listener.close()
        raise
    try:
        yield listener
    finally:
        with suppress(OSError):
            # A file that another process has put in its place belongs to that process.
            if _identity(path) == made:
                path.unlink()
        listener.close()


def _identity(path: Path) -> tuple[int, int, int]:
    """Inode numbers are reused, so the time tells files apart."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _remove_leftover(path: Path) -> None:
    """Remove the file of a killed process: connections to it are refused."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise typer.BadParameter(f"{path} exists and is not a socket: name another file", param_hint="--socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            # Its queue is full, so it is alive.
            pass
    raise typer.BadParameter(f"another process listens on {path}: stop it, or name another file", param_hint="--socket")


def url_of(listener: socket.socket) -> str:
    """The URL of a listener for a browser on this machine."""
    host, port, *_ = listener.getsockname()
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (shown as an address that works)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


@asynccontextmanager
async def serving(
    service: "FastAPI", listener: socket.socket, limits: ConnectionLimits | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Serve while the block runs. Open requests may finish within some seconds. The task ends if the server does."""
    async with serving_app(service, listener, limits or ConnectionLimits(), lifespan="on") as running:
        try:
            yield running
        finally:
            service.state.closing.set()


@asynccontextmanager
async def serving_app(
    application: Callable[..., Any],
    listener: socket.socket,
    limits: ConnectionLimits,
    *,
    lifespan: Literal["on", "off"],
) -> AsyncIterator[asyncio.Task[None]]:
    """Serve any ASGI application within limits."""
    config = uvicorn.Config(
        application,
        # Uvicorn makes the protocols itself, so that limits can only come with their class.
        http=type("LimitedProtocol", (LimitedProtocol,), {"limits": limits}),
        # Uvicorn would replace our handlers of the log.
        log_config=None,
        access_log=False,
        # `mistnet.web.clients` reads what proxies say, and only of those that are trusted.
        proxy_headers=False,
        server_header=False,
        date_header=True,
        lifespan=lifespan,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # any number works: it is passed to the loop
        # So many are accepted before one can be closed.
        backlog=min(_BACKLOG, limits.connections),
    )
    server = WebServer(config)
    handler = _ServerLogHandler(level=logging.WARNING)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for each in loggers:
        each.propagate = False
        each.addHandler(handler)
    running = asyncio.create_task(server.serve(sockets=[listener]), name="server")
    try:
        yield running
    finally:
        server.should_exit = True
        try:
            await running
        finally:
            for each in loggers:
                each.removeHandler(handler)
                each.propagate = True


class _ServerLogHandler(logging.Handler):
    """Passes messages of the server to our log, without their tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        level = "DEBUG" if message.startswith(_CAUSED_BY_CLIENTS) else record.levelname
        logger.log(level, "web server: {message}", message=message)
