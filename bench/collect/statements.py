"""The statements that PostgreSQL runs for each page of a collection: how often, and how long each takes.

    python -m bench.collect.statements [--jobs 10000] [--form sweeps] [--processes 1]

Each call of a statement is a round trip, BEGIN and COMMIT too. Needs pg_stat_statements, which comes with PostgreSQL.
"""

import argparse
import asyncio
import re

from rich.console import Console
from rich.table import Table

from bench.collect.common import SEARCH, Options
from bench.collect.mistnet_side import SIDE
from bench.collect.side import collected
from bench.collect.source import holding, running
from bench.queue.common import connected, create_database
from tests.services.postgres import PostgresCluster

SETTINGS = ("shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track_planning=on")
_SHOWN = 30
_WORDS = 90
_FOUND = """
SELECT query, calls, total_plan_time AS planned, total_exec_time AS ms, rows
FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = current_database() AND toplevel
ORDER BY calls DESC
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.collect.statements", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="posts to collect")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="sweeps")
    given = parser.parse_args()
    with PostgresCluster(settings=SETTINGS) as cluster:
        asyncio.run(create_database(cluster.dsn("postgres"), "counted"))
        options = Options(command="speed", dsn=cluster.dsn("counted"), batch=1, **vars(given))
        asyncio.run(_ask(options.dsn, "CREATE EXTENSION pg_stat_statements"))
        with running(holding(options.jobs)) as source:
            collected(SIDE, options, source, source.accounts(), before=lambda: _forget(options.dsn))
            pages = source.stats()["calls"][SEARCH]
        _show(asyncio.run(_ask(options.dsn, _FOUND)), pages)


async def _ask(dsn: str, question: str) -> list[tuple[str, int, float, float, int]]:
    async with connected(dsn) as connection:
        return [tuple(row) for row in await connection.fetch(question)]


def _forget(dsn: str) -> None:
    """What migrating and preparing took does not count."""
    asyncio.run(_ask(dsn, "SELECT pg_stat_statements_reset()"))


def _show(found: list[tuple[str, int, float, float, int]], pages: int) -> None:
    table = Table(title=f"{pages:,} pages")
    for heading in ("a page", "ms to plan", "ms to run", "rows", "ms a page"):
        table.add_column(heading, justify="right")
    table.add_column("statement")
    for query, calls, planned, ms, rows in found[:_SHOWN]:
        words = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", query)).strip()[:_WORDS]
        each = (planned / calls, ms / calls, rows / calls, (planned + ms) / pages)
        table.add_row(*(f"{figure:.2f}" for figure in (calls / pages, *each)), words)
    calls, taken = sum(each[1] for each in found), sum(each[2] + each[3] for each in found)
    table.add_row(f"{calls / pages:.2f}", "", "", "", f"{taken / pages:.2f}", "all")
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
