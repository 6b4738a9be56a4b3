"""The views for monitoring: what they show, on every database, and that a million finished jobs do not slow them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.governor.model import KeyLabel, SourceName, SourceState
from mistnet.governor.store import DatabaseSourceStore
from mistnet.operations.monitoring import Monitor
from mistnet.queue.model import Done, Fail, JobId, JobState, Retry
from tests import schema as tables
from tests.databases import analyze
from tests.support import Shop, TurnedClock, new, open_shop

MANY = 50_000
SHOP = SourceName("shop")


async def shown(shop: Shop, view: str, order: str = "id") -> list[dict[str, Any]]:
    async with shop.database.read() as connection:
        rows = await connection.execute(text(f"SELECT * FROM {view} ORDER BY {order}"))
        return [dict(row) for row in rows.mappings()]


@pytest.mark.parametrize("view", [tables.recent_jobs, tables.source_health, tables.stuck_jobs], ids=lambda it: it.name)
async def test_a_view_has_exactly_its_documented_columns(url: str, view: Any) -> None:
    async with open_shop(url) as shop, shop.database.read() as connection:
        rows = await connection.execute(text(f"SELECT * FROM {view.name}"))
        assert list(rows.keys()) == [column.name for column in view.columns]


async def test_recent_jobs_holds_live_and_finished_jobs_in_the_words_of_the_queue(url: str) -> None:
    async with open_shop(url) as shop:
        for key in ("succeeds", "fails", "retries", "runs", "waits"):
            await shop.add(new(key=key))
            shop.clock.turn(seconds=1)
        leases = {lease.key: lease for lease in await shop.claim(slots=4)}
        shop.clock.turn(seconds=5)
        await shop.settle(leases["succeeds"], Done())
        await shop.settle(leases["fails"], Fail("gone for good"))
        await shop.settle(leases["retries"], Retry("503"))
        found = {job.key: job for job in (await Monitor(shop.database).recent_jobs()).items}
        assert [(job.key, job.status) for job in found.values()] == [
            ("waits", JobState.PENDING),
            ("runs", JobState.RUNNING),
            ("retries", JobState.RETRYABLE),
            ("fails", JobState.FAILED),
            ("succeeds", JobState.SUCCEEDED),
        ]
        assert {key: job.completed_at for key, job in found.items() if job.completed_at} == {
            "fails": shop.now,
            "succeeds": shop.now,
        }
        assert (found["runs"].locked_by, found["runs"].heartbeat_at) == ("ann", shop.now - timedelta(seconds=5))
        assert found["retries"].next_retry_at is not None
        assert found["retries"].next_retry_at > shop.now
        assert (found["retries"].attempts, found["waits"].attempts) == (1, 0)
        assert "503" in (found["retries"].error_message or "")
        assert "gone for good" in (found["fails"].error_message or "")
        assert found["succeeds"].locked_by == "ann"
        failures = await Monitor(shop.database).recent_failures()
        assert [job.key for job in failures] == ["fails"]


async def test_a_job_that_went_well_in_the_end_still_shows_what_went_wrong_before(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new(key="one"))
        (lease,) = await shop.claim()
        await shop.settle(lease, Retry("503"))
        shop.clock.turn(hours=1)
        (again,) = await shop.claim()
        await shop.settle(again, Done())
        (job,) = (await Monitor(shop.database).recent_jobs()).items
        assert (job.status, job.attempts) == (JobState.SUCCEEDED, 1)
        assert "503" in (job.error_message or "")


async def test_a_heartbeat_is_the_last_sign_of_life_of_the_jobs_worker(url: str) -> None:
    async with open_shop(url) as shop:
        await shop.add(new())
        await shop.claim("ann")
        shop.clock.turn(seconds=20)
        sql = (
            "INSERT INTO workers (name, host, pid, version, lanes, concurrency, running, draining, started_at, seen_at)"
        )
        await shop.database_write(f"{sql} VALUES ('ann', 'here', 1, 'v', 'x', 1, 1, FALSE, :now, :now)")
        (job,) = (await Monitor(shop.database).recent_jobs()).items
        assert job.heartbeat_at == shop.now


async def test_recent_jobs_are_read_page_by_page(url: str) -> None:
    async with open_shop(url) as shop:
        for number in range(25):
            await shop.add(new(key=str(number)))
            if number % 3:
                shop.clock.turn(seconds=1)
        for lease in await shop.claim(slots=10):
            await shop.settle(lease, Done())
        monitor, seen, pages = Monitor(shop.database), [], 1
        page = await monitor.recent_jobs(limit=4)
        seen += [job.key for job in page.items]
        while page.next is not None:
            page, pages = await monitor.recent_jobs(before=page.next, limit=4), pages + 1
            seen += [job.key for job in page.items]
        assert seen == [str(number) for number in reversed(range(25))]
        assert pages == 7
        assert (await monitor.recent_jobs(before=JobId(999_999))).items == []


async def test_stuck_jobs_are_those_whose_leases_ran_out(url: str) -> None:
    """By the database's own clock: it is the one that gives leases."""
    long_ago = TurnedClock(datetime.now(UTC) - timedelta(hours=2))
    async with open_shop(url, clock=long_ago) as shop:
        await shop.add(new(key="lost"), new(key="held"))
        leases = {lease.key: lease for lease in await shop.claim(slots=2)}
        await shop.queue.extend([leases["held"]], until=datetime.now(UTC) + timedelta(hours=1))
        (stuck,) = await Monitor(shop.database).stuck_jobs()
        assert (stuck.id, stuck.status, stuck.locked_by) == (leases["lost"].id, JobState.RUNNING, "ann")
        assert (stuck.heartbeat_at, stuck.lease_until) == (shop.now, shop.now + timedelta(seconds=300))
        assert 7_199 <= stuck.seconds_since_heartbeat <= 7_800


@pytest.mark.parametrize(
    ("ahead", "paused", "state", "enabled"),
    [
        (None, False, "serving", True),
        (timedelta(minutes=3), False, "breaker open", True),
        (timedelta(minutes=-3), False, "half-open", True),
        (timedelta(minutes=3), True, "paused", False),
    ],
)
async def test_source_health_tells_how_each_source_stands(
    url: str, ahead: timedelta | None, paused: bool, state: str, enabled: bool
) -> None:
    async with open_shop(url) as shop:
        book, now = DatabaseSourceStore(shop.database), datetime.now(UTC)
        opened_until = now + ahead if ahead else None
        told = SourceState(name=SHOP, failure_streak=6, opened_until=opened_until, last_failure="503")
        await book.change(SHOP, KeyLabel("key"), lambda _, key: (told, key, None))
        if paused:
            await book.pause(SHOP, "too dear", now=now)
        (health,) = await Monitor(shop.database).source_health()
        assert (health.name, health.state, health.enabled) == (SHOP, state, enabled)
        assert (health.failure_streak, health.last_failure) == (6, "503")
        assert health.paused_until == (opened_until if ahead and ahead > timedelta() else None)
        assert health.pause_reason == ("too dear" if paused else None)


async def fill(shop: Shop) -> None:
    """Many jobs behind us and many before us; few of them run or have failed."""
    series = (
        f"generate_series(1::bigint, {MANY}) AS s(n)"
        if shop.database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {MANY}) SELECT n FROM s)"
    )
    at = "'2026-02-01 00:00:00.000000'"
    leased = "n % 1000 = 0"
    async with shop.database.transaction() as connection:
        for sql in (
            f"""INSERT INTO job_history (id, kind, lane, class, state, args, attempts, fence, run_at, created_at,
                    finished_at)
                SELECT n + 1000000, 'step', 'x', 2, 'succeeded', '{{}}', 0, 1, {at}, {at}, {at} FROM {series}""",
            f"""INSERT INTO jobs (kind, key, lane, class, state, args, attempts, max_attempts, run_at, created_at,
                    worker, lease_until)
                SELECT 'step', 'k' || n, 'x', 2,
                    CASE WHEN {leased} THEN 'running' WHEN n % 1000 = 1 THEN 'dead' ELSE 'pending' END,
                    '{{}}', 0, 5, {at}, {at}, CASE WHEN {leased} THEN 'ann' END, CASE WHEN {leased} THEN
                    {"CAST(" + at + " AS timestamptz)" if shop.database.dialect == "postgresql" else at} END
                FROM {series}""",
        ):
            await connection.execute(text(sql))
    async with shop.database.read() as connection:
        await analyze(connection)


QUESTIONS = {
    "the query of the handbook": (
        "SELECT id, status, locked_by, heartbeat_at, created_at, completed_at, error_message FROM recent_jobs "
        "ORDER BY created_at DESC LIMIT 20"
    ),
    "all its columns": "SELECT * FROM recent_jobs ORDER BY created_at DESC LIMIT 20",
    "a page of the API": "SELECT * FROM recent_jobs ORDER BY created_at DESC, id DESC LIMIT 20",
    "the page after": (
        "SELECT * FROM recent_jobs WHERE (created_at, id) < ('2026-02-01 00:00:00.000000', 1000) "
        "ORDER BY created_at DESC, id DESC LIMIT 20"
    ),
    "stuck jobs": "SELECT * FROM stuck_jobs ORDER BY heartbeat_at",
    "stuck jobs, longest first": "SELECT * FROM stuck_jobs ORDER BY lease_until LIMIT 100",
    "failures": ("SELECT id FROM jobs WHERE state IN ('failed', 'dead') ORDER BY (id + 0) DESC LIMIT 10"),
}


async def test_no_view_reads_a_whole_table(url: str) -> None:
    async with open_shop(url) as shop:
        await fill(shop)
        explain = "EXPLAIN " if shop.database.dialect == "postgresql" else "EXPLAIN QUERY PLAN "
        async with shop.database.read() as connection:
            for name, question in QUESTIONS.items():
                rows = await connection.execute(text(explain + question.replace(":", "\\:")))
                plan = "\n".join(str(row[-1]) for row in rows)
                whole = re.findall(
                    r"Seq Scan on (?:jobs|job_history)|SCAN [jh]\b(?!.*USING).*|SCAN jobs\b(?!.*USING).*", plan
                )
                assert not whole, f"{name}\n{plan}"
                if "recent_jobs" in question:
                    assert "jobs_created" in plan, plan
                    assert "job_history_created" in plan, plan
                    assert "Merge Append" in plan or "MERGE (UNION ALL)" in plan, f"{name}\n{plan}"
                    assert "USE TEMP B-TREE" not in plan, f"{name}\n{plan}"
        assert len((await Monitor(shop.database).recent_jobs()).items) == 20
        assert len(await Monitor(shop.database).stuck_jobs()) == MANY // 1_000
