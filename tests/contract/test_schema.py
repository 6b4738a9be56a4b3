"""Migrations make exactly the declared schema, on every database."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, text

from mistnet.kit.database import Database
from mistnet.kit.errors import (
    DatabaseBusy,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseNotMigrated,
    DatabaseTooNew,
    DatabaseTooOld,
)
from mistnet.kit.migrate import _MIGRATION_LOCK, MIGRATIONS, migrate, require_current, revisions, schema_state
from mistnet.social.store.post_listing import PostSearch, PostSpan
from tests import schema as tables
from tests.commands import DEADLINE_SECONDS, Ran
from tests.databases import create_database, drop_database, with_database
from tests.services.sqld import SqldServer
from tests.warm import SOURCES, WarmProcess

pytestmark = pytest.mark.fresh_database

CATALOG = """
    SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
        || ' null=' || (NOT a.attnotnull)::text || ' default=' || COALESCE(pg_get_expr(d.adbin, d.adrelid), '')
        || ' identity=' || a.attidentity::text
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid
        AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT 'constraint ' || conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT 'table ' || relname || ' ' || COALESCE(reloptions::text, '')
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    UNION ALL SELECT 'view ' || viewname || ' ' || definition FROM pg_views WHERE schemaname = 'public'
    UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


def described(connection: Connection) -> list[str]:
    if connection.dialect.name == "postgresql":
        rows = connection.execute(text(CATALOG.replace("::", "\\:\\:"))).scalars()
    else:
        rows = connection.execute(text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")).scalars()
    lines = (" ".join(str(row).split()) for row in rows)
    return sorted(line for line in lines if "alembic_version" not in line and "sqlite_sequence" not in line)


def in_any_order(created: str) -> str:
    """Sort columns and constraints of a table: a column that was added later stands last."""
    table = re.fullmatch(r"(CREATE TABLE \w+) \((.*)\)", created)
    if table is None:
        return created
    return f"{table[1]} ({', '.join(sorted(part.strip() for part in _split(table[2])))})"


def _split(written: str) -> Iterator[str]:
    """Split at the commas that stand outside any brackets."""
    depth = start = 0
    for place, letter in enumerate(written):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield written[start:place]
            start = place + 1
    yield written[start:]


@pytest.fixture
def empty_postgresql(postgres_dsn: str, tmp_path: Path) -> Iterator[str]:
    name = f"schema_{tmp_path.name}".lower()
    asyncio.run(create_database(postgres_dsn, name))
    yield with_database(postgres_dsn, name)
    asyncio.run(drop_database(postgres_dsn, name))


@pytest.fixture(params=["sqlite", "postgresql", "libsql"])
def empty_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two empty databases of the same kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'one.db'}", f"sqlite:///{tmp_path / 'two.db'}"
        return
    if request.param == "libsql":
        sqld: SqldServer = request.getfixturevalue("sqld")
        yield sqld.create(), sqld.create()
        return
    dsn: str = request.getfixturevalue("postgres_dsn")
    names = [f"schema_{tmp_path.name}_{n}".lower() for n in (1, 2)]
    for name in names:
        asyncio.run(create_database(dsn, name))
    yield with_database(dsn, names[0]), with_database(dsn, names[1])
    for name in names:
        asyncio.run(drop_database(dsn, name))


def migrate_in_a_process(url: str, *, before: int) -> Ran:
    """Migrates; killed before the given statement, or at none if that is 0."""
    command, pipe = [sys.executable, "-m", "tests.interrupted", url, str(before)], subprocess.PIPE
    with WarmProcess(
        command, env={**os.environ, "PYTHONPATH": SOURCES}, stdout=pipe, stderr=pipe, text=True
    ) as process:
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    return Ran(code=process.returncode, out=out, err=err)


@asynccontextmanager
async def opened(url: str, connect_args: Mapping[str, Any] | None = None) -> AsyncIterator[Database]:
    database = Database(url, connect_args=connect_args)
    try:
        yield database
    finally:
        await database.close()


NOT_DECLARED = re.compile(r"posts_search|^CREATE (VIEW|TRIGGER)|^(view|trigger|function) ")
"""SQLAlchemy cannot declare views, triggers and full-text indexes: the golden schema files hold those."""


def is_declared(name: str | None, _kind: str, _parents: object) -> bool:
    return name is None or not name.startswith("posts_search")


def differences_from_declared(connection: Connection) -> list[Any]:
    found = MigrationContext.configure(connection, opts={"include_name": is_declared})
    return list(compare_metadata(found, tables.metadata))


async def test_migrations_equal_the_declared_schema(empty_urls: tuple[str, str]) -> None:
    migrated, declared = Database(empty_urls[0]), Database(empty_urls[1])
    await migrate(migrated)
    async with declared.transaction() as connection:
        await connection.run_sync(tables.metadata.create_all)
    async with migrated.read() as one, declared.read() as other:
        found, wanted = await one.run_sync(described), await other.run_sync(described)
        differences = await one.run_sync(differences_from_declared)
    await migrated.close()
    await declared.close()
    assert len(wanted) >= 12
    assert [line for line in found if not NOT_DECLARED.search(line)] == wanted
    assert differences == []


async def test_migrating_twice_changes_nothing_and_an_unmigrated_database_is_named(
    empty_urls: tuple[str, str],
) -> None:
    database = Database(empty_urls[0])
    with pytest.raises((DatabaseNotMigrated, DatabaseMissing), match=r"mistnet (db migrate|init)"):
        await require_current(database)
    assert (await migrate(database)).verdict == "empty"
    assert (await migrate(database)).verdict == "current"
    await require_current(database)
    await database.close()


async def test_of_several_that_migrate_at_once_one_does_it_and_the_others_wait(empty_urls: tuple[str, str]) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(opened(empty_urls[0])) for _ in range(4)]
        found = await asyncio.gather(*(migrate(each) for each in databases))
        assert sorted(each.verdict for each in found) == ["current", "current", "current", "empty"]
        await require_current(databases[0])


async def test_a_migration_of_a_file_waits_for_as_long_as_another_process_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'one.db'}"
    async with opened(url) as other, opened(url, {"timeout": 0.01}) as database:
        await assert_migrated_after(other, "CREATE TABLE other (id integer)", database)


async def test_a_migration_on_postgresql_waits_for_as_long_as_another_one_runs(empty_postgresql: str) -> None:
    async with opened(empty_postgresql) as other, opened(empty_postgresql) as database:
        await assert_migrated_after(other, f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})", database)


async def assert_migrated_after(other: Database, lock: str, database: Database) -> None:
    waits: asyncio.Queue[str] = asyncio.Queue()
    async with other.transaction() as connection:
        await connection.execute(text(lock))
        migration = asyncio.create_task(migrate(database, on_wait=waits.put_nowait))
        assert await waits.get() in ("database is locked", "another process migrates it")
        assert not migration.done()
    assert (await migration).verdict == "empty"
    await require_current(database)


async def test_a_file_that_stays_locked_is_reported_as_busy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'one.db'}"
    async with opened(url) as other, opened(url, {"timeout": 0.01}) as database, other.transaction():
        with pytest.raises(DatabaseBusy):
            await migrate(database, patience=0.0)


@pytest.mark.in_turn(1)
async def test_a_migration_killed_at_any_statement_leaves_nothing_and_can_be_run_again(
    empty_urls: tuple[str, str],
) -> None:
    total = int(migrate_in_a_process(empty_urls[1], before=0).out)
    numbers = [*range(1, total, total // 6), total + 1]
    if empty_urls[0].startswith("libsql"):  # the server frees a dead writer's lock only after seconds
        numbers = [total // 2]
    async with opened(empty_urls[0]) as database, opened(empty_urls[1]) as whole:
        for number in numbers:
            assert migrate_in_a_process(empty_urls[0], before=number).code == -signal.SIGKILL
            async with database.read() as connection:
                assert await connection.run_sync(described) == [], f"killed before statement {number} of {total}"
        assert (await migrate(database)).verdict == "empty"
        await require_current(database)
        async with database.read() as one, whole.read() as other:
            assert await one.run_sync(described) == await other.run_sync(described)


async def test_a_database_from_the_future_is_refused(url: str) -> None:
    database = Database(url)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert (await schema_state(database)).verdict == "too new"
    for refused in (require_current(database), migrate(database)):
        with pytest.raises(DatabaseTooNew, match="upgrade mistnet"):
            await refused
    await database.close()


async def test_another_programs_tables_are_left_alone(empty_urls: tuple[str, str]) -> None:
    database = Database(empty_urls[0])
    async with database.transaction() as connection:
        await connection.execute(text("CREATE TABLE jobs (id integer)"))
    with pytest.raises(DatabaseForeign, match="a database of its own"):
        await migrate(database)
    await database.close()


def test_revisions_are_named_by_their_files() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert revisions() == [script.revision for script in reversed(list(scripts.walk_revisions()))]
    assert revisions()[-1] == scripts.get_current_head()


REVISIONS = Path(__file__).with_name("revisions")
KEPT = {
    "jobs": "SELECT id, kind, key, state FROM jobs",
    "history": "SELECT id, state FROM job_history",
    "users": "SELECT platform, id, handle FROM users",
    "posts": "SELECT platform, id, author_id, text FROM posts",
    "crawls": "SELECT id, outcome FROM crawls",
}
ROWS = {
    "jobs": [(1, "backfill", "7", "pending")],
    "history": [(5, "succeeded")],
    "users": [("x", 7, "Ann")],
    "posts": [("x", 1899999999999999999, 7, "a solar eclipse")],
    "crawls": [(3, "unreadable")],
}


async def load_revision(url: str, revision: str) -> None:
    """Fill an empty database with a dump of one at this revision."""
    async with opened(url) as database:
        script = (REVISIONS / f"{revision}.{database.dialect}.sql").read_text()
        if database.dialect == "postgresql":
            connection = await asyncpg.connect(url)
            await connection.execute(script)
            await connection.close()
            return
        async with database.transaction() as connection:
            for statement in script.split("\n\n")[1:]:
                await connection.exec_driver_sql(statement)


async def test_a_database_of_the_joined_migrations_is_migrated_and_keeps_its_rows(empty_urls: tuple[str, str]) -> None:
    await load_revision(empty_urls[0], "0010")
    async with opened(empty_urls[0]) as old, opened(empty_urls[1]) as new:
        assert (await migrate(old)).verdict == "behind"
        await require_current(old)
        await migrate(new)
        found = await PostSearch(old).find("eclipse", PostSpan(), limit=1)
        assert [each.id for each in found.items] == [1899999999999999999]
        async with old.read() as one, new.read() as other:
            migrated, made = await one.run_sync(described), await other.run_sync(described)
            rows = {name: [tuple(row) for row in await one.execute(text(sql))] for name, sql in KEPT.items()}
            differences = await one.run_sync(differences_from_declared)
    assert [in_any_order(line) for line in migrated] == [in_any_order(line) for line in made]
    assert differences == []
    assert rows == ROWS


async def test_a_database_that_is_older_than_all_migrations_is_refused_with_what_to_do(url: str) -> None:
    async with opened(url) as database:
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
        assert (await schema_state(database)).verdict == "too old"
        for refused in (require_current(database), migrate(database)):
            with pytest.raises(DatabaseTooOld, match="with an earlier mistnet that includes migrations 0004 to 0010"):
                await refused


COUNTED = {
    "SELECT hour, source, endpoint, entries, calls, items, credits, failures FROM call_hours ORDER BY endpoint": [
        ("2026-03-01 11", "x", "reconciliation", 1, 0, 0, -5, 0),
        ("2026-03-01 11", "x", "tweets", 2, 2, 40, 600, 1),
    ],
    "SELECT day, account_id, entries, calls, items, credits, failures FROM call_days ORDER BY account_id": [
        ("2026-03-01", 0, 2, 1, 20, 295, 1),
        ("2026-03-01", 7, 1, 1, 20, 300, 0),
    ],
    "SELECT platform, user_id, posts FROM account_posts": [("x", 7, 1)],
}


async def test_what_an_older_database_holds_is_counted_when_it_is_migrated(empty_urls: tuple[str, str]) -> None:
    await load_revision(empty_urls[0], "0010")
    async with opened(empty_urls[0]) as database:
        at = datetime(2026, 3, 1, 11, 30, tzinfo=UTC)
        call = {"source": "x", "key_label": "k", "at": at, "seconds": 0.1, "items": 20, "credits": 300}
        account = {"platform": "x", "user_id": 7, "state": "active", "state_since": at, "tracked_at": at}
        async with database.transaction() as connection:
            await connection.execute(insert(tables.calls).values(**call, endpoint="tweets", account_id=7))
            await connection.execute(insert(tables.calls).values(**call, endpoint="tweets", error="e"))
            correction = {**call, "items": 0, "credits": -5}
            await connection.execute(insert(tables.calls).values(**correction, endpoint="reconciliation"))
            await connection.execute(insert(tables.accounts).values(account))
        await migrate(database)
        async with database.read() as connection:
            for query, expected in COUNTED.items():
                assert [tuple(row) for row in await connection.execute(text(query))] == expected
