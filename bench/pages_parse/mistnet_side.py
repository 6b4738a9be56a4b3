"""mistnet: a page to product, price, stock and number, each with its evidence; here, and as workers do it."""

import asyncio
import os
import time
from pathlib import Path

from bench.pages_parse.side import LEAST_SECONDS, NAME, UNIT, main
from bench.pages_parse.stock import Page
from bench.queue.common import Figure
from mistnet.shops.extraction.read import read_page
from mistnet.shops.model import PageVisit
from mistnet.sources.reading import ReadingLimits, ReadsApart

TICKS = os.sysconf("SC_CLK_TCK")


def facts(page: Page) -> object:
    return read_page(page.body, url=page.url, content_type="text/html")


def apart(stock: list[Page]) -> Figure:
    """In a child process with limits. Its processor time counts, and what it costs to hand pages over."""
    return asyncio.run(_apart(stock))


async def _apart(stock: list[Page]) -> Figure:
    reader = ReadsApart(most=1, limits=ReadingLimits(seconds=60, megabytes=2_000))
    html = {"content-type": "text/html"}
    visits = [PageVisit(url=each.url, final_url=each.url, status=200, headers=html, body=each.body) for each in stock]
    for visit in visits:
        await reader.page(visit)
    done, begun = 0, await _spent()
    while await _spent() - begun < LEAST_SECONDS:
        await asyncio.gather(*map(reader.page, visits))
        done += len(visits)
    spent = await _spent() - begun
    await reader.close()
    return Figure(
        name=NAME,
        side="mistnet",
        setting="the same, in a child process",
        figure=done / spent,
        unit=UNIT,
        expected=done,
        got=done,
        detail={"kb": sum(len(page.body) for page in stock) / len(stock) / 1000},
    )


async def _spent() -> float:
    """Seconds of CPU that this process and its children have used."""
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    children = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in task.read_text().split()]
    return time.process_time() + sum(int(each[11]) + int(each[12]) for each in children) / TICKS


if __name__ == "__main__":
    main("mistnet", {"facts with evidence": facts}, more=[apart])
