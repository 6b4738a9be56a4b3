"""What is pruned is found by indexes, however much of it is kept."""

import re

import pytest
from sqlalchemy import text

from mistnet.app import App
from tests.contract.test_outbox_plans import explained, overheard
from tests.contract.test_shop_plans import series
from tests.databases import analyze
from tests.harvests import open_harvest, rows

pytestmark = [pytest.mark.fresh_database, pytest.mark.common_sql]

ROWS = 20_000
OLD, KEPT = "'2025-01-01 00:00:00.000000'", "'2026-02-28 00:00:00.000000'"
AT = f"CASE WHEN n <= 100 THEN {OLD} ELSE {KEPT} END"


async def fill(app: App) -> None:
    """A hundred old rows of each table, and many that are kept."""
    at = f"CAST({AT} AS timestamptz)" if app.database.dialect == "postgresql" else AT
    page = "'k', 'k', 'web', 'web', 'page', 'crawled'"
    numbers = series(app, ROWS)
    statements = (
        f"""INSERT INTO calls (source, key_label, endpoint, at, seconds, items, credits)
            SELECT 'x', 'key-1', 'tweets', {at}, 0.1, 1, 15 FROM {numbers}""",
        f"""INSERT INTO links (id, url_norm, url, host, lane, platform, kind, state, first_seen_at)
            SELECT n, CAST(n AS text), {page}, {at} FROM {numbers}""",
        f"INSERT INTO crawls (link_id, at, outcome) SELECT n, {at}, 'no_price' FROM {numbers}",
        f"INSERT INTO crawls (link_id, at, outcome) SELECT n, {at}, 'no_price' FROM {numbers}",
        f"""INSERT INTO quarantine
            (platform, endpoint, digest, problem, payload, first_seen_at, last_seen_at, resolved_at)
            SELECT 'x', 'tweets', CAST(n AS text), 'bad', {_bytes(app)}, {at}, {at}, {at} FROM {numbers}""",
    )
    async with app.database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    async with app.database.read() as connection:
        await analyze(connection)


def _bytes(app: App) -> str:
    return r"CAST('x' AS bytea)" if app.database.dialect == "postgresql" else "x'00'"


async def test_old_rows_are_found_by_their_time(url: str) -> None:
    async with open_harvest(url) as app:
        await fill(app)
        now = app.database.clock.now()
        with overheard(app) as heard:
            await app.pruning.prune(now)
        counts = [(await rows(app, f"SELECT count(*) FROM {name}"))[0][0] for name in ("calls", "crawls", "quarantine")]
        assert counts == [ROWS - 100, 2 * ROWS - 100, ROWS - 100]
        asked = [each for each in heard if re.search(r"\b(calls|crawls|quarantine|segment_snapshots)\b", each[0])]
        assert len(asked) >= 6
        whole = re.compile(r"Seq Scan on (calls|crawls|quarantine)\b|SCAN (calls|crawls|quarantine)\b(?!.*USING)")
        for statement, values in asked:
            plan = await explained(app, statement, values)
            assert not whole.search(plan), f"{statement}\n{plan}"
