"""What is asked of the book of ingests again and again goes through indexes, with 50,000 events of the past."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.queue.model import JobId
from mistnet.social.ingests import IngestBegun, IngestEnded, IngestKind, IngestStatus
from mistnet.social.model import X
from tests.contract.test_outbox_plans import explained, overheard
from tests.databases import analyze
from tests.harvests import open_harvest, tell

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

ROWS = 50_000


async def fill(app: App) -> None:
    series = (
        f"generate_series(1, {ROWS}) AS n"
        if app.database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) SELECT n FROM s)"
    )
    at = "'2026-02-20 00:00:00.000000'"
    async with app.database.transaction() as connection:
        await connection.execute(
            text(
                "INSERT INTO ingest_events (platform, kind, status, subject_id, asked_by, job_id, started_at, "
                f"finished_at) SELECT 'x', 'followers_sync', 'success', n % 1000, 'job', n, {at}, {at} FROM {series}"
            )
        )
    async with app.database.read() as connection:
        await analyze(connection)


async def test_no_question_reads_the_whole_book(url: str) -> None:
    async with open_harvest(url) as app:
        await fill(app)
        now = app.database.clock.now()
        begun = IngestBegun(platform=X, kind=IngestKind.FOLLOWERS_SYNC, job_id=JobId(7), asked_by="job", subject_id=7)
        with overheard(app) as heard:
            assert len((await app.ingests.list(limit=20, before=ROWS)).items) == 20
            assert (await app.ingests.list(limit=1, kind=IngestKind.FOLLOWERS_SYNC, platform=X, subject_id=7)).items
            await tell(app, begun, IngestEnded(job_id=JobId(7), status=IngestStatus.SUCCESS))
            await app.ingests.settle(now, lost_before=now)
            await app.ingests.prune(now - timedelta(days=30))
        asked = [each for each in heard if "ingest_events" in each[0]]
        assert len(asked) >= 5
        whole = re.compile(r"Seq Scan on ingest_events|SCAN ingest_events(?!.*USING)")
        for statement, values in asked:
            plan = await explained(app, statement, values)
            assert not whole.search(plan), f"{statement}\n{plan}"
