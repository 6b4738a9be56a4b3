"""Pages are read in child processes: hostile ones end there, and cost the others nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.json import encode

from mistnet.shops.extraction.documents import DEEPEST
from mistnet.shops.model import PageUnreadable, PageVerdict, PageVisit
from mistnet.sources.reading import ReadingLimits, ReadsApart, ReadSearch, ReadsHere
from tests.loops import LOOP
from tests.support import START

PRICED = b"""<html><head><script type="application/ld+json">{"@type": "Product", "name": "Cup",
"offers": {"price": "12.50", "priceCurrency": "EUR"}}</script></head><body><h1>Cup</h1></body></html>"""
LIMITS = ReadingLimits(seconds=0.5, megabytes=150)
MANY_ATTRIBUTES = b"<div " + b" ".join(b"a%d=1" % number for number in range(60_000)) + b">"


def seen(body: bytes, kind: str = "text/html") -> PageVisit:
    url = "https://shop.example.com/cup"
    return PageVisit(url=url, final_url=url, status=200, headers={"content-type": kind}, body=body)


@pytest.fixture
def readers() -> Iterator[ReadsApart]:
    readers = ReadsApart(most=1, limits=LIMITS)
    yield readers
    LOOP.run(readers.close())


async def test_what_a_child_reads_is_what_would_be_read_here(readers: ReadsApart) -> None:
    found = await readers.page(seen(PRICED))
    assert (found.verdict, found.amount, found.currency) == (PageVerdict.OFFER, Decimal("12.50"), "EUR")
    assert encode(found) == encode(await ReadsHere().page(seen(PRICED)))
    rules = '{"url": "https://a.example.com/?q={query}", "format": "json", "listings": "found", "currency": "USD",'
    rules += '"fields": {"title": "name", "price": "price"}}'
    listed = b'{"found": [{"name": "Cup", "price": 3.5}, {"name": "Jug"}]}'
    asked = ReadSearch(rules=rules, url="https://a.example.com/", content_type=None, body=listed, now=START)
    page = await readers.search(asked)
    assert encode(page) == encode(await ReadsHere().search(asked))
    assert ([each.title for each in page.listings], len(page.unreadable)) == (["Cup"], 1)


async def test_a_page_that_takes_too_long_is_unreadable_and_the_next_one_is_read(readers: ReadsApart) -> None:
    with pytest.raises(PageUnreadable, match=r"longer than 0\.5 s"):
        await readers.page(seen(MANY_ATTRIBUTES))
    assert (await readers.page(seen(PRICED))).amount == Decimal("12.50")


async def test_a_page_that_takes_too_much_memory_is_unreadable() -> None:
    cramped = ReadsApart(most=1, limits=ReadingLimits(seconds=60, megabytes=50))
    with pytest.raises(PageUnreadable, match="50 MB of memory"):
        await cramped.page(seen(b"<i>a</i>" * 600_000))
    await cramped.close()


async def test_a_page_that_nests_too_deeply_is_not_even_parsed() -> None:
    begun = time.process_time()
    with pytest.raises(PageUnreadable, match=f"{DEEPEST:,}"):
        await ReadsHere().page(seen(b"<div>" * 1_000_000))
    assert time.process_time() - begun < 1


async def test_the_worker_goes_on_while_a_page_is_read(readers: ReadsApart) -> None:
    await readers.page(seen(PRICED))
    reading = asyncio.create_task(readers.page(seen(MANY_ATTRIBUTES)))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 10
    assert isinstance(reading.exception(), PageUnreadable)


async def test_a_child_that_is_killed_from_outside_costs_no_page(readers: ReadsApart) -> None:
    await readers.page(seen(PRICED))
    (child,) = readers._idle
    os.kill(child._process.pid, signal.SIGKILL)
    assert (await readers.page(seen(PRICED))).amount == Decimal("12.50")


async def test_reading_that_is_given_up_leaves_no_answer_behind_for_the_next_page(readers: ReadsApart) -> None:
    reading = asyncio.create_task(readers.page(seen(MANY_ATTRIBUTES)))
    await asyncio.sleep(0.05)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (await readers.page(seen(PRICED))).amount == Decimal("12.50")


async def test_a_child_knows_no_secret(readers: ReadsApart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_X_API_KEY", "secret-key")
    await readers.page(seen(PRICED))
    (child,) = readers._idle
    assert b"secret-key" not in Path(f"/proc/{child._process.pid}/environ").read_bytes()


async def test_a_child_ends_with_its_worker(readers: ReadsApart) -> None:
    await readers.page(seen(PRICED))
    (child,) = readers._idle
    assert child._process.stdin is not None
    child._process.stdin.close()
    assert await child._process.wait() == 0
