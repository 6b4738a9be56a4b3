"""Pages that stay open: what changed while one was on its way to a person is told as soon as it listens."""

import asyncio
import re

import pytest

from mistnet.web.pages.dashboard import news
from tests.apis import Api, open_api

pytestmark = pytest.mark.common_sql

PAGE = {"Accept": "text/html"}
GREETING = "retry: 3000\n\n"


async def seen_by_a_page(api: Api) -> str:
    found = re.search(r'data-seen="(-?\d*)"', (await api.get("/jobs", headers=PAGE)).text)
    assert found
    return found[1]


async def told(api: Api, seen: str) -> list[str]:
    """What a stream says at its first look."""
    closing = asyncio.Event()
    closing.set()
    return [each async for each in news(closing, api.service.state.dashboard, seen)]


async def test_what_changed_between_a_page_and_its_stream_is_told_at_the_first_look(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        await api.service.state.dashboard.version()
        seen = await seen_by_a_page(api)
        assert await told(api, seen) == [GREETING]
        await api.app.runs.start(["ann"], 5, asked_by="local", now=api.app.database.clock.now())
        while (heard := await told(api, seen)) == [GREETING]:
            await asyncio.sleep(0.2)
        assert re.fullmatch(r"event: changed\ndata: -?\d+\n\n", heard[1])


async def test_a_page_rendered_before_the_first_look_is_refreshed_once(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        assert await seen_by_a_page(api) == ""
        assert [each.partition("\n")[0] for each in await told(api, "")] == ["retry: 3000", "event: changed"]
