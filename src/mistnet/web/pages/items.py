"""Pages of items: all of them with their valuations, and one with its points, chart and sources."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Path
from fastapi.responses import Response

from mistnet.prices.item_validation import LONGEST_TITLE, item_request_of, problem_text
from mistnet.prices.model import BadItem, ItemId, ItemState, PointFilter
from mistnet.prices.service import fetch_now, item_points, items_of, sources_of, weigh_points, whole_item
from mistnet.prices.store.item_listing import ItemFilter, ItemListing
from mistnet.prices.store.items import ItemOutcome
from mistnet.prices.store.valuations import Valuations
from mistnet.shops.model import PriceKind
from mistnet.web.fields import BeforeId, NumberPath, QueryText, Word
from mistnet.web.pages.charts import HEIGHT, WIDTH, item_chart
from mistnet.web.pages.render import OperatorPage, PageRequest, ReaderPage, done

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
_DRAWN: Final = 500
_POINTS: Final = 25
_PAST: Final = 10
_WATCHES: Final = 20
Written = Annotated[str, Form(max_length=2 * LONGEST_TITLE)]
_DID: Final = {ItemOutcome.ADDED: "item-added", ItemOutcome.CHANGED: "item-added", ItemOutcome.SAME: "item-known"}
_VALUED: Final = {"yes": True, "no": False}


@router.get("/items")
async def items(
    page: ReaderPage, q: QueryText = "", state: Word = "", valued: Word = "", before: BeforeId = None
) -> Response:
    chosen = ItemState(state) if state in set(ItemState) else None
    return await _list(page, ItemFilter(state=chosen, words=q, valued=_VALUED.get(valued)), before)


async def _list(page: PageRequest, filters: ItemFilter, before: int | None = None, **form: Any) -> Response:
    found = await ItemListing(page.app.database).page(filters, after=before, limit=_PAGE)
    valued = {True: "yes", False: "no", None: ""}[filters.valued]
    asked = {"q": filters.words, "state": filters.state or "", "valued": valued}
    return page.render(
        "items.html",
        items=found.items,
        more=found.next,
        before=before,
        asked=asked,
        narrowed=any(asked.values()),
        states=list(ItemState),
        longest=LONGEST_TITLE,
        **{"problem": None, "given": {"title": "", "currency": ""}, **form},
    )


@router.post("/items")
async def add(page: OperatorPage, title: Written = "", currency: Written = "") -> Response:
    given = {"title": title, "currency": currency}
    try:
        item_request = item_request_of(given, sources=sources_of(page.app))
    except BadItem as error:
        problem = "; ".join(map(problem_text, error.problems))
        return await _list(page, ItemFilter(), problem=problem, given=given, status=400)
    (kept,) = await items_of(page.app).add([item_request], page.now)
    return done(f"/items/{kept.item_id}", _DID[kept.outcome])


@router.get("/items/{item_id}")
async def item(page: ReaderPage, item_id: NumberPath, kind: Word = "", points_before: BeforeId = None) -> Response:
    app = page.app
    listing, number = ItemListing(app.database), ItemId(item_id)
    whole = await whole_item(app, number)
    past = await listing.past_summaries(number, limit=_DRAWN)
    chosen = PriceKind(kind) if kind in set(PriceKind) else None
    points = await item_points(app, number, PointFilter(kind=chosen), after=points_before, limit=_POINTS)
    drawn = await Valuations(app.database).points(number, limit=_DRAWN)
    return page.render(
        "item.html",
        item=whole,
        chart=item_chart(past, weigh_points(drawn.items, whole.valuation), page.now),
        drawn_all=drawn.next is None,
        paper=(WIDTH, HEIGHT),
        points=points.items,
        kinds=list(PriceKind),
        kind=chosen or "",
        points_before=points_before,
        more_points=points.next,
        watches=(await app.price_watches.page(item_id=number, limit=_WATCHES)).items,
        past=past[::-1][:_PAST],
        past_all=len(past) <= _PAST,
        pending=await listing.pending_fetches(number, sources_of(app)),
        is_active=whole.state is ItemState.ACTIVE,
        is_removed=whole.state is ItemState.REMOVED,
    )


@router.post("/items/{item_id}/ask")
async def ask(page: OperatorPage, item_id: NumberPath) -> Response:
    """Fetch from all its sources now. Fetches that are already waiting are not added again."""
    made = await fetch_now(page.app, [ItemId(item_id)])
    return done(f"/items/{item_id}", "item-asked" if made.created else "item-asked-already")


@router.post("/items/{item_id}/{change}")
async def change_state(
    page: OperatorPage, item_id: NumberPath, change: Annotated[str, Path(pattern="^(pause|resume|remove)$")]
) -> Response:
    state = {"pause": ItemState.PAUSED, "resume": ItemState.ACTIVE, "remove": ItemState.REMOVED}[change]
    await items_of(page.app).set_state(ItemId(item_id), state, page.now)
    return done(f"/items/{item_id}", f"item-{change}")
