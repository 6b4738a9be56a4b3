"""The real network behind the web port: what is connected to is exactly what was checked, and nothing is endless."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from mistnet.kit.transport import Unanswered
from mistnet.shops.errors import CrawlRefused, UnsafeAddress
from mistnet.sources.web.port import Readable, WebAnswer
from mistnet.sources.web.safe_url import SafeUrl, forbidden

ANY_HOST: Final = "*"
CONNECT_SECONDS: Final = 10.0
_PIECE: Final = 64 * 1024
_PER_HOST: Final = 4
_AUTO: Final = zlib.MAX_WBITS | 32
"""zlib and gzip, by what the stream says of itself."""


class _Refused(OSError):
    """A socket that must not be connected."""


class GuardedResolver(AbstractResolver):
    """Looks names up once and passes on only what may be connected to. One bad address spoils the name."""

    def __init__(self, inner: AbstractResolver | None = None) -> None:
        self._inner = inner or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for each in found:
            if why := forbidden(each["host"]):
                raise UnsafeAddress(host, f"it resolves to {each['host']}, which is {why}")
        return found

    async def close(self) -> None:
        await self._inner.close()


def guarded_socket(about: tuple[Any, ...]) -> socket.socket:
    """The last door: whatever was resolved before, this is the address that is about to be connected to."""
    family, kind, protocol, _name, address = about
    if why := forbidden(str(address[0])):
        raise _Refused(f"{address[0]} is {why}")
    return socket.socket(family=family, type=kind, proto=protocol)


class Network:
    """Sends single requests. Hosts the settings trust, and those sent elsewhere by `via`, need no checking."""

    def __init__(
        self,
        *,
        user_agent: str,
        largest: int,
        total_seconds: float,
        via: Mapping[str, str] | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "gzip, deflate"}
        self._largest = largest
        self._timeout = aiohttp.ClientTimeout(total=total_seconds, connect=min(CONNECT_SECONDS, total_seconds))
        self._via = {host: URL(base) for host, base in (via or {}).items()}
        self._resolver = resolver
        self._parts = AsyncExitStack()
        self._guarded: aiohttp.ClientSession | None = None
        self._open: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        guarded = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._resolver),
            socket_factory=guarded_socket,
            use_dns_cache=False,
            limit_per_host=_PER_HOST,
        )
        self._guarded = await self._parts.enter_async_context(self._session(guarded))
        self._open = await self._parts.enter_async_context(self._session(aiohttp.TCPConnector()))
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._parts.aclose()

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        """No cookies, no proxies from the environment, and bodies as they are sent: we unpack them ourselves."""
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        session, url, sent = self._route(target, headers)
        try:
            async with session.get(url, headers=sent, allow_redirects=False) as answer:
                return await self._read(answer, target, readable)
        except TimeoutError:
            raise Unanswered("no answer in time") from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, _Refused):
                raise UnsafeAddress(target.url, str(error.os_error)) from None
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error

    def _route(self, target: SafeUrl, headers: Mapping[str, str]) -> tuple[aiohttp.ClientSession, URL, dict[str, str]]:
        if self._guarded is None or self._open is None:
            raise RuntimeError("the network is not open")
        url = URL(target.url, encoded=True)
        base = self._via.get(target.host) or self._via.get(ANY_HOST)
        if base is not None:
            moved = url.with_scheme(base.scheme).with_host(base.host or "").with_port(base.port)
            return self._open, moved, {**headers, "Host": target.host}
        return (self._open if target.trusted else self._guarded), url, dict(headers)

    async def _read(self, answer: aiohttp.ClientResponse, target: SafeUrl, readable: Readable) -> WebAnswer:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        unread = readable(answer.status, headers)
        body = b"" if unread else await self._body(answer, headers, target)
        return WebAnswer(status=answer.status, headers=headers, body=body, unread=unread)

    async def _body(self, answer: aiohttp.ClientResponse, headers: Mapping[str, str], target: SafeUrl) -> bytes:
        """Neither what is sent nor what it unpacks to may be larger than allowed, whatever the headers promise."""
        if (answer.content_length or 0) > self._largest:
            raise CrawlRefused(target.url, f"it is larger than {self._largest:,} bytes (`crawl_largest_megabytes`)")
        unpacker = unpacker_of(headers, target)
        body, sent = bytearray(), 0
        async for piece in answer.content.iter_chunked(_PIECE):
            sent += len(piece)
            body += unpacker.unpack(piece, self._largest - len(body) + 1)
            if max(len(body), sent) > self._largest:
                raise CrawlRefused(target.url, f"it is larger than {self._largest:,} bytes (`crawl_largest_megabytes`)")
        return bytes(body)


class Plain:
    """A body that is not packed."""

    def unpack(self, piece: bytes, _room: int) -> bytes:
        return piece


class Zipped:
    """A body packed by gzip or deflate. It is unpacked no further than there is room."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_AUTO)
        self._begun = False

    def unpack(self, piece: bytes, room: int) -> bytes:
        try:
            unpacked = self._stream.decompress(piece, room)
        except zlib.error:
            if self._begun:
                raise ValueError("the packed body is broken") from None
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send deflate without its head
            unpacked = self._raw(piece, room)
        self._begun = True
        return unpacked

    def _raw(self, piece: bytes, room: int) -> bytes:
        try:
            return self._stream.decompress(piece, room)
        except zlib.error:
            raise ValueError("the packed body is broken") from None


def unpacker_of(headers: Mapping[str, str], target: SafeUrl) -> Plain | Zipped:
    match headers.get("content-encoding", "identity").strip().lower():
        case "" | "identity":
            return Plain()
        case "gzip" | "x-gzip" | "deflate":
            return Zipped()
        case other:
            raise CrawlRefused(target.url, f"its body is packed in a way nobody asked for ({other[:40]})")
