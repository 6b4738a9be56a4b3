"""The transport against a real server on loopback that misbehaves in every way a server can."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mistnet.kit.http import HttpTransport
from mistnet.kit.transport import HttpRequest, Unanswered, Unreached

ASK = HttpRequest(path="/twitter/user/info", query={"userName": "ann & co"}, headers={"X-API-Key": "k"})


@asynccontextmanager
async def server(answer: bytes, *, linger: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Says the same to everybody, word for word, and keeps what it was asked."""
    asked: list[bytes] = []

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        serving.add(task)
        try:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
            if linger:
                await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", asked
    await asyncio.gather(*serving, return_exceptions=True)


def said(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nRetry-After: 3\r\n\r\n".encode() + body


async def test_a_question_goes_out_and_its_answer_comes_back_whole() -> None:
    async with (
        server(said(b'{"a": 1}', "429 Slow Down")) as (url, asked),
        HttpTransport(url, user_agent="t") as transport,
    ):
        answer = await transport.send(ASK)
    assert (answer.status, answer.body, answer.headers["Retry-After"]) == (429, b'{"a": 1}', "3")
    head = asked[0].decode()
    assert head.startswith("GET /twitter/user/info?userName=ann+%26+co ")
    assert "X-API-Key: k" in head


@pytest.mark.parametrize(
    "answer",
    [
        said(b'{"a": 1', length=500),
        b"HTTP/1.1 2",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"",
        said(b"", "302 Found\r\nLocation: http://127.0.0.1:1/"),
    ],
    ids=["cut body", "cut head", "another protocol", "nothing", "a redirect is not followed"],
)
async def test_a_broken_answer_is_unanswered_or_plain(answer: bytes) -> None:
    async with server(answer) as (url, _), HttpTransport(url, user_agent="t") as transport:
        try:
            got = await transport.send(ASK)
        except Unanswered:
            return
    assert got.status == 302


async def test_a_server_that_says_nothing_is_left_in_time() -> None:
    async with server(b"", linger=True) as (url, _), HttpTransport(url, user_agent="t", total_seconds=0.2) as transport:
        with pytest.raises(Unanswered, match="in time"):
            await transport.send(ASK)


async def test_a_request_that_was_never_sent_is_told_from_one_that_was_not_answered() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with HttpTransport(f"http://127.0.0.1:{port}", user_agent="t") as transport:
        with pytest.raises(Unreached):
            await transport.send(ASK)
    async with server(b"") as (url, asked), HttpTransport(url, user_agent="t") as transport:
        with pytest.raises(Unanswered) as cut_off:
            await transport.send(ASK)
    assert asked
    assert not isinstance(cut_off.value, Unreached)
