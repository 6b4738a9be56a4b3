"""Commands that show items: all of them with their valuations, or one with all that its valuation rests on."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from mistnet.app import App
from mistnet.cli.command import app_command
from mistnet.cli.input import BeforeOption, LimitOption, argument, flag, option
from mistnet.cli.items import ItemArgument
from mistnet.cli.output import Block, Grid, Output, at, document, fields_of, next_page, span
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


@app_command
async def list_items(
    app: App,
    out: Output,
    *,
    state: Annotated[
        ItemState | None, option("--state", "|".join(ItemState), "Only these; without it, all but the removed.")
    ] = None,
    words: Annotated[str, option("--words", "TEXT", "Only those whose title or ref has this.")] = "",
    ref: Annotated[str | None, option("--ref", "REF", "Only the one with this ref.")] = None,
    valued: Annotated[bool | None, flag("--valued/--not-valued", "Only those with a valuation, or without.")] = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show items with their valuations, the newest first. The change is that of the last 30 days."""
    wanted = ItemFilter(state=state, words=words.replace("\x00", ""), ref=ref, valued=valued)
    page = await ItemListing(app.database).page(wanted, after=before, limit=limit)
    grid = Grid.of(
        page.items,
        "id, ref, title, worth, range, sure, points, change, next look (UTC)",
        title=lambda each: each.title[:80],
        worth=lambda each: each.worth and money(each.worth.estimate, each.worth.currency),
        range=lambda each: each.worth and f"{each.worth.low:,f} to {each.worth.high:,f}",
        sure=lambda each: each.worth and percent(each.worth.confidence),
        points=lambda each: each.worth and f"{each.worth.points:,}",
        change=_change,
        next_look=lambda each: each.next_look_at if each.state is ItemState.ACTIVE else each.state,
        empty="no items: `mistnet items add TITLE` follows one, `mistnet items import FILE` many",
    )
    out.show(document(items=page.items, next_before=page.next), grid, *next_page(page.next))


@app_command
async def show(app: App, out: Output, item: ItemArgument) -> None:
    """Show one item: its valuation and price points, what is left out and why, its sources, its history."""
    item_id, listing, now = ItemId(item), ItemListing(app.database), app.database.clock.now()
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
    fetches = Grid.of(
        whole.looks,
        "source, looked at (UTC), listings, that fit, last found (UTC), problem",
        listings=lambda each: f"{each.listings:,}",
        that_fit=lambda each: f"{each.points:,}",
        last_found="found_at",
        heading="last looks",
        empty="no source was asked yet: workers do it, or `mistnet items ask ID` now",
    )
    next_look = f"no source is asked for it: it is {whole.state}"
    if whole.next_look_at is not None:
        left = f"in {span(whole.next_look_at - now)}" if whole.next_look_at > now else "due"
        waiting = f"{counted(pending, 'source')} to be asked now, " if pending else ""
        next_look = f"{waiting}next look: {at(whole.next_look_at)} UTC ({left})"
    head = f"item {whole.id}: {whole.title}{state}"
    out.show(shown, head, _fields_grid(whole), *_valuation_blocks(whole, points, past), fetches, next_look)


@app_command
async def points(
    app: App,
    out: Output,
    item: ItemArgument,
    *,
    kind: Annotated[PriceKind | None, option("--kind", "|".join(PriceKind), "Only these.")] = None,
    source: Annotated[str | None, option("--source", "NAME", "Only of this source.")] = None,
    doubted: Annotated[bool | None, flag("--doubted/--believed", "Only those in doubt, or only the others.")] = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show the price points of an item (asked, bid or paid) with their weights, the latest first."""
    wanted = PointFilter(source=None if source is None else SourceName(source), kind=kind, doubted=doubted)
    line = await item_line(app, ItemId(item))
    page = await item_points(app, line.id, wanted, after=before, limit=limit)
    grid = Grid.of(
        page.items,
        "id, observed (UTC), source, kind, amount, fits, weight, title, left out because",
        amount=lambda each: money(each.amount, each.currency),
        fits=lambda each: percent(each.match_strength),
        weight=lambda each: None if each.weight is None else percent(each.weight),
        title=lambda each: each.title[:80],
        left_out_because="left_out",
        empty="no points yet: `mistnet items ask ID` fetches prices now",
    )
    shown = [fields_of(each, "item_id", "converted") for each in page.items]
    out.show(document(points=shown, next_before=page.next), grid, *next_page(page.next))


@app_command
async def history(
    app: App, out: Output, item: ItemArgument, *, limit: LimitOption = 50, before: BeforeOption = None
) -> None:
    """Show the valuations of an item, the latest first."""
    line = await item_line(app, ItemId(item))
    page = await Valuations(app.database).history(line.id, after=before, limit=limit)
    grid = Grid.of(
        page.items,
        "id, since (UTC), worth, range, sure, points, left out, ",
        since="valued_at",
        worth=lambda each: money(each.estimate, each.currency),
        range=lambda each: f"{each.low:,f} to {each.high:,f}",
        sure=lambda each: percent(each.confidence),
        points=lambda each: f"{each.points:,}",
        left_out=lambda each: f"{each.points_left_out:,}",
        untitled=lambda each: f"none since {at(each.ended_at)}" if each.ended_at else None,
        empty="it was not valued yet",
    )
    out.show(document(valuations=page.items, next_before=page.next), grid, *next_page(page.next))


@app_command
async def versions(
    app: App,
    out: Output,
    point: Annotated[int, argument("POINT", "Its id, as `items points` shows it.", min=1, max=LARGEST_ID)],
    *,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show the earlier values of one point, the latest first: the earlier prices of a listing."""
    point_id, valuations = PointId(point), Valuations(app.database)
    if point_id not in await valuations.named_points([point_id]):
        raise PointNotFound(point_id)
    page = await valuations.versions(point_id, after=before, limit=limit)
    grid = Grid.of(
        page.items,
        "nr, observed (UTC), until (UTC), kind, amount, fits",
        until="replaced_at",
        amount=lambda each: money(each.amount, each.currency),
        fits=lambda each: percent(each.match_strength),
        empty="it has no earlier versions",
    )
    shown = [fields_of(each, "point_id") for each in page.items]
    out.show(document(versions=shown, next_before=page.next), grid, *next_page(page.next))


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
