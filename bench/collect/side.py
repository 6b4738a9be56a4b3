"""The shape of a side of the collecting benchmark, and how its speed is measured."""

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import select

from bench.collect.common import POSTS_PER_CPU_SECOND, POSTS_PER_SECOND, SHARE, Figure, Options, Run, emit, now_ns, run
from bench.collect.locks import watching_locks
from bench.collect.source import Source, holding, running
from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate
from mistnet.social.tables import posts

PATIENCE_S = 4 * 3600.0


async def _nothing(_options: Options, _handles: list[str]) -> None:
    """Most sides need no preparation but the tables."""


def _no_variables(_options: Options, _source: Source) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How a side is told to collect some accounts from a source into a database, as a process of its own."""

    name: str
    setting: Callable[[Options], str]
    command: Callable[[Options, Source, list[str]], list[str]]
    environment: Callable[[Options, Source], Mapping[str, str]] = _no_variables
    prepare: Callable[[Options, list[str]], Coroutine[Any, Any, None]] = _nothing
    codes: frozenset[int] = frozenset({0})
    more: Mapping[str, Callable[["Side", Options], list[Figure]]] = field(default_factory=dict)


def database_url(options: Options) -> str:
    return options.dsn if "://" in options.dsn else f"sqlite:///{options.dsn}"


def kind_of(options: Options) -> str:
    return "PostgreSQL" if "://" in options.dsn else "SQLite"


async def install(options: Options) -> None:
    database = Database(database_url(options))
    try:
        await migrate(database)
    finally:
        await database.close()


async def stored(options: Options) -> dict[int, float]:
    """All posts, and when each was first written."""
    database = Database(database_url(options))
    try:
        async with database.read() as connection:
            found = await connection.execute(select(posts.c.id, posts.c.first_seen_at))
            return {post_id: at.timestamp() for post_id, at in found}
    finally:
        await database.close()


def wanted(source: Source, handles: list[str]) -> set[int]:
    return set[int]().union(*map(source.post_ids, handles))


def collected(
    side: Side,
    options: Options,
    source: Source,
    handles: list[str],
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    enough: Callable[[], bool] = lambda: False,
    before: Callable[[], None] = lambda: None,
) -> Run:
    """The side's process on fresh tables; the source counts from zero. `before` is called when all is prepared."""
    asyncio.run(install(options))
    asyncio.run(side.prepare(options, handles))
    source.reset()
    before()
    environment = {**side.environment(options, source), **variables}
    command = side.command(options, source, handles)
    return run(command, environment, fine=side.codes, patience_s=PATIENCE_S, enough=enough)


def speed(side: Side, options: Options) -> list[Figure]:
    """From the first question until the last post is there, until the process ends, and in time of its processor."""
    with running(holding(options.jobs)) as source:
        handles = source.accounts()
        expected = wanted(source, handles)
        served = source.cpu_seconds()
        with watching_locks(options.dsn) as waits:
            done = collected(side, options, source, handles)
        served = source.cpu_seconds() - served
        seconds = (done.ended_ns - source.first_call_ns()) / 1e9
        calls = source.stats()["calls"]
    found = asyncio.run(stored(options))
    got = expected & found.keys()
    after_ended = time.time() - now_ns() / 1e9 + done.ended_ns / 1e9 - max(found[each] for each in got)
    detail = {
        "seconds": seconds,
        "cpu_seconds": done.cpu_seconds,
        "source_cpu_seconds": served,
        "peak_mb": done.peak_mb,
        "stored": len(found),
    }

    def figure(name: str, taken: float, unit: str) -> Figure:
        return Figure(
            name=f"{name}, {kind_of(options)}",
            side=side.name,
            setting=side.setting(options),
            figure=len(got) / taken,
            unit=unit,
            expected=len(expected),
            got=len(got),
            detail={**detail, **calls},
        )

    def share(name: str, taken: float) -> Figure:
        return replace(figure(name, 1, SHARE), figure=taken)

    figures = [
        figure("collecting", seconds, POSTS_PER_SECOND),
        figure("collecting until the last post is stored", seconds - after_ended, POSTS_PER_SECOND),
        figure("collecting, processor time", done.cpu_seconds, POSTS_PER_CPU_SECOND),
        share("the source's processor time / the run's time", served / seconds),
    ]
    if "://" in options.dsn:
        figures.append(
            share("time waited for locks / the processes' time", waits.seconds / seconds / options.processes)
        )
    return figures


def main(side: Side) -> None:
    measures = {"speed": speed, **side.more}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=measures)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, required=True, help="posts to collect")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--form", default="single")
    options = Options(**vars(parser.parse_args()))
    for figure in measures[options.command](side, options):
        emit(figure)
