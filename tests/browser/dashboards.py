"""The dashboard on a database with a world to collect from, and a real browser that visits it."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response
from pydantic import SecretStr

from mistnet.app import App
from mistnet.cli.listening import listen, serving, url_of
from mistnet.settings import Settings
from mistnet.sim.world import World
from tests.apis import api_on
from tests.services.availability import unavailable
from tests.services.browser import BrowserMissing, chromium, find_chromium
from tests.worlds import KEY, SMALLEST, WorldTransport, service_of

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
HERE = "127.0.0.1"
PHONE, DESK = (375, 780), (1280, 860)
PATIENCE_MS = 60_000
HURRIED: dict[str, Any] = {
    "x_rate_per_minute": 1_000_000,
    "second_look_seconds": 0.2,
    "batch_fill_seconds": 0.5,
    "backoff_base_seconds": 0.2,
    "idle_poll_seconds": 0.3,
    "grace_seconds": 1,
}


@dataclass(slots=True)
class Site:
    """A dashboard that answers at an address."""

    url: str
    app: App
    service: FastAPI


@asynccontextmanager
async def dashboard(
    url: str, *, world: World | None = None, host: str = HERE, port: int = 0, working: bool = False, **settings: Any
) -> AsyncIterator[Site]:
    """Served on loopback; `host` is what the service believes to listen on."""
    transport = WorldTransport(service_of(world or World(7, SMALLEST)))
    given = Settings(database_url=SecretStr(url), x_api_key=[SecretStr(KEY)], **{**HURRIED, **settings})
    app = App(given, transports={"x": transport})
    listener = listen(HERE, port)
    try:
        with closing(listener), api_on(app, host=host) as service:
            async with serving(service, listener), _working(app, wanted=working):
                yield Site(url_of(listener), app, service)
    finally:
        await app.database.close()


@asynccontextmanager
async def _working(app: App, *, wanted: bool) -> AsyncIterator[None]:
    if not wanted:
        yield
        return
    async with app.worker() as worker:
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.drain()
            await running


@dataclass
class Visit:
    """One page in a browser, and everything about it that should not be."""

    page: Page
    context: BrowserContext
    site: Site
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    expected: tuple[int, ...] = ()

    async def go(self, path: str) -> None:
        await self.page.goto(self.site.url + path)

    async def text(self) -> str:
        return await self.page.inner_text("body")

    async def shot(self, name: str) -> None:
        """Only on demand: a picture of a whole page costs more than all checks of it."""
        if not os.environ.get("MISTNET_TEST_SCREENSHOTS"):
            return
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def note_console(self, message: ConsoleMessage) -> None:
        refused = re.search(r"status of (\d+)", message.text)
        if message.type in ("error", "warning") and not (refused and int(refused[1]) in self.expected):
            self.complaints.append(f"console: {message.text}")

    def note_request(self, request: Request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((f"{self.site.url}/", "data:")):
            self.complaints.append(f"asked elsewhere: {request.url}")

    def note_response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self.complaints.append(f"{response.status} {response.url}")


@asynccontextmanager
async def visiting(
    browser: Browser,
    site: Site,
    *,
    size: tuple[int, int] = DESK,
    scheme: Literal["light", "dark"] = "light",
    expected: tuple[int, ...] = (),
) -> AsyncIterator[Visit]:
    """Open a browser context; any unexpected browser error fails the test."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        reduced_motion="reduce",  # a mark that breathes would have Chromium paint the page all the time
    )
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    visit = Visit(page, context, site, expected=expected)
    page.on("console", visit.note_console)
    page.on("pageerror", lambda error: visit.complaints.append(f"script: {error}"))
    context.on("request", visit.note_request)
    context.on("response", visit.note_response)
    page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    try:
        yield visit
        assert visit.complaints == []
    finally:
        await context.close()


@asynccontextmanager
async def launched_browser() -> AsyncIterator[Browser]:
    try:
        find_chromium()
    except BrowserMissing as error:
        unavailable("chromium", str(error))
    async with chromium() as browser:
        yield browser
