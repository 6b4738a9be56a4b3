"""Tests share databases: each must find what the one before it left behind removed."""

import pytest
from sqlalchemy import text

from tests.databases import TABLES, Templates, open_database
from tests.loops import LOOP
from tests.services.rabbitmq import SharedNode
from tests.support import new, open_shop


async def count_rows(url: str) -> int:
    database = open_database(url)
    async with database.read() as connection:
        counts = [(await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() for table in TABLES]
    await database.close()
    return sum(counts)


async def add_job(url: str) -> int:
    async with open_shop(url) as shop:
        await shop.add(new(key="one"))
        await shop.database_write("INSERT INTO effects (job_id, note) VALUES (1, 'left behind')")
        return int(await shop.one("SELECT id FROM jobs"))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "libsql"])
def test_a_reset_leaves_no_row_and_begins_numbers_again(kind: str, request: pytest.FixtureRequest) -> None:
    templates: Templates = request.getfixturevalue("templates")
    url: str = request.getfixturevalue(f"{kind}_url")
    first = LOOP.run(add_job(url))
    assert LOOP.run(count_rows(url)) >= 2
    reset(templates, kind, request)
    assert LOOP.run(count_rows(url)) == 0
    assert LOOP.run(add_job(url)) == first
    reset(templates, kind, request)


def reset(templates: Templates, kind: str, request: pytest.FixtureRequest) -> str:
    match kind:
        case "sqlite":
            return templates.shared_sqlite()
        case "postgresql":
            return templates.shared_postgresql(request.getfixturevalue("postgres_dsn"))
        case _:
            return templates.shared_libsql(request.getfixturevalue("sqld"))


async def revision(url: str) -> str:
    database = open_database(url)
    async with database.read() as connection:
        found = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
    await database.close()
    return str(found)


async def execute(url: str, sql: str) -> None:
    database = open_database(url)
    async with database.transaction() as connection:
        await connection.execute(text(sql))
    await database.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "libsql"])
def test_a_changed_schema_is_as_before_after_the_reset(kind: str, request: pytest.FixtureRequest) -> None:
    templates: Templates = request.getfixturevalue("templates")
    url: str = request.getfixturevalue(f"{kind}_url")
    for _ in range(2):
        LOOP.run(execute(url, "CREATE TABLE left_behind (id integer)"))
        url = reset(templates, kind, request)
        LOOP.run(execute(url, "UPDATE alembic_version SET version_num = '9999'"))
        url = reset(templates, kind, request)
    assert LOOP.run(revision(url)) != "9999"


def test_a_virtual_host_is_empty_after_its_reset(rabbit: SharedNode, broker_url: str) -> None:
    vhost = broker_url.rpartition("/")[2]
    rabbit.ask("PUT", f"/api/queues/{vhost}/left.behind", {})
    rabbit.ask("PUT", f"/api/exchanges/{vhost}/left.behind", {"type": "direct"})
    rabbit.empty(broker_url)
    assert rabbit.ask("GET", f"/api/queues/{vhost}") == []
