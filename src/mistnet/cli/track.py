"""Commands that begin and end the tracking of accounts: suggest, track, untrack."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

import msgspec
import typer

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
    """One paid call per handle. What was paid for is shown even if a later call fails."""
    if not app.settings.x_api_key:
        raise NoKey
    quotes: list[Quote] = []
    failure: WorkError | None = None
    quoter = Quoter(app)
    async with app.sources[X_SOURCE].opened():
        try:
            for handle in {each.lower(): each for each in handles}.values():
                quotes.append(await quoter.quote(handle))  # noqa: PERF401 (what came before a failure is kept)
        except WorkError as error:
            failure = error
        bill = await quoter.bill(quotes)
    if quotes or invocation.out.as_json:
        invocation.out.show(_document(quotes, bill), _grid(quotes), *_said(bill))
    if failure:
        complain(f"{failure}; nothing is tracked", app.secrets)
    return 1 if failure else 0


def _document(quotes: Sequence[Quote], bill: QuoteTotal) -> object:
    listed = [
        {**msgspec.structs.asdict(each), "credits": each.credits, "dollars": _dollars(each.credits)} for each in quotes
    ]
    total = msgspec.structs.asdict(bill)
    total["at_rate_seconds"] = total.pop("at_rate").total_seconds()
    return document(quotes=listed, total=total, assumption=ASSUMPTION)


def _grid(quotes: Sequence[Quote]) -> Grid:
    return Grid(columns=_COLUMNS, rows=[_row(each) for each in quotes])


def _row(quote: Quote) -> Sequence[str]:
    if quote.problem:
        return (f"@{quote.handle}", *[""] * 6, quote.problem)
    amounts = (quote.posts, quote.post_credits, quote.thread_credits, quote.user_credits, quote.credits)
    return (f"@{quote.handle}", *(f"{each:,}" for each in amounts), prices.shown_dollars(quote.credits), "")


def _dollars(amount: int) -> float:
    return amount / prices.CREDITS_PER_DOLLAR


def _said(bill: QuoteTotal) -> list[str]:
    dollars = prices.shown_dollars(bill.credits)
    money = f"about {counted(bill.credits, 'credit')} ({dollars}) in {counted(bill.calls, 'call')}"
    lines = [f"{money}; at the rate of your keys at least {_lasting(bill.at_rate)}"]
    if bill.days_under_day_cap:
        lines.append(f"the cap on a day's credits stretches it to about {counted(bill.days_under_day_cap, 'day')}")
    if bill.months_under_month_cap:
        lines.append(f"the cap on a month's credits stretches it to about {bill.months_under_month_cap:,} months")
    return ["\n".join([*lines, ASSUMPTION, "Nothing is tracked yet: leave out --quote to begin."])]


def _lasting(span: timedelta) -> str:
    days = span / timedelta(days=1)
    if days >= 0.1:
        return f"{days:,.1f} days"
    return f"{max(span.total_seconds() / 60, 0.1):,.1f} minutes"


Handles = Annotated[list[str] | None, typer.Argument(metavar="[HANDLE]...", help="@name, name or https://x.com/name.")]
ById = Annotated[bool, typer.Option("--by-id", help="The names given are user ids, not handles.")]


@shared_options
async def suggest(
    invocation: Invocation,
    handles: Handles = None,
    *,
    wallet: Annotated[
        str | None, typer.Option("--wallet", metavar="WALLET", help="Kept with each suggestion that has none.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Kept with each suggestion; may be given more than once."),
    ] = None,
    source: FileOption = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Show all suggestions and what became of them instead.")
    ] = False,
) -> int:
    """Suggest accounts. A worker looks each up, and tracks it or refuses it with the reason.

    A CSV file has a column handle; wallet and all other columns are kept with the suggestion. Bad rows are told
    and left out.
    """
    if listed:
        await _list_suggestions(invocation)
        return 0
    storable("--wallet", wallet)
    labels = dict(_label(each) for each in label or ())
    wanted = sort_rows(handles, source, "handle", lambda row: _suggestion(row, wallet, labels))
    async with open_app(invocation.settings) as app:
        now = app.database.clock.now()
        told = await TrackingStore(app.database, app.job_writer).suggest(wanted.good, job=args.suggestion, now=now)
        merged = "; what you say of it is kept with what was said before"
        lines = [f"@{each.handle}: {each.result}{merged if each.merged else ''}" for each in told]
        shown = document(suggestions=told, refused=wanted.bad, key_configured=bool(app.settings.x_api_key))
        _show(invocation, shown, lines, told_of_key=any(each.result is not SuggestionResult.TRACKED for each in told))
    return wanted.complain()


async def _list_suggestions(invocation: Invocation) -> None:
    async with open_app(invocation.settings) as app:
        kept = await TrackingStore(app.database, app.job_writer).suggestions(live_only=False)
    rows = [
        (
            f"@{each.handle}",
            "withdrawn" if each.withdrawn_at else each.outcome or "open",
            each.reason or "",
            each.wallet or "",
            ", ".join(f"{name}={said}" for name, said in msgspec.json.decode(each.labels).items()),
            at(each.suggested_at),
            at(each.deleted_at),
        )
        for each in kept
    ]
    grid = Grid(
        columns=("handle", "outcome", "why", "wallet", "labels", "suggested (UTC)", "closed (UTC)"),
        rows=rows,
        empty="no suggestions yet: `mistnet suggest HANDLE` makes one",
    )
    invocation.out.show(document(suggestions=kept), grid)


@shared_options
async def track(
    invocation: Invocation,
    handles: Handles = None,
    *,
    quote: Annotated[
        bool, typer.Option("--quote", help="Only tell the likely cost; asks for each profile (18 credits), no more.")
    ] = False,
    by_id: ById = False,
    source: FileOption = None,
) -> int:
    """Track accounts: collect all their posts, the conversations around them, and the people in those.

    An account that is tracked already goes on with what is next: the rest of its past, or what is new.
    """
    if quote and by_id:
        raise typer.BadParameter("--quote takes handles, not ids")
    async with open_app(invocation.settings, create=True) as app:
        if quote:
            named = sort_rows(handles, source, "handle", lambda row: read_handle(row.value))
            return max(await show_quotes(invocation, app, named.good), named.complain())
        if by_id:
            ids = sort_rows(handles, source, "id", lambda row: UserId(read_id(row)))
            told = await track_ids(app, ids.good)
            return _tell(invocation, told, ids, is_capped=await app.sources.is_capped(X_SOURCE))
        wanted = sort_rows(handles, source, "handle", lambda row: _suggestion(row, None, {}))
        told = await track_handles(app, wanted.good)
        return _tell(invocation, told, wanted, is_capped=await app.sources.is_capped(X_SOURCE))


@shared_options
async def untrack(
    invocation: Invocation,
    handles: Handles = None,
    *,
    by_id: ById = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the account.")] = (
        "untracked by hand"
    ),
    source: FileOption = None,
) -> int:
    """Stop collecting accounts. What was collected stays."""
    storable("--reason", reason)

    def read(row: Row) -> str | UserId:
        return UserId(read_id(row)) if by_id else read_handle(row.value)

    named = sort_rows(handles, source, "id" if by_id else "handle", read)
    told: list[TrackResult] = []
    strange: list[NotTracked] = []
    async with open_app(invocation.settings) as app:
        tracking_store = TrackingStore(app.database, app.job_writer)
        for who in dict.fromkeys(named.good):
            gone = await tracking_store.untrack(who, reason, now=app.database.clock.now())
            if gone.known:
                told.append(_let_go(who, gone))
            else:
                strange.append(NotTracked(shown_name(*_named(who))))
    refused = [*named.bad, *(BadRow(place="", value=each.given, problem=str(each)) for each in strange)]
    _show(invocation, document(accounts=told, refused=refused), list(map(str, told)))
    return Sorted(told, refused).complain()


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


def _let_go(who: str | UserId, gone: LetGo) -> TrackResult:
    handle, user_id = _named(who)
    jobs = "1 job" if len(gone.cancelled) == 1 else f"{len(gone.cancelled)} jobs"
    ended = f"; {jobs} cancelled" if gone.cancelled else ""
    if gone.was is None:
        note, result = f"its suggestion is withdrawn{ended}", "withdrawn"
    elif gone.was is AccountState.UNTRACKED:
        note, result = f"was not tracked any more{ended}", "was not tracked"
    else:
        note, result = f"is not tracked any more{ended}; what was collected stays", "untracked"
    return TrackResult(handle=handle, user_id=gone.user_id or user_id, result=result, note=note)


def _named(who: str | UserId) -> tuple[str | None, UserId | None]:
    return (who, None) if isinstance(who, str) else (None, who)


def _tell(
    invocation: Invocation,
    told: Sequence[TrackResult],
    named: Sorted[NewSuggestion] | Sorted[UserId],
    *,
    is_capped: bool,
) -> int:
    has_key = bool(invocation.settings.x_api_key)
    shown = document(accounts=told, refused=named.bad, key_configured=has_key, spending_cap=is_capped)
    warning = [] if is_capped or not told else [NO_CAP]
    _show(invocation, shown, [*map(str, told), *warning], told_of_key=bool(told))
    return named.complain()


def _show(invocation: Invocation, shown: object, lines: Sequence[str], *, told_of_key: bool = False) -> None:
    """A line for each account, and what comes next."""
    hint = []
    if told_of_key and invocation.settings.x_api_key:
        hint = ["next: `mistnet work` collects, `mistnet status` shows how it goes"]
    elif told_of_key:
        hint = ["workers will need a key for X: set MISTNET_X_API_KEY (`mistnet demo` needs none)"]
    if lines or invocation.out.as_json:
        invocation.out.show(shown, "\n".join(lines), *hint)
