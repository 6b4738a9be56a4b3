"""What the contract tests of one process share: databases and a RabbitMQ virtual host, empty when a test begins.

A test marked `fresh_database` gets one of its own: it changes the schema, fills tables with tens of thousands of rows,
or cuts connections.
"""

from collections.abc import Iterator

import pytest

from tests.databases import Templates
from tests.services.rabbitmq import SharedNode
from tests.services.sqld import SqldServer


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
