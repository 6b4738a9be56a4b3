"""Health tells the truth: a database that takes no writes, has no room or hangs is never called well."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event, make_url

from mistnet import __version__
from mistnet.governor.model import SourceName
from mistnet.kit.errors import DatabaseBusy, DatabaseError, DatabaseUnreachable, WriteRefused
from mistnet.operations.alerts.model import Alert, AlertRule, Severity
from mistnet.operations.checks import HealthFinding
from mistnet.operations.doctor import Checkup, expectations_of
from mistnet.operations.health import (
    DatabaseHealth,
    DatabaseProbe,
    DatabaseState,
    HealthCheck,
    is_roomy,
    stalled,
    state_of,
)
from mistnet.social.jobs import args
from mistnet.social.model import UserId
from tests.apis import Api, bearer, open_api
from tests.commands import DEADLINE_SECONDS, Ran
from tests.contract.test_api_security import ADMIN_TOKEN
from tests.databases import Templates
from tests.harvests import change, open_harvest, rows
from tests.services.availability import unavailable
from tests.services.postgres import PostgresCluster, PostgresStartError, quick_folder
from tests.services.proxy import Proxy
from tests.services.sqld import SqldServer
from tests.support import START
from tests.warm import SOURCES, WarmProcess

pytestmark = pytest.mark.fresh_database

CONNECTIONS = 40
"""What the private server allows, of which three are kept for the superuser."""

ROLE = "plain"


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    """A server of this module's own: it is made read-only and filled up."""
    try:
        server = PostgresCluster(fast=True, parent=quick_folder(), settings=[f"max_connections={CONNECTIONS}"])
        server.start()
    except PostgresStartError as error:
        unavailable("postgresql", str(error))
    yield server
    server.stop()


@pytest.fixture
def plain_url(cluster: PostgresCluster, templates: Templates) -> str:
    """A migrated database on that server, for a role without privileges, as an installation should have."""
    url = templates.postgresql(cluster.dsn())
    asyncio.run(_give_away(url))
    return url.replace("//mistnet@", f"//{ROLE}@")


async def _give_away(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DO $$ BEGIN CREATE ROLE {ROLE} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
        await connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}")
        await connection.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE}")
    finally:
        await connection.close()


@asynccontextmanager
async def read_only(cluster: PostgresCluster) -> AsyncIterator[None]:
    """The whole server refuses writes, on connections that are open as well as on new ones."""
    await _configure(cluster, "ALTER SYSTEM SET default_transaction_read_only = on")
    try:
        yield
    finally:
        await _configure(cluster, "ALTER SYSTEM RESET default_transaction_read_only")


async def _configure(cluster: PostgresCluster, statement: str) -> None:
    connection = await asyncpg.connect(cluster.dsn())
    watcher = await asyncpg.connect(cluster.dsn())
    try:
        before = await watcher.fetchval("SHOW default_transaction_read_only")
        await connection.execute(statement)
        await connection.execute("SELECT pg_reload_conf()")
        while await watcher.fetchval("SHOW default_transaction_read_only") == before:
            await asyncio.sleep(0.01)
    finally:
        await connection.close()
        await watcher.close()


async def look_over(api: Api) -> dict[str, HealthFinding]:
    return {each.name: each for each in await Checkup(api.app.database, expectations_of(api.app)).run()}


def renew(api: Api) -> None:
    """What was kept of the last look is out of date."""
    api.service.state.health._kept = None


async def meter(api: Api, name: str, **headers: str) -> float:
    told = (await api.get("/metrics", headers=headers)).text.splitlines()
    return float(next(line for line in told if line.startswith(f"{name} ")).split()[1])


async def test_a_well_database_is_tested_by_a_write_that_leaves_nothing(url: str) -> None:
    async with open_harvest(url) as app:
        found = await DatabaseProbe(app.database).check()
        assert (found.state, found.problem, found.last_progress_at) == ("ok", None, None)
        assert found.write_seconds
        assert await rows(app, "SELECT * FROM workers") == []
        assert (found.free_bytes is not None) == (app.database.product == "sqlite")
        assert (found.connections is not None) == (app.database.product == "postgresql")


@pytest.mark.starts_servers
async def test_a_read_only_server_is_not_ready_and_said_to_be_read_only(
    cluster: PostgresCluster, plain_url: str
) -> None:
    async with open_api(plain_url) as api:
        assert await api.ok("/readyz") == {"status": "ok"}
        assert (await api.ok("/health"))["read_only"] is False
        assert await meter(api, "mistnet_database_writable") == 1
        async with read_only(cluster):
            renew(api)
            ready, health = await api.get("/readyz"), await api.get("/health")
            assert (ready.status, "read-only" in ready.json["error"]["message"]) == (503, True)
            assert int(ready.headers["Retry-After"]) > 0
            told = {name: health.json[name] for name in ("status", "database", "read_only", "workers")}
            assert (health.status, told) == (
                503,
                {"status": "down", "database": "read-only", "read_only": True, "workers": 0},
            )
            assert (await api.get("/healthz")).status == 200
            assert await meter(api, "mistnet_database_writable") == 0
            assert await meter(api, "mistnet_database_read_only") == 1
            found = await look_over(api)
            assert (found["writes"].level, "read-only transaction" in found["writes"].found) == ("fail", True)
            assert "leases" in found, "what can be read is looked at all the same"
        renew(api)
        assert await api.ok("/readyz") == {"status": "ok"}


async def test_a_libsql_server_that_blocks_writes_is_not_ready(libsql_url: str, sqld: SqldServer) -> None:
    async with open_api(libsql_url) as api:
        assert await api.ok("/readyz") == {"status": "ok"}
        sqld.block_writes(libsql_url, reason="over its quota")
        renew(api)
        assert (await api.get("/readyz")).status == 503
        assert (await api.get("/health")).json["database"] == "refused"
        assert [each.name for each in (await look_over(api)).values() if "over its quota" in each.found]


@pytest.mark.starts_servers
async def test_a_server_with_few_connections_left_is_warned_of_and_one_with_none_is_not_ready(
    cluster: PostgresCluster, plain_url: str
) -> None:
    async with open_api(plain_url) as api, AsyncExitStack() as held:
        assert (await api.ok("/health"))["status"] == "ok"
        assert (await look_over(api))["connections"].level == "ok"
        limit = (await api.ok("/health"))["connections_limit"]
        assert limit == CONNECTIONS - 3
        while (await meter(api, "mistnet_database_connections")) < limit - 2:
            await hold_connection(held, plain_url)
            renew(api)
        assert (await api.ok("/health"))["status"] == "degraded"
        assert (await look_over(api))["connections"].level == "warn"
        for _ in range(CONNECTIONS):
            with suppress(asyncpg.TooManyConnectionsError):
                await hold_connection(held, plain_url)
        async with open_api(plain_url, admin_token=ADMIN_TOKEN) as another:
            ready = await another.get("/readyz")
            assert (ready.status, "busy" in ready.json["error"]["message"]) == (503, True)
            asked = await another.get("/health", headers=bearer(ADMIN_TOKEN))
            assert asked.json["database"] == "busy"
            assert await meter(another, "mistnet_database_writable", **bearer(ADMIN_TOKEN)) == 0


async def hold_connection(held: AsyncExitStack, url: str) -> None:
    connection = await asyncpg.connect(url)
    held.push_async_callback(connection.close)


async def test_a_database_that_hangs_is_reported_within_the_deadline(postgresql_url: str) -> None:
    address = make_url(postgresql_url)
    assert address.host
    assert address.port
    async with Proxy(address.host, address.port).opened() as proxy:
        url = address.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        async with open_api(url, admin_token=ADMIN_TOKEN) as api, open_api(url) as without_tokens:
            assert await api.ok("/readyz") == {"status": "ok"}
            check = api.service.state.health = HealthCheck(api.app, deadline_seconds=0.2)
            api.service.state.gauges._health = check
            proxy.stall()
            begun = time.monotonic()
            ready, health = await api.get("/readyz"), await api.get("/health", headers=bearer(ADMIN_TOKEN))
            assert await meter(api, "mistnet_database_up", **bearer(ADMIN_TOKEN)) == 0
            assert time.monotonic() - begun < 5
            assert (ready.status, health.status, health.json["workers"]) == (503, 503, None)
            assert (await without_tokens.get("/health")).status == 503, "it is unknown whether a token is needed"
            assert time.monotonic() - begun < 10
            proxy.cut()
            proxy.flow()
            await check.close()


async def test_a_lock_on_its_table_does_not_hold_the_test_write_up(postgresql_url: str) -> None:
    async with open_harvest(postgresql_url) as app, app.database.transaction() as other:
        await other.exec_driver_sql("LOCK TABLE workers IN EXCLUSIVE MODE")
        found = await DatabaseProbe(app.database).check()
        assert (found.state, "lock timeout" in (found.problem or "")) == ("busy", True)


async def test_those_who_ask_at_once_share_one_look_which_is_kept_for_seconds(sqlite_url: str) -> None:
    async with open_harvest(sqlite_url) as app:
        written: list[str] = []

        def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            written.extend([statement] if statement.startswith("INSERT INTO workers") else [])

        event.listen(app.database.engine.sync_engine, "before_cursor_execute", note)
        check = HealthCheck(app)
        assert len({id(found) for found in await asyncio.gather(*(check.database() for _ in range(5)))}) == 1
        await check.database()
        assert len(written) == 1


def test_a_disk_that_is_full_is_found_by_the_doctor(sqlite_url: str, tmp_path: Path) -> None:
    """SQLite notices only when it writes: all that is asked before answers as ever."""
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other:
        other.execute("CREATE TABLE filler AS SELECT zeroblob(200000) AS bytes")
        other.commit()  # its log is longer now than the doctor's files may become, and stays so while this is open
        done = run_limited(64 * 1024, "doctor", "--json", url=sqlite_url, folder=tmp_path)
    told = {each["name"]: each for each in json.loads(done.out)["findings"]}
    assert (done.code, told["tables"]["level"], told["writes"]["level"]) == (1, "ok", "fail")
    assert "disk I/O error" in told["writes"]["found"]


def run_limited(most_bytes: int, *arguments: str, url: str, folder: Path) -> Ran:
    """Runs a command whose files cannot grow beyond a size."""
    command = [sys.executable, "-m", "tests.limited", str(most_bytes), *arguments]
    environment, pipe = {**os.environ, "PYTHONPATH": SOURCES, "MISTNET_DATABASE_URL": url}, subprocess.PIPE
    with WarmProcess(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    return Ran(code=process.returncode, out=out, err=err)


async def test_due_jobs_are_reported_while_nothing_is_settled(url: str) -> None:
    async with open_api(url) as api:
        await api.app.enqueue([args.backfill(UserId(11))])
        await change(
            api.app,
            "INSERT INTO job_errors (job_id, fence, at, worker, error) VALUES (1, 1, :at, 'ann', 'it broke')".replace(
                ":at", ":at" if api.app.database.dialect == "sqlite" else "CAST(CAST(:at AS text) AS timestamptz)"
            ),
            at=f"{START + timedelta(minutes=1):%Y-%m-%d %H:%M:%S.%f}",
        )
        api.clock.turn(minutes=21)
        found = await api.ok("/health")
        assert (found["stalled_seconds"], found["oldest_due_seconds"], found["status"]) == (1200, 1260, "degraded")
        assert await meter(api, "mistnet_queue_stalled_seconds") == 1200
        assert (await look_over(api))["progress"].level == "warn"


async def test_pauses_breakers_budgets_and_alerts_are_metrics(sqlite_url: str) -> None:
    async with open_api(sqlite_url, x_day_credits=1_000) as api:
        x = SourceName("x")
        await api.app.sources.store.pause(x, "a test", now=START)
        assert await meter(api, 'mistnet_source_paused{source="x"}') == 1
        assert await meter(api, 'mistnet_source_breaker_open{source="x"}') == 0
        assert await meter(api, 'mistnet_credits_left{source="x",span="day"}') == 1_000
        assert await meter(api, 'mistnet_alerts_open{severity="critical"}') == 0
        paused = Alert(rule=AlertRule.SOURCE_PAUSED, subject="x", severity=Severity.CRITICAL, message="x is paused")
        await api.app.watch.alerts.settle([paused], [paused.rule], now=START)
        assert await meter(api, 'mistnet_alerts_open{severity="critical"}') == 1
        assert await meter(api, f'mistnet_build_info{{version="{__version__}"}}') == 1
        assert await meter(api, "mistnet_database_size_bytes") > 100_000
        await change(api.app, "UPDATE sources SET last_success_at = '2026-03-01 12:00:00.000000' WHERE name = 'x'")
        api.clock.turn(minutes=1)
        assert await meter(api, 'mistnet_source_last_success_timestamp_seconds{source="x"}') == START.timestamp()


def test_jobs_stall_from_when_they_fell_due_or_from_the_last_progress() -> None:
    def ago(minutes: float) -> Any:
        return START - timedelta(minutes=minutes)

    assert stalled(None, ago(60), START) == 0
    assert stalled(ago(5), None, START) == 300
    assert stalled(ago(5), ago(60), START) == 300
    assert stalled(ago(60), ago(5), START) == 300
    assert stalled(ago(60), ago(-1), START) == 0


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (WriteRefused("cannot execute INSERT in a read-only transaction"), "read-only"),
        (WriteRefused("attempt to write a readonly database"), "read-only"),
        (WriteRefused("database or disk is full"), "full"),
        (WriteRefused('could not extend file "base/5/1259": No space left on device'), "full"),
        (WriteRefused("disk I/O error"), "refused"),
        (WriteRefused("canceling statement due to statement timeout"), "busy"),
        (DatabaseBusy("database is locked"), "busy"),
        (DatabaseUnreachable("postgresql://readonly-replica/name", "refused"), "unreachable"),
    ],
)
def test_the_state_of_the_database_follows_from_its_error(error: DatabaseError, state: DatabaseState) -> None:
    assert state_of(error) == state


def test_a_disk_or_a_server_that_is_nearly_full_is_not_roomy() -> None:
    assert is_roomy(DatabaseHealth(state="ok"))
    assert is_roomy(DatabaseHealth(state="ok", free_bytes=100_000_000))
    assert not is_roomy(DatabaseHealth(state="ok", free_bytes=99_999_999))
    assert not is_roomy(DatabaseHealth(state="ok", connections=37, most_connections=37))


def test_few_connections_are_less_than_a_tenth() -> None:
    assert not DatabaseHealth(state="ok").few_connections
    assert not DatabaseHealth(state="ok", connections=90, most_connections=100).few_connections
    assert DatabaseHealth(state="ok", connections=91, most_connections=100).few_connections
