"""Commands for price watches: be told when a price changes, falls below a target, or a thing is to be had again."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import Grid, at, document
from mistnet.cli.products import product_called
from mistnet.kit.text import money
from mistnet.prices.model import ItemId
from mistnet.prices.watches.model import Observation, WatchId, WatchKind, WatchRequest, subject
from mistnet.prices.watches.store import WatchLine

_LINE: Final = "say one of --change PERCENT, --below AMOUNT with --currency, and --back-in-stock"
_LONGEST_AMOUNT: Final = 40


def amount(given: str) -> Decimal:
    """An exact amount, as people type one: 99.90."""
    try:
        read = Decimal(given.strip()) if len(given) <= _LONGEST_AMOUNT else Decimal("NaN")
    except InvalidOperation:
        read = Decimal("NaN")
    if not read.is_finite() or read <= 0:
        raise typer.BadParameter(f"{given[:40]!r} is no amount; write digits such as 1280 or 99.90")
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
        float | None, typer.Option("--change", metavar="PERCENT", help="Tell if the price changes by more than this.")
    ] = None,
    below: Annotated[
        Decimal | None,
        typer.Option("--below", parser=amount, metavar="AMOUNT", help="Tell if the price falls below this."),
    ] = None,
    currency: Annotated[
        str | None, typer.Option("--currency", metavar="CODE", help="With --below: of which currency, such as TWD.")
    ] = None,
    back_in_stock: Annotated[
        bool, typer.Option("--back-in-stock", help="Tell if it can be had again after it could not.")
    ] = False,
) -> None:
    """Be told of a price by an event. It is sent only when a second look saw the same."""
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
    again = "" if done.added else " (it was there already)"
    hints = (
        [] if invocation.settings.webhooks else ["nobody is told yet: set `webhooks`; see docs/events-and-alerts.md"]
    )
    invocation.out.show(document(watch=fields(done.watch), added=done.added), said + again, *hints)


@shared_options
async def watches(
    invocation: Invocation,
    *,
    product: Product = None,
    item: ItemOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many at most.")] = 50,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, max=LARGEST_ID, metavar="ID", help="Only those before: the next page."),
    ] = None,
) -> None:
    """Show what is watched: what is known of each price, what only one look saw, and when somebody was told."""
    if product is not None and item is not None:
        raise typer.BadParameter("name a product or an item, not both")
    async with open_app(invocation.settings) as app:
        found = await _found(app, product, item, before=before, limit=limit + 1)
    shown, more = found[:limit], len(found) > limit
    grid = Grid(
        columns=("id", "of", "watched for", "known", "state", "told (UTC)", "title"),
        rows=[_row(each) for each in shown],
        empty="nothing is watched: `mistnet prices watch --product ID --change 10` begins to",
    )
    following = str(shown[-1].id) if more else None
    told = document(watches=[fields(each) for each in shown], next_before=following)
    invocation.out.show(told, grid, *([f"more: --before {following}"] if following else []))


@shared_options
async def unwatch(
    invocation: Invocation,
    watch_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="The watch's id.")],
) -> None:
    """Take a watch back. Events that were written are still sent."""
    async with open_app(invocation.settings) as app:
        gone = await app.price_watches.remove(WatchId(watch_id))
    invocation.out.show(document(watch=fields(gone)), f"watch {gone.id} is gone: {sentence(gone)}")


async def _found(
    app: App, product: str | None, item: int | None, *, before: int | None, limit: int
) -> Sequence[WatchLine]:
    product_id = (await product_called(app, product)).id if product is not None else None
    item_id = None if item is None else ItemId(item)
    return await app.price_watches.list(product_id=product_id, item_id=item_id, before=before, limit=limit)


def sentence(line: WatchLine) -> str:
    return f"{subject(line)} {line.title[:80]!r}, {wanted_of(line)}"


def wanted_of(line: WatchLine) -> str:
    """What must happen for somebody to be told."""
    match line.kind:
        case WatchKind.CHANGED:
            return f"a change of more than {line.percent:g} %"
        case WatchKind.BELOW:
            return f"below {money(line.target, line.currency)}"
        case WatchKind.BACK_IN_STOCK:
            return "back in stock"


def _row(line: WatchLine) -> Sequence[str]:
    known = _seen(line.known, line.kind) if line.known else ""
    told = f"{at(line.told_at)} ({line.events}x)" if line.told_at else ""
    return str(line.id), subject(line), wanted_of(line), known, line.problem or _state(line), told, line.title[:60]


def _state(line: WatchLine) -> str:
    """Of a price that only one look saw: which, since what is known does not show it yet."""
    if line.suspected is None:
        return line.standing
    return f"{line.standing}: one look saw {_seen(line.suspected, line.kind)}, a second one decides"


def _seen(look: Observation, kind: WatchKind) -> str:
    if kind is WatchKind.BACK_IN_STOCK:
        return (look.availability or "").replace("_", " ")
    return money(look.amount, look.currency)


def fields(line: WatchLine) -> dict[str, Any]:
    """A watch as programs see it: ids and amounts are text."""
    told = {name: getattr(line, name) for name in line.__struct_fields__}
    return {
        **told,
        "product_id": None if line.product_id is None else str(line.product_id),
        "item_id": None if line.item_id is None else str(line.item_id),
        "target": None if line.target is None else f"{line.target:f}",
        "standing": line.standing,
        "known": _look(line.known),
        "suspected": _look(line.suspected),
    }


def _look(look: Any) -> dict[str, Any] | None:
    if look is None:
        return None
    amount_seen = None if look.amount is None else f"{look.amount:f}"
    return {"at": look.at, "amount": amount_seen, "currency": look.currency, "availability": look.availability}
