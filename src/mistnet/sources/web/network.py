"""The network behind the web port: it connects only to checked addresses, and limits time and size."""

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
from mistnet.shops.model import CrawlRefused, UnsafeAddress
from mistnet.sources.web.port import Readable, SafeUrl, WebAnswer, forbidden

ANY_HOST: Final = "*"
CONNECT_SECONDS: Final = 10.0
_PIECE: Final = 64 * 1024
_PER_HOST: Final = 4
_AUTO: Final = zlib.MAX_WBITS | 32
"""Detect zlib or gzip from the stream's header."""


class _Refused(OSError):
    """An address that must not be connected to."""


class GuardedResolver(AbstractResolver):
    """Resolves a name once, and refuses it if any of its addresses is forbidden."""

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


def open_guarded_socket(about: tuple[Any, ...]) -> socket.socket:
    """Check the address right before connecting: a name may resolve differently than when it was checked."""
    family, kind, protocol, _name, address = about
    if why := forbidden(str(address[0])):
        raise _Refused(f"{address[0]} is {why}")
    return socket.socket(family=family, type=kind, proto=protocol)


class Network:
    """Sends single requests. Hosts that the settings trust, and those that `via` redirects, are not checked."""

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
            socket_factory=open_guarded_socket,
            # Every connection resolves its name again, and each resolution is checked.
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
        """No cookies, no proxies from the environment, no automatic decompression: `_body` limits the unpacked size."""
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        if self._guarded is None or self._open is None:
            raise RuntimeError("the network is not open")
        session, url, sent = self._open if target.trusted else self._guarded, URL(target.url, encoded=True), {**headers}
        if base := self._via.get(target.host) or self._via.get(ANY_HOST):
            # The stand-in learns from this header which host is meant.
            session, sent["Host"] = self._open, target.host
            url = url.with_scheme(base.scheme).with_host(base.host or "").with_port(base.port)
        try:
            async with session.get(url, headers=sent, allow_redirects=False) as answer:
                received = {name.lower(): value for name, value in answer.headers.items()}
                unread = readable(answer.status, received)
                body = b"" if unread else await self._body(answer, received, target)
                return WebAnswer(status=answer.status, headers=received, body=body, unread=unread)
        except TimeoutError:
            raise Unanswered("no answer in time") from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, _Refused):
                raise UnsafeAddress(target.url, str(error.os_error)) from None
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error

    async def _body(self, answer: aiohttp.ClientResponse, headers: Mapping[str, str], target: SafeUrl) -> bytes:
        """Limit both the bytes sent and the bytes unpacked; the headers may be wrong."""
        if (answer.content_length or 0) > self._largest:
            raise CrawlRefused(target.url, f"it is larger than {self._largest:,} bytes (`crawl_largest_megabytes`)")
        unpacker = unpacker_of(headers, target)
        body, sent = bytearray(), 0
        async for piece in answer.content.iter_chunked(_PIECE):
            sent += len(piece)
            # One byte more than allowed is enough to see that it is too large.
            body += unpacker.unpack(piece, self._largest - len(body) + 1) if unpacker else piece
            if max(len(body), sent) > self._largest:
                raise CrawlRefused(target.url, f"it is larger than {self._largest:,} bytes (`crawl_largest_megabytes`)")
        return bytes(body)


class Zipped:
    """A body compressed with gzip or deflate. It is unpacked only up to the given number of bytes."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_AUTO)
        self._begun = False

    def unpack(self, piece: bytes, room: int) -> bytes:
        try:
            unpacked = self._stream.decompress(piece, room)
        except zlib.error:
            if self._begun:
                raise ValueError("the packed body is broken") from None
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send deflate without the zlib header
            try:
                unpacked = self._stream.decompress(piece, room)
            except zlib.error:
                raise ValueError("the packed body is broken") from None
        self._begun = True
        return unpacked


def unpacker_of(headers: Mapping[str, str], target: SafeUrl) -> Zipped | None:
    """None if the body is sent as it is."""
    match headers.get("content-encoding", "identity").strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return Zipped()
        case other:
            raise CrawlRefused(target.url, f"its body has an encoding that was not requested ({other[:40]})")
