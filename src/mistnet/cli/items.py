"""Commands for items and price watches: follow the value of a thing, get an event when a price changes."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import BeforeOption, FileOption, LimitOption, argument, flag, option, read_all, read_attributes
from mistnet.cli.links import find_product
from mistnet.cli.output import Grid, Output, at, document, fields_of, next_page
from mistnet.cli.write_out import ForceOption, FormatOption, OutputOption, OutputTarget, SafeOption, write_out
from mistnet.kit.errors import did_you_mean
from mistnet.kit.export import Target
from mistnet.kit.text import LARGEST_ID, counted, money, read_id, split_list
from mistnet.prices.item_validation import (
    KNOWN_COLUMNS,
    LEAST_HOURS,
    MOST_HOURS,
    PLAIN_FIELDS,
    field_called,
    item_request_of,
)
from mistnet.prices.model import KNOWN_ATTRIBUTES, ItemId, ItemState
from mistnet.prices.service import change_item, fetch_now, items_of, known_item, sources_of
from mistnet.prices.store.item_listing import export_items
from mistnet.prices.store.items import ItemOutcome
from mistnet.prices.watches import Observation, WatchId, WatchKind, WatchLine, WatchRequest, subject

_OUTCOMES: Final = {
    ItemOutcome.ADDED: "is followed from now on",
    ItemOutcome.CHANGED: "is changed; its prices are fetched again",
    ItemOutcome.SAME: "is already followed with these fields",
}
_STATES: Final = {
    ItemState.ACTIVE: ("is followed again", "was followed already"),
    ItemState.PAUSED: ("is paused: no source is asked for it", "was paused already"),
    ItemState.REMOVED: ("is no longer followed; its points and valuations are kept", "was removed already"),
}


def item_number(given: str) -> int:
    item_id = read_id(given)
    if item_id is None:
        raise typer.BadParameter(f"{given[:80]!r} is no item's id; `mistnet items list` shows them")
    return item_id


ItemArgument = Annotated[int, argument("ID", "The item's id.", parser=item_number)]
ItemArguments = Annotated[list[str] | None, argument("[ID]...", "Ids of items; separated by commas or blanks.")]
Sources = Annotated[list[str] | None, option("--source", "NAME", "Ask only this source; may be repeated.")]


class ItemOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an item may say besides its title."""

    year: Annotated[str | None, option("--year", "YEAR", "The year it was made.")] = None
    mint_mark: Annotated[str | None, option("--mint-mark", "MARK", "A coin's mint mark, such as S.")] = None
    denomination: Annotated[str | None, option("--denomination", "TEXT", "Its face value.")] = None
    series: Annotated[str | None, option("--series", "TEXT", "The series it belongs to.")] = None
    grade: Annotated[str | None, option("--grade", "GRADE", "Its grade, such as MS65.")] = None
    attribute: Annotated[
        list[str] | None, option("--attribute", "NAME=VALUE", "Any other attribute; may be repeated.")
    ] = None
    exclude: Annotated[
        list[str] | None, option("--exclude", "WORD", "A listing must not say this; may be repeated.")
    ] = None
    source: Sources = None
    url: Annotated[
        list[str] | None, option("--url", "URL", "A page that sells exactly this item; may be repeated.")
    ] = None
    currency: Annotated[str | None, option("--currency", "CODE", "Value it in this currency.")] = None
    every_hours: Annotated[
        float | None,
        option(
            "--every-hours",
            "HOURS",
            f"Ask so often, from {LEAST_HOURS:g} to {MOST_HOURS:g}; without it, as the settings say.",
        ),
    ] = None
    ref: Annotated[str | None, option("--ref", "REF", "Your own name for it: the same one again changes the item.")] = (
        None
    )

    @property
    def known_attributes(self) -> dict[str, str]:
        """The attributes that have an option of their own."""
        return {name: value for name in KNOWN_ATTRIBUTES if (value := getattr(self, name)) is not None}

    @property
    def fields(self) -> dict[str, Any]:
        """The other fields that are given."""
        named: dict[str, Any] = {"ref": self.ref, "currency": self.currency, "every_hours": self.every_hours}
        named |= {"exclude": self.exclude, "sources": self.source, "urls": self.url}
        return {name: value for name, value in named.items() if value is not None}


@app_command
async def add(
    app: App,
    out: Output,
    title: Annotated[str, argument("TITLE", "The words that listings of it have.")],
    *,
    given: ItemOptions,
) -> None:
    """Add an item whose price is followed. The same item is not added twice."""
    attributes = read_attributes(given.attribute)
    fields = {"title": title, **given.fields, **given.known_attributes, "attributes": attributes}
    request = item_request_of(fields, sources=sources_of(app))
    (kept,) = await items_of(app).add([request], app.database.clock.now())
    item = await known_item(app, kept.item_id)
    out.show(document(outcome=kept.outcome, item=item), f"item {item.id} {_OUTCOMES[kept.outcome]}: {item.title}")


@app_command
async def set_item(
    app: App,
    out: Output,
    item: ItemArgument,
    *,
    title: Annotated[str | None, option("--title", "TITLE", "Another title.")] = None,
    given: ItemOptions,
    clear: Annotated[
        list[str] | None, option("--clear", "NAME", "Take this field or attribute away; may be repeated.")
    ] = None,
) -> None:
    """Change the fields of an item. Lists are replaced, attributes are merged; other fields stay."""
    attributes: dict[str, Any] = {**read_attributes(given.attribute), **given.known_attributes}
    changes = given.fields if title is None else {"title": title, **given.fields}
    before = await known_item(app, ItemId(item))
    for written in clear or ():
        name = field_called(written)
        if name == "title":
            raise typer.BadParameter("an item needs a title; give another with --title")
        if name in PLAIN_FIELDS and name != "attributes":
            changes[name] = None
        elif name in before.attributes:
            attributes[name] = None
        else:
            guess = did_you_mean(name, {*KNOWN_COLUMNS, *before.attributes})
            raise typer.BadParameter(f"--clear {written[:80]!r}: item {before.id} has no such attribute.{guess}")
    if not changes and not attributes:
        raise typer.BadParameter("say what to change, for example --title TEXT or --clear currency")
    after, kept = await change_item(app, before.id, {**changes, "attributes": attributes})
    said = f"item {after.id} " + (_OUTCOMES[kept.outcome] if kept.outcome is ItemOutcome.CHANGED else "was so already")
    out.show(document(outcome=kept.outcome, item=after), f"{said}: {after.title}")


@shared_options
async def pause(invocation: Invocation, items: ItemArguments = None, *, file: FileOption = None) -> None:
    """Fetch no prices for these items until they are resumed."""
    await _set_states(invocation, _item_ids(items, file), ItemState.PAUSED)


@shared_options
async def resume(invocation: Invocation, items: ItemArguments = None, *, file: FileOption = None) -> None:
    """Resume paused items."""
    await _set_states(invocation, _item_ids(items, file), ItemState.ACTIVE)


@shared_options
async def remove(invocation: Invocation, items: ItemArguments = None, *, file: FileOption = None) -> None:
    """Stop following these items. Their points and valuations are kept."""
    await _set_states(invocation, _item_ids(items, file), ItemState.REMOVED)


@shared_options
async def ask(
    invocation: Invocation, items: ItemArguments = None, *, file: FileOption = None, source: Sources = None
) -> None:
    """Fetch prices of these items now, from all their sources or those named. Workers do it."""
    ids = _item_ids(items, file)
    async with open_app(invocation.settings) as app:
        made = await fetch_now(app, ids, split_list(*source or ()))
    said = f"{counted(made.created, 'question')} to come for {counted(len(ids), 'item')}"
    were = "was" if made.duplicates == 1 else "were"
    already = f"; {made.duplicates:,} {were} on the list already" if made.duplicates else ""
    shown = document(items=[str(each) for each in ids], created=made.created, duplicates=made.duplicates)
    invocation.out.show(shown, said + already)


@shared_options
async def export(
    invocation: Invocation,
    *,
    format_: FormatOption = None,
    output: OutputOption = None,
    removed: Annotated[bool, flag("--removed", "Those that were removed too.")] = False,
    safe: SafeOption = False,
    force: ForceOption = False,
) -> None:
    """Export all items with their valuations. `items import` reads its CSV and JSON lines."""

    place = OutputTarget.of(format_, output, force=force, safe=safe)

    async def items(app: App, target: Target) -> int:
        return await export_items(app.database, place.format, target, removed=removed)

    await write_out(invocation, place, items, what="items")


def _item_ids(given: Sequence[str] | None, file: Path | None) -> list[ItemId]:
    return read_all(given, file, lambda row: ItemId(item_number(row.value)), spoilt="nothing was changed")


async def _set_states(invocation: Invocation, ids: Sequence[ItemId], state: ItemState) -> None:
    """All of them, or none where one is not there."""
    async with open_app(invocation.settings) as app:
        for each in ids:
            await known_item(app, each)
        now = app.database.clock.now()
        done = [await items_of(app).set_state(each, state, now) for each in ids]
    lines = [f"item {item.id} {_STATES[state][0 if changed else 1]}: {item.title}" for item, changed in done]
    shown = document(items=[{**fields_of(item), "changed": changed} for item, changed in done])
    invocation.out.show(shown, *lines)


_LINE: Final = "say one of --change PERCENT, --below AMOUNT with --currency, and --back-in-stock"
_LONGEST_AMOUNT: Final = 40


def amount(given: str) -> Decimal:
    """An exact amount, as people type one: 99.90."""
    try:
        read = Decimal(given.strip()) if len(given) <= _LONGEST_AMOUNT else Decimal("NaN")
    except InvalidOperation:
        read = Decimal("NaN")
    if not read.is_finite() or read <= 0:
        raise typer.BadParameter(f"{given[:40]!r} is not an amount; write digits such as 1280 or 99.90")
    return read


Product = Annotated[str | None, option("--product", "ID|URL", "A product, by its id or any URL of it.")]
ItemOption = Annotated[int | None, option("--item", "ID", "An item.", min=1, max=LARGEST_ID)]


@shared_options
async def watch(
    invocation: Invocation,
    *,
    product: Product = None,
    item: ItemOption = None,
    change: Annotated[
        float | None, option("--change", "PERCENT", "An event if the price changes by more than this.")
    ] = None,
    below: Annotated[
        Decimal | None, option("--below", "AMOUNT", "An event if the price falls below this.", parser=amount)
    ] = None,
    currency: Annotated[
        str | None, option("--currency", "CODE", "With --below: of which currency, such as TWD.")
    ] = None,
    back_in_stock: Annotated[bool, flag("--back-in-stock", "An event if it is available again.")] = False,
) -> None:
    """Get an event about a price. It is sent only after a second check confirms the price."""
    if (product is None) == (item is None):
        raise typer.BadParameter("name a product with --product or an item with --item")
    if [change is not None, below is not None, back_in_stock].count(True) != 1:
        raise typer.BadParameter(_LINE)
    if (below is None) != (currency is None):
        raise typer.BadParameter("--below AMOUNT and --currency CODE go together")
    kind = WatchKind.BACK_IN_STOCK if back_in_stock else WatchKind.BELOW if below is not None else WatchKind.CHANGED
    async with open_app(invocation.settings) as app:
        wanted = WatchRequest(
            kind=kind,
            product_id=(await find_product(app, product)).id if product is not None else None,
            item_id=None if item is None else ItemId(item),
            percent=change,
            target=below,
            currency=currency.strip().upper() if currency else None,
        )
        done = await app.price_watches.add(wanted)
    said = f"watch {done.watch.id}: {sentence(done.watch)}"
    again = "" if done.added else " (it existed already)"
    no_webhook = "no webhook is set, so no one is notified: set `webhooks`; see docs/events-and-alerts.md"
    hints = [] if invocation.settings.webhooks else [no_webhook]
    invocation.out.show(document(watch=watch_fields(done.watch), added=done.added), said + again, *hints)


@app_command
async def watches(
    app: App,
    out: Output,
    *,
    product: Product = None,
    item: ItemOption = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show price watches: the known price, an unconfirmed price, and the last event."""
    if product is not None and item is not None:
        raise typer.BadParameter("name a product or an item, not both")
    page = await app.price_watches.page(
        product_id=(await find_product(app, product)).id if product is not None else None,
        item_id=None if item is None else ItemId(item),
        after=before,
        limit=limit,
    )
    grid = Grid.of(
        page.items,
        "id, of, watched for, known, state, told (UTC), title",
        of=subject,
        watched_for=wanted_of,
        known=lambda each: each.known and _seen(each.known, each.kind),
        state=_state_of,
        told=lambda each: f"{at(each.told_at)} ({each.events}x)" if each.told_at else None,
        title=lambda each: each.title[:60],
        empty="nothing is watched: `mistnet prices watch --product ID --change 10` begins to",
    )
    shown = document(watches=[watch_fields(each) for each in page.items], next_before=page.next)
    out.show(shown, grid, *next_page(page.next))


@app_command
async def unwatch(
    app: App,
    out: Output,
    watch_id: Annotated[int, argument("ID", "The watch's id.", min=1, max=LARGEST_ID)],
) -> None:
    """Remove a watch. Events that were written are still sent."""
    gone = await app.price_watches.remove(WatchId(watch_id))
    out.show(document(watch=watch_fields(gone)), f"watch {gone.id} is gone: {sentence(gone)}")


def sentence(line: WatchLine) -> str:
    return f"{subject(line)} {line.title[:80]!r}, {wanted_of(line)}"


def wanted_of(line: WatchLine) -> str:
    """What must happen for an event."""
    match line.kind:
        case WatchKind.CHANGED:
            return f"a change of more than {line.percent:g} %"
        case WatchKind.BELOW:
            return f"below {money(line.target, line.currency)}"
        case WatchKind.BACK_IN_STOCK:
            return "back in stock"


def _state_of(line: WatchLine) -> str:
    """The known price does not show a suspected one yet."""
    if line.problem or not line.suspected:
        return line.problem or line.standing
    return f"{line.standing}: one look saw {_seen(line.suspected, line.kind)}, a second one decides"


def _seen(look: Observation, kind: WatchKind) -> str:
    if kind is WatchKind.BACK_IN_STOCK:
        return (look.availability or "").replace("_", " ")
    return money(look.amount, look.currency)


def watch_fields(line: WatchLine) -> dict[str, Any]:
    """A watch as the API returns it."""
    return {
        **fields_of(line),
        "standing": line.standing,
        "known": _look(line.known),
        "suspected": _look(line.suspected),
    }


def _look(look: Observation | None) -> dict[str, Any] | None:
    return None if look is None else fields_of(look, "source", "link_id", "rests_on", "moved_by", "asked")
