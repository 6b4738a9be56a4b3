"""Segments go through their indexes in a graph of 50,000 edges, of which the subject has a part."""

import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.graph.segments.materialize import RuleContext, _free_plans, _Run, members_of
from mistnet.graph.segments.model import Segment
from mistnet.graph.segments.store import changes, members_at
from tests.databases import analyze
from tests.segmented import Workshop, ids, workshop
from tests.support import START

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

EDGES = 50_000
OWN = 2_000
FIRST = 1_000
SUBJECT = 1
DIALECTS: dict[str, Any] = {"sqlite": sqlite.dialect, "postgresql": postgresql.dialect}


async def fill(shop: Workshop) -> None:
    """As many follow the subject as he follows; half of them are the same. All other edges are of others."""
    series = (
        "generate_series(1, {most}) AS n"
        if shop.app.database.dialect == "postgresql"
        else "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {most}) SELECT n FROM s)"
    )
    then = "'2026-02-01 00:00:00.000000'"
    users = (
        "INSERT INTO users (platform, id, handle, detail, raw, first_seen_at, last_updated_at) "
        f"SELECT 'x', n, 'user' || n, 'profile', '{{}}', {then}, {then} FROM {series.format(most=EDGES + FIRST)}"
    )
    edges = (
        "INSERT INTO follows (platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in) "
        f"SELECT 'x', {{one}}, {{other}}, {then}, {then}, 1 FROM "
    )
    async with shop.app.database.transaction() as connection:
        await connection.execute(text(users))
        for one, other, many in (
            (f"n + {FIRST}", "1", OWN),
            ("1", f"n + {FIRST + OWN // 2}", OWN),
            (f"n + {FIRST}", f"n % {FIRST} + 2", EDGES - 2 * OWN),
        ):
            await connection.execute(text(edges.format(one=one, other=other) + series.format(most=many)))
    await analyzed(shop)


async def analyzed(shop: Workshop) -> None:
    async with shop.app.database.read() as connection:
        await analyze(connection)


async def plan(connection: AsyncConnection, asked: Select[Any]) -> str:
    dialect = connection.dialect.name
    compiled = asked.compile(dialect=DIALECTS[dialect](), compile_kwargs={"literal_binds": True})
    explain = "EXPLAIN QUERY PLAN " if dialect == "sqlite" else "EXPLAIN "
    rows = await connection.exec_driver_sql(explain + str(compiled))
    return "\n".join(str(row[-1]) for row in rows)


def reads_whole(explained: str) -> list[str]:
    """Lines that read a table from end to end, or build an index for the occasion."""
    bad = ("Seq Scan on follows", "Seq Scan on segment_", "AUTOMATIC", "SCAN follows", "SCAN edge", "SCAN segment_")
    return [line for line in explained.splitlines() if any(each in line for each in bad)]


@pytest.mark.in_turn(1)
async def test_segments_are_materialized_and_read_through_their_indexes(url: str) -> None:
    async with workshop(url) as shop:
        await fill(shop)
        await shop.synced_both(SUBJECT)
        some = await shop.define("some", kind="specified_users")
        await shop.store.add_inputs("some", ids(*range(FIRST, FIRST + 20_000)), now=START)
        await shop.materialize("some")
        await shop.store.remove_inputs("some", ids(*range(FIRST, FIRST + 10_000)))
        await shop.materialize("some")
        for kind in ("followers", "followed", "mutuals", "unreciprocated_followed"):
            await who_came_and_who_went_is_found_through_the_indexes(shop, kind)
        await pages_are_read_in_order_without_a_sort(shop, some)


async def who_came_and_who_went_is_found_through_the_indexes(shop: Workshop, kind: str) -> None:
    segment = await shop.define(kind, kind=kind, subject=str(SUBJECT))
    snapshot = await shop.materialize(kind)
    assert snapshot.members == {"mutuals": OWN // 2, "unreciprocated_followed": OWN // 2}.get(kind, OWN)
    await analyzed(shop)
    known = RuleContext(segments={segment.name: segment}, dialect=shop.app.database.dialect, now=START)
    run = _Run(segment=segment, snapshot_id=snapshot.id, at=START, after=0)
    matching = members_of(segment, known)
    async with shop.app.database.transaction() as connection, _free_plans(connection):
        came, went = await plan(connection, run.new(matching)), await plan(connection, run.gone(matching))
    assert not reads_whole(came), came
    assert not reads_whole(went), went


async def pages_are_read_in_order_without_a_sort(shop: Workshop, segment: Segment) -> None:
    then = START + timedelta(days=1)
    async with shop.app.database.read() as connection:
        plans = {
            "present": await plan(connection, members_at(segment, None, after=15_000, limit=50)),
            "as of": await plan(connection, members_at(segment, then, after=15_000, limit=50)),
            "changes": await plan(connection, changes(segment, baseline=1, before=15_000, limit=50, kind=None)),
        }
    indexes = {"present": "segment_members", "as of": "segment_events", "changes": "segment_events"}
    for name, explained in plans.items():
        assert re.search(rf"{indexes[name]}_(order|segment|pkey)|PRIMARY KEY", explained), (name, explained)
        assert not reads_whole(explained), (name, explained)
        assert not re.search(r"Sort Key: segment|TEMP B-TREE FOR ORDER BY.*segment", explained), (name, explained)
