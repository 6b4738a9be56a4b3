"""Commands for price watches: get an event when a price changes, falls below a target, or a product is back."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final

import typer

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import BeforeOption, LimitOption
from mistnet.cli.output import Grid, at, document, next_page, record_fields
from mistnet.cli.products import product_called
from mistnet.kit.text import LARGEST_ID, money
from mistnet.prices.model import ItemId
from mistnet.prices.watches.model import Observation, WatchId, WatchKind, WatchLine, WatchRequest, subject

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


Product = Annotated[
    str | None, typer.Option("--product", metavar="ID|URL", help="A product, by its id or any URL of it.")
]
ItemOption = Annotated[int | None, typer.Option("--item", min=1, max=LARGEST_ID, metavar="ID", help="An item.")]


@shared_options
async def watch(
    invocation: Invocation,
    *,
    product: Product = None,
    item: ItemOption = None,
    change: Annotated[
        float | None,
        typer.Option("--change", metavar="PERCENT", help="An event if the price changes by more than this."),
    ] = None,
    below: Annotated[
        Decimal | None,
        typer.Option("--below", parser=amount, metavar="AMOUNT", help="An event if the price falls below this."),
    ] = None,
    currency: Annotated[
        str | None, typer.Option("--currency", metavar="CODE", help="With --below: of which currency, such as TWD.")
    ] = None,
    back_in_stock: Annotated[bool, typer.Option("--back-in-stock", help="An event if it is available again.")] = False,
) -> None:
    """Get an event about a price. It is sent only when a second look confirms it."""
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
            product_id=(await product_called(app, product)).id if product is not None else None,
            item_id=None if item is None else ItemId(item),
            percent=change,
            target=below,
            currency=currency.strip().upper() if currency else None,
        )
        done = await app.price_watches.add(wanted)
    said = f"watch {done.watch.id}: {sentence(done.watch)}"
    again = "" if done.added else " (it existed already)"
    hints = (
        []
        if invocation.settings.webhooks
        else ["no webhook is set, so no one is notified: set `webhooks`; see docs/events-and-alerts.md"]
    )
    invocation.out.show(document(watch=fields(done.watch), added=done.added), said + again, *hints)


@shared_options
async def watches(
    invocation: Invocation,
    *,
    product: Product = None,
    item: ItemOption = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show price watches: the known price, what only one look saw, and the last event."""
    if product is not None and item is not None:
        raise typer.BadParameter("name a product or an item, not both")
    async with open_app(invocation.settings) as app:
        page = await app.price_watches.page(
            product_id=(await product_called(app, product)).id if product is not None else None,
            item_id=None if item is None else ItemId(item),
            after=before,
            limit=limit,
        )
    grid = Grid(
        columns=("id", "of", "watched for", "known", "state", "told (UTC)", "title"),
        rows=[_row(each) for each in page.items],
        empty="nothing is watched: `mistnet prices watch --product ID --change 10` begins to",
    )
    shown = document(watches=[fields(each) for each in page.items], next_before=page.next and str(page.next))
    invocation.out.show(shown, grid, *next_page(page.next))


@shared_options
async def unwatch(
    invocation: Invocation,
    watch_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="The watch's id.")],
) -> None:
    """Remove a watch. Events that were written are still sent."""
    async with open_app(invocation.settings) as app:
        gone = await app.price_watches.remove(WatchId(watch_id))
    invocation.out.show(document(watch=fields(gone)), f"watch {gone.id} is gone: {sentence(gone)}")


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


def _row(line: WatchLine) -> Sequence[str]:
    known = _seen(line.known, line.kind) if line.known else ""
    notified = f"{at(line.told_at)} ({line.events}x)" if line.told_at else ""
    state: str = line.standing
    if line.suspected is not None:  # the known price does not show it yet
        state += f": one look saw {_seen(line.suspected, line.kind)}, a second one decides"
    return str(line.id), subject(line), wanted_of(line), known, line.problem or state, notified, line.title[:60]


def _seen(look: Observation, kind: WatchKind) -> str:
    if kind is WatchKind.BACK_IN_STOCK:
        return (look.availability or "").replace("_", " ")
    return money(look.amount, look.currency)


def fields(line: WatchLine) -> dict[str, Any]:
    """A watch as the API returns it."""
    return {
        **record_fields(line),
        "standing": line.standing,
        "known": _look(line.known),
        "suspected": _look(line.suspected),
    }


def _look(look: Observation | None) -> dict[str, Any] | None:
    return None if look is None else record_fields(look, "source", "link_id", "rests_on", "moved_by", "asked")
