"""Connections to RabbitMQ: address, credentials, and its errors translated into ours."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import aio_pika
import msgspec
from aio_pika.abc import AbstractConnection
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from yarl import URL

from mistnet.kit.errors import SettingsError
from mistnet.kit.text import redact
from mistnet.queue.errors import BrokerError, BrokerMismatch, BrokerRefused, BrokerUnreachable

_CONNECT_SECONDS: Final = 10.0
_HEARTBEAT_SECONDS: Final = 20
_REFUSALS: Final = (
    AuthenticationError,
    ProbableAuthenticationError,
    ConnectionNotAllowed,
    ChannelAccessRefused,
    ssl.SSLError,
)
_CLOSED_AT_OPENING: Final = ("Connection.OpenOk", "Connection.Close ")
FAULTS: Final = (AMQPError, ChannelInvalidStateError, OSError, RuntimeError, asyncio.CancelledError)


class BrokerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's URL and the certificate files."""

    url: str
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def shown(self) -> str:
        """The URL without its password."""
        given = URL(self.url)
        return str(given.with_user(None).with_query(None) if given.password else given.with_query(None))

    @property
    def virtual_host(self) -> str:
        return URL(self.url).path.removeprefix("/") or "/"

    @property
    def secrets(self) -> list[str]:
        given = URL(self.url)
        return [each for each in (given.password, given.raw_password) if each]


class BrokerConnector:
    """Makes connections. A user whose connection breaks makes another one."""

    def __init__(self, address: BrokerAddress, *, name: str = "mistnet") -> None:
        for client in ("aio_pika", "aiormq"):
            quiet = logging.getLogger(client)
            # We log what matters ourselves, without secrets.
            quiet.propagate = False
            if not quiet.handlers:
                quiet.addHandler(logging.NullHandler())
        self._address = address
        self._name = name
        self._context = _context(address)

    @property
    def shown(self) -> str:
        return self._address.shown

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[AbstractConnection]:
        """One connection, closed with the block."""
        connection = await self.connect()
        try:
            yield connection
        finally:
            await hang_up(connection)

    async def connect(self) -> AbstractConnection:
        with self.translated():
            url = URL(self._address.url)
            beating = url if "heartbeat" in url.query else url.update_query(heartbeat=_HEARTBEAT_SECONDS)
            # aio_pika.connect() leaves a refused connection open, which then closes itself when it is collected:
            # without a running event loop by then, its coroutine is never awaited.
            connection = aio_pika.Connection(
                beating, ssl_context=self._context, client_properties={"connection_name": self._name}
            )
            try:
                await connection.connect(timeout=_CONNECT_SECONDS)
            except BaseException:
                await connection.close()
                raise
            return connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        with _heeding_cancellation():
            try:
                yield
            except (Exception, asyncio.CancelledError) as error:
                if not _is_fault(error):
                    raise
                raise self.named(error) from None

    def named(self, error: BaseException) -> BrokerError | BrokerMismatch:
        """Translate a client's error, without the password."""
        problem = redact(str(error) or type(error).__name__, self._address.secrets)
        if isinstance(error, ChannelPreconditionFailed):
            return BrokerMismatch(problem)
        if isinstance(error, InvalidFrameError) and all(each in problem for each in _CLOSED_AT_OPENING):
            # the client drops the server's text here; at this step it closes for nothing but the virtual host
            asked = f"it has no virtual host {self._address.virtual_host!r}, or the user may not use it"
            return BrokerRefused(self.shown, asked)
        # Each error once: the client raises kept errors again, which makes their chain of causes a ring.
        causes: dict[int, BaseException] = {}
        cause: BaseException | None = error
        while cause is not None and id(cause) not in causes:
            causes[id(cause)] = cause
            cause = cause.__cause__ or cause.__context__
        refused = any(isinstance(each, _REFUSALS) for each in causes.values()) or "[SSL:" in problem
        return (BrokerRefused if refused else BrokerUnreachable)(self.shown, problem)


@contextmanager
def forgiven() -> Iterator[None]:
    """For actions that the broker takes by itself when a connection is lost, such as returning messages."""
    with _heeding_cancellation():
        try:
            yield
        except (Exception, asyncio.CancelledError) as error:
            if not _is_fault(error):
                raise


def _is_fault(error: BaseException) -> bool:
    """Whether the client or the network failed. What waited for a lost connection may end with a bare `Exception`."""
    return isinstance(error, FAULTS) or type(error) is Exception


@contextmanager
def _heeding_cancellation() -> Iterator[None]:
    """End with the task's own cancellation, whatever the client raised instead.

    The client waits with Python 3.11's wait_for, which loses a cancellation that comes together with an answer or
    an error. It also cancels what waits for a connection that is gone: that is an error, and no cancellation of ours.
    """
    try:
        yield
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


async def hang_up(connection: AbstractConnection) -> None:
    with forgiven():
        async with asyncio.timeout(_CONNECT_SECONDS):
            await connection.close()


def _context(address: BrokerAddress) -> ssl.SSLContext | None:
    if not address.url.startswith("amqps:"):
        return None
    for setting, file in (
        ("broker_ca_file", address.ca_file),
        ("broker_cert_file", address.cert_file),
        ("broker_key_file", address.key_file),
    ):
        with _named(setting, file):
            if file is not None:
                file.open("rb").close()
    with _named("broker_ca_file", address.ca_file):
        context = ssl.create_default_context(cafile=address.ca_file)
    if address.cert_file is not None:
        key = "broker_cert_file and broker_key_file" if address.key_file else "broker_cert_file"
        with _named(key, address.cert_file):
            context.load_cert_chain(address.cert_file, address.key_file)
    return context


@contextmanager
def _named(setting: str, file: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # an ssl.SSLError is one too
        problem = f"{file} cannot be used: {error.strerror or error}. Name a file in PEM format that this user may read"
        raise SettingsError(setting, "settings", problem) from None
