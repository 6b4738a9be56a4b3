"""What the contract tests of one process share: databases and a RabbitMQ virtual host, empty when a test begins.

A test marked `fresh_database` gets one of its own: it changes the schema, fills tables with tens of thousands of rows,
or cuts connections.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn.server

from mistnet.governor.governor import Governor
from tests.databases import Templates
from tests.services.rabbitmq import SharedNode
from tests.services.sqld import SqldServer


class Hasty:
    """The module asyncio for a web server that looks two hundred times a second whether it is done, not ten times."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.005))


@pytest.fixture(scope="session", autouse=True)
def hasty_server() -> Iterator[None]:
    """A test of the API would spend most of its time waiting for its server to notice that it is to end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", Hasty())
        yield


async def _at_once(_seconds: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
def no_rate_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests whose clock is turned by hand: a slot of a rate limit never comes nearer while it stands still."""
    assert Governor.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Governor.__init__.__kwdefaults__, "sleep", _at_once)


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, templates: Templates) -> str:
    return _fresh(request, "sqlite") or templates.shared_sqlite()


@pytest.fixture
def postgresql_url(request: pytest.FixtureRequest, templates: Templates, postgres_dsn: str) -> str:
    return _fresh(request, "postgresql") or templates.shared_postgresql(postgres_dsn)


@pytest.fixture
def libsql_url(request: pytest.FixtureRequest, templates: Templates, sqld: SqldServer) -> str:
    return _fresh(request, "libsql") or templates.shared_libsql(sqld)


@pytest.fixture(scope="session")
def shared_broker_url(rabbit: SharedNode) -> Iterator[str]:
    url = rabbit.vhost()
    yield url
    rabbit.drop(url)


@pytest.fixture
def broker_url(rabbit: SharedNode, shared_broker_url: str) -> str:
    rabbit.empty(shared_broker_url)
    return shared_broker_url


def _fresh(request: pytest.FixtureRequest, kind: str) -> str | None:
    if request.node.get_closest_marker("fresh_database") is None:
        return None
    return str(request.getfixturevalue(f"fresh_{kind}_url"))
