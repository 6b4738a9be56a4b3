"""What a sync asks and writes goes through indexes, with 50,000 edges on one list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from mistnet.graph.follows.model import Side, Sync
from mistnet.queue.model import JobId
from mistnet.social.model import UserId, X
from tests.contract.test_plans import plan
from tests.databases import analyze
from tests.follow_lists import ANN, Harness, ScriptedSource, open_harness

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

EDGES = 50_000
STATEMENTS = ("reopen_follows", "refresh_follows", "end_follows")


async def fill(harness: Harness) -> None:
    """Everybody follows Ann, and she follows everybody."""
    numbers = f"WITH RECURSIVE s(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n <= {EDGES}) SELECT n FROM s"
    when = "'2026-02-01 00:00:00.000000'"
    async with harness.database.transaction() as connection:
        for people in (numbers, "SELECT 1 AS n"):
            await connection.execute(
                text(
                    f"""INSERT INTO users (platform, id, handle, detail, raw, first_seen_at, last_updated_at)
                    SELECT 'x', n, 'u' || n, 'listed', '{{}}', {when}, {when} FROM ({people}) AS p"""
                )
            )
        for ends in ("n, 1", "1, n"):
            await connection.execute(
                text(
                    f"""INSERT INTO follows (platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in)
                    SELECT 'x', {ends}, {when}, {when}, 1 FROM ({numbers}) AS p"""
                )
            )
    async with harness.database.read() as connection:
        await analyze(connection)


def binds(harness: Harness, name: str) -> dict[str, Any]:
    edges = [(each, 1) for each in range(2, 202)]
    told: dict[str, Any] = {"platform": "x", "now": harness.clock.now(), "ingest_id": 7}
    if name == "end_follows":
        told["since"] = harness.clock.now()
    return {**told, "edges": edges}


async def test_edges_are_written_by_their_keys_and_a_sync_reads_no_more_than_its_own_list(url: str) -> None:
    async with open_harness(url, ScriptedSource()) as harness:
        await fill(harness)
        await edges_are_written_by_their_keys(harness)
        for side in Side:
            await somebody_elses_list_costs_nothing(harness, side)


async def edges_are_written_by_their_keys(harness: Harness) -> None:
    async with harness.database.read_cached_plan() as connection:
        for name in STATEMENTS:
            explained = await plan(connection, name, binds(harness, name))
            assert "Seq Scan on follows" not in explained, explained
            assert "SCAN follows" not in explained, explained
            ways = [line for line in explained.splitlines() if "follower_id" in line and "followed_id" in line]
            assert any("Index Cond" in line or "SEARCH f USING" in line for line in ways), explained


async def somebody_elses_list_costs_nothing(harness: Harness, side: Side) -> None:
    reads = harness.syncer.reads
    bob = Sync(
        platform=X,
        side=side,
        subject_id=UserId(2),
        job_id=JobId(1),
        since=harness.clock.now() - timedelta(days=400),
    )
    assert await reads.seen(bob) == 1
    ann = msgspec.structs.replace(bob, subject_id=ANN)
    assert await reads.seen(ann) == EDGES
    assert await reads.missed(ann, after=None, limit=100) == []
    page = await harness.follows.page(ANN, side, after=EDGES - 2, limit=10)
    assert [each.user_id for each in page.items] == [EDGES - 1, EDGES, EDGES + 1]
