"""Make the pictures of docs/tour.md: run the demo, and photograph its dashboard and that of a promoted product.

The demo runs on a pseudo-terminal, so that time passes in it and prices move; `--seconds` is how long.
Posts are in many scripts: fonts-noto-core, fonts-wqy-zenhei and fonts-noto-color-emoji show all of them on Debian.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pty
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from playwright.async_api import Browser

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mistnet.kit.database import Database  # noqa: E402 (the tests are no installed package)
from mistnet.kit.migrate import migrate  # noqa: E402
from tests.browser.dashboards import dashboard  # noqa: E402
from tests.browser.promoted import promote  # noqa: E402
from tests.services.browser import chromium  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
SIZES: Final = {"wide": (1440, 900), "phone": (390, 844)}
DEMO_PAGES: Final = {"overview": "/", "account": "/accounts", "operations": "/jobs?state=succeeded&lane=x"}
HANDLE: Final = "OlgaNews2"
PICTURES: Final = tuple(f"tour-{page}-{size}.png" for page in (*DEMO_PAGES, "product") for size in SIZES)
_ADDRESS: Final = re.compile(rb"http://127\.0\.0\.1:\d+")


async def make_tour(folder: Path, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as box:
        async with chromium() as browser:
            async with demo(Path(box) / "demo", seconds) as url:
                await set_budget(browser, url)
                for name, path in DEMO_PAGES.items():
                    await photograph(browser, url, path, folder, name)
            database = Database(f"sqlite:///{box}/product.db")
            await migrate(database)
            await database.close()
            async with dashboard(f"sqlite:///{box}/product.db") as site:
                product = (await promote(site.app)).kettle
                await photograph(browser, site.url, f"/products/{product}", folder, "product")


@asynccontextmanager
async def demo(folder: Path, seconds: float) -> AsyncIterator[str]:
    """The address of a demo that has run for a while."""
    ours, theirs = pty.openpty()
    command = (sys.executable, "-m", "mistnet", "demo", "--no-browser", "--keep", str(folder))
    process = await asyncio.create_subprocess_exec(*command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, loop = bytearray(), asyncio.get_running_loop()

    def read() -> None:
        with suppress(OSError):  # the other end is closed when the demo ends
            shown.extend(os.read(ours, 65_536))

    loop.add_reader(ours, read)
    try:
        await asyncio.sleep(seconds)
        found = _ADDRESS.search(shown)
        if found is None:
            sys.exit(f"the demo printed no address: {bytes(shown[-500:])!r}")
        yield found[0].decode()
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()
        loop.remove_reader(ours)
        os.close(ours)


async def set_budget(browser: Browser, url: str) -> None:
    """$2 a day, so that the overview shows a budget. The demo takes no settings from outside."""
    page = await browser.new_page()
    await page.goto(f"{url}/sources?source=x")
    await page.get_by_label("Credits a day").fill("200,000")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_text("of $2.00").wait_for()
    await page.close()


async def photograph(browser: Browser, url: str, path: str, folder: Path, name: str) -> None:
    """The first screen of a page in both widths."""
    for size, (width, height) in SIZES.items():
        context = await browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
        page = await context.new_page()
        await page.goto(url + path)
        if name == "account":
            await page.get_by_role("link", name=f"@{HANDLE}").click()
        await page.locator("#pulse[data-state=on]").wait_for()
        await page.locator("p.open").evaluate_all("notes => notes.forEach((each) => each.remove())")
        await page.screenshot(path=folder / f"tour-{name}-{size}.png")
        await context.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=IMAGES)
    parser.add_argument("--seconds", type=float, default=75.0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(make_tour(given.folder, given.seconds))
