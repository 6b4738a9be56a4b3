"""The bare limit: fetch a page, read it with the same extractor, ask for the next. No queue and no database.

python -m bench.crawl.bare_side crawl --dsn DSN --jobs PAGES
"""

import asyncio
import sys
from collections.abc import Iterator

import aiohttp
import uvloop

from bench.collect.common import Options
from bench.crawl.side import main
from bench.crawl.source import Source, page_url
from mistnet.shops.extraction.read import read_page
from mistnet.shops.model import PageVerdict

ABREAST = 16


async def crawl(url: str, pages: int) -> None:
    numbers = iter(range(pages))
    async with aiohttp.ClientSession(url) as session, asyncio.TaskGroup() as group:
        for _ in range(ABREAST):
            group.create_task(_read_on(session, numbers))


async def _read_on(session: aiohttp.ClientSession, numbers: Iterator[int]) -> None:
    for number in numbers:
        async with session.get(f"/p/{number}") as answer:
            body, kind = await answer.read(), answer.headers["content-type"]
        facts = read_page(body, url=page_url(number), content_type=kind)
        if facts.verdict is not PageVerdict.OFFER:
            raise RuntimeError(f"page {number} shows no offer")


def command(options: Options, source: Source) -> list[str]:
    return [sys.executable, "-m", "bench.crawl.bare_side", "read", source.url, str(options.jobs)]


if __name__ == "__main__":
    if sys.argv[1] == "read":
        uvloop.run(crawl(sys.argv[2], int(sys.argv[3])))
    else:
        main("bare loop", lambda _options: f"{ABREAST} requests at once, nothing stored", command)
