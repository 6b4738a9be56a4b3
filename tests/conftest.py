"""Real services for the tests, and a loud word on those that are missing."""

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.databases import Templates, drop_database
from tests.examples import load_search_profile
from tests.loops import LOOP
from tests.order import is_left_to_another_run, needs_services, order_of
from tests.services import rabbitmq, shared_postgres
from tests.services.availability import forbidden_in_ci, in_ci, missing_services, skip_reasons, unavailable
from tests.services.postgres import quick_folder
from tests.services.sqld import SqldMissing, SqldServer

POSTGRES_DSN = "MISTNET_TEST_POSTGRES_DSN"
SERVERS = (shared_postgres.SHARED, rabbitmq.SHARED)
ROOT = Path(__file__).resolve().parents[1]
PREPARING = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-services", action="store_true", help="Only tests that need no server and no browser.")
    parser.addoption("--prepare-services", action="store_true", help="Start servers beside the first tests.")


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a run owns the servers; the others learn of them through the environment."""
    gc.disable()  # modules being loaded make no garbage
    load_search_profile()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would ours
    only_asking = config.option.help or config.option.version or config.option.collectonly
    if hasattr(config, "workerinput") or only_asking or config.option.no_services:
        return
    for server in SERVERS:
        server.announce()
    if config.option.prepare_services:
        config.stash[PREPARING] = subprocess.Popen([sys.executable, "-m", "tests.services.prepare"], cwd=ROOT)


def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if preparing := config.stash.get(PREPARING, None):
        preparing.terminate()
        preparing.wait()
    for server in SERVERS:
        server.retire()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=order_of)
    dropped = [item for item in items if is_left_to_another_run(item)]
    if config.option.no_services:
        dropped = [item for item in items if needs_services(item)]
    config.hook.pytest_deselected(items=dropped)
    gone = set(dropped)
    items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    """What was loaded stays: looking through all of it for garbage took a twentieth of a run."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def postgres_dsn() -> str:
    """The PostgreSQL server of this run. The first test that needs it waits until it has started."""
    if named := os.environ.get(POSTGRES_DSN):
        return named
    server = shared_postgres.SHARED.address()
    return server.dsn or unavailable("postgresql", server.problem or "no server was started")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test may be a coroutine. It runs in the event loop that all such tests of this process share."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    LOOP.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def templates() -> Iterator[Templates]:
    with TemporaryDirectory(prefix="mistnet-test-", dir=quick_folder(), ignore_cleanup_errors=True) as folder:
        made = Templates(Path(folder))
        yield made
        made.close()
    LOOP.close()


@pytest.fixture
def fresh_sqlite_url(templates: Templates) -> str:
    """A migrated SQLite database for one test alone."""
    return templates.sqlite()


@pytest.fixture
def fresh_postgresql_url(templates: Templates, postgres_dsn: str) -> Iterator[str]:
    """A migrated PostgreSQL database for one test alone."""
    url = templates.postgresql(postgres_dsn)
    yield url
    asyncio.run(drop_database(postgres_dsn, url.rsplit("/", 1)[1]))


@pytest.fixture
def fresh_libsql_url(templates: Templates, sqld: SqldServer) -> Iterator[str]:
    """A migrated database on a libSQL server for one test alone."""
    url = templates.libsql(sqld)
    yield url
    sqld.drop(url)


@pytest.fixture(scope="session")
def sqld() -> Iterator[SqldServer]:
    """A libSQL server of this process's own, started by the first test that wants one."""
    server = SqldServer()
    try:
        server.start()
    except SqldMissing as error:
        unavailable("libsql", str(error))
    yield server
    server.stop()


@pytest.fixture
def sqlite_url(fresh_sqlite_url: str) -> str:
    """A migrated SQLite database. In tests/contract it is one that tests share."""
    return fresh_sqlite_url


@pytest.fixture
def postgresql_url(fresh_postgresql_url: str) -> str:
    """A migrated PostgreSQL database. In tests/contract it is one that tests share."""
    return fresh_postgresql_url


@pytest.fixture
def libsql_url(fresh_libsql_url: str) -> str:
    """A migrated database on a libSQL server. In tests/contract it is one that tests share."""
    return fresh_libsql_url


@pytest.fixture(scope="session")
def rabbit() -> rabbitmq.SharedNode:
    """The RabbitMQ of this run, started by the first test that wants one."""
    node = rabbitmq.SHARED.address()
    if node.problem:
        unavailable("rabbitmq", node.problem)
    return node


@pytest.fixture
def broker_url(rabbit: rabbitmq.SharedNode) -> Iterator[str]:
    """A virtual host of RabbitMQ for one test alone."""
    url = rabbit.vhost()
    yield url
    rabbit.drop(url)


@pytest.fixture(params=["sqlite", "postgresql", "libsql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty, migrated database of each kind in turn: every contract holds on all of them."""
    return str(request.getfixturevalue(f"{request.param}_url"))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if in_ci() and exitstatus == pytest.ExitCode.OK and forbidden_in_ci(_skips(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = _skips(config)
    for missing in missing_services(reasons):
        title, _, details = str(missing).partition("\n")
        terminalreporter.section(title, sep="!", red=True, bold=True)
        terminalreporter.line(details)
    if in_ci() and (forbidden := forbidden_in_ci(reasons)):
        terminalreporter.section("skipped tests fail the run in CI", sep="!", red=True, bold=True)
        for reason in sorted(set(forbidden)):
            terminalreporter.line(f"{forbidden.count(reason)} skipped: {reason}")


def _skips(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return skip_reasons(reporter.stats.get("skipped", [])) if reporter else []
