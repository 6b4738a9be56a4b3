"""A real Chromium for the dashboard's tests: its shell without a screen, or whatever browser of its kind is there."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from playwright.async_api import Browser, async_playwright

from tests.services import debian

SHELL = "chromium-headless-shell"
"""Debian's package, and the program in it: the same engine for a third of the time."""
OTHERS = ("chromium", "chromium-browser", "google-chrome")
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
        if found := shutil.which(named):
            return found
        raise BrowserMissing(f"MISTNET_TEST_CHROMIUM names {named}, which cannot be run")
    try:
        debian.ensure(SHELL, is_there=lambda: shutil.which(SHELL))
    except debian.CannotInstall as error:
        if found := next(filter(None, map(shutil.which, OTHERS)), None):
            return found
        raise BrowserMissing(f"{error}, or name a browser in MISTNET_TEST_CHROMIUM") from error
    return str(shutil.which(SHELL))


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with a profile of its own, that ends with the block."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()
