"""Product pages on loopback, in a process of its own, ready-made: what is measured is those who ask.

    python -m bench.crawl.source

prints its address. Any host and any `/p/NUMBER` is a page; `/_bench/first` says when the first one was asked for.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import urlopen

import uvloop

from bench.collect.common import ROOT, now_ns
from bench.pages_parse.stock import made

DIFFERENT = 30
_NEEDS_NO_SECOND_LOOK = [number for number in range(DIFFERENT * 3 // 2) if number % 3 != 2]
"""Every third of the made-up pages names no currency. A crawl doubts its price and comes back later."""

_FIRST = b"/_bench/first"
_END = b"\r\n\r\n"
_PATIENCE_S = 60


def page_url(number: int) -> str:
    return f"https://store{number}.example.com/p/{number}"


def _answer(kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Shop(asyncio.Protocol):
    """Answers requests without a body, one after the other on each connection."""

    first_ns = 0
    answers = tuple(_answer("text/html; charset=utf-8", made(number).body) for number in _NEEDS_NO_SECOND_LOOK)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]  # of a TCP connection
        self._asked = b""

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while _END in self._asked:
            head, _, self._asked = self._asked.partition(_END)
            path = head.split(b" ", 2)[1]
            if path == _FIRST:
                self._transport.write(_answer("text/plain", str(Shop.first_ns).encode()))
                continue
            Shop.first_ns = Shop.first_ns or now_ns()
            self._transport.write(self.answers[int(path.rpartition(b"/")[2]) % len(self.answers)])


@dataclass(frozen=True, slots=True)
class Source:
    """The way to a running one."""

    url: str

    def first_ns(self) -> int:
        with urlopen(f"{self.url}{_FIRST.decode()}", timeout=_PATIENCE_S) as answer:
            return int(answer.read())


@contextmanager
def running() -> Iterator[Source]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.crawl.source"],
        stdin=subprocess.PIPE,  # its end is the source's
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    try:
        if process.stdout is None or not (url := process.stdout.readline().strip()):
            raise RuntimeError("the source did not start")
        yield Source(url)
    finally:
        process.kill()
        process.communicate()


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Shop, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve())
