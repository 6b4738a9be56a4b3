"""Listens on an address and serves the web application there, until told to stop."""

import asyncio
import errno
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import typer
import uvicorn
from loguru import logger

from mistnet.cli.connections import Limits, limited

if TYPE_CHECKING:
    from fastapi import FastAPI

_BACKLOG: Final = 2048
_OWNER_ALONE: Final = 0o177
_FAREWELL_SECONDS: Final = 5
_LISTENERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.asgi")
_OF_CLIENTS: Final = ("Invalid HTTP request", "Unsupported upgrade request", "No supported WebSocket library")
"""How warnings begin that any client can cause, as often as it likes."""


class Server(uvicorn.Server):
    """Signals are the command's business, not the server's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the service listens: an address and a port, or the file of a Unix socket."""

    host: str = ""
    port: int = 0
    file: Path | None = None

    @contextmanager
    def opened(self) -> Iterator[socket.socket]:
        with listening_on(self.file) if self.file else closing(listen(self.host, self.port)) as listener:
            yield listener


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address; one that cannot be had is a slip of whoever started us."""
    try:
        return bind(host, port)
    except OSError as error:
        raise _refused(host, port, error) from None


def bind(host: str, port: int) -> socket.socket:
    listener: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)  # only of a socket that says TCP is the delay taken off
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
        # Set before the file is made: a mode given to it afterwards leaves a moment in which others can open it.
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
            if _identity(path) == made:  # else another process has taken over, and the file is its own
                path.unlink()
        listener.close()


def _identity(path: Path) -> tuple[int, int, int]:
    """Numbers of inodes are used again, so that the time tells the files apart."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _remove_leftover(path: Path) -> None:
    """A process that was killed leaves its file behind, and there is no answer from it."""
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
        except BlockingIOError:  # so many wait that there is no room for one more
            pass
    raise typer.BadParameter(f"another process listens on {path}: stop it, or name another file", param_hint="--socket")


def _refused(host: str, port: int, error: OSError) -> typer.BadParameter:
    if error.errno == errno.EADDRINUSE:
        return typer.BadParameter(f"port {port} of {host} is taken: give another, or 0 for any", param_hint="--port")
    if error.errno == errno.EACCES:
        return typer.BadParameter(f"port {port} is not for everybody: give one above 1023", param_hint="--port")
    return typer.BadParameter(f"cannot listen on {host}: {error.strerror or error}", param_hint="--host")


def url_of(listener: socket.socket) -> str:
    """Where a browser on this machine finds what is served there."""
    host, port, *_ = listener.getsockname()
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (what it means, for people)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


@asynccontextmanager
async def serving(
    service: "FastAPI", listener: socket.socket, limits: Limits | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Serves while the block runs; open requests may finish within some seconds. The task ends if serving does."""
    async with serving_app(service, listener, limits or Limits(), lifespan="on") as running:
        try:
            yield running
        finally:
            service.state.closing.set()


@asynccontextmanager
async def serving_app(
    application: Callable[..., Any], listener: socket.socket, limits: Limits, *, lifespan: Literal["on", "off"]
) -> AsyncIterator[asyncio.Task[None]]:
    """Any ASGI application, within limits."""
    config = uvicorn.Config(
        application,
        http=limited(limits),
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        lifespan=lifespan,
        timeout_graceful_shutdown=_FAREWELL_SECONDS,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # it hands them to the loop
        backlog=min(_BACKLOG, limits.connections),  # so many are accepted before any of them can be let go
    )
    server = Server(config)
    with _through_our_log():
        running = asyncio.create_task(server.serve(sockets=[listener]), name="server")
        try:
            yield running
        finally:
            server.should_exit = True
            await running


class _Handed(logging.Handler):
    """Hands on what the server has to say; its tracebacks stay with us."""

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        level = "DEBUG" if said.startswith(_OF_CLIENTS) else record.levelname
        logger.log(level, "web server: {said}", said=said)


@contextmanager
def _through_our_log() -> Iterator[None]:
    handed = _Handed(level=logging.WARNING)
    named = [logging.getLogger(name) for name in _LISTENERS]
    for each in named:
        each.propagate = False
    named[0].addHandler(handed)
    named[1].addHandler(handed)
    named[2].addHandler(handed)
    try:
        yield
    finally:
        for each in named:
            each.removeHandler(handed)
            each.propagate = True
