"""One libSQL server over HTTP: sends pipelines, reads answers, says in SQLite's words what went wrong."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from mistnet.store.libsql.address import Address
from mistnet.store.libsql.errors import ServerBusy, ServerGone, StreamLost, TokenRefused, TransactionLost, refusal
from mistnet.store.libsql.protocol import Answer, Refused, Request

_PATH: Final = "/v3/pipeline"
_CURSOR_PATH: Final = "/v3/cursor"
_CONNECT_SECONDS: Final = 10
_ANSWER_SECONDS: Final = 60
_NO_HURRY: Final = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_ANSWER_SECONDS)
_KEEP_SECONDS: Final = 15  # shorter than any proxy's patience: a connection must not be closed as we write to it
_SHOWN: Final = 200
_LARGE: Final = 2**19
_ENCODER: Final = msgspec.json.Encoder()
_ANSWERS: Final = msgspec.json.Decoder(Answer)


class Complaint(msgspec.Struct):
    """The body of an answer that is no success, in either of the forms servers use."""

    message: str = ""
    error: str = ""
    code: str | None = None


_COMPLAINTS: Final = msgspec.json.Decoder(Complaint)


class Server:
    """Shared by all connections to one database. Opened by the first request, closed by hand."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, requests: Sequence[Request], *, baton: str | None = None, base_url: str | None = None
    ) -> Answer:
        """One round trip. The requests are done in their order; each has an outcome of its own."""
        body = _ENCODER.encode({"baton": baton, "requests": requests})
        status, said = await self._post((base_url or self.address.base_url) + _PATH, body)
        if status != 200:
            raise _failure(status, said, in_stream=baton is not None)
        answer = _read(said)
        if len(answer.results) != len(requests):
            raise ServerGone(f"the server answered {len(answer.results)} of {len(requests)} requests")
        return answer

    async def lines(self, batch: Request) -> AsyncGenerator[bytes, None]:
        """The answer to one batch, line by line, however large it is."""
        body = _ENCODER.encode({"baton": None, **batch})
        with self._named():
            opened = self._opened().post(
                self.address.base_url + _CURSOR_PATH, data=body, allow_redirects=False, timeout=_NO_HURRY
            )
            async with opened as answer:
                if answer.status != 200:
                    raise _failure(answer.status, await answer.read(), in_stream=False)
                async for line in _split(answer.content):
                    yield line

    def following(self, told: str | None, current: str | None) -> str | None:
        """Where the stream goes on. A server may name another address, but never take encryption away."""
        if told is None:
            return current
        if urlsplit(self.address.base_url).scheme == "https" and urlsplit(told).scheme != "https":
            raise ServerGone("the server sends us to an address without encryption")
        return told.rstrip("/")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, url: str, body: bytes) -> tuple[int, bytes]:
        data = body if len(body) < _LARGE else BytesIO(body)  # sent in pieces, so that others have their turn
        with self._named():
            async with self._opened().post(url, data=data, allow_redirects=False) as answer:
                return answer.status, await answer.read()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise ServerGone(f"no answer from {self.address.base_url} in time") from None
        except aiohttp.ClientConnectorError as error:
            raise ServerGone(f"no connection to {self.address.base_url}: {error.os_error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ServerGone(f"{self.address.base_url}: {error or type(error).__name__}") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self.address.token:
                headers["Authorization"] = f"Bearer {self.address.token}"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS, resolver=LocalNames()),
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_CONNECT_SECONDS),
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class LocalNames(AbstractResolver):
    """Names under .localhost are this machine, as RFC 6761 has it; local servers name their databases so."""

    def __init__(self) -> None:
        self._others = ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        local = host.endswith(".localhost")
        found = await self._others.resolve("127.0.0.1" if local else host, port, family)  # type: ignore[arg-type]  # aiohttp's own signature differs from its base
        return [{**each, "hostname": host} for each in found]

    async def close(self) -> None:
        await self._others.close()


async def _split(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """A line may be longer than what a reader takes at once."""
    left = b""
    async for chunk in content.iter_any():
        *whole, left = (left + chunk).split(b"\n")
        for line in whole:
            yield line
    if left:
        yield left


def _read(said: bytes) -> Answer:
    try:
        return _ANSWERS.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerGone(f"the server's answer cannot be read: {error}") from None


def _failure(status: int, said: bytes, *, in_stream: bool) -> Exception:
    """An answer that is about no statement: the door, the stream, or the server itself."""
    told = _refused(said)
    if status in (401, 403):
        return TokenRefused(status)
    if in_stream and isinstance(known := refusal(told.message, told.code), TransactionLost):
        return known
    if in_stream and 400 <= status < 500:
        return StreamLost(f"the server knows our stream no more: {told.message}")
    if status == 429:
        return ServerBusy(f"HTTP 429: {told.message}")
    return ServerGone(f"HTTP {status}: {told.message}")


def _refused(said: bytes) -> Refused:
    try:
        told = _COMPLAINTS.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = Complaint(message=said.decode(errors="replace"))
    lines = (told.message or told.error).strip().splitlines()
    return Refused(message=lines[0][:_SHOWN] if lines else "nothing said", code=told.code)
