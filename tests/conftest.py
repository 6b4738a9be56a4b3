"""Real services for the tests, and a loud word on those that are missing."""

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator

import pytest

from tests.databases import Templates, drop_database
from tests.examples import load_search_profile
from tests.services import rabbitmq
from tests.services.availability import forbidden_in_ci, in_ci, missing_services, skip_reasons, unavailable
from tests.services.postgres import PostgresCluster, PostgresStartError, quick_folder
from tests.services.sqld import SqldMissing, SqldServer

POSTGRES_DSN = "MISTNET_TEST_POSTGRES_DSN"
POSTGRES_UNAVAILABLE = "MISTNET_TEST_POSTGRES_UNAVAILABLE"
CLUSTER = pytest.StashKey[PostgresCluster]()


def pytest_configure(config: pytest.Config) -> None:
    """One server for all: the workers that come later inherit its address."""
    load_search_profile()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would ours
    if not hasattr(config, "workerinput"):
        rabbitmq.announce()
    only_asking = config.option.help or config.option.version or config.option.collectonly
    if hasattr(config, "workerinput") or only_asking or os.environ.get(POSTGRES_DSN):
        return
    cluster = PostgresCluster(fast=True, parent=quick_folder())
    try:
        cluster.start()
    except PostgresStartError as error:
        os.environ[POSTGRES_UNAVAILABLE] = str(error)
        return
    os.environ[POSTGRES_DSN] = cluster.dsn()
    config.stash[CLUSTER] = cluster


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        rabbitmq.retire()
    if cluster := config.stash.get(CLUSTER, None):
        del os.environ[POSTGRES_DSN]
        cluster.stop()


@pytest.fixture(scope="session")
def postgres_dsn() -> str:
    dsn = os.environ.get(POSTGRES_DSN)
    return dsn or unavailable("postgresql", os.environ.get(POSTGRES_UNAVAILABLE, "no server was started"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test may be a coroutine: it gets an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("databases"))


@pytest.fixture
def sqlite_url(templates: Templates) -> str:
    """A fresh, migrated SQLite database."""
    return templates.sqlite()


@pytest.fixture
def postgresql_url(templates: Templates, postgres_dsn: str) -> Iterator[str]:
    """A fresh, migrated PostgreSQL database."""
    url = templates.postgresql(postgres_dsn)
    yield url
    asyncio.run(drop_database(postgres_dsn, url.rsplit("/", 1)[1]))


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
def libsql_url(templates: Templates, sqld: SqldServer) -> Iterator[str]:
    """A fresh, migrated database on a libSQL server."""
    url = templates.libsql(sqld)
    yield url
    sqld.drop(url)


@pytest.fixture(scope="session")
def rabbit() -> rabbitmq.SharedNode:
    """The RabbitMQ of this run, started by the first test that wants one."""
    node = rabbitmq.shared_node()
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
    """A fresh, migrated database of each kind in turn: every contract holds on all of them."""
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
