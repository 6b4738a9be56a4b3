"""What is asked every few seconds goes through indexes, with 50,000 events, deliveries and jobs of the past."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from mistnet.app import App
from mistnet.queue.events import SubscriberName
from mistnet.settings import WebhookSettings
from tests.contract.test_outbox import data, hook
from tests.databases import analyze
from tests.harvests import open_harvest, tell

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

ROWS = 50_000
LATE = "'2026-02-01 00:00:00.000000'"


async def fill(app: App) -> None:
    """Events that were told, deliveries for another subscriber, and jobs that wait for another day."""
    series = (
        f"generate_series(1, {ROWS}) AS n"
        if app.database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) SELECT n FROM s)"
    )
    filling = [
        (
            "INSERT INTO events (channel, kind, subject, payload, created_at, fanned_out_at) "
            f"SELECT 'data', 'run.finished', 's', '{{}}', {LATE}, {LATE} FROM {series}"
        ),
        f"INSERT INTO deliveries (subscriber, event_id, created_at) SELECT 'other', n, {LATE} FROM {series}",
        (
            "INSERT INTO jobs (kind, key, lane, class, state, args, max_attempts, run_at, created_at) "
            f"SELECT 'walk', 'k' || n, 'x', 2, 'pending', '{{}}', 5, '2027-01-01 00:00:00.000000', {LATE} FROM {series}"
        ),
    ]
    async with app.database.transaction() as connection:
        for statement in filling:
            await connection.execute(text(statement))
    async with app.database.read() as connection:
        await analyze(connection)


@contextmanager
def overheard(app: App) -> Iterator[list[tuple[str, Any]]]:
    """Every statement with its values, on all ways to the database."""
    heard: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, _context: Any, many: bool) -> None:
        if not many and re.match(r"SELECT|UPDATE|DELETE", statement):
            heard.append((statement, values))

    engines = [app.database.engine.sync_engine, app.database._reading.sync_engine]
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        yield heard
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)


async def explained(app: App, statement: str, values: Any) -> str:
    explain = "EXPLAIN QUERY PLAN " if app.database.dialect == "sqlite" else "EXPLAIN "
    async with app.database.read_cached_plan() as connection:
        rows = await connection.exec_driver_sql(explain + statement, values)
        return "\n".join(str(row[-1]) for row in rows)


def scans(plan: str) -> list[str]:
    whole = re.compile(r"Seq Scan on (events|deliveries|jobs)|SCAN (events|deliveries|jobs)(?!.*USING)")
    return [line for line in plan.splitlines() if whole.search(line)]


async def test_handing_on_and_delivering_never_read_a_table_from_end_to_end(url: str) -> None:
    hooks = {"a": WebhookSettings.model_validate(hook("http://127.0.0.1:9/"))}
    async with open_harvest(url, webhooks=hooks) as app:
        await fill(app)
        with overheard(app) as heard:
            assert await app.watch.fan_out_events() == 0
            await tell(app, data(1), data(2))
            assert await app.watch.fan_out_events() == 2
            assert await app.outgoing.outbox.next_for(SubscriberName("a"))
            await app.watch._reader.due([("walk", "x")], now=app.database.clock.now())  # type: ignore[list-item]
        assert len(heard) > 5
        for statement, values in heard:
            plan = await explained(app, statement, values)
            assert scans(plan) == [], f"{statement}\n{plan}"
