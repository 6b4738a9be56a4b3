"""Commands that show items: all of them with what they are worth, one with all that is known of its worth."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

import typer

from mistnet.app import open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.items import ItemArgument
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import Block, Grid, at, document, span
from mistnet.governor.model import SourceName
from mistnet.kit.text import counted, money
from mistnet.prices.errors import ItemNotFound, PointNotFound
from mistnet.prices.model import ItemId, ItemState, PointId
from mistnet.prices.service import (
    Bearings,
    line_fields,
    look_fields,
    point_fields,
    sources_of,
    valuation_fields,
    version_fields,
    worth_fields,
)
from mistnet.prices.store.item_pages import ItemFilter, ItemLine, ItemPages, WorthThen
from mistnet.prices.store.valuations import CurrentValuation, LookLine, PointFilter, PointLine, Valuations
from mistnet.shops.model import PriceKind

_BARS: Final = "▁▂▃▄▅▆▇█"
_DRAWN: Final = 48
_NAMED: Final = 10
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many at most.")]
Before = Annotated[
    int | None,
    typer.Option("--before", min=1, max=LARGEST_ID, metavar="ID", help="Only those before: the next page."),
]


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
    limit: Limit = 50,
    before: Before = None,
) -> None:
    """Show items with what they are worth, the newest first. The change is that of the last 30 days."""
    wanted = ItemFilter(
        state=state, words=words.replace("\x00", ""), ref=ref, valued=valued, before=before, limit=limit
    )
    async with open_app(invocation.settings) as app:
        found = await ItemPages(app.database).list(wanted)
    grid = Grid(
        columns=("id", "ref", "title", "worth", "range", "sure", "points", "change", "next look (UTC)"),
        rows=[_row(each) for each in found.items],
        empty="no items: `mistnet items add TITLE` follows one, `mistnet items import FILE` many",
    )
    more = None if found.next is None else str(found.next)
    shown = document(items=[line_fields(each) for each in found.items], next_before=more)
    invocation.out.show(shown, grid, *([f"more: --before {found.next}"] if found.next else []))


@shared_options
async def show(invocation: Invocation, item: ItemArgument) -> None:
    """Show one item: its worth and what it rests on, what is left out and why, its sources, its course."""
    item_id = ItemId(item)
    async with open_app(invocation.settings) as app:
        pages, facts = ItemPages(app.database), Valuations(app.database)
        line = await _known(pages, item_id)
        worth = (await facts.current([item_id])).get(item_id)
        points = await facts.named(_named_by(worth))
        looks = await facts.looks(item_id)
        course = await pages.course(item_id, limit=_DRAWN)
        questions, now = await pages.questions(item_id, sources_of(app)), app.database.clock.now()
    blocks: list[Block] = [_head(line), _item_request_grid(line)]
    blocks += _worth_blocks(line, worth, points, course)
    blocks += [_looks_grid(looks), _next_look(line, questions, now)]
    bearings = Bearings(worth)
    shown = document(
        item=line_fields(line),
        questions=questions,
        valuation=valuation_fields(worth),
        points=[point_fields(each, bearings.of(each)) for _, each in sorted(points.items())],
        looks=look_fields(looks),
        course=[worth_fields(each) for each in course],
    )
    invocation.out.show(shown, *blocks)


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
    limit: Limit = 50,
    before: Before = None,
) -> None:
    """Show what was asked, bid or paid for an item, the latest found first, and what each counts for."""
    item_id = ItemId(item)
    named = None if source is None else SourceName(source)
    wanted = PointFilter(source=named, kind=kind, doubted=doubted, before=before, limit=limit + 1)
    async with open_app(invocation.settings) as app:
        await _known(ItemPages(app.database), item_id)
        facts = Valuations(app.database)
        found = await facts.points(item_id, wanted)
        bearings = Bearings((await facts.current([item_id])).get(item_id))
    shown, more = found[:limit], found[limit - 1].id if len(found) > limit else None
    grid = Grid(
        columns=("id", "observed (UTC)", "source", "kind", "amount", "fits", "weight", "title", "left out because"),
        rows=[_point_row(each, bearings) for each in shown],
        empty="no points yet: `mistnet items ask ID` has sources asked now",
    )
    told = document(
        points=[point_fields(each, bearings.of(each)) for each in shown],
        next_before=None if more is None else str(more),
    )
    invocation.out.show(told, grid, *([f"more: --before {more}"] if more else []))


@shared_options
async def history(invocation: Invocation, item: ItemArgument, *, limit: Limit = 50, before: Before = None) -> None:
    """Show what an item was worth, the latest first."""
    item_id = ItemId(item)
    async with open_app(invocation.settings) as app:
        await _known(ItemPages(app.database), item_id)
        found = await Valuations(app.database).history(item_id, before=before, limit=limit + 1)
    shown, more = found[:limit], found[limit - 1].id if len(found) > limit else None
    grid = Grid(
        columns=("id", "since (UTC)", "worth", "range", "sure", "points", "left out", ""),
        rows=[
            (
                *(str(each.id), at(each.valued_at), money(each.estimate, each.currency)),
                *(f"{each.low:,f} to {each.high:,f}", percent(each.confidence), f"{each.points:,}"),
                *(f"{each.points_left_out:,}", f"none since {at(each.ended_at)}" if each.ended_at else ""),
            )
            for each in shown
        ],
        empty="it was not valued yet",
    )
    told = document(
        valuations=[valuation_fields(each) for each in shown], next_before=None if more is None else str(more)
    )
    invocation.out.show(told, grid, *([f"more: --before {more}"] if more else []))


@shared_options
async def versions(
    invocation: Invocation,
    point: Annotated[
        int, typer.Argument(metavar="POINT", min=1, max=LARGEST_ID, help="Its id, as `items points` shows it.")
    ],
    *,
    limit: Limit = 50,
    before: Before = None,
) -> None:
    """Show what one point said before, the latest first: the earlier prices of a listing."""
    point_id = PointId(point)
    async with open_app(invocation.settings) as app:
        facts = Valuations(app.database)
        if point_id not in await facts.named([point_id]):
            raise PointNotFound(point_id)
        found = await facts.versions(point_id, before=before, limit=limit + 1)
    shown, more = found[:limit], found[limit - 1].nr if len(found) > limit else None
    grid = Grid(
        columns=("nr", "observed (UTC)", "until (UTC)", "kind", "amount", "fits"),
        rows=[
            (
                *(str(each.nr), at(each.observed_at), at(each.replaced_at), each.kind),
                *(money(each.amount, each.currency), percent(each.match_strength)),
            )
            for each in shown
        ],
        empty="it never said anything else",
    )
    told = document(versions=[version_fields(each) for each in shown], next_before=None if more is None else str(more))
    invocation.out.show(told, grid, *([f"more: --before {more}"] if more else []))


async def _known(pages: ItemPages, item_id: ItemId) -> ItemLine:
    """Also one that was removed: its points are kept to be looked at."""
    found = await pages.one(item_id)
    if found is None:
        raise ItemNotFound(item_id)
    return found


def _named_by(worth: CurrentValuation | None) -> Iterable[PointId]:
    if worth is None:
        return ()
    return [*(each.point_id for each in worth.carriers), *(each.point_id for each in worth.left_out)]


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def change_of(line: ItemLine) -> str:
    return "" if line.change is None else f"{line.change * 100:+.1f} %"


def sparkline(course: Sequence[WorthThen]) -> str:
    """The estimates of the currency that was used last, the oldest first."""
    own = [float(each.estimate) for each in course if each.currency == course[-1].currency]
    if len(own) < 2:
        return ""
    low, high = min(own), max(own)
    if low == high:
        return _BARS[3] * len(own)
    return "".join(_BARS[round((each - low) / (high - low) * (len(_BARS) - 1))] for each in own)


def _row(line: ItemLine) -> Sequence[str]:
    worth = line.worth
    told = (
        (money(worth.estimate, worth.currency), f"{worth.low:,f} to {worth.high:,f}", percent(worth.confidence))
        if worth
        else ("", "", "")
    )
    looks = at(line.next_look_at) if line.item.state is ItemState.ACTIVE else str(line.item.state)
    count = f"{worth.points:,}" if worth else ""
    return str(line.item.id), line.item.ref or "", line.item.title[:80], *told, count, change_of(line), looks


def _head(line: ItemLine) -> str:
    state = "" if line.item.state is ItemState.ACTIVE else f" ({line.item.state})"
    return f"item {line.item.id}: {line.item.title}{state}"


def _item_request_grid(line: ItemLine) -> Block:
    item = line.item
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


def _worth_blocks(
    line: ItemLine,
    worth: CurrentValuation | None,
    points: Mapping[PointId, PointLine],
    course: Sequence[WorthThen],
) -> list[Block]:
    if worth is None:
        return ["not valued yet: no point of it can carry a valuation"]
    span_ = f"{worth.low:,f} to {worth.high:,f}"
    sure = (
        f"confidence {percent(worth.confidence)}, {counted(worth.points, 'point')}, {worth.points_left_out:,} left out"
    )
    changed = f"; {change_of(line)} since {at(line.earlier.valued_at)} UTC" if line.earlier and line.change else ""
    said = f"worth {money(worth.estimate, worth.currency)} ({span_}), {sure}{changed}"
    drawn = [f"course: {drawn}"] if (drawn := sparkline(course)) else []
    return [said, *drawn, _carriers(worth, points), _left_out(worth, points)]


def _carriers(worth: CurrentValuation, points: Mapping[PointId, PointLine]) -> Grid:
    """The heaviest."""
    rows = []
    for each in worth.carriers[:_NAMED]:
        point = points[each.point_id]
        by = f" by {each.rate}" if each.rate else ""
        told = money(point.amount, point.currency) + (f" = {each.amount:,f} {worth.currency}{by}" if each.rate else "")
        rows.append((*_about(point), told, percent(point.match_strength), percent(each.weight), point.title[:80]))
    title = f"carried by, the heaviest {len(rows)} of {worth.points:,}" if worth.points > len(rows) else "carried by"
    return Grid(
        title=title,
        columns=("point", "source", "kind", "observed (UTC)", "amount", "fits", "weight", "title"),
        rows=rows,
    )


def _left_out(worth: CurrentValuation, points: Mapping[PointId, PointLine]) -> Block:
    rows = []
    for each in worth.left_out[:_NAMED]:
        point = points[each.point_id]
        rows.append((*_about(point), money(point.amount, point.currency), each.why, point.title[:80]))
    more = f", {len(rows)} of {worth.points_left_out:,}" if worth.points_left_out > len(rows) else ""
    return Grid(
        title=f"left out{more}",
        columns=("point", "source", "kind", "observed (UTC)", "amount", "why", "title"),
        rows=rows,
        empty="no point is left out",
    )


def _about(point: PointLine) -> Sequence[str]:
    return str(point.id), point.source, point.kind, at(point.observed_at)


def _looks_grid(looks: Sequence[LookLine]) -> Block:
    return Grid(
        title="last looks",
        columns=("source", "looked at (UTC)", "listings", "that fit", "last found (UTC)", "problem"),
        rows=[
            (
                each.source,
                at(each.looked_at),
                f"{each.listings:,}",
                f"{each.points:,}",
                at(each.found_at),
                each.problem or "",
            )
            for each in looks
        ],
        empty="no source was asked yet: workers do it, or `mistnet items ask ID` now",
    )


def _next_look(line: ItemLine, questions: int, now: datetime) -> str:
    if line.next_look_at is None:
        return f"no source is asked for it: it is {line.item.state}"
    left = line.next_look_at - now
    asked = f"{counted(questions, 'source')} to be asked now, " if questions else ""
    return f"{asked}next look: {at(line.next_look_at)} UTC ({f'in {span(left)}' if left > timedelta() else 'due'})"


def _point_row(point: PointLine, bearings: Bearings) -> Sequence[str]:
    bearing = bearings.of(point)
    weight = "" if bearing.weight is None else percent(bearing.weight)
    amount = money(point.amount, point.currency)
    seen = (str(point.id), at(point.observed_at), point.source, point.kind, amount, percent(point.match_strength))
    return *seen, weight, point.title[:80], bearing.why or ""
