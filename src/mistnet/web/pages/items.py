"""Pages of items: all of them with their valuations, and one with its points, chart and sources."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.prices.errors import BadItem
from mistnet.prices.item_validation import LONGEST_TITLE, item_request_of, problem_text
from mistnet.prices.model import ItemId, ItemState, PointFilter
from mistnet.prices.service import fetch_now, item_points, items_of, sources_of, weigh_points, whole_item
from mistnet.prices.store.item_listing import ItemFilter, ItemListing
from mistnet.prices.store.items import ItemOutcome
from mistnet.prices.store.valuations import Valuations
from mistnet.shops.model import PriceKind
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.pages.accounts import BeforeId, LargestId
from mistnet.web.pages.charts import HEIGHT, WIDTH, item_chart
from mistnet.web.pages.render import page
from mistnet.web.tokens import Caller

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
_DRAWN: Final = 500
_POINTS: Final = 25
_PAST: Final = 10
_WATCHES: Final = 20
ItemPath = Annotated[int, Path(ge=1, le=LargestId)]
Chosen = Annotated[str, Query(max_length=20)]
Written = Annotated[str, Form(max_length=2 * LONGEST_TITLE)]
_DID: Final = {ItemOutcome.ADDED: "item-added", ItemOutcome.CHANGED: "item-added", ItemOutcome.SAME: "item-known"}
_VALUED: Final = {"yes": True, "no": False}


@router.get("/items")
async def items(
    request: Request,
    caller: Reader,
    app: Mistnet,
    q: Annotated[str, Query(max_length=500)] = "",
    state: Chosen = "",
    valued: Chosen = "",
    before: BeforeId = None,
) -> HTMLResponse:
    wanted = ItemFilter(
        state=ItemState(state) if state in set(ItemState) else None,
        words=q.replace("\x00", ""),
        valued=_VALUED.get(valued),
    )
    return await _list(request, caller, app, wanted, before)


async def _list(
    request: Request, caller: Caller, app: App, wanted: ItemFilter, before: int | None = None, **shown: Any
) -> HTMLResponse:
    found = await ItemListing(app.database).page(wanted, after=before, limit=_PAGE)
    valued = {True: "yes", False: "no", None: ""}[wanted.valued]
    asked = {"q": wanted.words, "state": wanted.state or "", "valued": valued}
    return page(
        request,
        "items.html",
        caller,
        items=found.items,
        more=found.next,
        before=before,
        asked=asked,
        narrowed=any(asked.values()),
        states=list(ItemState),
        longest=LONGEST_TITLE,
        **{"problem": None, "given": {"title": "", "currency": ""}, **shown},
    )


@router.post("/items")
async def add(
    request: Request, caller: Operator, app: Mistnet, title: Written = "", currency: Written = ""
) -> Response:
    given = {"title": title, "currency": currency}
    try:
        item_request = item_request_of(given, sources=sources_of(app))
    except BadItem as error:
        problem = "; ".join(map(problem_text, error.problems))
        return await _list(request, caller, app, ItemFilter(), problem=problem, given=given, status=400)
    (kept,) = await items_of(app).add([item_request], app.database.clock.now())
    return RedirectResponse(f"/items/{kept.item_id}?did={_DID[kept.outcome]}", 303)


@router.get("/items/{item_id}")
async def item(
    request: Request,
    caller: Reader,
    app: Mistnet,
    item_id: ItemPath,
    kind: Chosen = "",
    points_before: BeforeId = None,
) -> HTMLResponse:
    listing, number = ItemListing(app.database), ItemId(item_id)
    whole = await whole_item(app, number)
    past = await listing.past_summaries(number, limit=_DRAWN)
    chosen = PriceKind(kind) if kind in set(PriceKind) else None
    points = await item_points(app, number, PointFilter(kind=chosen), after=points_before, limit=_POINTS)
    drawn = await Valuations(app.database).points(number, limit=_DRAWN)
    return page(
        request,
        "item.html",
        caller,
        item=whole,
        chart=item_chart(past, weigh_points(drawn.items, whole.valuation), app.database.clock.now()),
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
async def ask(_caller: Operator, app: Mistnet, item_id: ItemPath) -> RedirectResponse:
    """Fetch from all its sources now. Fetches that are already waiting are not added again."""
    made = await fetch_now(app, [ItemId(item_id)])
    return RedirectResponse(f"/items/{item_id}?did={'item-asked' if made.created else 'item-asked-already'}", 303)


@router.post("/items/{item_id}/{change}")
async def change_state(
    _caller: Operator, app: Mistnet, item_id: ItemPath, change: Annotated[str, Path(pattern="^(pause|resume|remove)$")]
) -> RedirectResponse:
    state = {"pause": ItemState.PAUSED, "resume": ItemState.ACTIVE, "remove": ItemState.REMOVED}[change]
    await items_of(app).set_state(ItemId(item_id), state, app.database.clock.now())
    return RedirectResponse(f"/items/{item_id}?did=item-{change}", 303)
