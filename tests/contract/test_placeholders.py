"""Users that were stored but never fetched, as early versions left them, are hydrated by force or settled."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, select, text

from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.model import UserId, X
from mistnet.social.store.posts import REASON, Placeholders, stored_users
from tests import schema as tables
from tests.command_groups import commands_of
from tests.databases import create_database, drop_database, with_database
from tests.harvests import run, told
from tests.services.sqld import SqldServer
from tests.simulated import world_served
from tests.support import TurnedClock
from tests.worlds import KEY

pytestmark = pytest.mark.common_sql

hydrate = commands_of("hydrate")

GONE, GONE_BUT_NAMED = UserId(98), UserId(99)
_BARE = "INSERT INTO users (platform, id, detail, raw, first_seen_at) VALUES ('x', {}, 'author', '{{}}', '{}')"
_POST = (
    "INSERT INTO posts (platform, id, author_id, text, text_clean, search_text, created_at, nested, raw, "
    "first_seen_at, last_updated_at) VALUES ('x', 1, {}, 'a', 'a', 'a', '{at}', false, '{{}}', '{at}', '{at}')"
)
_AT = "2025-01-01 00:00:00.000000"


def _loosen(connection: Connection) -> None:
    """Allow users without the time of an answer, as the first schema did."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("ALTER TABLE users ALTER COLUMN last_updated_at DROP NOT NULL"))
        return
    if connection.dialect.driver == "libsql":
        loose = "last_updated_at VARCHAR(26)"
        connection.exec_driver_sql(f"ALTER TABLE users ALTER COLUMN last_updated_at TO {loose}")
        return
    connection.execute(text("PRAGMA writable_schema = ON"))
    strict, loose = "last_updated_at VARCHAR(26) NOT NULL", "last_updated_at VARCHAR(26)"
    connection.execute(
        text("UPDATE sqlite_master SET sql = replace(sql, :strict, :loose) WHERE name = 'users'"),
        {"strict": strict, "loose": loose},
    )
    connection.execute(text("PRAGMA writable_schema = RESET"))


async def _made_old(url: str, ids: Sequence[int]) -> None:
    database = Database(url)
    try:
        await migrate(database)
        async with database.transaction() as connection:
            await connection.run_sync(_loosen)
        async with database.transaction() as connection:
            for each in ids:
                await connection.execute(text(_BARE.format(each, _AT).replace(":", "\\:")))
    finally:
        await database.close()


@pytest.fixture(params=["sqlite", "postgresql", "libsql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'old.db'}"
        return
    if request.param == "libsql":
        sqld: SqldServer = request.getfixturevalue("sqld")
        yield sqld.create()
        return
    dsn: str = request.getfixturevalue("postgres_dsn")
    name = f"old_{tmp_path.name}".lower()
    asyncio.run(create_database(dsn, name))
    yield with_database(dsn, name)
    asyncio.run(drop_database(dsn, name))


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "tiny")


@pytest.fixture(scope="module")
def people(world: World) -> Sequence[UserId]:
    everybody = [person.id for person in world.people]
    return sorted(UserId(each) for each in Truth(world).hydratable(everybody, WORLD_START_AT))[:5]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(url, clock=TurnedClock())
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    """The world's address."""
    with world_served(seed=7) as url:
        yield url


async def rows(database: Database, sql: str) -> list[Any]:
    async with database.read() as connection:
        return [tuple(row) for row in await connection.execute(text(sql))]


def commanded(url: str, source: str, *arguments: str, **settings: str) -> Any:
    given = {"MISTNET_X_API_KEY": KEY, "MISTNET_X_BASE_URL": source, "MISTNET_X_RATE_PER_MINUTE": "60000", **settings}
    return run(hydrate, url, "users", "--placeholders", *arguments, **given)


def test_placeholders_are_hydrated(empty_url: str, source: str, people: Sequence[UserId]) -> None:
    asyncio.run(_made_old(empty_url, people))
    done = told(commanded(empty_url, source, "--json"))
    assert (done["fetched"], done["left"], done["missing"]) == (5, 0, [])

    async def look() -> None:
        async with opened(empty_url) as database:
            assert await rows(database, "SELECT count(*) FROM users WHERE handle IS NULL") == [(0,)]
            assert await rows(database, "SELECT kind, status, mode FROM ingest_events") == [
                ("users_by_ids", "success", "force")
            ]

    asyncio.run(look())
    assert "none are left" in commanded(empty_url, source).stdout


def test_those_upstream_does_not_return_are_named_and_settled_on_demand(
    empty_url: str, source: str, people: Sequence[UserId]
) -> None:
    asyncio.run(_made_old(empty_url, [*people, GONE, GONE_BUT_NAMED]))

    async def write_post() -> None:
        async with opened(empty_url) as database, database.transaction() as connection:
            await connection.execute(text(_POST.format(GONE_BUT_NAMED, at=_AT).replace(":", "\\:")))

    asyncio.run(write_post())
    first = commanded(empty_url, source)
    assert (first.exit_code, "the source does not return 2: 98, 99; add --settle" in first.stdout) == (3, True)
    done = told(commanded(empty_url, source, "--settle", "--json"))
    assert (done["fetched"], done["removed"], done["unavailable"], done["left"]) == (0, ["98"], ["99"], 0)

    async def look() -> None:
        async with opened(empty_url) as database:
            found = await rows(database, "SELECT id, unavailable_reason, profiled_at FROM users WHERE id < 100")
            assert found == [(GONE_BUT_NAMED, REASON, None)], "nobody was ever shown this profile"
            assert await rows(database, "SELECT what, id, reason FROM missing") == [("user", GONE_BUT_NAMED, REASON)]
            async with database.read() as connection:
                asked = select(tables.users.c.raw).where(tables.users.c.id == GONE_BUT_NAMED)
                answer = msgspec.json.decode((await connection.execute(asked)).scalar_one())
            (event,) = await rows(database, f"SELECT kind, status FROM ingest_events WHERE id = {answer['ingestId']}")
            assert (answer["unavailable"], event) == (True, ("users_by_ids", "error")), "the answer that lacked them"
            assert await stored_users(database, X, [GONE_BUT_NAMED]) == set()

    asyncio.run(look())
    again = run(hydrate, empty_url, "users", "99", MISTNET_X_API_KEY=KEY, MISTNET_X_BASE_URL=source)
    assert (again.exit_code, "does not return 1 of 1 users" in again.stderr) == (3, True), (
        "asked for, not taken as there"
    )


def test_placeholders_come_in_batches_as_the_settings_say(
    empty_url: str, source: str, people: Sequence[UserId]
) -> None:
    asyncio.run(_made_old(empty_url, people))
    done = commanded(empty_url, source, MISTNET_BATCH_USERS_BY_IDS_MAX="2")
    assert done.exit_code == 0

    async def look() -> None:
        async with opened(empty_url) as database:
            assert await rows(database, "SELECT items FROM ingest_events ORDER BY id") == [(2,), (2,), (1,)]

    asyncio.run(look())


def test_without_a_key_nothing_is_asked(empty_url: str, people: Sequence[UserId]) -> None:
    asyncio.run(_made_old(empty_url, people))
    refused = run(hydrate, empty_url, "users", "--placeholders")
    assert (refused.exit_code, "MISTNET_X_API_KEY" in refused.stderr) == (2, True)


async def test_a_database_of_this_version_has_none(url: str) -> None:
    async with opened(url) as database:
        assert await Placeholders(database).count() == 0
        with pytest.raises(Exception, match=r"(?i)not.null"):
            async with database.transaction() as connection:
                await connection.execute(text(_BARE.format(7, _AT).replace(":", "\\:")))


@pytest.mark.parametrize(
    "arguments",
    [("--placeholders", "7"), ("--placeholders", "--background"), ("7", "--settle")],
    ids=" ".join,
)
def test_placeholders_find_themselves(sqlite_url: str, arguments: tuple[str, ...]) -> None:
    refused = run(hydrate, sqlite_url, "users", *arguments)
    assert refused.exit_code == 2
    assert "--placeholders" in refused.stderr
