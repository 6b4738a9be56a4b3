"""The whole app on a test's database with a clock to turn, and short ways to put things into it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import typer
from pydantic import SecretStr
from sqlalchemy import text
from typer.testing import CliRunner, Result

from mistnet.app import App
from mistnet.governor.model import KeyLabel
from mistnet.governor.source import Source, SourceContext
from mistnet.kit.transport import Transport
from mistnet.queue.model import NewJob, Write
from mistnet.queue.store.writes import PreparedWrites, Writers
from mistnet.settings import Settings
from mistnet.social.coverage import moment_of
from mistnet.social.model import Detail, Post, PostId, Reference, User, UserId, X
from mistnet.sources.collecting import WRITERS
from mistnet.sources.x.source import x_source
from tests.databases import make_app
from tests.support import START, TurnedClock


@asynccontextmanager
async def open_harvest(url: str, *, clock: TurnedClock | None = None, **settings: Any) -> AsyncIterator[App]:
    app = make_app(Settings(database_url=SecretStr(url), **settings), clock=clock or TurnedClock())
    try:
        yield app
    finally:
        await app.database.close()


def x_beside(app: App, transport: Transport | None = None) -> Source:
    """X as another process with the same settings has it."""
    context = SourceContext(
        settings=app.settings,
        database=app.database,
        store=app.sources.store,
        transports={"x": transport} if transport else {},
    )
    return x_source(context)


async def balances(app: App, transport: Transport) -> Mapping[KeyLabel, str]:
    """Asks for the balance of each key; tells what went wrong, by key."""
    check = x_beside(app, transport).check_balances
    assert check is not None
    return await check()


async def tell(app: App, *writes: Write) -> None:
    """Writes values as a settled job would."""
    async with app.database.transaction() as connection:
        await Writers(WRITERS).write(connection, PreparedWrites(writes), app.database.clock.now())


async def change(app: App, sql: str, **values: object) -> None:
    """Puts the database into a state that takes long to reach otherwise."""
    async with app.database.transaction() as connection:
        await connection.execute(text(sql), values)


async def rows(app: App, sql: str, **values: object) -> list[tuple[Any, ...]]:
    async with app.database.read() as connection:
        return [tuple(row) for row in await connection.execute(text(sql), values)]


async def end_badly(app: App, *jobs: NewJob, state: str = "dead") -> None:
    """These jobs as gaps: all their attempts used up."""
    await app.enqueue(jobs)
    for job in jobs:
        await change(
            app,
            "UPDATE jobs SET state = :state, attempts = max_attempts, last_error = 'it broke' "
            "WHERE kind = :kind AND key = :key",
            state=state,
            kind=job.kind,
            key=job.key,
        )


def user(user_id: int, handle: str = "ann", **about: Any) -> User:
    raw = json.dumps({"id": str(user_id), "userName": handle}).encode()
    return User(platform=X, id=UserId(user_id), detail=Detail.PROFILE, handle=handle, raw=raw, **about)


def post(
    post_id: int,
    author_id: int = 11,
    *,
    answers: int | None = None,
    conversation: int | None = None,
    reposts: int | None = None,
) -> Post:
    return Post(
        platform=X,
        id=PostId(post_id),
        author_id=UserId(author_id),
        text=f"post {post_id}",
        created_at=moment_of(PostId(post_id)),
        conversation_id=PostId(conversation or post_id),
        in_reply_to_id=PostId(answers) if answers else None,
        reposted=Reference(id=PostId(reposts)) if reposts else None,
        raw=b"{}",
    )


def id_at(moment: datetime, place: int = 0) -> PostId:
    """The id of a post written then."""
    first = moment_of(PostId(0))
    return PostId(((moment - first) // timedelta(milliseconds=1) << 22) + place)


def days_ago(days: float) -> datetime:
    return START - timedelta(days=days)


def run(command: Any, url: str, *arguments: str, **settings: str) -> Result:
    """Runs one command in this process, as the shell would."""
    app = command if isinstance(command, typer.Typer) else typer.Typer(add_completion=False)
    if app is not command:
        app.command()(command)
    environment = {"MISTNET_DATABASE_URL": url, "MISTNET_LOG_LEVEL": "ERROR", **settings}
    return CliRunner().invoke(app, list(arguments), env=environment)


def told(result: Result) -> Any:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout)
