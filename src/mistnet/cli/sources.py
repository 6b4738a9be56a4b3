"""Commands for what we read from: how each source stands, its kill switch, its limits, its keys' balances."""

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from mistnet import __version__
from mistnet.app import open_app
from mistnet.cli.balances import check_balances
from mistnet.cli.joblines import storable
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import document
from mistnet.cli.shared import Invocation, shared_options
from mistnet.cli.standings import blocks, keys_grid
from mistnet.desk.standings import KNOWN, configured, standings, state_of
from mistnet.domain.errors import NoKey, did_you_mean
from mistnet.domain.sources import X_SOURCE, SourceName

NOT_ANSWERED: Final = 1
"""Exit code of `check` when a key's balance could not be had."""


class ListedFirst(TyperGroup):
    """Without a command of its own, `sources` lists them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named else ["list", *args])


commands = typer.Typer(cls=ListedFirst, help="Look at sources, stop and start them, set their limits.")


def known_source(given: str) -> SourceName:
    if given not in KNOWN:
        listed = ", ".join(KNOWN)
        raise typer.BadParameter(
            f"there is no source {given!r}.{did_you_mean(given.lower(), KNOWN)} Known sources: {listed}"
        )
    return SourceName(given)


Name = Annotated[str, typer.Argument(metavar="NAME", parser=known_source, help="The source: x, threads or a lane.")]


@commands.command("list")
@shared_options
async def list_sources(invocation: Invocation) -> None:
    """Show each source: whether it is open, what it cost, and its keys."""
    async with open_app(invocation.settings) as app:
        now = app.database.clock.now()
        found = await standings(app)
    invocation.out.show(document(sources=found), *(block for each in found for block in blocks(each, now)))


@commands.command("pause")
@shared_options
async def pause(
    invocation: Invocation,
    name: Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to all.")] = "paused by hand",
) -> None:
    """Stop all calls to a source, on every machine, within about a second. Nothing is lost."""
    storable("--reason", reason)
    source = SourceName(name)
    async with open_app(invocation.settings) as app:
        before = await state_of(app, source)
        await app.harvest.book.pause(source, reason, now=app.database.clock.now())
    already = before.paused_at is not None
    said = f"{source} was paused already; the reason is now: {reason}" if already else f"{source} is paused: {reason}"
    invocation.out.show(document(source=source, paused=True, changed=not already, reason=reason), said)


@commands.command("resume")
@shared_options
async def resume(invocation: Invocation, name: Name) -> None:
    """Let calls go on: ends the pause of a source and of its keys, and makes the work due that waited for it."""
    source = SourceName(name)
    async with open_app(invocation.settings) as app:
        before = await state_of(app, source)
        woken = await app.harvest.book.resume(source, now=app.database.clock.now())
    changed = before.paused_at is not None
    said = f"{source} goes on" if changed else f"{source} was not paused"
    said += f"; {woken:,} jobs that waited for it are due" if woken else ""
    invocation.out.show(document(source=source, paused=False, changed=changed, woken=woken), said)


@commands.command("set")
@shared_options
async def set_limits(
    invocation: Invocation,
    name: Name,
    *,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.01, max=10_000_000, metavar="PER_MINUTE", help="Calls a minute, for each key."),
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
    caps_change = day_credits is not None or month_credits is not None or no_day_cap or no_month_cap
    if rate is None and not caps_change:
        raise typer.BadParameter("say what: --rate, --day-credits, --month-credits, --no-day-cap or --no-month-cap")
    source = SourceName(name)
    async with open_app(invocation.settings) as app:
        book, now = app.harvest.book, app.database.clock.now()
        if rate is not None:
            await book.set_rate(source, rate, configured(app, source)[0])
        await book.set_caps(source, day=day_credits, month=month_credits)
        await book.lift_caps(source, day=no_day_cap, month=no_month_cap)
        if caps_change:
            await book.wake_for_budget(source, now=now)
        (found,) = [each for each in await standings(app) if each.name == source]
    invocation.out.show(document(source=found), *blocks(found, now))


@commands.command("check")
@shared_options
async def check(invocation: Invocation, name: Name) -> int:
    """Ask what each key has left, also while the source is paused. Free; exit code 1 if a key gets no answer."""
    source = SourceName(name)
    if source != X_SOURCE:
        raise typer.BadParameter(f"{source} has no balance: it costs nothing; only x has one")
    async with open_app(invocation.settings) as app:
        if not app.settings.x_api_key:
            raise NoKey
        from mistnet.upstream.http import HttpTransport  # noqa: PLC0415 (slow to load; other commands do without)

        async with HttpTransport(app.settings.x_base_url, user_agent=f"mistnet/{__version__}") as transport:
            problems = await check_balances(app, transport)
        (found,) = [each for each in await standings(app) if each.name == source]
        now = app.database.clock.now()
    shown = document(source=source, keys=found.keys, problems=problems)
    invocation.out.show(shown, keys_grid(found, now), *(f"{label}: {said}" for label, said in problems.items()))
    return NOT_ANSWERED if problems else 0
