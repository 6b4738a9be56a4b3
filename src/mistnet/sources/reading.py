"""Read untrusted pages in child processes with limits on time, memory and nesting depth."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from mistnet.prices.model import PriceListing, UnreadableListing
from mistnet.shops import extraction
from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.model import PageFacts, PageUnreadable, PageVisit

if TYPE_CHECKING:
    from mistnet.sources.shopfile import ShopRules


HEAD: Final = 4
"""How many bytes before each message give its length."""


class ReadingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one page: seconds of CPU time, and memory beyond what the process needs itself."""

    seconds: float
    megabytes: int


class ReadPage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A page of any shop, or the JSON that a shop's own page is made from."""

    url: str
    content_type: str | None
    body: bytes

    def run(self, shops: ShopCatalog) -> PageFacts:
        reading = extraction.explain_page(self.body, url=self.url, content_type=self.content_type, shops=shops)
        return msgspec.structs.replace(reading.facts, reading=reading.kept()) if reading.candidates else reading.facts


class SearchRead(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a shop's search. `problem` says why it is not the page that the shop's file describes."""

    listings: Sequence[PriceListing] = ()
    unreadable: Sequence[UnreadableListing] = ()
    next_url: str | None = None
    problem: str | None = None


class ReadSearch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A page of listings that a file describes. `rules` is that part of the file, as JSON."""

    rules: str
    url: str
    content_type: str | None
    body: bytes
    now: datetime

    def run(self, shops: ShopCatalog) -> SearchRead:  # noqa: ARG002 (the file describes its shop)
        from mistnet.sources.listings import read_search  # noqa: PLC0415 (most children read no search)

        return read_search(self.body, _rules_of(self.rules), url=self.url, content_type=self.content_type, now=self.now)


Task: TypeAlias = ReadPage | ReadSearch


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The result of a task, still encoded."""

    result: msgspec.Raw


class GaveUp(msgspec.Struct, frozen=True, tag=True):
    """Why a page cannot be read. `spent`: the child process must not be used again."""

    reason: str
    spent: bool = False


Reply: TypeAlias = Answered | GaveUp


class PageReader(Protocol):
    """Reads untrusted pages. Raises PageUnreadable for those beyond the limits."""

    async def page(self, seen: PageVisit) -> PageFacts: ...

    async def search(self, asked: ReadSearch) -> SearchRead: ...

    async def close(self) -> None: ...


class ReadsHere:
    """Reads in this process, without limits: for trusted pages, as in simulations."""

    def __init__(self, shops: ShopCatalog = CATALOG) -> None:
        self._shops = shops

    async def page(self, seen: PageVisit) -> PageFacts:
        return page_task(seen).run(self._shops)

    async def search(self, asked: ReadSearch) -> SearchRead:
        return asked.run(self._shops)

    async def close(self) -> None:
        """Nothing was opened."""


def frame_message(message: bytes) -> bytes:
    return len(message).to_bytes(HEAD) + message


def page_task(seen: PageVisit) -> ReadPage:
    return ReadPage(url=seen.final_url, content_type=seen.content_type, body=seen.body)


@lru_cache(maxsize=64)
def _rules_of(written: str) -> ShopRules:
    from mistnet.sources.shopfile import ShopRules  # noqa: PLC0415 (most children read no search)

    return ShopRules.model_validate_json(written)


T = TypeVar("T")

_PAGES_EACH: Final = 1_000
"""A child is replaced after this many pages, to free the memory that its parsers keep."""
_PATIENCE: Final = 12
_LEAST_PATIENCE_SECONDS: Final = 60.0
"""On a busy machine a child may take this many times its CPU time, or this long; then it counts as hung."""
_TRIES: Final = 2
"""A child may die for a reason other than the page, so a page gets a second one."""
_encode: Final = msgspec.msgpack.Encoder().encode
_reply: Final = msgspec.msgpack.Decoder(Reply).decode
_facts: Final = msgspec.msgpack.Decoder(PageFacts)
_search: Final = msgspec.msgpack.Decoder(SearchRead)


class ReadsApart:
    """Reads pages in child processes, at most `most` at a time. They end with `close`, or with this process."""

    def __init__(self, *, most: int, limits: ReadingLimits, plugins: Sequence[str] = ()) -> None:
        """`plugins` are loaded by each child for the shops that they bring."""
        self._limits = limits
        self._plugins = plugins
        self._patience = max(limits.seconds * _PATIENCE, _LEAST_PATIENCE_SECONDS)
        self._free = asyncio.Semaphore(most)
        self._idle: list[_Child] = []

    async def page(self, seen: PageVisit) -> PageFacts:
        return await self._read(page_task(seen), _facts)

    async def search(self, asked: ReadSearch) -> SearchRead:
        return await self._read(asked, _search)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().end()

    async def _read(self, task: Task, decoder: msgspec.msgpack.Decoder[T]) -> T:
        message, died = frame_message(_encode(task)), ""
        async with self._free:
            for _ in range(_TRIES):
                child = self._idle.pop() if self._idle else await _Child.start(self._limits, self._plugins)
                try:
                    async with asyncio.timeout(self._patience):
                        reply = await child.ask(message)
                except TimeoutError:
                    await child.end()
                    raise PageUnreadable(f"the process that read it hung for {self._patience:g} s") from None
                except (EOFError, ConnectionError):
                    if (died := await child.cause_of_death()) == _OUT_OF_TIME:
                        seconds = f"{self._limits.seconds:g} s (`crawl_read_seconds`)"
                        raise PageUnreadable(f"reading it takes longer than {seconds}") from None
                    continue
                except BaseException:
                    await child.end()  # otherwise its answer would be read as the next page's
                    raise
                if child.answers >= _PAGES_EACH or (isinstance(reply, GaveUp) and reply.spent):
                    await child.end()
                else:
                    self._idle.append(child)
                if isinstance(reply, GaveUp):
                    raise PageUnreadable(reply.reason)
                return decoder.decode(reply.result)
        raise PageUnreadable(f"the process that read it died of it: {died}")


_OUT_OF_TIME: Final = signal.SIGPROF.name


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.answers = 0

    @classmethod
    async def start(cls, limits: ReadingLimits, plugins: Sequence[str]) -> _Child:
        given = msgspec.json.encode(limits).decode()
        command = (sys.executable, "-m", "mistnet.sources.reading_child", given, *plugins)
        pipe = asyncio.subprocess.PIPE
        # No keys or passwords: a page that takes over the child must find none in its environment.
        kept = ("PATH", "LANG", "LC_", "TZ", "PYTHON", "VIRTUAL_ENV", "TMPDIR", "SYSTEMROOT")
        environment = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment))

    async def ask(self, message: bytes) -> Reply:
        asking, answering = self._process.stdin, self._process.stdout
        assert asking is not None  # noqa: S101 (both were asked for)
        assert answering is not None  # noqa: S101
        asking.write(message)
        await asking.drain()
        length = int.from_bytes(await answering.readexactly(HEAD))
        reply: Reply = _reply(await answering.readexactly(length))
        self.answers += 1
        return reply

    async def cause_of_death(self) -> str:
        code = await self._process.wait()
        await self.end()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        transport: Any = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()
