"""A TCP proxy that a test can cut, stall or close: the network between a worker and its broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Passes bytes on both ways until the connection is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._wires: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.refusing = False
        self.mute = False
        self.port = 0

    def cut(self) -> int:
        """Breaks every connection at once, without a word; returns how many there were."""
        wires = list(self._wires)
        for wire in wires:
            wire.transport.abort()
        return len(wires)

    def stall(self) -> None:
        """Stop passing bytes without closing any connection."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self.met, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await self.end()

    async def end(self) -> None:
        """Cut every connection and wait until nothing passes any more."""
        self.cut()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a new connection to the target."""
        if self.refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._wires |= {writer, far_writer}
        there = asyncio.create_task(self._pass_on(reader, far_writer))
        back = asyncio.create_task(self._pass_on(far_reader, writer, back=True))
        self._passing |= {there, back}
        await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        for wire in (writer, far_writer):
            wire.transport.abort()
            self._wires.discard(wire)
        await asyncio.gather(there, back, return_exceptions=True)
        self._passing -= {there, back}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False) -> None:
        with suppress(OSError):
            while passed := await reader.read(65_536):
                await self._flowing.wait()
                if back and self.mute:
                    continue  # the broker's answer is lost on its way
                writer.write(passed)
                await writer.drain()
