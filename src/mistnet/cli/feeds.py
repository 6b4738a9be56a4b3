"""The feeds commands: which accounts of Threads are read, how they stand, and how the token for it does."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import FileOption, listed_values, unique
from mistnet.cli.output import Block, Grid, at, document, last_line, span
from mistnet.cli.segment_rules import seconds
from mistnet.governor.model import THREADS_SOURCE
from mistnet.queue.errors import WorkError
from mistnet.social.errors import NoThreadsToken
from mistnet.social.feeds.model import LONGEST_SECONDS, SHORTEST_SECONDS, Feed, read_feed_handle
from mistnet.social.feeds.store import AddedFeed, FeedJob
from mistnet.sources.threads.source import TokenStatus

_SEEN_LATELY: Final = timedelta(minutes=2)
_TOLD: Final = {
    "added": "will be read",
    "again": "will be tried again",
    "known": "is read already",
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
        typer.Option("--every", parser=seconds, metavar="SPAN", help="Look so often: 15m, 6h, 1d. Else as set."),
    ] = None,
) -> None:
    """Read accounts of Threads from now on: all their posts, what they quote, and their own words below them."""
    if every is not None and not SHORTEST_SECONDS <= every <= LONGEST_SECONDS:
        raise typer.BadParameter("a feed is looked at every minute at most, and once a year at least")
    wanted = unique(read_feed_handle(each) for each in listed_values(handles, source, "handle"))
    async with open_app(invocation.settings) as app:
        done = await app.feeds.add(wanted, every_seconds=every, job_writer=app.job_writer)
        hints = await _hints(app)
    lines = [f"@{each.feed.handle} {_TOLD[each.result]}" for each in done]
    invocation.out.show(document(feeds=[_added(each) for each in done]), *lines, *hints)


@shared_options
async def list_feeds(invocation: Invocation) -> None:
    """All feeds: how they stand, when they were looked at, and what they brought."""
    async with open_app(invocation.settings) as app:
        found = await _all(app)
        polls = await app.feeds.store.jobs([each.id for each in found])
        hints = await _hints(app) if found else []
    grid = Grid(
        columns=("feed", "state", "posts", "newest (UTC)", "looked at (UTC)", "every", ""),
        rows=[_line(each, polls.get(each.id), invocation.settings.feed_every_seconds) for each in found],
        empty="no feeds yet: `mistnet feeds add HANDLE` begins one",
    )
    invocation.out.show(document(feeds=[fields(each, polls.get(each.id)) for each in found]), grid, *hints)


@shared_options
async def remove(invocation: Invocation, handles: Handles = None, *, source: FileOption = None) -> None:
    """Stop reading accounts. What was collected stays."""
    wanted = unique(read_feed_handle(each) for each in listed_values(handles, source, "handle"))
    async with open_app(invocation.settings) as app:
        for each in wanted:
            await app.feeds.store.get(each)  # all of them, or none is removed
        gone = [await app.feeds.remove(each) for each in wanted]
    lines = [f"@{each.handle} is read no more; what was collected stays" for each in gone]
    invocation.out.show(document(feeds=[fields(each) for each in gone]), *lines)


@shared_options
async def poll(invocation: Invocation, handles: SomeHandles = None, *, source: FileOption = None) -> None:
    """Look at feeds now. Workers do it; one that is being looked at goes on."""
    named = listed_values(handles, source, "handle") if handles or source else []
    wanted = unique(read_feed_handle(each) for each in named)
    async with open_app(invocation.settings) as app:
        asked = await app.feeds.poll(wanted, job_writer=app.job_writer)
        hints = await _hints(app)
    said = "no feeds yet: `mistnet feeds add HANDLE` begins one"
    lines = [f"@{each.handle} will be looked at" for each in asked] or [said]
    invocation.out.show(document(feeds=[fields(each) for each in asked]), *lines, *hints)


@shared_options
async def token(
    invocation: Invocation,
    *,
    check: Annotated[bool, typer.Option("--check", help="Ask Threads what it knows of the token, first.")] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Trade it for a fresh one now; it must be a day old.")
    ] = False,
) -> int:
    """Show how the token for Threads stands: until when it is valid, when it is refreshed. Never the token."""
    async with open_app(invocation.settings, checked=check or refresh) as app:
        standing = app.feeds.token
        if not standing.state.configured:
            raise NoThreadsToken
        try:
            async with app.sources[THREADS_SOURCE].opened():
                standing = await app.feeds.refresh_token() if refresh else standing
                standing = await app.feeds.check_token() if check else standing
        except WorkError as error:
            complain(str(error), app.secrets)
            return 1
        now = app.database.clock.now()
    expires = standing.state.expires_at
    left = span(expires - now) if expires and expires > now else None
    invocation.out.show(document(token=token_fields(standing)), _token_grid(standing, left))
    return 0


def fields(feed: Feed, job: FeedJob | None = None) -> Mapping[str, Any]:
    """A feed as programs see it, with its poll if one is under way or could not be done."""
    told = {name: getattr(feed, name) for name in feed.__struct_fields__}
    poll = {name: getattr(job, name) for name in job.__struct_fields__} if job else None
    return {**told, "job": poll}


def token_fields(standing: TokenStatus) -> Mapping[str, Any]:
    state = {name: getattr(standing.state, name) for name in standing.state.__struct_fields__}
    return {**state, "refresh_from": standing.refresh_from, "file": standing.file}


def _added(each: AddedFeed) -> Mapping[str, Any]:
    return {**fields(each.feed), "result": each.result}


def _line(feed: Feed, job: FeedJob | None, otherwise: float) -> Sequence[str]:
    every = span(timedelta(seconds=feed.every_seconds or otherwise))
    why = feed.reason or ((job.wait_reason if job.alive else job.last_error) if job else None)
    newest, polled = at(feed.newest_post_at), at(feed.polled_at)
    return f"@{feed.handle}", feed.state, f"{feed.posts:,}", newest, polled, every, last_line(why)


def _token_grid(standing: TokenStatus, left: str | None) -> Block:
    state = standing.state
    unknown = "not known; --check asks Threads"
    rows = [
        ("token", "refreshed, from its file" if state.refreshed else "as configured"),
        ("valid until", f"{at(state.expires_at)} UTC ({left or 'over'})" if state.expires_at else unknown),
        ("issued", f"{at(state.issued_at)} UTC" if state.issued_at else unknown),
        ("may", ", ".join(state.scopes) or unknown),
        ("kept in", standing.file or "no file: it is not refreshed; set MISTNET_THREADS_TOKEN_FILE"),
        ("refreshed from", f"{at(standing.refresh_from)} UTC" if standing.refresh_from else "never, as it stands"),
    ]
    return Grid(columns=("", ""), rows=rows)


async def _all(app: App) -> Sequence[Feed]:
    found: list[Feed] = []
    while page := await app.feeds.store.list(after=found[-1].id if found else 0):
        found += page
    return found


async def _hints(app: App) -> list[str]:
    """What polls still lack to go on."""
    if app.feeds.keeper.token is None:
        return ["workers will need a token for Threads: set MISTNET_THREADS_TOKEN"]
    now = app.database.clock.now()
    if any(now - each.seen_at <= _SEEN_LATELY for each in await app.inspector.workers()):
        return []
    return ["no worker was seen lately: `mistnet work` starts one"]
