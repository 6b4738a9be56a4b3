"""Mutuals of two subjects, materialized by the job beside the plain join: in one database, one after the other."""

import asyncio
import time
from collections.abc import Iterator

from loguru import logger
from sqlalchemy import text

from bench.collect.common import SECONDS, TIMES, Figure, Options
from bench.collect.side import database_url, install, kind_of
from mistnet.app import App
from mistnet.graph.segments.rules import read_rule
from mistnet.kit.database import Database
from mistnet.kit.migrate import ready
from mistnet.settings import load_settings

SUBJECTS = (9_000_000_001, 9_000_000_002)
AT = "'2026-03-01 12:00:00.000000'"
_JOIN = """
    SELECT {subject}, 'x', one.follower_id, {at} FROM follows AS one
    JOIN follows AS other ON other.platform = 'x' AND other.follower_id = {subject}
        AND other.followed_id = one.follower_id AND other.ended_at IS NULL
    WHERE one.platform = 'x' AND one.followed_id = {subject} AND one.ended_at IS NULL"""

_PLAIN_TABLE = """CREATE TABLE plain_members (
    segment_id BIGINT NOT NULL, platform TEXT NOT NULL, user_id BIGINT NOT NULL, since {time} NOT NULL,
    PRIMARY KEY (segment_id, platform, user_id), FOREIGN KEY (platform, user_id) REFERENCES users (platform, id))"""
"""What one would write by hand: members with their key, since when, and no user that is not there."""


def mutuals(options: Options) -> list[Figure]:
    """`jobs` is how many edges each subject has: half of them followers, half followings, half of those both."""
    logger.disable("mistnet")
    asyncio.run(install(options))
    return asyncio.run(_measured(options))


async def _measured(options: Options) -> list[Figure]:
    app = App(load_settings(database_url=database_url(options)))
    try:
        await ready(app.database, create=True)
        await _fill(app.database, options.jobs)
        selected = await _plain(app.database, "SELECT count(*) FROM ({join}) AS found")
        written = await _plain(app.database, "INSERT INTO plain_members {join}")
        first = await _materialized(app)
        again = await _materialized(app)
        got = await _members(app.database)
    finally:
        await app.database.close()
    return list(_figures(options, got, selected, written, first, again))


def _figures(
    options: Options, got: int, selected: float, written: float, first: float, again: float
) -> Iterator[Figure]:
    kind, expected = kind_of(options), len(SUBJECTS) * (options.jobs // 4)

    def figure(name: str, side: str, setting: str, value: float, unit: str) -> Figure:
        return Figure(name=name, side=side, setting=setting, figure=value, unit=unit, expected=expected, got=got)

    took = f"mutuals of two with {options.jobs:,} edges each, {kind}"
    yield figure(took, "bare loop", "the plain join, counted", selected, SECONDS)
    yield figure(took, "bare loop", "the plain join, written into a table", written, SECONDS)
    yield figure(took, "mistnet", "the first time", first, SECONDS)
    yield figure(took, "mistnet", "again, nothing changed", again, SECONDS)
    yield figure("materializing / the plain join", "mistnet", f"{kind}, the first time", first / written, TIMES)
    yield figure("materializing / the plain join", "mistnet", f"{kind}, again", again / written, TIMES)


async def _fill(database: Database, edges: int) -> None:
    """Past all handlers. Ids that follow and ids that are followed overlap by half."""
    side, offset = edges // 2, edges // 4
    most = side + offset
    columns = "platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in"
    statements = [
        (
            f"INSERT INTO users (platform, id, handle, detail, raw, first_seen_at, last_updated_at) "
            f"SELECT 'x', n, 'u' || n, 'listed', '{{}}', {AT}, {AT} FROM {_series(database, 1, most)}"
        )
    ]
    statements.append(_PLAIN_TABLE.format(time="TIMESTAMPTZ" if database.dialect == "postgresql" else "TEXT"))
    for subject in SUBJECTS:
        statements += [
            (
                f"INSERT INTO users (platform, id, handle, detail, raw, first_seen_at, last_updated_at) "
                f"VALUES ('x', {subject}, 's{subject}', 'profile', '{{}}', {AT}, {AT})"
            ),
            (
                f"INSERT INTO follows ({columns}) SELECT 'x', n, {subject}, {AT}, {AT}, 1 "
                f"FROM {_series(database, 1, side)}"
            ),
            (
                f"INSERT INTO follows ({columns}) SELECT 'x', {subject}, n, {AT}, {AT}, 1 "
                f"FROM {_series(database, offset + 1, most)}"
            ),
        ]
        statements += [
            f"INSERT INTO ingest_events (platform, kind, status, subject_id, mode, asked_by, started_at, finished_at, "
            f"plausible) VALUES ('x', '{kind}', 'success', {subject}, 'full', 'bench', {AT}, {AT}, true)"
            for kind in ("followers_sync", "followings_sync")
        ]
    for statement in statements:  # each with figures of the one before: foreign keys go by the planner's choice
        async with database.transaction() as connection:
            await connection.execute(text(statement))
        async with database.read() as connection:
            await connection.execute(text("ANALYZE"))


def _series(database: Database, first: int, last: int) -> str:
    if database.dialect == "postgresql":
        return f"generate_series({first}::bigint, {last}) AS s(n)"
    return (
        f"(WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s) AS s"
    )


def _now(database: Database) -> str:
    return f"{AT}::timestamptz" if database.dialect == "postgresql" else AT


async def _plain(database: Database, statement: str) -> float:
    """With the planner free to do as it likes, as in a script."""
    begun = time.perf_counter()
    async with database.read() as connection:
        for subject in SUBJECTS:
            await connection.execute(text(statement.format(join=_JOIN.format(subject=subject, at=_now(database)))))
    return time.perf_counter() - begun


async def _materialized(app: App) -> float:
    """By a worker, from the moment it starts until nothing is left to do."""
    for subject in SUBJECTS:
        name = f"mutuals-{subject}"
        await app.segments.define(name, read_rule(name, {"kind": "mutuals", "subject": str(subject)}))
        await app.segments.materialize(name, asked_by="bench", job_writer=app.job_writer)
    begun = time.perf_counter()
    async with app.worker(until_idle=True) as worker:
        await worker.run()
    return time.perf_counter() - begun


async def _members(database: Database) -> int:
    async with database.read() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM segment_members"))).scalar_one())
