"""Commands for what we read from: how each source stands, its kill switch, its breaker, its limits, its memory."""

from datetime import timedelta
from typing import Annotated, Final

import typer

from mistnet.app import open_app
from mistnet.cli.balances import NOT_ANSWERED, ask_balances
from mistnet.cli.joblines import storable
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import at, document
from mistnet.cli.shared import Invocation, shared_options
from mistnet.cli.standings import blocks, keys_grid
from mistnet.desk import switches
from mistnet.desk.standings import known_source, standing_of, standings
from mistnet.desk.switches import Caps, Switched
from mistnet.domain.plural import are, counted
from mistnet.domain.sources import X_SOURCE

BY: Final = "command line"
"""Who made a change, for the log."""

_LONGEST_MINUTES: Final = 60 * 24 * 365


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The source: x, threads, ebay_api, a lane, or a shop of your file.")
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to all.")]


@shared_options
async def list_sources(invocation: Invocation) -> None:
    """Show each source: whether it is open, its rate, breaker and cache, what it cost, and its keys."""
    async with open_app(invocation.settings) as app:
        now = app.database.clock.now()
        found = await standings(app)
    invocation.out.show(document(sources=found), *(block for each in found for block in blocks(each, now)))


@shared_options
async def pause(invocation: Invocation, name: Name, reason: Why = "paused by hand") -> None:
    """Stop all calls to a source, on every machine, within about a second. Nothing is lost."""
    storable("--reason", reason)
    async with open_app(invocation.settings) as app:
        done = await switches.pause(app, await known_source(app, name), reason, by=BY)
    again = f"{name} was paused already; the reason is now: {reason}"
    said = f"{name} is paused: {reason}" if done.changed else again
    invocation.out.show(document(source=name, paused=True, changed=done.changed, reason=reason), said)


@shared_options
async def resume(invocation: Invocation, name: Name) -> None:
    """Let calls go on: ends the pause of a source and of its keys, and makes the work due that waited for it."""
    async with open_app(invocation.settings) as app:
        done = await switches.resume(app, await known_source(app, name), by=BY)
    said = f"{name} goes on" if done.changed else f"{name} was not paused"
    shown = document(source=name, paused=False, changed=done.changed, woken=done.woken)
    invocation.out.show(shown, said + _woken(done))


@shared_options
async def open_breaker(
    invocation: Invocation,
    name: Name,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.01, max=_LONGEST_MINUTES, help="For how long nobody calls.")
    ] = 5.0,
    reason: Why = "opened by hand",
) -> None:
    """Open a source's breaker now: no calls for a while, then one tries whether it is well."""
    storable("--reason", reason)
    async with open_app(invocation.settings) as app:
        source, span = await known_source(app, name), timedelta(minutes=minutes)
        done = await switches.open_breaker(app, source, span, reason, by=BY)
        until = (await standing_of(app, source)).breaker.opened_until
    shown = document(source=name, breaker="open", changed=done.changed, until=until, reason=reason)
    invocation.out.show(shown, f"the breaker of {name} is open until {at(until)} UTC: {reason}")


@shared_options
async def close_breaker(invocation: Invocation, name: Name) -> None:
    """Close a source's breaker now and count its failures from nought; work that waited for it is due."""
    async with open_app(invocation.settings) as app:
        done = await switches.close_breaker(app, await known_source(app, name), by=BY)
    said = f"the breaker of {name} is closed" if done.changed else f"the breaker of {name} was closed already"
    shown = document(source=name, breaker="closed", changed=done.changed, woken=done.woken)
    invocation.out.show(shown, said + _woken(done))


@shared_options
async def forget(invocation: Invocation, name: Name) -> None:
    """Forget the answers that are kept of a source: what it told is asked for anew."""
    async with open_app(invocation.settings) as app:
        forgotten = await switches.forget_answers(app, await known_source(app, name), by=BY)
    said = f"{forgotten:,} kept answers of {name} are forgotten" if forgotten else f"no answer of {name} was kept"
    invocation.out.show(document(source=name, forgotten=forgotten), said)


@shared_options
async def set_limits(
    invocation: Invocation,
    name: Name,
    *,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.01, max=100_000_000, metavar="PER_MINUTE", help="Calls a minute, for each key."),
    ] = None,
    day_credits: Annotated[
        int | None, typer.Option("--day-credits", min=0, max=LARGEST_ID, help="What may be spent in a day (UTC).")
    ] = None,
    month_credits: Annotated[
        int | None, typer.Option("--month-credits", min=0, max=LARGEST_ID, help="What may be spent in a month (UTC).")
    ] = None,
    no_day_cap: Annotated[
        bool, typer.Option("--no-day-cap", help="Take the day's cap off; the settings' own counts again.")
    ] = False,
    no_month_cap: Annotated[
        bool, typer.Option("--no-month-cap", help="Take the month's cap off; the settings' own counts again.")
    ] = False,
) -> None:
    """Set limits of a source for all machines; they go before each machine's settings."""
    if (day_credits is not None and no_day_cap) or (month_credits is not None and no_month_cap):
        raise typer.BadParameter("a cap cannot be set and taken off at once")
    lifted = [word for word, off in (("day", no_day_cap), ("month", no_month_cap)) if off]
    caps = Caps(day=day_credits, month=month_credits, lifted=lifted)
    if rate is None and not caps:
        raise typer.BadParameter("say what: --rate, --day-credits, --month-credits, --no-day-cap or --no-month-cap")
    async with open_app(invocation.settings) as app:
        source, now = await known_source(app, name), app.database.clock.now()
        await switches.set_limits(app, source, rate=rate, caps=caps, by=BY)
        found = await standing_of(app, source)
    invocation.out.show(document(source=found), *blocks(found, now))


@shared_options
async def check(invocation: Invocation, name: Name) -> int:
    """Ask what each key has left, also while the source is paused. Free; exit code 1 if a key gets no answer."""
    async with open_app(invocation.settings) as app:
        source = await known_source(app, name)
        if source != X_SOURCE:
            raise typer.BadParameter(f"{source} has no balance: it costs nothing; only x has one")
        problems = await ask_balances(app)
        found = await standing_of(app, source)
        now = app.database.clock.now()
    shown = document(source=source, keys=found.keys, problems=problems)
    invocation.out.show(shown, keys_grid(found, now), *(f"{label}: {said}" for label, said in problems.items()))
    return NOT_ANSWERED if problems else 0


def _woken(done: Switched) -> str:
    return f"; {counted(done.woken, 'job')} that waited for it {are(done.woken)} due" if done.woken else ""
