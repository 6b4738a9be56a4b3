"""What both sides of a sync share: a source of many followers, a fresh database, a process, and what came of it."""

import argparse
import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from sqlalchemy import func, select

from bench.collect.common import MEGABYTES, TIMES, Figure, Options, Run, emit, run
from bench.collect.side import database_url, install, kind_of
from bench.graph.source import SUBJECT, Source, least_credits, running
from mistnet.graph.tables import follows
from mistnet.kit.database import Database

FOLLOWERS_PER_SECOND = "followers/s"
PATIENCE_S = 3600.0
Command = Callable[[str, str], list[str]]


def main(
    name: str,
    setting: str,
    command: Command,
    *,
    environment: Callable[[Options, Source], Mapping[str, str]] = lambda _options, _source: {},
    prepare: Callable[[Options], None] = lambda _options: None,
    fine: Collection[int] = (0,),
    more: Mapping[str, Callable[[Options], list[Figure]]] | None = None,
) -> None:
    def synced(options: Options) -> tuple[Run, float, dict[str, float]]:
        with running(options.jobs) as source:
            asyncio.run(install(options))
            prepare(options)
            done = run(command(options.dsn, source.url), environment(options, source), fine=fine, patience_s=PATIENCE_S)
            stats = source.stats()
        return done, (done.ended_ns - int(stats.pop("first_ns"))) / 1e9, stats

    def sync(options: Options) -> list[Figure]:
        few = replace(options, jobs=max(options.jobs // 10, 1_000), dsn=options.dsn)
        small = synced(replace(few, dsn=_beside(few))) if kind_of(options) == "SQLite" else None
        done, seconds, stats = synced(options)
        return list(_figures(name, setting, options, done, seconds, stats, small[0] if small else None))

    measures = {"sync": sync, **(more or {})}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=measures)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, required=True, help="followers, or edges of each subject")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="single")
    options = Options(**vars(parser.parse_args()))
    for figure in measures[options.command](options):
        emit(figure)


def _beside(options: Options) -> str:
    """A file of its own for the smaller sync."""
    return f"{options.dsn}.small"


def _figures(
    name: str,
    setting: str,
    options: Options,
    done: Run,
    seconds: float,
    stats: dict[str, float],
    small: Run | None,
) -> list[Figure]:
    kind = kind_of(options)
    got = asyncio.run(_stored(options))
    detail = {"seconds": seconds, "cpu_seconds": done.cpu_seconds, "peak_mb": done.peak_mb, **stats}

    def figure(what: str, about: str, value: float, unit: str) -> Figure:
        return Figure(
            name=what,
            side=name,
            setting=about,
            figure=value,
            unit=unit,
            expected=options.jobs,
            got=got,
            detail=detail,
        )

    found = [
        figure(f"follow sync, {kind}", setting, got / seconds, FOLLOWERS_PER_SECOND),
        figure("peak memory of a sync", f"{kind}, {setting}", done.peak_mb, MEGABYTES),
        figure("credits of a sync / least possible", kind, stats["credits"] / least_credits(options.jobs), TIMES),
    ]
    if small:
        found.append(
            figure("peak memory of a sync / of one a tenth as long", kind, done.peak_mb / small.peak_mb, TIMES)
        )
    return found


async def _stored(options: Options) -> int:
    database = Database(database_url(options))
    try:
        async with database.read() as connection:
            counted = select(func.count()).select_from(follows).where(follows.c.followed_id == SUBJECT)
            return int((await connection.execute(counted)).scalar_one())
    finally:
        await database.close()
