"""Commands for sources: status, pauses, breakers, limits, caches, balances, and a trial query."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import argument, flag, option, read_attributes, storable
from mistnet.cli.output import Block, Grid, Output, at, document, last_line, span
from mistnet.governor.model import CallPurpose, KeyLabel, SourceName
from mistnet.kit.errors import did_you_mean
from mistnet.kit.text import LARGEST_ID, are, counted
from mistnet.prices.matching import match_listing
from mistnet.prices.model import Item, ItemId, ItemState, attributes_of
from mistnet.sources import controls
from mistnet.sources.controls import (
    Caps,
    KeyStatus,
    SourceStatus,
    Switched,
    costs_credits,
    known_source,
    source_statuses,
    status_of_source,
)


def blocks(app: App, source: SourceStatus) -> list[Block]:
    now = app.database.clock.now()
    state = source.state + (f" until {at(source.until)} UTC" if source.until else "")
    said = last_line(source.last_failure)
    failure = _ago(source.last_failure_at, now) + (f": {said}" if said else "")
    cache, breaker = source.cache, source.breaker
    if breaker.state == "open":
        gate = f"open until {at(breaker.opened_until)} UTC"
    elif breaker.state == "half-open":
        gate = "half-open: a call tries now" if breaker.probe_until else "half-open: the next call tries"
    else:
        opens = "opens" if breaker.opens_after == 1 else "open"
        gate = f"closed ({counted(breaker.opens_after, 'failure')} in a row {opens} it for {span(breaker.stays_open)})"
    facts = {
        "state": state + (f" ({source.why})" if source.why else ""),
        "breaker": gate,
        "failures in a row": source.failure_streak,
        "last success": _ago(source.last_success_at, now) or "never",
        "last failure": failure or "never",
        "cached answers": "not cached" if cache is None else f"{cache.answers:,}, {cache.fresh:,} of them fresh",
    }
    if costs_credits(app, source):
        facts["credits today"] = _of(source.day_credits, source.day_cap)
        facts["credits this month"] = _of(source.month_credits, source.month_cap)
    return [Grid(title=f"source {source.name}", columns=("", ""), rows=list(facts.items())), keys_grid(app, source)]


def keys_grid(app: App, source: SourceStatus) -> Grid:
    now, declared = app.database.clock.now(), app.sources.get(source.name)
    no_balance = "not asked yet" if costs_credits(app, source) else ""

    def note(key: KeyStatus) -> str:
        paused = [f"paused: {key.pause_reason or 'no reason given'}"] if key.paused_at else []
        return "; ".join([*paused, *([] if key.configured_here else ["not configured here"])])

    return Grid.of(
        source.keys,
        "key, calls a minute, at once, balance, as of, ",
        key="label",
        calls_a_minute=lambda key: f"{key.rate_per_minute:,g} ({key.rate_is})",
        at_once=lambda key: (
            f"{key.bucket:,} of {key.burst:,}" + (f", slowed to {key.slowdown:.0%}" if key.slowdown < 1 else "")
        ),
        balance=lambda key: f"{key.balance:,}" if key.balance is not None else no_balance,
        as_of=lambda key: _ago(key.balance_at, now),
        untitled=note,
        heading=f"keys of {source.name}",
        empty=f"no key is configured: {declared.setup if declared else 'another machine calls it'}",
    )


def _ago(moment: datetime | None, now: datetime) -> str:
    return f"{at(moment)} UTC, {span(now - moment)} ago" if moment else ""


def _of(spent: int, cap: int | None) -> str:
    return f"{spent:,} of {cap:,}" if cap is not None else f"{spent:,} (no cap)"


NOT_ANSWERED: Final = 1
"""Exit code when the balance of a key is not known."""


async def ask_balances(app: App, name: SourceName) -> Mapping[KeyLabel, str]:
    """Ask what each key of a source has left; return what went wrong, by key."""
    source = app.sources.get(name)
    if source is None or source.check_balances is None:
        with_balances = [each.name for each in app.sources.values() if each.check_balances]
        raise typer.BadParameter(f"{name} has no balance: it costs nothing; only {', '.join(with_balances)} has one")
    return await source.check_balances()


BY: Final = "command line"
"""Who made a change, for the log."""

_LONGEST_MINUTES: Final = 60 * 24 * 365


Name = Annotated[str, argument("NAME", "The source: x, threads, ebay_api, a lane, or a shop of your file.")]
Why = Annotated[str, option("--reason", "TEXT", "Why; shown to all.")]


@app_command
async def list_sources(app: App, out: Output) -> None:
    """Show each source: whether it is open, its rate, breaker and cache, what it cost, and its keys."""
    statuses = await source_statuses(app)
    out.show(document(sources=statuses), *(block for each in statuses for block in blocks(app, each)))


@shared_options
async def pause(invocation: Invocation, name: Name, reason: Why = "paused by hand") -> None:
    """Stop all calls to a source, on every machine, within about a second. Nothing is lost."""
    storable("--reason", reason)
    async with open_app(invocation.settings) as app:
        done = await controls.pause(app, await known_source(app, name), reason, by=BY)
    again = f"{name} was paused already; the reason is now: {reason}"
    said = f"{name} is paused: {reason}" if done.changed else again
    invocation.out.show(document(source=name, paused=True, changed=done.changed, reason=reason), said)


@app_command
async def resume(app: App, out: Output, name: Name) -> None:
    """End the pause of a source and of its keys, and make the work due that waited for it."""
    done = await controls.resume(app, await known_source(app, name), by=BY)
    said = f"{name} is resumed" if done.changed else f"{name} was not paused"
    out.show(document(source=name, paused=False, changed=done.changed, woken=done.woken), said + _woken(done))


@shared_options
async def open_breaker(
    invocation: Invocation,
    name: Name,
    minutes: Annotated[
        float, option("--minutes", None, "How long the breaker stays open.", min=0.01, max=_LONGEST_MINUTES)
    ] = 5.0,
    reason: Why = "opened by hand",
) -> None:
    """Open a source's breaker now: no calls for a while, then one call tests the source."""
    storable("--reason", reason)
    async with open_app(invocation.settings) as app:
        source, span = await known_source(app, name), timedelta(minutes=minutes)
        done = await controls.open_breaker(app, source, span, reason, by=BY)
        until = (await status_of_source(app, source)).breaker.opened_until
    shown = document(source=name, breaker="open", changed=done.changed, until=until, reason=reason)
    invocation.out.show(shown, f"the breaker of {name} is open until {at(until)} UTC: {reason}")


@app_command
async def close_breaker(app: App, out: Output, name: Name) -> None:
    """Close a source's breaker now and reset its count of failures; work that waited for it is due."""
    done = await controls.close_breaker(app, await known_source(app, name), by=BY)
    said = f"the breaker of {name} is closed" if done.changed else f"the breaker of {name} was closed already"
    out.show(document(source=name, breaker="closed", changed=done.changed, woken=done.woken), said + _woken(done))


@app_command
async def forget(app: App, out: Output, name: Name) -> None:
    """Delete the cached answers of a source."""
    forgotten = await controls.forget_answers(app, await known_source(app, name), by=BY)
    deleted = f"{counted(forgotten, 'cached answer')} of {name} {are(forgotten)} deleted"
    out.show(document(source=name, forgotten=forgotten), deleted if forgotten else f"no answer of {name} is cached")


@shared_options
async def set_limits(
    invocation: Invocation,
    name: Name,
    *,
    rate: Annotated[
        float | None, option("--rate", "PER_MINUTE", "Calls a minute, for each key.", min=0.01, max=100_000_000)
    ] = None,
    day_credits: Annotated[
        int | None, option("--day-credits", None, "What may be spent in a day (UTC).", min=0, max=LARGEST_ID)
    ] = None,
    month_credits: Annotated[
        int | None, option("--month-credits", None, "What may be spent in a month (UTC).", min=0, max=LARGEST_ID)
    ] = None,
    no_day_cap: Annotated[
        bool, flag("--no-day-cap", "Remove the day's cap, so that the settings apply again.")
    ] = False,
    no_month_cap: Annotated[
        bool, flag("--no-month-cap", "Remove the month's cap, so that the settings apply again.")
    ] = False,
) -> None:
    """Set limits of a source for all machines; they override each machine's settings."""
    if (day_credits is not None and no_day_cap) or (month_credits is not None and no_month_cap):
        raise typer.BadParameter("a cap cannot be set and removed at once")
    lifted = [word for word, off in (("day", no_day_cap), ("month", no_month_cap)) if off]
    caps = Caps(day=day_credits, month=month_credits, lifted=lifted)
    if rate is None and not caps:
        raise typer.BadParameter("give --rate, --day-credits, --month-credits, --no-day-cap or --no-month-cap")
    async with open_app(invocation.settings) as app:
        source = await known_source(app, name)
        await controls.set_limits(app, source, rate=rate, caps=caps, by=BY)
        status = await status_of_source(app, source)
    invocation.out.show(document(source=status), *blocks(app, status))


@app_command
async def check(app: App, out: Output, name: Name) -> int:
    """Fetch the balance of each key, even while the source is paused. Free; exit code 1 if a key gets no answer."""
    source = await known_source(app, name)
    problems = await ask_balances(app, source)
    status = await status_of_source(app, source)
    shown = document(source=source, keys=status.keys, problems=problems)
    out.show(shown, keys_grid(app, status), *(f"{label}: {said}" for label, said in problems.items()))
    return NOT_ANSWERED if problems else 0


def _woken(done: Switched) -> str:
    return f"; {counted(done.woken, 'job')} that waited for it {are(done.woken)} due" if done.woken else ""


_PAYLOAD: Final = 200


@app_command
async def try_source(
    app: App,
    out: Output,
    name: Annotated[str, argument("NAME", "The source: ebay_api, a lane, or a shop of your file.")],
    *,
    title: Annotated[str, option("--title", "TEXT", "The title of the item.")],
    attributes: Annotated[
        list[str] | None, option("--attribute", "NAME=VALUE", "Such as year=1921; may be given several times.")
    ] = None,
    urls: Annotated[list[str] | None, option("--url", "URL", "A page of the item, for the lanes.")] = None,
) -> None:
    """Query one source and show what is read from each listing. Stores no item and no price."""
    source = app.valuing.plain.get(SourceName(name))
    if source is None:
        known = sorted(app.valuing.plain)
        raise typer.BadParameter(
            f"there is no source of prices {name!r}.{did_you_mean(name, known)} Known here: {', '.join(known)}. "
            f"ebay_api needs ebay_client_id and ebay_client_secret; other shops come from the file `price_sources`",
            param_hint="NAME",
        )
    item = _described_item(app, title, attributes or [], urls or [])
    async with app.sources[SourceName(name)].opened():
        answer = await source.search(item, purpose=CallPurpose(), fresh=True)
    read = []
    for listing in answer.listings:
        found = match_listing(item, listing)
        fields = {
            "kind": listing.kind,
            "amount": listing.amount,
            "currency": listing.currency,
            "title": listing.title,
            "fits": found.fits,
            "strength": found.strength,
            "why": found.why,
            "condition": listing.condition,
            "bids": listing.bid_count,
            "external_id": listing.external_id,
            "observed_at": listing.observed_at,
            "url": listing.url,
        }
        read.append(fields)
    odd = [
        {"problem": each.problem, "payload": each.payload[:_PAYLOAD].decode("utf-8", "replace")}
        for each in answer.unreadable
    ]
    listings = Grid(
        title=f"What {name} answers",
        columns=("kind", "amount", "fits", "title", "id", "url"),
        rows=[
            (
                each["kind"],
                f"{each['amount']:f} {each['currency']}",
                f"{each['strength']:.2f}" + (f" ({each['why']})" if each["why"] else ""),
                each["title"],
                each["external_id"],
                each["url"],
            )
            for each in read
        ],
        empty=f"{name} lists nothing for this.",
    )
    title_of_odd, columns = "What could not be read", ("problem", "as it came")
    odd_grids = [Grid(title=title_of_odd, columns=columns, rows=[list(each.values()) for each in odd])] if odd else []
    out.show(document(source=name, title=title, listings=read, unreadable=odd), listings, *odd_grids)


def _described_item(app: App, title: str, attributes: Sequence[str], urls: Sequence[str]) -> Item:
    if not title.strip():
        raise typer.BadParameter("say what the thing is called", param_hint="--title")
    now = app.database.clock.now()
    return Item(
        id=ItemId(0),
        title=title.strip(),
        attributes=attributes_of(read_attributes(attributes)),
        urls=tuple(urls),
        state=ItemState.ACTIVE,
        added_at=now,
        changed_at=now,
    )
