"""Whether a post costs the same however many are stored, and how much memory a worker takes on the way."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sqlalchemy import func, select

from bench.collect.common import MEGABYTES, SECONDS, TIMES, Figure, Options, Run
from bench.collect.side import Side, collected, database_url, kind_of, stored
from bench.collect.source import holding, running
from mistnet.app import App
from mistnet.kit.database import Database
from mistnet.settings import load_settings
from mistnet.social.accounts import AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import Detail
from mistnet.social.store.accounts import write_tracked
from mistnet.social.store.posts import write_users
from mistnet.social.tables import posts
from mistnet.sources.x.decode import read_user

PARTS = 10
PER = 10_000
POSTS_PER_ACCOUNT = 5_000
FEWEST_ACCOUNTS = 40
REST = 1.5
"""What would come after the last mark: the ends of all sweeps, the second pass, and most thread walks."""

LONGEST_S = 50 * 60.0
"""A slow machine is not waited for: the marks are then tenths of what it stored until now."""


def growth(side: Side, options: Options) -> list[Figure]:
    """Equally busy accounts, and more than is measured, so that the work is of the same kind at all marks.

    The worker is stopped at the last mark.
    """
    accounts = max(options.jobs // POSTS_PER_ACCOUNT, FEWEST_ACCOUNTS)
    with running(holding(round(options.jobs * REST), stars=accounts, even=True)) as source:
        abreast = replace(side, prepare=lambda options, handles: _track(options, list(map(source.profile, handles))))
        ends_at = time.monotonic() + LONGEST_S
        done = collected(
            abreast,
            options,
            source,
            source.accounts(),
            enough=lambda: time.monotonic() > ends_at or asyncio.run(_count(options)) >= options.jobs,
        )
    times = sorted(asyncio.run(stored(options)).values())
    most = min(options.jobs, len(times))
    marks = [most // 100, *(most * part // PARTS for part in range(1, PARTS + 1))]
    cpu = [_cpu_at(done, times[mark - 1]) for mark in marks]
    wall = [times[mark - 1] for mark in marks]
    return list(_figures(side, options, marks, _rates(wall, marks), _rates(cpu, marks), done.peak_mb))


async def _count(options: Options) -> int:
    database = Database(database_url(options))
    try:
        return int(await database.fetch_value(select(func.count()).select_from(posts)))
    finally:
        await database.close()


async def _track(options: Options, profiles: list[bytes]) -> None:
    """Accounts whose profiles are known, so that all are swept abreast from the first page on."""
    found = [read_user(profile, Detail.PROFILE) for profile in profiles]
    app = App(load_settings(database_url=database_url(options)))
    now = app.database.clock.now()
    try:
        async with app.database.transaction() as connection:
            await write_users(connection, found, now)
            await write_tracked(
                connection, [AccountTracked(platform=user.platform, user_id=user.id) for user in found], now
            )
        await app.enqueue([args.backfill(user.id) for user in found])
    finally:
        await app.database.close()


def _rates(reached: Sequence[float], marks: Sequence[int]) -> list[float]:
    """Seconds per 10,000 posts in each part."""
    spent = [after - before for before, after in pairwise(reached)]
    gained = [after - before for before, after in pairwise(marks)]
    return [seconds / count * PER for seconds, count in zip(spent, gained, strict=True)]


def _cpu_at(done: Run, at: float) -> float:
    later = bisect_left([sample.at for sample in done.samples], at)
    return done.samples[min(later, len(done.samples) - 1)].cpu_seconds


def _figures(
    side: Side, options: Options, marks: list[int], wall: list[float], cpu: list[float], peak_mb: float
) -> list[Figure]:
    kind, total = kind_of(options), marks[-1]

    def figure(name: str, setting: str, value: float, unit: str, **detail: float) -> Figure:
        return Figure(
            name=name,
            side=side.name,
            setting=setting,
            figure=value,
            unit=unit,
            expected=total,
            got=total,
            detail=detail,
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
