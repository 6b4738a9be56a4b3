"""Old databases whose users were never fetched: told, hydrated by force, and only then put under the rule."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, select, text

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseNotMigrated
from mistnet.kit.migrate import BEFORE_HYDRATED_ONLY, MIGRATIONS, migrate, require_hydratable, revisions, schema_state
from mistnet.operations import schema as tables
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.errors import PlaceholdersLeft
from mistnet.social.model import UserId, X
from mistnet.social.store.placeholders import REASON, Placeholders
from mistnet.social.store.stored_ids import stored_users
from tests.command_groups import commands_of
from tests.contract.test_schema import described, differences_from_declared, migrate_in_a_process
from tests.databases import create_database, drop_database, with_database
from tests.harvests import run, told
from tests.services.sqld import SqldServer
from tests.simulated import world_served
from tests.support import TurnedClock
from tests.worlds import KEY

pytestmark = pytest.mark.common_sql

hydrate = commands_of("hydrate")

db = commands_of("db")

OLD = "0003"
GONE, GONE_BUT_NAMED = UserId(98), UserId(99)
_BARE = "INSERT INTO users (platform, id, detail, raw, first_seen_at) VALUES ('x', {}, 'author', '{{}}', '{}')"
_POST = (
    "INSERT INTO posts (platform, id, author_id, text, text_clean, search_text, created_at, nested, raw, "
    "first_seen_at, last_updated_at) VALUES ('x', 1, {}, 'a', 'a', 'a', '{at}', false, '{{}}', '{at}', '{at}')"
)
_AT = "2025-01-01 00:00:00.000000"


def _to_old(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, OLD)


def _loosen(connection: Connection) -> None:
    """As the column was before there was a rule."""
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
        async with database.transaction() as connection:
            await connection.run_sync(_to_old)
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


def test_an_old_database_with_placeholders_is_refused_with_their_number_and_the_command(
    empty_url: str, people: Sequence[UserId]
) -> None:
    asyncio.run(_made_old(empty_url, people))
    refused = run(db, empty_url, "migrate")
    assert refused.exit_code == 1
    assert "5 users were never fetched" in refused.stderr
    assert "run `mistnet hydrate users --placeholders`, then `mistnet db migrate` again" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


async def test_a_refusal_loses_nothing_and_leaves_what_it_takes_to_mend_it(
    empty_url: str, people: Sequence[UserId]
) -> None:
    await _made_old(empty_url, people)
    async with opened(empty_url) as database:
        for _ in range(2):
            with pytest.raises(PlaceholdersLeft) as refused:
                await migrate(database)
            assert refused.value.count == 5
        assert (await schema_state(database)).found == BEFORE_HYDRATED_ONLY
        assert await rows(database, "SELECT count(*) FROM users") == [(5,)]
        await require_hydratable(database)


@pytest.mark.in_turn(0)
async def test_an_old_database_whose_migration_is_killed_stays_at_a_whole_revision(empty_url: str) -> None:
    await _made_old(empty_url, [])
    found: list[str | None] = []
    step = 90 if empty_url.startswith("libsql") else 30  # that server frees a dead writer's lock only after seconds
    async with opened(empty_url) as database:
        for number in count(2, step):
            ended = migrate_in_a_process(empty_url, before=number)
            found.append((await schema_state(database)).found)
            if ended.code == 0:
                break
            assert ended.code == -signal.SIGKILL, ended
        assert found[0] == OLD
        assert BEFORE_HYDRATED_ONLY in found
        assert set(found) == {OLD, BEFORE_HYDRATED_ONLY, revisions()[-1]}
        async with database.read() as connection:
            differences = await connection.run_sync(differences_from_declared)
    assert differences == []


async def test_an_older_one_must_be_migrated_before_it_can_be_hydrated(empty_url: str) -> None:
    await _made_old(empty_url, [])
    async with opened(empty_url) as database:
        with pytest.raises(DatabaseNotMigrated, match="mistnet db migrate"):
            await require_hydratable(database)


def test_placeholders_are_hydrated_and_then_the_rule_holds(
    empty_url: str, source: str, people: Sequence[UserId]
) -> None:
    asyncio.run(_made_old(empty_url, people))
    assert run(db, empty_url, "migrate").exit_code == 1
    done = told(commanded(empty_url, source, "--json"))
    assert (done["fetched"], done["left"], done["missing"]) == (5, 0, [])
    assert run(db, empty_url, "migrate").exit_code == 0

    async def look() -> None:
        async with opened(empty_url) as database:
            assert (await schema_state(database)).verdict == "current"
            assert await rows(database, "SELECT count(*) FROM users WHERE handle IS NULL") == [(0,)]
            assert await rows(database, "SELECT kind, status, mode FROM ingest_events") == [
                ("users_by_ids", "success", "force")
            ]
            with pytest.raises(Exception, match=r"(?i)not.null"):
                async with database.transaction() as connection:
                    await connection.execute(text(_BARE.format(7, _AT).replace(":", "\\:")))

    asyncio.run(look())
    assert "none are left" in commanded(empty_url, source).stdout


async def test_the_schema_is_then_the_declared_one(empty_url: str, tmp_path: Path) -> None:
    await _made_old(empty_url, [])
    async with opened(empty_url) as database:
        await migrate(database)
        async with database.read() as connection:
            found = await connection.run_sync(described)
        assert any("last_updated_at" in line for line in found)
        if database.dialect == "sqlite":
            assert await rows(database, "PRAGMA integrity_check") == [("ok",)]
            async with opened(f"sqlite:///{tmp_path / 'declared.db'}") as declared:
                async with declared.transaction() as connection:
                    await connection.run_sync(tables.metadata.create_all)
                async with declared.read() as connection:
                    assert found == await connection.run_sync(described)
        else:
            assert "column users.last_updated_at timestamp with time zone null=false" in " ".join(found)


def test_those_upstream_does_not_return_are_named_and_settled_on_demand(
    empty_url: str, source: str, people: Sequence[UserId]
) -> None:
    asyncio.run(_made_old(empty_url, [*people, GONE, GONE_BUT_NAMED]))

    async def write_post() -> None:
        async with opened(empty_url) as database, database.transaction() as connection:
            await connection.execute(text(_POST.format(GONE_BUT_NAMED, at=_AT).replace(":", "\\:")))

    asyncio.run(write_post())
    assert run(db, empty_url, "migrate").exit_code == 1
    first = commanded(empty_url, source)
    assert (first.exit_code, "upstream does not return 2: 98, 99; add --settle" in first.stdout) == (3, True)
    assert run(db, empty_url, "migrate").exit_code == 1, "two are left"
    done = told(commanded(empty_url, source, "--settle", "--json"))
    assert (done["fetched"], done["removed"], done["unavailable"], done["left"]) == (0, ["98"], ["99"], 0)
    assert run(db, empty_url, "migrate").exit_code == 0

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
    run(db, empty_url, "migrate")
    done = commanded(empty_url, source, MISTNET_BATCH_USERS_BY_IDS_MAX="2")
    assert done.exit_code == 0

    async def look() -> None:
        async with opened(empty_url) as database:
            assert await rows(database, "SELECT items FROM ingest_events ORDER BY id") == [(2,), (2,), (1,)]

    asyncio.run(look())


def test_without_a_key_nothing_is_asked(empty_url: str, people: Sequence[UserId]) -> None:
    asyncio.run(_made_old(empty_url, people))
    run(db, empty_url, "migrate")
    refused = run(hydrate, empty_url, "users", "--placeholders")
    assert (refused.exit_code, "MISTNET_X_API_KEY" in refused.stderr) == (2, True)


async def test_a_database_of_this_version_has_none(url: str) -> None:
    async with opened(url) as database:
        assert await Placeholders(database).count() == 0
        await require_hydratable(database)


@pytest.mark.parametrize(
    "arguments",
    [("--placeholders", "7"), ("--placeholders", "--background"), ("7", "--settle")],
    ids=" ".join,
)
def test_placeholders_find_themselves(sqlite_url: str, arguments: tuple[str, ...]) -> None:
    refused = run(hydrate, sqlite_url, "users", *arguments)
    assert refused.exit_code == 2
    assert "--placeholders" in refused.stderr
