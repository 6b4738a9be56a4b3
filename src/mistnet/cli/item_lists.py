"""Commands that show items: all of them with their valuations, or one with all that its valuation rests on."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import BeforeOption, LimitOption
from mistnet.cli.items import ItemArgument
from mistnet.cli.output import Block, Grid, at, document, fields_of, next_page, span
from mistnet.governor.model import SourceName
from mistnet.kit.text import LARGEST_ID, counted, money
from mistnet.prices.model import (
    ItemId,
    ItemLine,
    ItemPoint,
    ItemState,
    PastSummary,
    PointFilter,
    PointId,
    PointNotFound,
    WholeItem,
)
from mistnet.prices.service import item_line, item_points, sources_of, weigh_points, whole_item
from mistnet.prices.store.item_listing import ItemFilter, ItemListing
from mistnet.prices.store.valuations import Valuations
from mistnet.shops.model import PriceKind

_BARS: Final = "▁▂▃▄▅▆▇█"
_DRAWN: Final = 48
_NAMED: Final = 10


@shared_options
async def list_items(
    invocation: Invocation,
    *,
    state: Annotated[
        ItemState | None,
        typer.Option("--state", metavar="|".join(ItemState), help="Only these; without it, all but the removed."),
    ] = None,
    words: Annotated[str, typer.Option("--words", metavar="TEXT", help="Only those whose title or ref has this.")] = "",
    ref: Annotated[str | None, typer.Option("--ref", metavar="REF", help="Only the one with this ref.")] = None,
    valued: Annotated[
        bool | None, typer.Option("--valued/--not-valued", help="Only those with a valuation, or without.")
    ] = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show items with their valuations, the newest first. The change is that of the last 30 days."""
    wanted = ItemFilter(state=state, words=words.replace("\x00", ""), ref=ref, valued=valued)
    async with open_app(invocation.settings) as app:
        page = await ItemListing(app.database).page(wanted, after=before, limit=limit)
    grid = Grid(
        columns=("id", "ref", "title", "worth", "range", "sure", "points", "change", "next look (UTC)"),
        rows=[
            (
                each.id,
                each.ref,
                each.title[:80],
                worth and money(worth.estimate, worth.currency),
                worth and f"{worth.low:,f} to {worth.high:,f}",
                worth and percent(worth.confidence),
                worth and f"{worth.points:,}",
                _change(each),
                each.next_look_at if each.state is ItemState.ACTIVE else each.state,
            )
            for each in page.items
            for worth in (each.worth,)
        ],
        empty="no items: `mistnet items add TITLE` follows one, `mistnet items import FILE` many",
    )
    invocation.out.show(document(items=page.items, next_before=page.next), grid, *next_page(page.next))


@shared_options
async def show(invocation: Invocation, item: ItemArgument) -> None:
    """Show one item: its valuation and what it rests on, what is left out and why, its sources, its history."""
    item_id = ItemId(item)
    async with open_app(invocation.settings) as app:
        listing, now = ItemListing(app.database), app.database.clock.now()
        whole = await whole_item(app, item_id)
        valuation = whole.valuation
        carriers, left_out = (valuation.carriers, valuation.left_out) if valuation else ((), ())
        named = [*(each.point_id for each in carriers), *(each.point_id for each in left_out)]
        found = await Valuations(app.database).named_points(named)
        points = {each.id: each for each in weigh_points(list(found.values()), valuation)}
        past = await listing.past_summaries(item_id, limit=_DRAWN)
        pending = await listing.pending_fetches(item_id, sources_of(app))
    shown = document(
        item=fields_of(whole, "valuation", "looks"),
        questions=pending,
        valuation=valuation,
        points=[fields_of(each, "item_id", "converted") for _, each in sorted(points.items())],
        looks=[fields_of(each, "item_id") for each in whole.looks],
        course=past,
    )
    state = "" if whole.state is ItemState.ACTIVE else f" ({whole.state})"
    fetches = Grid(
        title="last looks",
        columns=("source", "looked at (UTC)", "listings", "that fit", "last found (UTC)", "problem"),
        rows=[
            (each.source, each.looked_at, f"{each.listings:,}", f"{each.points:,}", each.found_at, each.problem)
            for each in whole.looks
        ],
        empty="no source was asked yet: workers do it, or `mistnet items ask ID` now",
    )
    next_look = f"no source is asked for it: it is {whole.state}"
    if whole.next_look_at is not None:
        left = f"in {span(whole.next_look_at - now)}" if whole.next_look_at > now else "due"
        waiting = f"{counted(pending, 'source')} to be asked now, " if pending else ""
        next_look = f"{waiting}next look: {at(whole.next_look_at)} UTC ({left})"
    head = f"item {whole.id}: {whole.title}{state}"
    invocation.out.show(shown, head, _fields_grid(whole), *_valuation_blocks(whole, points, past), fetches, next_look)


@shared_options
async def points(
    invocation: Invocation,
    item: ItemArgument,
    *,
    kind: Annotated[PriceKind | None, typer.Option("--kind", metavar="|".join(PriceKind), help="Only these.")] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="NAME", help="Only of this source.")] = None,
    doubted: Annotated[
        bool | None, typer.Option("--doubted/--believed", help="Only those in doubt, or only the others.")
    ] = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show what was asked, bid or paid for an item, the latest found first, and what each counts for."""
    wanted = PointFilter(source=None if source is None else SourceName(source), kind=kind, doubted=doubted)
    async with open_app(invocation.settings) as app:
        line = await item_line(app, ItemId(item))
        page = await item_points(app, line.id, wanted, after=before, limit=limit)
    grid = Grid(
        columns=("id", "observed (UTC)", "source", "kind", "amount", "fits", "weight", "title", "left out because"),
        rows=[
            (
                each.id,
                each.observed_at,
                each.source,
                each.kind,
                money(each.amount, each.currency),
                percent(each.match_strength),
                None if each.weight is None else percent(each.weight),
                each.title[:80],
                each.left_out,
            )
            for each in page.items
        ],
        empty="no points yet: `mistnet items ask ID` fetches prices now",
    )
    shown = [fields_of(each, "item_id", "converted") for each in page.items]
    invocation.out.show(document(points=shown, next_before=page.next), grid, *next_page(page.next))


@shared_options
async def history(
    invocation: Invocation, item: ItemArgument, *, limit: LimitOption = 50, before: BeforeOption = None
) -> None:
    """Show the valuations of an item, the latest first."""
    async with open_app(invocation.settings) as app:
        line = await item_line(app, ItemId(item))
        page = await Valuations(app.database).history(line.id, after=before, limit=limit)
    grid = Grid(
        columns=("id", "since (UTC)", "worth", "range", "sure", "points", "left out", ""),
        rows=[
            (
                each.id,
                each.valued_at,
                money(each.estimate, each.currency),
                f"{each.low:,f} to {each.high:,f}",
                percent(each.confidence),
                f"{each.points:,}",
                f"{each.points_left_out:,}",
                f"none since {at(each.ended_at)}" if each.ended_at else None,
            )
            for each in page.items
        ],
        empty="it was not valued yet",
    )
    invocation.out.show(document(valuations=page.items, next_before=page.next), grid, *next_page(page.next))


@shared_options
async def versions(
    invocation: Invocation,
    point: Annotated[
        int, typer.Argument(metavar="POINT", min=1, max=LARGEST_ID, help="Its id, as `items points` shows it.")
    ],
    *,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show the earlier values of one point, the latest first: the earlier prices of a listing."""
    point_id = PointId(point)
    async with open_app(invocation.settings) as app:
        valuations = Valuations(app.database)
        if point_id not in await valuations.named_points([point_id]):
            raise PointNotFound(point_id)
        page = await valuations.versions(point_id, after=before, limit=limit)
    grid = Grid(
        columns=("nr", "observed (UTC)", "until (UTC)", "kind", "amount", "fits"),
        rows=[
            (
                each.nr,
                each.observed_at,
                each.replaced_at,
                each.kind,
                money(each.amount, each.currency),
                percent(each.match_strength),
            )
            for each in page.items
        ],
        empty="it has no earlier versions",
    )
    shown = [fields_of(each, "point_id") for each in page.items]
    invocation.out.show(document(versions=shown, next_before=page.next), grid, *next_page(page.next))


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _change(line: ItemLine) -> str:
    return "" if line.change is None else f"{line.change * 100:+.1f} %"


def sparkline(past: Sequence[PastSummary]) -> str:
    """The estimates in the latest currency, the oldest first."""
    own = [float(each.estimate) for each in past if each.currency == past[-1].currency]
    if len(own) < 2:
        return ""
    low, high = min(own), max(own)
    if low == high:
        return _BARS[3] * len(own)
    return "".join(_BARS[round((each - low) / (high - low) * (len(_BARS) - 1))] for each in own)


def _fields_grid(item: ItemLine) -> Block:
    rows = [
        ("ref", item.ref or ""),
        *((name.replace("_", " "), value) for name, value in item.attributes.items()),
        ("not with", ", ".join(item.exclude)),
        ("sources", ", ".join(item.sources) or "all that serve items"),
        *(("page", url) for url in item.urls),
        ("valued in", item.currency or "what most of its points have"),
        ("asked every", f"{item.every_hours:g} hours" if item.every_hours else "as the settings say"),
        ("added", f"{at(item.added_at)} UTC"),
    ]
    return Grid(columns=("", ""), rows=[row for row in rows if row[1]])


def _valuation_blocks(item: WholeItem, points: Mapping[PointId, ItemPoint], past: Sequence[PastSummary]) -> list[Block]:
    now = item.valuation
    if now is None:
        return ["not valued yet: none of its points can be used"]
    estimate = f"worth {money(now.estimate, now.currency)} ({now.low:,f} to {now.high:,f})"
    sure = f"confidence {percent(now.confidence)}, {counted(now.points, 'point')}, {now.points_left_out:,} left out"
    changed = f"; {_change(item)} since {at(item.earlier.valued_at)} UTC" if item.earlier and item.change else ""
    drawn = sparkline(past)
    carriers = []
    for each in now.carriers[:_NAMED]:
        point = points[each.point_id]
        converted = f" = {each.amount:,f} {now.currency} by {each.rate}" if each.rate else ""
        amount = money(point.amount, point.currency) + converted
        fits = percent(point.match_strength)
        carriers.append((*_about(point), amount, fits, percent(each.weight), point.title[:80]))
    left_out = []
    for left in now.left_out[:_NAMED]:
        point = points[left.point_id]
        left_out.append((*_about(point), money(point.amount, point.currency), left.why, point.title[:80]))
    heaviest = f", the heaviest {len(carriers)} of {now.points:,}" if now.points > len(carriers) else ""
    some = f", {len(left_out)} of {now.points_left_out:,}" if now.points_left_out > len(left_out) else ""
    return [
        f"{estimate}, {sure}{changed}",
        *([f"course: {drawn}"] if drawn else []),
        Grid(
            title=f"carried by{heaviest}",
            columns=("point", "source", "kind", "observed (UTC)", "amount", "fits", "weight", "title"),
            rows=carriers,
        ),
        Grid(
            title=f"left out{some}",
            columns=("point", "source", "kind", "observed (UTC)", "amount", "why", "title"),
            rows=left_out,
            empty="no point is left out",
        ),
    ]


def _about(point: ItemPoint) -> Sequence[object]:
    return point.id, point.source, point.kind, point.observed_at
