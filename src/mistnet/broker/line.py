"""The way to RabbitMQ: where it is, how we show who we are, and its errors in our words."""

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
    ProbableAuthenticationError,
)
from yarl import URL

from mistnet.domain.errors import BrokerError, BrokerMismatch, BrokerRefused, BrokerUnreachable, SettingsError
from mistnet.domain.redaction import redact

_CONNECT_SECONDS: Final = 10.0
_HEARTBEAT_SECONDS: Final = 20
_REFUSALS: Final = (
    AuthenticationError,
    ProbableAuthenticationError,
    ConnectionNotAllowed,
    ChannelAccessRefused,
    ssl.SSLError,
)
FAULTS: Final = (AMQPError, ChannelInvalidStateError, OSError, RuntimeError, asyncio.CancelledError)


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is, and the files that prove who it and we are."""

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
    def secrets(self) -> list[str]:
        given = URL(self.url)
        return [each for each in (given.password, given.raw_password) if each]


class Line:
    """Makes connections. Whoever uses one makes another when it breaks."""

    def __init__(self, address: Address, *, name: str = "mistnet") -> None:
        _quieten()
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
            return await aio_pika.connect(
                beating,
                ssl_context=self._context,
                timeout=_CONNECT_SECONDS,
                client_properties={"connection_name": self._name},
            )

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except FAULTS as error:
            if isinstance(error, asyncio.CancelledError) and _cancelled_by_us():
                raise
            raise self.named(error) from None
        _heed_cancelling()

    def named(self, error: BaseException) -> BrokerError | BrokerMismatch:
        """A client's error for what it means to us, without the password."""
        problem = redact(str(error) or type(error).__name__, self._address.secrets)
        if isinstance(error, ChannelPreconditionFailed):
            return BrokerMismatch(problem)
        refused = any(isinstance(each, _REFUSALS) for each in _causes(error)) or "[SSL:" in problem
        return (BrokerRefused if refused else BrokerUnreachable)(self.shown, problem)


@contextmanager
def forgiven() -> Iterator[None]:
    """For what the broker does by itself when a connection is gone: to give messages back."""
    try:
        yield
    except FAULTS as error:
        if isinstance(error, asyncio.CancelledError) and _cancelled_by_us():
            raise
    _heed_cancelling()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Each once: the client raises kept errors again, and then the chain of their causes is a ring."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _cancelled_by_us() -> bool:
    """The client cancels what waits for a connection that is gone; only a task's own cancellation is ours."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _heed_cancelling() -> None:
    """The client waits with Python 3.11's wait_for, which loses a cancellation that comes together with its answer."""
    if _cancelled_by_us():
        raise asyncio.CancelledError


async def hang_up(connection: AbstractConnection) -> None:
    with forgiven():
        async with asyncio.timeout(_CONNECT_SECONDS):
            await connection.close()


def _context(address: Address) -> ssl.SSLContext | None:
    if not address.url.startswith("amqps:"):
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
        if address.cert_file is not None:
            context.load_cert_chain(address.cert_file, address.key_file)
    except (OSError, ssl.SSLError) as error:
        problem = f"a certificate cannot be used: {error}"
        raise SettingsError("broker_ca_file, broker_cert_file, broker_key_file", "settings", problem) from None
    return context


def _quieten() -> None:
    for name in ("aio_pika", "aiormq"):
        quiet = logging.getLogger(name)
        quiet.propagate = False  # we log what matters ourselves, without secrets
        if not quiet.handlers:
            quiet.addHandler(logging.NullHandler())
