"""A real Chromium for the dashboard's tests: the machine's own, or Debian's package, installed where it may be."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from playwright.async_api import Browser, async_playwright

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
INSTALL_SECONDS = 600


class BrowserMissing(Exception):
    """There is no Chromium, and none could be put there."""


@cache
def find_chromium() -> str:
    """A named program is taken at its word: if it will not do, no other is tried."""
    if named := os.environ.get("MISTNET_TEST_CHROMIUM"):
        if shutil.which(named):
            return named
        raise BrowserMissing(f"MISTNET_TEST_CHROMIUM names {named}, which cannot be run")
    if found := _on_path():
        return found
    with (Path(tempfile.gettempdir()) / "mistnet-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes, and apt-get in one at a time
        return _on_path() or _installed()


def _on_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def _installed() -> str:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise BrowserMissing("install Debian's chromium, or name one in MISTNET_TEST_CHROMIUM")
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "chromium"]):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            raise BrowserMissing(f"`{' '.join(command)}` failed:\n{done.stderr[-1000:]}")
    found = _on_path()
    if found is None:
        raise BrowserMissing("apt-get installed chromium, and it is not there")
    return found


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with a profile of its own, that ends with the block."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()
