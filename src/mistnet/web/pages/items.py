"""Items: what each is worth and how that changed; one with its points, what is left out and why, and its sources."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.prices.errors import BadItem
from mistnet.prices.item_validation import LONGEST_TITLE, item_request_of, told
from mistnet.prices.model import ItemId, ItemState
from mistnet.prices.service import Bearings, ask_now, items_of, sources_of
from mistnet.prices.store.item_pages import ItemFilter, ItemPages
from mistnet.prices.store.items import ItemOutcome
from mistnet.prices.store.valuations import PointFilter, Valuations
from mistnet.shops.model import PriceKind
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.errors import NotFound
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


@router.get("/items")
async def items(
    request: Request,
    visitor: Reader,
    app: Mistnet,
    q: Annotated[str, Query(max_length=500)] = "",
    state: Chosen = "",
    valued: Chosen = "",
    before: BeforeId = None,
) -> HTMLResponse:
    wanted = ItemFilter(
        state=ItemState(state) if state in set(ItemState) else None,
        words=q.replace("\x00", ""),
        valued={"yes": True, "no": False}.get(valued),
        before=before,
        limit=_PAGE,
    )
    return await _list(request, visitor, app, wanted)


async def _list(request: Request, visitor: Caller, app: App, wanted: ItemFilter, **shown: Any) -> HTMLResponse:
    found = await ItemPages(app.database).list(wanted)
    valued = {True: "yes", False: "no", None: ""}[wanted.valued]
    asked = {"q": wanted.words, "state": wanted.state or "", "valued": valued}
    return page(
        request,
        "items.html",
        visitor,
        items=found.items,
        more=found.next,
        before=wanted.before,
        asked=asked,
        narrowed=any(asked.values()),
        states=list(ItemState),
        longest=LONGEST_TITLE,
        **{"problem": None, "given": {"title": "", "currency": ""}, **shown},
    )


@router.post("/items")
async def add(
    request: Request, visitor: Operator, app: Mistnet, title: Written = "", currency: Written = ""
) -> Response:
    given = {"title": title, "currency": currency}
    try:
        item_request = item_request_of(given, sources=sources_of(app))
    except BadItem as error:
        problem = "; ".join(map(told, error.problems))
        wanted = ItemFilter(limit=_PAGE)
        return await _list(request, visitor, app, wanted, problem=problem, given=given, status=400)
    (kept,) = await items_of(app).add([item_request], app.database.clock.now())
    return RedirectResponse(f"/items/{kept.item_id}?did={_DID[kept.outcome]}", 303)


@router.get("/items/{item_id}")
async def item(
    request: Request,
    visitor: Reader,
    app: Mistnet,
    item_id: ItemPath,
    kind: Chosen = "",
    points_before: BeforeId = None,
) -> HTMLResponse:
    pages, facts = ItemPages(app.database), Valuations(app.database)
    line = await pages.one(ItemId(item_id))
    if line is None:
        raise NotFound(f"item {item_id}")
    number = line.item.id
    worth = (await facts.current([number])).get(number)
    bearings = Bearings(worth)
    course = await pages.course(number, limit=_DRAWN)
    chosen = PriceKind(kind) if kind in set(PriceKind) else None
    found = await facts.points(number, PointFilter(kind=chosen, before=points_before, limit=_POINTS + 1))
    drawn = await facts.points(number, PointFilter(limit=_DRAWN))
    listed = found[:_POINTS]
    return page(
        request,
        "item.html",
        visitor,
        line=line,
        item=line.item,
        worth=worth,
        chart=item_chart(course, drawn, bearings, app.database.clock.now()),
        drawn_all=len(drawn) < _DRAWN,
        paper=(WIDTH, HEIGHT),
        points=[(each, bearings.of(each)) for each in listed],
        kinds=list(PriceKind),
        kind=chosen or "",
        points_before=points_before,
        more_points=listed[-1].id if len(found) > _POINTS else None,
        looks=await facts.looks(number),
        watches=await app.price_watches.list(item_id=number, limit=_WATCHES),
        past=course[::-1][:_PAST],
        past_all=len(course) <= _PAST,
        questions=await pages.questions(number, sources_of(app)),
        is_active=line.item.state is ItemState.ACTIVE,
        is_removed=line.item.state is ItemState.REMOVED,
    )


@router.post("/items/{item_id}/ask")
async def ask(_visitor: Operator, app: Mistnet, item_id: ItemPath) -> RedirectResponse:
    """Asks all its sources now; a question that is under way is joined."""
    made = await ask_now(app, [ItemId(item_id)])
    return RedirectResponse(f"/items/{item_id}?did={'item-asked' if made.created else 'item-asked-already'}", 303)


@router.post("/items/{item_id}/{change}")
async def move(
    _visitor: Operator, app: Mistnet, item_id: ItemPath, change: Annotated[str, Path(pattern="^(pause|resume|remove)$")]
) -> RedirectResponse:
    state = {"pause": ItemState.PAUSED, "resume": ItemState.ACTIVE, "remove": ItemState.REMOVED}[change]
    await items_of(app).set_state(ItemId(item_id), state, app.database.clock.now())
    return RedirectResponse(f"/items/{item_id}?did=item-{change}", 303)
