"""Commands for what is collected: tracked and suggested accounts of X, feeds of Threads and their token."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from msgspec.structs import asdict

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import (
    BadRow,
    FileOption,
    Row,
    Sorted,
    argument,
    flag,
    option,
    read_id,
    read_values,
    require_plain,
    seconds,
    sort_rows,
    storable,
    unique,
)
from mistnet.cli.output import KEY_HINT, Grid, Output, at, complain, document, fields_of, last_line, span, worker_hints
from mistnet.governor.errors import NoKey
from mistnet.governor.model import THREADS_SOURCE, X_SOURCE
from mistnet.kit.text import counted
from mistnet.queue.errors import WorkError
from mistnet.social.accounts import AccountState
from mistnet.social.errors import NoThreadsToken, NotTracked
from mistnet.social.feeds import LONGEST_SECONDS, SHORTEST_SECONDS, Feed, read_feed_handle
from mistnet.social.jobs import args
from mistnet.social.model import UserId, read_handle
from mistnet.social.store.feeds import FeedJob
from mistnet.social.store.tracking import NewSuggestion, SuggestionResult, TrackingStore
from mistnet.social.tracking import TrackResult, shown_name, track_handles, track_ids
from mistnet.sources.x import client as prices
from mistnet.sources.x.quotes import ASSUMPTION, Quote, Quoter, QuoteTotal
from mistnet.sources.x.source import NO_CAP

_COLUMNS = ("account", "posts", "for posts", "for threads", "for people", "credits", "dollars", "")


async def show_quotes(invocation: Invocation, app: App, handles: Sequence[str]) -> int:
    """Fetch each profile, which costs one call, and show the likely cost. A later failure loses no paid answer."""
    if not app.settings.x_api_key:
        raise NoKey
    quotes: list[Quote] = []
    failure: WorkError | None = None
    quoter = Quoter(app)
    async with app.sources[X_SOURCE].opened():
        try:
            # Each profile is paid for once, however its handle is written.
            for handle in {each.lower(): each for each in handles}.values():
                quotes.append(await quoter.quote(handle))  # noqa: PERF401 (a comprehension would lose them on failure)
        except WorkError as error:
            failure = error
        total = await quoter.bill(quotes)
    if quotes or invocation.out.as_json:
        listed = [
            {**asdict(each), "credits": each.credits, "dollars": each.credits / prices.CREDITS_PER_DOLLAR}
            for each in quotes
        ]
        summed = {**fields_of(total, "at_rate"), "at_rate_seconds": total.at_rate.total_seconds()}
        rows = [
            (f"@{each.handle}", *[None] * 6, each.problem)
            if each.problem
            else (
                f"@{each.handle}",
                *(f"{count:,}" for count in (each.posts, each.post_credits, each.thread_credits, each.user_credits)),
                f"{each.credits:,}",
                prices.format_dollars(each.credits),
                None,
            )
            for each in quotes
        ]
        grid = Grid(columns=_COLUMNS, rows=rows)
        invocation.out.show(document(quotes=listed, total=summed, assumption=ASSUMPTION), grid, _summary(total))
    if failure:
        complain(f"{failure}; nothing is tracked", app.secrets)
    return 1 if failure else 0


def _summary(total: QuoteTotal) -> str:
    days = total.at_rate / timedelta(days=1)
    lasting = f"{days:,.1f} days" if days >= 0.1 else f"{max(total.at_rate.total_seconds() / 60, 0.1):,.1f} minutes"
    cost = f"{counted(total.credits, 'credit')} ({prices.format_dollars(total.credits)})"
    lines = [f"about {cost} in {counted(total.calls, 'call')}; at the rate of your keys at least {lasting}"]
    if total.days_under_day_cap:
        lines.append(f"the cap on a day's credits stretches it to about {counted(total.days_under_day_cap, 'day')}")
    if total.months_under_month_cap:
        lines.append(f"the cap on a month's credits stretches it to about {total.months_under_month_cap:,} months")
    return "\n".join([*lines, ASSUMPTION, "Nothing is tracked yet: leave out --quote to track."])


Handles = Annotated[list[str] | None, argument("[HANDLE]...", "@name, name or https://x.com/name.")]
ById = Annotated[bool, flag("--by-id", "The names given are user ids, not handles.")]


@shared_options
async def suggest(
    invocation: Invocation,
    handles: Handles = None,
    *,
    wallet: Annotated[str | None, option("--wallet", "WALLET", "Stored with each suggestion that has none.")] = None,
    label: Annotated[
        list[str] | None, option("--label", "KEY=VALUE", "Stored with each suggestion; may be repeated.")
    ] = None,
    source: FileOption = None,
    listed: Annotated[bool, flag("--list", "Show all suggestions and their outcomes instead.")] = False,
) -> int:
    """Suggest accounts. A worker tracks each, or says why it cannot.

    A CSV file has a column handle; wallet and all other columns are stored with the suggestion. Invalid rows are
    reported and skipped.
    """
    if listed:
        await _list_suggestions(invocation)
        return 0
    storable("--wallet", wallet)
    labels = {}
    for given in label or ():
        key, equals, value = given.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{given[:80]!r} is not KEY=VALUE", param_hint="--label")
        storable("--label", given)
        labels[key.strip()] = value
    rows = sort_rows(handles, source, "handle", lambda row: _suggestion(row, wallet, labels))
    async with open_app(invocation.settings) as app:
        now = app.database.clock.now()
        results = await TrackingStore(app.database, app.job_writer).suggest(rows.good, job=args.suggestion, now=now)
    merged = "; wallet and labels are added to those of the earlier suggestion"
    lines = [f"@{each.handle}: {each.result}{merged if each.merged else ''}" for each in results]
    shown = document(suggestions=results, refused=rows.bad, key_configured=bool(invocation.settings.x_api_key))
    _show(invocation, shown, lines, has_work=any(each.result is not SuggestionResult.TRACKED for each in results))
    return rows.complain()


async def _list_suggestions(invocation: Invocation) -> None:
    async with open_app(invocation.settings) as app:
        suggestions = await TrackingStore(app.database, app.job_writer).suggestions(live_only=False)
    grid = Grid.of(
        suggestions,
        "handle, outcome, why, wallet, labels, suggested (UTC), closed (UTC)",
        handle=lambda each: f"@{each.handle}",
        outcome=lambda each: "withdrawn" if each.withdrawn_at else each.outcome or "open",
        why="reason",
        labels=lambda each: ", ".join(f"{name}={value}" for name, value in msgspec.json.decode(each.labels).items()),
        closed="deleted_at",
        empty="no suggestions yet: `mistnet suggest HANDLE` makes one",
    )
    invocation.out.show(document(suggestions=suggestions), grid)


@shared_options
async def track(
    invocation: Invocation,
    handles: Handles = None,
    *,
    quote: Annotated[bool, flag("--quote", "Only show the likely cost; fetches each profile (18 credits).")] = False,
    by_id: ById = False,
    source: FileOption = None,
) -> int:
    """Collect all posts of accounts, and the conversations around them.

    An account that is tracked already continues: with the rest of its history, or with new posts.
    """
    if quote and by_id:
        raise typer.BadParameter("--quote takes handles, not ids")
    # It is the first command of many users: it makes the tables.
    async with open_app(invocation.settings, create=True) as app:
        if quote:
            named = sort_rows(handles, source, "handle", lambda row: read_handle(row.value))
            return max(await show_quotes(invocation, app, named.good), named.complain())
        if by_id:
            ids = sort_rows(handles, source, "id", lambda row: UserId(read_id(row)))
            results = await track_ids(app, ids.good)
            return _report(invocation, results, ids, is_capped=await app.sources.is_capped(X_SOURCE))
        rows = sort_rows(handles, source, "handle", lambda row: _suggestion(row, None, {}))
        results = await track_handles(app, rows.good)
        return _report(invocation, results, rows, is_capped=await app.sources.is_capped(X_SOURCE))


@shared_options
async def untrack(
    invocation: Invocation,
    handles: Handles = None,
    *,
    by_id: ById = False,
    reason: Annotated[str, option("--reason", "TEXT", "Why; stored with the account.")] = ("untracked by hand"),
    source: FileOption = None,
) -> int:
    """Stop collecting accounts. Collected data stays."""
    storable("--reason", reason)

    def read(row: Row) -> str | UserId:
        return UserId(read_id(row)) if by_id else read_handle(row.value)

    named = sort_rows(handles, source, "id" if by_id else "handle", read)
    results: list[TrackResult] = []
    unknown: list[NotTracked] = []
    async with open_app(invocation.settings) as app:
        tracking_store = TrackingStore(app.database, app.job_writer)
        for who in dict.fromkeys(named.good):
            gone = await tracking_store.untrack(who, reason, now=app.database.clock.now())
            handle, user_id = (who, None) if isinstance(who, str) else (None, who)
            if not gone.known:
                unknown.append(NotTracked(shown_name(handle, user_id)))
                continue
            ended = f"; {counted(len(gone.cancelled), 'job')} cancelled" if gone.cancelled else ""
            if gone.was is None:
                note, result = f"its suggestion is withdrawn{ended}", "withdrawn"
            elif gone.was is AccountState.UNTRACKED:
                note, result = f"was not tracked any more{ended}", "was not tracked"
            else:
                note, result = f"is not tracked any more{ended}; what was collected stays", "untracked"
            results.append(TrackResult(handle=handle, user_id=gone.user_id or user_id, result=result, note=note))
    refused = [*named.bad, *(BadRow(place="", value=each.given, problem=str(each)) for each in unknown)]
    _show(invocation, document(accounts=results, refused=refused), list(map(str, results)))
    return Sorted(results, refused).complain()


def _suggestion(row: Row, wallet: str | None, labels: Mapping[str, str]) -> NewSuggestion:
    require_plain(row)
    own = {name: cell for name, cell in row.cells.items() if cell and name != "wallet"}
    return NewSuggestion(
        handle=read_handle(row.value), wallet=row.cells.get("wallet") or wallet, labels={**labels, **own}
    )


def _report(
    invocation: Invocation,
    results: Sequence[TrackResult],
    rows: Sorted[NewSuggestion] | Sorted[UserId],
    *,
    is_capped: bool,
) -> int:
    has_key = bool(invocation.settings.x_api_key)
    shown = document(accounts=results, refused=rows.bad, key_configured=has_key, spending_cap=is_capped)
    warning = [] if is_capped or not results else [NO_CAP]
    _show(invocation, shown, [*map(str, results), *warning], has_work=bool(results))
    return rows.complain()


def _show(invocation: Invocation, shown: object, lines: Sequence[str], *, has_work: bool = False) -> None:
    """Print a line for each account, and the next step if there is work for workers."""
    hint = []
    if has_work and invocation.settings.x_api_key:
        hint = ["next: `mistnet up` collects, `mistnet status` shows progress"]
    elif has_work:
        hint = [KEY_HINT]
    if lines or invocation.out.as_json:
        invocation.out.show(shown, "\n".join(lines), *hint)


_NO_FEEDS: Final = "no feeds yet: `mistnet feeds add HANDLE` adds one"
_RESULTS: Final = {
    "added": "will be polled",
    "again": "will be tried again",
    "known": "is a feed already",
}
FeedHandles = Annotated[list[str] | None, argument("[HANDLE]...", "@name, name or https://www.threads.com/@name.")]
SomeHandles = Annotated[list[str] | None, argument("[HANDLE]...", "Only these; without any, all of them.")]


@shared_options
async def add_feeds(
    invocation: Invocation,
    handles: FeedHandles = None,
    *,
    source: FileOption = None,
    every: Annotated[
        float | None, option("--every", "SPAN", "The interval: 15m, 6h, 1d. Else the setting.", parser=seconds)
    ] = None,
) -> None:
    """Poll accounts of Threads from now on: all their posts, what they quote, and their own replies below them."""
    if every is not None and not SHORTEST_SECONDS <= every <= LONGEST_SECONDS:
        raise typer.BadParameter("--every must be between 1 minute and 1 year")
    names = _feed_names(handles, source)
    async with open_app(invocation.settings) as app:
        done = await app.feeds.store.add(names, every_seconds=every, job_writer=app.job_writer)
        hints = await _feed_hints(app)
    lines = [f"@{each.feed.handle} {_RESULTS[each.result]}" for each in done]
    added = [{**feed_fields(each.feed), "result": each.result} for each in done]
    invocation.out.show(document(feeds=added), *lines, *hints)


@app_command
async def list_feeds(app: App, out: Output) -> None:
    """All feeds: their state, their last poll, and how many posts they brought."""
    feeds = await app.feeds.store.list()
    polls = await app.feeds.store.jobs([each.id for each in feeds])
    hints = await _feed_hints(app) if feeds else []

    def note(feed: Feed) -> str:
        job = polls.get(feed.id)
        return last_line(feed.reason or ((job.wait_reason if job.alive else job.last_error) if job else None))

    grid = Grid.of(
        feeds,
        "feed, state, posts, newest (UTC), polled (UTC), every, ",
        feed=lambda each: f"@{each.handle}",
        posts=lambda each: f"{each.posts:,}",
        newest="newest_post_at",
        every=lambda each: span(timedelta(seconds=each.every_seconds or app.settings.feed_every_seconds)),
        untitled=note,
        empty=_NO_FEEDS,
    )
    out.show(document(feeds=[feed_fields(each, polls.get(each.id)) for each in feeds]), grid, *hints)


@shared_options
async def remove_feeds(invocation: Invocation, handles: FeedHandles = None, *, source: FileOption = None) -> None:
    """Stop polling accounts. Collected posts stay."""
    names = _feed_names(handles, source)
    async with open_app(invocation.settings) as app:
        for each in names:
            await app.feeds.store.get(each)  # an unknown one raises before any is removed
        gone = [await app.feeds.store.remove(each) for each in names]
    lines = [f"@{each.handle} is not polled any more; collected posts stay" for each in gone]
    invocation.out.show(document(feeds=[feed_fields(each) for each in gone]), *lines)


@shared_options
async def poll_feeds(invocation: Invocation, handles: SomeHandles = None, *, source: FileOption = None) -> None:
    """Poll feeds now. If a poll is under way, it continues."""
    names = _feed_names(handles, source) if handles or source else []
    async with open_app(invocation.settings) as app:
        polled = await app.feeds.store.poll(names, job_writer=app.job_writer)
        hints = await _feed_hints(app)
    lines = [f"@{each.handle} will be polled" for each in polled] or [_NO_FEEDS]
    invocation.out.show(document(feeds=[feed_fields(each) for each in polled]), *lines, *hints)


@shared_options
async def threads_token(
    invocation: Invocation,
    *,
    check: Annotated[bool, flag("--check", "Check the token with Threads first.")] = False,
    refresh: Annotated[bool, flag("--refresh", "Refresh the token now; it must be a day old.")] = False,
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
    state = status.state
    shown = {**asdict(state), "refresh_from": status.refresh_from, "file": status.file}
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
    invocation.out.show(document(token=shown), Grid(columns=("", ""), rows=rows))
    return 0


def _feed_names(handles: Sequence[str] | None, source: Path | None) -> list[str]:
    return unique(read_feed_handle(each) for each in read_values(handles, source, "handle"))


def feed_fields(feed: Feed, job: FeedJob | None = None) -> Mapping[str, Any]:
    """The JSON of a feed, with its poll if one is under way or has failed."""
    return {**asdict(feed), "job": job}


async def _feed_hints(app: App) -> list[str]:
    """What is still missing for polls to run."""
    if app.feeds.keeper.token is None:
        return ["workers will need a token for Threads: set MISTNET_THREADS_TOKEN"]
    return await worker_hints(app)
