"""Commands that show items: all of them with their valuations, or one with all that its valuation rests on."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

import typer

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import BeforeOption, LimitOption
from mistnet.cli.items import ItemArgument
from mistnet.cli.output import Block, Grid, at, document, next_page, record_fields, span
from mistnet.governor.model import SourceName
from mistnet.kit.text import LARGEST_ID, counted, money
from mistnet.prices.model import (
    CurrentValuation,
    ItemId,
    ItemLine,
    ItemPoint,
    ItemState,
    PastSummary,
    PointFilter,
    PointId,
    PointNotFound,
    SourceFetch,
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
        rows=[_row(each) for each in page.items],
        empty="no items: `mistnet items add TITLE` follows one, `mistnet items import FILE` many",
    )
    shown = document(items=[record_fields(each) for each in page.items], next_before=page.next and str(page.next))
    invocation.out.show(shown, grid, *next_page(page.next))


@shared_options
async def show(invocation: Invocation, item: ItemArgument) -> None:
    """Show one item: its valuation and what it rests on, what is left out and why, its sources, its history."""
    item_id = ItemId(item)
    async with open_app(invocation.settings) as app:
        listing, now = ItemListing(app.database), app.database.clock.now()
        whole = await whole_item(app, item_id)
        points = await _named_points(Valuations(app.database), whole.valuation)
        past = await listing.past_summaries(item_id, limit=_DRAWN)
        pending = await listing.pending_fetches(item_id, sources_of(app))
    shown = document(
        item=record_fields(whole, "valuation", "looks"),
        questions=pending,
        valuation=record_fields(whole.valuation) if whole.valuation else None,
        points=[record_fields(each, "item_id", "converted") for _, each in sorted(points.items())],
        looks=[record_fields(each, "item_id") for each in whole.looks],
        course=[record_fields(each) for each in past],
    )
    state = "" if whole.state is ItemState.ACTIVE else f" ({whole.state})"
    invocation.out.show(
        shown,
        f"item {whole.id}: {whole.title}{state}",
        _fields_grid(whole),
        *_valuation_blocks(whole, points, past),
        _fetches_grid(whole.looks),
        _next_fetch(whole, pending, now),
    )


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
                *(str(each.id), at(each.observed_at), each.source, each.kind, money(each.amount, each.currency)),
                *(percent(each.match_strength), "" if each.weight is None else percent(each.weight)),
                *(each.title[:80], each.left_out or ""),
            )
            for each in page.items
        ],
        empty="no points yet: `mistnet items ask ID` fetches prices now",
    )
    shown = [record_fields(each, "item_id", "converted") for each in page.items]
    document_ = document(points=shown, next_before=page.next and str(page.next))
    invocation.out.show(document_, grid, *next_page(page.next))


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
                *(str(each.id), at(each.valued_at), money(each.estimate, each.currency)),
                *(f"{each.low:,f} to {each.high:,f}", percent(each.confidence), f"{each.points:,}"),
                *(f"{each.points_left_out:,}", f"none since {at(each.ended_at)}" if each.ended_at else ""),
            )
            for each in page.items
        ],
        empty="it was not valued yet",
    )
    shown = [record_fields(each) for each in page.items]
    invocation.out.show(
        document(valuations=shown, next_before=page.next and str(page.next)), grid, *next_page(page.next)
    )


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
                *(str(each.nr), at(each.observed_at), at(each.replaced_at), each.kind),
                *(money(each.amount, each.currency), percent(each.match_strength)),
            )
            for each in page.items
        ],
        empty="it has no earlier versions",
    )
    shown = [record_fields(each, "point_id") for each in page.items]
    invocation.out.show(document(versions=shown, next_before=page.next and str(page.next)), grid, *next_page(page.next))


async def _named_points(valuations: Valuations, valuation: CurrentValuation | None) -> Mapping[PointId, ItemPoint]:
    """The points that a valuation names."""
    carriers, left_out = (valuation.carriers, valuation.left_out) if valuation else ((), ())
    named = [*(each.point_id for each in carriers), *(each.point_id for each in left_out)]
    found = await valuations.named_points(named)
    return {each.id: each for each in weigh_points(list(found.values()), valuation)}


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


def _row(line: ItemLine) -> Sequence[str]:
    now = line.worth
    amounts = (
        (
            money(now.estimate, now.currency),
            f"{now.low:,f} to {now.high:,f}",
            percent(now.confidence),
            f"{now.points:,}",
        )
        if now
        else ("", "", "", "")
    )
    next_fetch = at(line.next_look_at) if line.state is ItemState.ACTIVE else str(line.state)
    return str(line.id), line.ref or "", line.title[:80], *amounts, _change(line), next_fetch


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
    line = sparkline(past)
    drawn = [f"course: {line}"] if line else []
    return [f"{estimate}, {sure}{changed}", *drawn, _carriers(now, points), _left_out(now, points)]


def _carriers(valuation: CurrentValuation, points: Mapping[PointId, ItemPoint]) -> Grid:
    rows = []
    for each in valuation.carriers[:_NAMED]:
        point = points[each.point_id]
        converted = f" = {each.amount:,f} {valuation.currency} by {each.rate}" if each.rate else ""
        amount = money(point.amount, point.currency) + converted
        rows.append((*_about(point), amount, percent(point.match_strength), percent(each.weight), point.title[:80]))
    more = f", the heaviest {len(rows)} of {valuation.points:,}" if valuation.points > len(rows) else ""
    return Grid(
        title=f"carried by{more}",
        columns=("point", "source", "kind", "observed (UTC)", "amount", "fits", "weight", "title"),
        rows=rows,
    )


def _left_out(valuation: CurrentValuation, points: Mapping[PointId, ItemPoint]) -> Block:
    rows = []
    for each in valuation.left_out[:_NAMED]:
        point = points[each.point_id]
        rows.append((*_about(point), money(point.amount, point.currency), each.why, point.title[:80]))
    more = f", {len(rows)} of {valuation.points_left_out:,}" if valuation.points_left_out > len(rows) else ""
    return Grid(
        title=f"left out{more}",
        columns=("point", "source", "kind", "observed (UTC)", "amount", "why", "title"),
        rows=rows,
        empty="no point is left out",
    )


def _about(point: ItemPoint) -> Sequence[str]:
    return str(point.id), point.source, point.kind, at(point.observed_at)


def _fetches_grid(fetches: Sequence[SourceFetch]) -> Block:
    return Grid(
        title="last looks",
        columns=("source", "looked at (UTC)", "listings", "that fit", "last found (UTC)", "problem"),
        rows=[
            (
                *(each.source, at(each.looked_at), f"{each.listings:,}", f"{each.points:,}"),
                *(at(each.found_at), each.problem or ""),
            )
            for each in fetches
        ],
        empty="no source was asked yet: workers do it, or `mistnet items ask ID` now",
    )


def _next_fetch(item: ItemLine, pending: int, now: datetime) -> str:
    if item.next_look_at is None:
        return f"no source is asked for it: it is {item.state}"
    left = item.next_look_at - now
    waiting = f"{counted(pending, 'source')} to be asked now, " if pending else ""
    return f"{waiting}next look: {at(item.next_look_at)} UTC ({f'in {span(left)}' if left > timedelta() else 'due'})"
