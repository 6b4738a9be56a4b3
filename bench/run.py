"""Run the benchmarks: a private server, a fresh database and a fresh process per measurement."""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from rich.console import Console

from bench import goals, report
from bench.plan import SQLITE, TOPICS, Measurement, plan
from bench.queue.common import Figure, connected, create_database, drop_database
from tests.services.postgres import PostgresCluster

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "queue.json"


def main() -> None:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    topics = frozenset(arguments.only.split(",")) if arguments.only else frozenset(TOPICS)
    if unknown := topics - set(TOPICS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(TOPICS)}")
    with PostgresCluster() as cluster:
        figures, failed = measure(cluster, plan(topics, quick=arguments.quick, rounds=arguments.repeat), console)
        machine = asyncio.run(describe(cluster.dsn("postgres")))
    measured = report.rows(figures)
    console.print(*report.tables(measured), goals.table(measured), sep="\n")
    report.write(measured, machine, RESULTS)
    if failed or not all(row.complete for row in measured):
        sys.exit(1)


def measure(cluster: PostgresCluster, measurements: list[Measurement], console: Console) -> tuple[list[Figure], int]:
    figures: list[Figure] = []
    failed = 0
    numbers = count(1)
    for measurement in measurements:
        if measurement.lacks:
            console.print(
                f"[yellow]left out: {measurement.module} needs {measurement.lacks}, which is not installed[/]"
            )
            continue
        started = monotonic()
        try:
            found = in_fresh_database(cluster, measurement, f"bench_{next(numbers)}")
        except (subprocess.SubprocessError, json.JSONDecodeError, TypeError) as error:
            console.print(f"[red]{measurement.module} {measurement.command} failed:[/] {error}")
            failed += 1
            continue
        figures += found
        for figure in found:
            console.print(
                f"[dim]{monotonic() - started:5.1f} s[/]  {figure.name}: {figure.side}, {figure.setting}: "
                f"{figure.figure:,.2f} {figure.unit}",
                highlight=False,
            )
    return figures, failed


def in_fresh_database(cluster: PostgresCluster, measurement: Measurement, name: str) -> list[Figure]:
    if measurement.database == SQLITE:
        with TemporaryDirectory() as folder:
            return figures_of(measurement, str(Path(folder) / f"{name}.db"))
    asyncio.run(create_database(cluster.dsn("postgres"), name))
    try:
        return figures_of(measurement, cluster.dsn(name))
    finally:
        asyncio.run(drop_database(cluster.dsn("postgres"), name))


def figures_of(measurement: Measurement, dsn: str) -> list[Figure]:
    done = subprocess.run(
        [sys.executable, "-m", measurement.module, *measurement.arguments(dsn)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=measurement.patience_s,
        check=True,
    )
    return [Figure(**json.loads(line)) for line in done.stdout.splitlines()]


async def describe(dsn: str) -> dict[str, str | int | None]:
    async with connected(dsn) as connection:
        return {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "postgresql": await connection.fetchval("SHOW server_version"),
            "fsync": await connection.fetchval("SHOW fsync"),
            "synchronous_commit": await connection.fetchval("SHOW synchronous_commit"),
        }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs and posts: a trial of the benchmark")
    parser.add_argument("--only", default="", help=f"some of {','.join(TOPICS)}")
    parser.add_argument("--repeat", type=int, default=2, help="rounds; the table shows the median")
    return parser.parse_args()


if __name__ == "__main__":
    main()
