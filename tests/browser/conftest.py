"""One event loop, one Chromium and one dashboard per furnishing for all browser tests of a process."""

import asyncio
import inspect
import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from playwright.async_api import Browser, expect

from tests.browser.dashboards import PATIENCE_MS, Site, dashboard, launched_browser
from tests.browser.furnished import Furnished, furnish
from tests.browser.promoted import Promoted, promote
from tests.databases import Templates

T = TypeVar("T")

expect.set_options(timeout=PATIENCE_MS)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """All tests share the loop that the browser and the shared dashboards live on."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    runner = pyfuncitem.funcargs["runner"]
    assert isinstance(runner, asyncio.Runner)
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session", autouse=True)
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@contextmanager
def entered(runner: asyncio.Runner, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    value = runner.run(_enter(context))
    try:
        yield value
    finally:
        runner.run(_leave(context))


async def _enter(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _leave(context: AbstractAsyncContextManager[T]) -> None:
    await context.__aexit__(None, None, None)


@pytest.fixture(scope="session")
def browser(runner: asyncio.Runner) -> Iterator[Browser]:
    with entered(runner, launched_browser()) as browser:
        yield browser


@pytest.fixture(scope="session")
def empty_site(runner: asyncio.Runner, templates: Templates) -> Iterator[Site]:
    """A dashboard of a database without data, for tests that change none."""
    with entered(runner, dashboard(templates.sqlite())) as site:
        yield site


@pytest.fixture(scope="session")
def furnished_template(runner: asyncio.Runner, templates: Templates) -> tuple[Path, Furnished]:
    """A database that was furnished once, to be copied."""
    url = templates.sqlite()

    async def prepare() -> Furnished:
        async with dashboard(url) as site:
            return await furnish(site.app)

    return Path(url.removeprefix("sqlite:///")), runner.run(prepare())


@pytest.fixture
def furnished_url(furnished_template: tuple[Path, Furnished]) -> str:
    """A copy of the furnished database for one test alone."""
    return _copy(furnished_template[0])


def _copy(template: Path) -> str:
    fresh = template.with_name(f"{secrets.token_hex(6)}.db")
    shutil.copy(template, fresh)
    return f"sqlite:///{fresh}"


@pytest.fixture(scope="session")
def there(furnished_template: tuple[Path, Furnished]) -> Furnished:
    """What is where in the furnished database and its copies."""
    return furnished_template[1]


@pytest.fixture(scope="session")
def furnished_site(runner: asyncio.Runner, furnished_template: tuple[Path, Furnished]) -> Iterator[Site]:
    """A dashboard of a furnished database, for tests that change nothing."""
    with entered(runner, dashboard(_copy(furnished_template[0]))) as site:
        yield site


@pytest.fixture(scope="session")
def promoted_site(runner: asyncio.Runner, templates: Templates) -> Iterator[tuple[Site, Promoted]]:
    """A dashboard of promoted products, for tests that change nothing."""
    with entered(runner, dashboard(templates.sqlite())) as site:
        yield site, runner.run(promote(site.app))
