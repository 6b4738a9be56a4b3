"""A real Chromium for the dashboard's tests: the machine's own, or Debian's package, installed where it may be."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from playwright.async_api import Browser, async_playwright

from tests.services import debian

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class BrowserMissing(Exception):
    """There is no Chromium, and none could be put there."""


@cache
def find_chromium() -> str:
    """A named program is taken at its word: if it will not do, no other is tried."""
    if named := os.environ.get("MISTNET_TEST_CHROMIUM"):
        if shutil.which(named):
            return named
        raise BrowserMissing(f"MISTNET_TEST_CHROMIUM names {named}, which cannot be run")
    try:
        debian.ensure("chromium", is_there=_on_path)
    except debian.CannotInstall as error:
        raise BrowserMissing(f"{error}, or name one in MISTNET_TEST_CHROMIUM") from error
    return _on_path() or ""


def _on_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with a profile of its own, that ends with the block."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()
