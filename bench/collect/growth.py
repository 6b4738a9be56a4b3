"""Whether a post costs the same however many are stored, and how much memory a worker takes on the way."""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from sqlalchemy import select

from bench.collect.common import MEGABYTES, SECONDS, TIMES, Figure, Options, Run
from bench.collect.side import Side, collected, database_url, kind_of
from bench.collect.source import holding, running
from mistnet.store.database import Database
from mistnet.store.tables import posts

PARTS = 10
PER = 10_000
POSTS_PER_ACCOUNT = 5_000
FEWEST_ACCOUNTS = 40


def growth(side: Side, options: Options) -> list[Figure]:
    """Equally busy accounts, so that the end is worked at in the same way as the beginning."""
    accounts = max(options.jobs // POSTS_PER_ACCOUNT, FEWEST_ACCOUNTS)
    with running(holding(options.jobs, stars=accounts, even=True)) as source:
        done = collected(side, options, source, source.accounts())
    times = asyncio.run(stored_at(options))
    marks = [len(times) // 100, *(len(times) * part // PARTS for part in range(1, PARTS + 1))]
    cpu = [_cpu_at(done, times[mark - 1]) for mark in marks]
    wall = [times[mark - 1] for mark in marks]
    return list(_figures(side, options, marks, _rates(wall, marks), _rates(cpu, marks), done.peak_mb))


def _rates(reached: Sequence[float], marks: Sequence[int]) -> list[float]:
    """Seconds per 10,000 posts in each part."""
    spent = [after - before for before, after in pairwise(reached)]
    gained = [after - before for before, after in pairwise(marks)]
    return [seconds / count * PER for seconds, count in zip(spent, gained, strict=True)]


def _cpu_at(done: Run, at: float) -> float:
    later = bisect_left([sample.at for sample in done.samples], at)
    return done.samples[min(later, len(done.samples) - 1)].cpu_seconds


async def stored_at(options: Options) -> list[float]:
    database = Database(database_url(options))
    try:
        async with database.read() as connection:
            found = (await connection.execute(select(posts.c.first_seen_at))).scalars()
            return sorted(at.timestamp() for at in found)
    finally:
        await database.close()


def _figures(
    side: Side, options: Options, marks: list[int], wall: list[float], cpu: list[float], peak_mb: float
) -> list[Figure]:
    kind, total = kind_of(options), marks[-1]

    def figure(name: str, setting: str, value: float, unit: str, **detail: float) -> Figure:
        return Figure(
            name=name, side=side.name, setting=setting, figure=value, unit=unit, expected=total, got=total, detail=detail
        )

    tenths = [
        figure(f"time per {PER:,} posts, {kind}", f"from {before:,} to {after:,}", seconds, SECONDS, cpu_seconds=used)
        for (before, after), seconds, used in zip(pairwise(marks), wall, cpu, strict=True)
    ]
    return [
        *tenths,
        figure("last tenth / first tenth", f"{kind}, time", wall[-1] / wall[0], TIMES),
        figure("last tenth / first tenth", f"{kind}, processor time", cpu[-1] / cpu[0], TIMES),
        figure("peak memory of a worker", kind, peak_mb, MEGABYTES),
    ]
