"""Clients that send slowly, never, or two things at once: they are cut off, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from fastapi.responses import StreamingResponse
from loguru import logger
from uvicorn.server import ServerState
from yarl import URL

from mistnet.cli.listening import ConnectionLimits, LimitedProtocol, usable_connections
from mistnet.cli.work import serve_metrics
from mistnet.settings import load_settings
from tests.apis import Api, open_api
from tests.databases import make_app

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POSTED = (
    b"POST /api/accounts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
)
PATIENCE = 30.0
"""Longer than any deadline here. It only matters when a connection stays open."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(api: Api, *parts: bytes) -> AsyncIterator[Streams]:
    url = URL(api.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"".join(parts))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def all_read(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end of the connection, which must come."""
    async with asyncio.timeout(PATIENCE):
        return await reader.read()


async def dripped(streams: Streams, part: bytes, every: float) -> bytes:
    """What is answered to a client that sends a little now and then, for as long as it is let."""
    reader, writer = streams
    answer = bytearray()
    async with asyncio.timeout(PATIENCE):
        while not reader.at_eof():
            try:
                async with asyncio.timeout(every):
                    answer += await reader.read(65_536)
            except TimeoutError:
                writer.write(part)
            except ConnectionResetError:  # the server did not read what was sent after the answer
                break
    return bytes(answer)


@pytest.mark.parametrize("sent", [b"", HEAD[:10], HEAD])
async def test_a_request_whose_head_does_not_come_is_given_up(sqlite_url: str, sent: bytes) -> None:
    async with open_api(sqlite_url, http_header_seconds=0.3) as api, connected(api, sent) as (reader, _):
        answer = await all_read(reader)
        assert answer.startswith(b"HTTP/1.1 408 " if sent else b"")
        assert bool(answer) == bool(sent)


async def test_a_head_that_drips_has_the_same_deadline(sqlite_url: str) -> None:
    async with open_api(sqlite_url, http_header_seconds=0.5) as api, connected(api, HEAD) as streams:
        assert (await dripped(streams, b"X-A: b\r\n", 0.1)).startswith(b"HTTP/1.1 408 ")


async def test_the_head_of_a_second_request_has_a_deadline_too(sqlite_url: str) -> None:
    async with open_api(sqlite_url, http_header_seconds=0.3) as api, connected(api, HEAD, b"\r\n", HEAD) as (reader, _):
        answer = await all_read(reader)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in answer


@pytest.mark.parametrize("sent", [b"", b"{"])
async def test_a_body_that_does_not_come_is_given_up(sqlite_url: str, sent: bytes) -> None:
    async with open_api(sqlite_url, http_body_seconds=0.5) as api, connected(api, POSTED, sent) as (reader, _):
        assert (await all_read(reader)).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_drips_is_given_up_for_its_rate(sqlite_url: str) -> None:
    slow: dict[str, Any] = {"http_body_seconds": 2.0, "http_body_bytes_per_second": 100}
    async with open_api(sqlite_url, **slow) as api, connected(api, POSTED) as streams:
        begun = asyncio.get_running_loop().time()
        assert (await dripped(streams, b" ", 0.1)).startswith(b"HTTP/1.1 408 ")
        assert asyncio.get_running_loop().time() - begun < 1.9


async def test_a_body_that_is_quick_enough_is_still_given_up_at_its_deadline(sqlite_url: str) -> None:
    slow: dict[str, Any] = {"http_body_seconds": 0.8, "http_body_bytes_per_second": 1}
    async with open_api(sqlite_url, **slow) as api, connected(api, POSTED) as streams:
        assert (await dripped(streams, b"  ", 0.1)).startswith(b"HTTP/1.1 408 ")


async def test_the_unread_body_of_a_refused_request_does_not_keep_its_connection(sqlite_url: str) -> None:
    unknown = POSTED.replace(b"/api/accounts", b"/api/nowhere")
    async with open_api(sqlite_url, http_body_seconds=0.8) as api, connected(api, unknown) as streams:
        assert (await dripped(streams, b" ", 0.1)).startswith(b"HTTP/1.1 404 ")


async def test_an_idle_connection_is_closed(sqlite_url: str) -> None:
    async with open_api(sqlite_url, http_idle_seconds=0.3) as api, connected(api, HEAD, b"\r\n") as (reader, _):
        assert (await all_read(reader)).startswith(b"HTTP/1.1 200 ")


async def test_a_whole_request_that_comes_in_parts_is_answered(sqlite_url: str) -> None:
    async with open_api(sqlite_url, http_idle_seconds=0.3) as api, connected(api, HEAD) as (reader, writer):
        for part in (b"X-A: ", b"b\r\n", b"\r", b"\n"):
            await writer.drain()
            writer.write(part)
        assert (await all_read(reader)).startswith(b"HTTP/1.1 200 ")


async def test_a_response_that_is_not_read_is_given_up(sqlite_url: str) -> None:
    ended = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(50):  # more than all buffers on the way hold
            yield b"x" * 1_000_000
        ended.set()

    async with open_api(sqlite_url, http_idle_seconds=0.3) as api:

        @api.service.get("/large")
        async def large() -> StreamingResponse:
            return StreamingResponse(parts())

        with socket.create_connection((URL(api.url).host, URL(api.url).port)) as sock:
            sock.sendall(HEAD.replace(b"/healthz", b"/large") + b"\r\n")
            async with asyncio.timeout(PATIENCE):
                await ended.wait()


class Stuck(asyncio.Transport):
    """A connection whose client reads nothing: it closes only by force."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = asyncio.Event()
        self.closing = False

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.cut.set()


async def test_a_connection_that_cannot_be_closed_in_peace_is_cut() -> None:
    async def nothing(_scope: object, _receive: object, _send: object) -> None:
        pass

    for end in ("timeout_keep_alive_handler", "_give_up"):
        made = type("Limited", (LimitedProtocol,), {"limits": ConnectionLimits(idle_seconds=0.1, header_seconds=60)})
        protocol = made(config=uvicorn.Config(nothing, http=made), server_state=ServerState(), app_state={})
        transport = Stuck()
        protocol.connection_made(transport)
        getattr(protocol, end)()
        async with asyncio.timeout(PATIENCE):
            await transport.cut.wait()
        protocol.connection_lost(None)


async def test_half_requests_do_not_keep_others_out(sqlite_url: str) -> None:
    async with open_api(sqlite_url, http_connections=20, http_header_seconds=600, http_body_seconds=600) as api:
        halves = [HEAD, POSTED + b"{", b""] * 20
        opened = [connected(api, half) for half in halves]
        streams = [await each.__aenter__() for each in opened]
        try:
            for _ in range(3):
                assert (await api.get("/healthz")).status == 200
            assert await all_read(streams[0][0]) == b""
        finally:
            for each in opened:
                await each.__aexit__(None, None, None)


async def test_more_connections_than_allowed_are_refused_while_all_are_busy(sqlite_url: str) -> None:
    token = "an-admin-token-of-the-settings"
    live = f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    async with (
        open_api(sqlite_url, http_connections=2, admin_token=token) as api,
        connected(api, live) as one,
        connected(api, live) as two,
    ):
        for reader, _ in (one, two):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        async with connected(api, HEAD, b"\r\n") as (reader, _):
            assert (await all_read(reader)).startswith(b"HTTP/1.1 503 ")


async def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_read(sqlite_url: str) -> None:
    smuggled = HEAD + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEAD + b"\r\n"
    async with open_api(sqlite_url) as api, connected(api, smuggled) as (reader, _):
        answer = await all_read(reader)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in answer.lower()
        assert answer.count(b"HTTP/1.1") == 1


async def test_nonsense_in_place_of_a_request_is_no_warning_in_the_log(sqlite_url: str) -> None:
    said: list[str] = []
    sink = logger.add(lambda message: said.append(str(message)), format="{level} {message}", level="DEBUG")
    try:
        async with open_api(sqlite_url) as api:
            for _ in range(3):
                async with connected(api, b"\x16\x03\x01 no HTTP at all\r\n\r\n") as (reader, _):
                    assert (await all_read(reader)).startswith(b"HTTP/1.1 400 ")
    finally:
        logger.remove(sink)
    assert [line for line in said if "web server" in line] == ["DEBUG web server: Invalid HTTP request received.\n"] * 3


async def test_the_metrics_of_a_worker_are_served_within_the_same_limits(sqlite_url: str) -> None:
    settings = load_settings(database_url=sqlite_url, http_header_seconds=0.3, http_idle_seconds=0.3)
    app = make_app(settings)
    try:
        async with serve_metrics(app, 0) as url:
            port = URL(url or "").port
            for sent, begins in ((HEAD[:10], b"HTTP/1.1 408 "), (HEAD + b"\r\n", b"HTTP/1.1 200 ")):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                answer = await all_read(reader)
                writer.transport.abort()
                assert answer.startswith(begins)
            assert b"mistnet_" in answer
    finally:
        await app.database.close()


@pytest.mark.parametrize(("wanted", "descriptors", "most"), [(512, 65_536, 512), (512, 256, 128), (512, 20, 16)])
def test_connections_leave_descriptors_for_everything_else(wanted: int, descriptors: int, most: int) -> None:
    assert usable_connections(wanted, descriptors) == most
