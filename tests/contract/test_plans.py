"""Hot statements go through their indexes with 50,000 rows, as many of each state."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.selectable import TextualSelect

from mistnet.kit.statements import load
from mistnet.queue.store.claims import LONG_AGO, target_rows
from tests.databases import analyze
from tests.support import Shop, kind, new, open_shop

pytestmark = pytest.mark.fresh_database

ROWS = 50_000
STATES = ("pending", "queued", "running", "retryable", "failed", "dead", "parked", "later")


async def fill(shop: Shop) -> None:
    """50,000 rows, as many of each state, of two kinds on one lane."""
    each = ROWS // len(STATES)
    series = (
        f"generate_series(1, {each}) AS n"
        if shop.database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {each}) SELECT n FROM s)"
    )
    async with shop.database.transaction() as connection:
        for state in STATES:
            real = {"parked": "pending", "later": "pending"}.get(state, state)
            leased = real == "running"
            await connection.execute(
                text(
                    f"""INSERT INTO jobs (kind, key, lane, class, state, args, attempts, max_attempts, run_at,
                        created_at, worker, lease_until, parked)
                    SELECT CASE WHEN n % 2 = 0 THEN 'step' ELSE 'other' END, '{state}' || n, 'x', 2, '{real}', '{{}}',
                        0, 5, '{"2027-01-01 00:00:00.000000" if state == "later" else "2026-02-01 00:00:00.000000"}',
                        '2026-02-01 00:00:00.000000', {"'ann'" if leased else "NULL"},
                        {"'2026-03-01 12:04:00.000000'" if leased else "NULL"}, {state == "parked"}
                    FROM {series}"""
                )
            )
    async with shop.database.read() as connection:
        await analyze(connection)


async def plan(connection: AsyncConnection, name: str, binds: dict[str, Any]) -> str:
    dialect = connection.dialect.name
    explain = "EXPLAIN QUERY PLAN " if dialect == "sqlite" else "EXPLAIN "
    found = load(name, dialect)
    compiled = found.clause.element if isinstance(found.clause, TextualSelect) else found.clause
    assert isinstance(compiled, TextClause)
    explained = text(explain + compiled.text).bindparams(*compiled._bindparams.values())
    rows = await connection.execute(explained, found.values(binds))
    return "\n".join(str(row[-1]) for row in rows)


def scans(explained: str) -> Iterator[str]:
    """Lines that read the jobs table from end to end."""
    for line in explained.splitlines():
        if "Seq Scan on jobs" in line or ("SCAN" in line and "jobs" in line and "USING" not in line):
            yield line
        if re.search(r"SCAN j\b", line) and "USING INDEX" not in line and "USING COVERING INDEX" not in line:
            yield line


async def test_the_hot_statements_use_their_indexes(url: str) -> None:
    async with open_shop(url, kind(), kind("other")) as shop:
        await fill(shop)
        targets = shop.kinds.targets(slots=100, lanes=None, lane_caps={})
        take = {
            "worker": "bob",
            "now": shop.now,
            "lost_before": shop.now,
            "lease_until": shop.now + timedelta(seconds=300),
        }
        listed = target_rows(targets)
        async with shop.database.read_cached_plan() as connection:
            if shop.database.dialect == "postgresql":
                held = {"held": [(1, 1)] * 100}
                claim = await plan(
                    connection, "claim", {**take, "aged_before": LONG_AGO, "room": 100, "targets": listed}
                )
                assert claim.count("jobs_due") >= 2
                assert "jobs_leased" in claim
                plans = {
                    "claim": claim,
                    "outlook": await plan(connection, "outlook", {"targets": listed, "now": shop.now}),
                    "finish": await plan(connection, "finish", {**held, "now": shop.now}),
                    "extend": await plan(connection, "extend", {**held, "until": shop.now}),
                    "still_held": await plan(connection, "still_held", held),
                    "reclaim": await plan(
                        connection, "reclaim", {"now": shop.now, "lost_before": shop.now, "limit": 100}
                    ),
                }
            else:
                head = {"now": shop.now, "aged_before": LONG_AGO, "targets": listed}
                plans = {
                    "urgent": await plan(connection, "urgent", head),
                    "claim": await plan(connection, "claim", {**take, "kind": "step", "lane": "x", "take": 100}),
                    "outlook": await plan(connection, "outlook", {"now": shop.now, "targets": listed}),
                    "expired": await plan(connection, "expired", {**take, "room": 9, "targets": listed}),
                    "still_held": await plan(connection, "still_held", {"held": [(1, 1)]}),
                    "note_reclaimed": await plan(connection, "note_reclaimed", {**take, "limit": 9}),
                }
                assert "jobs_due" in plans["urgent"]
                assert "jobs_due" in plans["claim"]
                assert "jobs_leased" in plans["expired"]
            unpark = await plan(connection, "unpark", {"kind": "step", "limit": 10})
            progress = plans["last_progress"] = await plan(connection, "last_progress", {})
        for index in ("jobs_leased", "job_errors_at", "job_history_created"):
            assert index in progress, progress
        assert "jobs_parked" in unpark, unpark
        for name in ({"finish", "extend"} & plans.keys()) | {"still_held"}:
            assert "jobs_pkey" in plans[name] or "INTEGER PRIMARY KEY" in plans[name], (
                f"{name} does not go by id:\n{plans[name]}"
            )
        for name, explained in plans.items():
            assert not list(scans(explained)), f"{name} reads the whole table:\n{explained}"


async def test_settling_goes_by_id_even_if_the_statistics_know_of_no_running_job(postgresql_url: str) -> None:
    """Statistics taken while nothing runs once made the planner read all leases for each settled job."""
    async with open_shop(postgresql_url, kind(), kind("other")) as shop:
        await shop.add(*(new(key=str(n)) for n in range(5_000)))
        async with shop.database.read() as connection:
            await connection.execute(text("VACUUM (ANALYZE) jobs"))
        held = {"held": [(1, 1)] * 100}
        async with shop.database.read_cached_plan() as connection:
            for name, binds in (
                ("finish", {**held, "now": shop.now}),
                ("extend", {**held, "until": shop.now}),
                ("still_held", held),
                ("release", held),
                ("put_back", {"settled": []}),
            ):
                explained = await plan(connection, name, binds)
                assert "jobs_pkey" in explained, explained
                assert "jobs_leased" not in explained, explained


async def test_users_are_found_by_their_key_before_the_first_statistics(postgresql_url: str) -> None:
    """Another index that began with the platform once looked as good: every lookup read all users of it."""
    async with open_shop(postgresql_url, kind()) as shop, shop.database.read_cached_plan() as connection:
        explained = await plan(connection, "known_profiles", {"users": [("x", 1)]})
        assert "users_pkey" in explained, explained
