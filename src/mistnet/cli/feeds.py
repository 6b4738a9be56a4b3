"""The feeds commands: which accounts of Threads are polled, their state, and the token for Threads."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from msgspec.structs import asdict

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import FileOption, listed_values, seconds, unique
from mistnet.cli.output import Block, Grid, at, document, last_line, span, worker_hints
from mistnet.governor.model import THREADS_SOURCE
from mistnet.queue.errors import WorkError
from mistnet.social.errors import NoThreadsToken
from mistnet.social.feeds import LONGEST_SECONDS, SHORTEST_SECONDS, Feed, read_feed_handle
from mistnet.social.store.feeds import FeedJob
from mistnet.sources.threads.source import TokenStatus

_NO_FEEDS: Final = "no feeds yet: `mistnet feeds add HANDLE` adds one"
_RESULTS: Final = {
    "added": "will be polled",
    "again": "will be tried again",
    "known": "is a feed already",
}
Handles = Annotated[
    list[str] | None, typer.Argument(metavar="[HANDLE]...", help="@name, name or https://www.threads.com/@name.")
]
SomeHandles = Annotated[
    list[str] | None, typer.Argument(metavar="[HANDLE]...", help="Only these; without any, all of them.")
]


@shared_options
async def add(
    invocation: Invocation,
    handles: Handles = None,
    *,
    source: FileOption = None,
    every: Annotated[
        float | None,
        typer.Option("--every", parser=seconds, metavar="SPAN", help="The interval: 15m, 6h, 1d. Else the setting."),
    ] = None,
) -> None:
    """Poll accounts of Threads from now on: all their posts, what they quote, and their own replies below them."""
    if every is not None and not SHORTEST_SECONDS <= every <= LONGEST_SECONDS:
        raise typer.BadParameter("--every must be between 1 minute and 1 year")
    names = _read(handles, source)
    async with open_app(invocation.settings) as app:
        done = await app.feeds.add(names, every_seconds=every, job_writer=app.job_writer)
        hints = await _hints(app)
    lines = [f"@{each.feed.handle} {_RESULTS[each.result]}" for each in done]
    added = [{**fields(each.feed), "result": each.result} for each in done]
    invocation.out.show(document(feeds=added), *lines, *hints)


@shared_options
async def list_feeds(invocation: Invocation) -> None:
    """All feeds: their state, their last poll, and how many posts they brought."""
    async with open_app(invocation.settings) as app:
        feeds: list[Feed] = []
        while page := await app.feeds.store.list(after=feeds[-1].id if feeds else 0):
            feeds += page
        polls = await app.feeds.store.jobs([each.id for each in feeds])
        hints = await _hints(app) if feeds else []
    grid = Grid(
        columns=("feed", "state", "posts", "newest (UTC)", "polled (UTC)", "every", ""),
        rows=[_line(each, polls.get(each.id), invocation.settings.feed_every_seconds) for each in feeds],
        empty=_NO_FEEDS,
    )
    invocation.out.show(document(feeds=[fields(each, polls.get(each.id)) for each in feeds]), grid, *hints)


@shared_options
async def remove(invocation: Invocation, handles: Handles = None, *, source: FileOption = None) -> None:
    """Stop polling accounts. Collected posts stay."""
    names = _read(handles, source)
    async with open_app(invocation.settings) as app:
        for each in names:
            await app.feeds.store.get(each)  # an unknown one raises before any is removed
        gone = [await app.feeds.remove(each) for each in names]
    lines = [f"@{each.handle} is not polled any more; collected posts stay" for each in gone]
    invocation.out.show(document(feeds=[fields(each) for each in gone]), *lines)


@shared_options
async def poll(invocation: Invocation, handles: SomeHandles = None, *, source: FileOption = None) -> None:
    """Poll feeds now. If a poll is under way, it continues."""
    names = _read(handles, source) if handles or source else []
    async with open_app(invocation.settings) as app:
        polled = await app.feeds.poll(names, job_writer=app.job_writer)
        hints = await _hints(app)
    lines = [f"@{each.handle} will be polled" for each in polled] or [_NO_FEEDS]
    invocation.out.show(document(feeds=[fields(each) for each in polled]), *lines, *hints)


@shared_options
async def token(
    invocation: Invocation,
    *,
    check: Annotated[bool, typer.Option("--check", help="Check the token with Threads first.")] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Refresh the token now; it must be a day old.")] = False,
) -> int:
    """Show the state of the token for Threads: until when it is valid, when it is refreshed. Never the token."""
    async with open_app(invocation.settings, checked=check or refresh) as app:
        status = app.feeds.token
        if not status.state.configured:
            raise NoThreadsToken
        try:
            async with app.sources[THREADS_SOURCE].opened():
                status = await app.feeds.refresh_token() if refresh else status
                status = await app.feeds.check_token() if check else status
        except WorkError as error:
            complain(str(error), app.secrets)
            return 1
        now = app.database.clock.now()
    shown = {**asdict(status.state), "refresh_from": status.refresh_from, "file": status.file}
    invocation.out.show(document(token=shown), _token_grid(status, now))
    return 0


def _read(handles: Sequence[str] | None, source: Path | None) -> list[str]:
    return unique(read_feed_handle(each) for each in listed_values(handles, source, "handle"))


def fields(feed: Feed, job: FeedJob | None = None) -> Mapping[str, Any]:
    """The JSON of a feed, with its poll if one is under way or has failed."""
    return {**asdict(feed), "job": asdict(job) if job else None}


def _line(feed: Feed, job: FeedJob | None, otherwise: float) -> Sequence[str]:
    every = span(timedelta(seconds=feed.every_seconds or otherwise))
    why = feed.reason or ((job.wait_reason if job.alive else job.last_error) if job else None)
    newest, polled = at(feed.newest_post_at), at(feed.polled_at)
    return f"@{feed.handle}", feed.state, f"{feed.posts:,}", newest, polled, every, last_line(why)


def _token_grid(status: TokenStatus, now: datetime) -> Block:
    state = status.state
    unknown = "not known; --check asks Threads"
    expires = state.expires_at
    left = f"{span(expires - now)} left" if expires and expires > now else "expired"
    rows = [
        ("token", "refreshed, from its file" if state.refreshed else "as configured"),
        ("valid until", f"{at(expires)} UTC ({left})" if expires else unknown),
        ("issued", f"{at(state.issued_at)} UTC" if state.issued_at else unknown),
        ("scopes", ", ".join(state.scopes) or unknown),
        ("kept in", status.file or "no file: it is not refreshed; set MISTNET_THREADS_TOKEN_FILE"),
        ("refreshed from", f"{at(status.refresh_from)} UTC" if status.refresh_from else "never"),
    ]
    return Grid(columns=("", ""), rows=rows)


async def _hints(app: App) -> list[str]:
    """What is still missing for polls to run."""
    if app.feeds.keeper.token is None:
        return ["workers will need a token for Threads: set MISTNET_THREADS_TOKEN"]
    return await worker_hints(app)
