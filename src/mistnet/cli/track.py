"""Commands that start and stop the tracking of accounts: suggest, track, untrack."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

import msgspec
import typer
from msgspec.structs import asdict

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import BadRow, FileOption, Row, Sorted, read_id, require_plain, sort_rows, storable
from mistnet.cli.output import Grid, at, document
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE
from mistnet.kit.text import counted
from mistnet.queue.errors import WorkError
from mistnet.social.accounts import AccountState
from mistnet.social.errors import NotTracked
from mistnet.social.jobs import args
from mistnet.social.model import UserId, read_handle
from mistnet.social.store.tracking import LetGo, NewSuggestion, SuggestionResult, TrackingStore
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
        summed = asdict(total)
        summed["at_rate_seconds"] = summed.pop("at_rate").total_seconds()
        grid = Grid(columns=_COLUMNS, rows=[_row(each) for each in quotes])
        invocation.out.show(document(quotes=listed, total=summed, assumption=ASSUMPTION), grid, _summary(total))
    if failure:
        complain(f"{failure}; nothing is tracked", app.secrets)
    return 1 if failure else 0


def _row(quote: Quote) -> Sequence[str]:
    if quote.problem:
        return (f"@{quote.handle}", *[""] * 6, quote.problem)
    amounts = (quote.posts, quote.post_credits, quote.thread_credits, quote.user_credits, quote.credits)
    return (f"@{quote.handle}", *(f"{each:,}" for each in amounts), prices.format_dollars(quote.credits), "")


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


Handles = Annotated[list[str] | None, typer.Argument(metavar="[HANDLE]...", help="@name, name or https://x.com/name.")]
ById = Annotated[bool, typer.Option("--by-id", help="The names given are user ids, not handles.")]


@shared_options
async def suggest(
    invocation: Invocation,
    handles: Handles = None,
    *,
    wallet: Annotated[
        str | None, typer.Option("--wallet", metavar="WALLET", help="Stored with each suggestion that has none.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Stored with each suggestion; may be repeated."),
    ] = None,
    source: FileOption = None,
    listed: Annotated[bool, typer.Option("--list", help="Show all suggestions and their outcomes instead.")] = False,
) -> int:
    """Suggest accounts. A worker looks each up, and tracks it or refuses it with the reason.

    A CSV file has a column handle; wallet and all other columns are stored with the suggestion. Invalid rows are
    reported and skipped.
    """
    if listed:
        await _list_suggestions(invocation)
        return 0
    storable("--wallet", wallet)
    labels = dict(_label(each) for each in label or ())
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
    rows = [
        (
            f"@{each.handle}",
            "withdrawn" if each.withdrawn_at else each.outcome or "open",
            each.reason or "",
            each.wallet or "",
            ", ".join(f"{name}={value}" for name, value in msgspec.json.decode(each.labels).items()),
            at(each.suggested_at),
            at(each.deleted_at),
        )
        for each in suggestions
    ]
    grid = Grid(
        columns=("handle", "outcome", "why", "wallet", "labels", "suggested (UTC)", "closed (UTC)"),
        rows=rows,
        empty="no suggestions yet: `mistnet suggest HANDLE` makes one",
    )
    invocation.out.show(document(suggestions=suggestions), grid)


@shared_options
async def track(
    invocation: Invocation,
    handles: Handles = None,
    *,
    quote: Annotated[
        bool,
        typer.Option("--quote", help="Only show the likely cost; fetches each profile (18 credits)."),
    ] = False,
    by_id: ById = False,
    source: FileOption = None,
) -> int:
    """Track accounts: collect all their posts, the conversations around them, and the people in those.

    An account that is tracked already continues: with the rest of its history, or with new posts.
    """
    if quote and by_id:
        raise typer.BadParameter("--quote takes handles, not ids")
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
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; stored with the account.")] = (
        "untracked by hand"
    ),
    source: FileOption = None,
) -> int:
    """Stop collecting accounts. What was collected stays."""
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
            if gone.known:
                results.append(_untracked(who, gone))
            else:
                unknown.append(NotTracked(shown_name(*_named(who))))
    refused = [*named.bad, *(BadRow(place="", value=each.given, problem=str(each)) for each in unknown)]
    _show(invocation, document(accounts=results, refused=refused), list(map(str, results)))
    return Sorted(results, refused).complain()


def _suggestion(row: Row, wallet: str | None, labels: Mapping[str, str]) -> NewSuggestion:
    require_plain(row)
    own = {name: cell for name, cell in row.cells.items() if cell and name != "wallet"}
    return NewSuggestion(
        handle=read_handle(row.value), wallet=row.cells.get("wallet") or wallet, labels={**labels, **own}
    )


def _label(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"{given[:80]!r} is not KEY=VALUE", param_hint="--label")
    storable("--label", given)
    return key.strip(), value


def _untracked(who: str | UserId, gone: LetGo) -> TrackResult:
    handle, user_id = _named(who)
    ended = f"; {counted(len(gone.cancelled), 'job')} cancelled" if gone.cancelled else ""
    if gone.was is None:
        note, result = f"its suggestion is withdrawn{ended}", "withdrawn"
    elif gone.was is AccountState.UNTRACKED:
        note, result = f"was not tracked any more{ended}", "was not tracked"
    else:
        note, result = f"is not tracked any more{ended}; what was collected stays", "untracked"
    return TrackResult(handle=handle, user_id=gone.user_id or user_id, result=result, note=note)


def _named(who: str | UserId) -> tuple[str | None, UserId | None]:
    return (who, None) if isinstance(who, str) else (None, who)


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
        hint = ["next: `mistnet work` collects, `mistnet status` shows progress"]
    elif has_work:
        hint = ["workers will need a key for X: set MISTNET_X_API_KEY (`mistnet demo` needs none)"]
    if lines or invocation.out.as_json:
        invocation.out.show(shown, "\n".join(lines), *hint)
