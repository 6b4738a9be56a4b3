"""Lanes: what waits on each, what went through it, the state of its source, and its dead letters."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from mistnet.operations.monitoring import LaneStore
from mistnet.queue.model import GAP_STATES, JobId, Lane
from mistnet.web.api.lanes import known_lane
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet
from mistnet.web.pages.accounts import BeforeId, LargestId
from mistnet.web.pages.dashboard import SHOWN_STATES, CurrentDashboard
from mistnet.web.pages.overview import parts_of, remedy
from mistnet.web.pages.render import page

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
_COUNTED: Final = 100_000
LanePath = Annotated[str, Path(max_length=100)]
JobPath = Annotated[int, Path(ge=1, le=LargestId)]
LaneWord = Annotated[str, Query(max_length=100)]


@router.get("/lanes")
async def lanes(
    request: Request,
    caller: Reader,
    app: Mistnet,
    dashboard: CurrentDashboard,
    lane: LaneWord = "",
    state: Annotated[str, Query(max_length=20)] = "",
    before: BeforeId = None,
) -> HTMLResponse:
    """All lanes, and the dead letters of all or of one."""
    statuses, store = await dashboard.lanes(), LaneStore(app.database)
    states = [each for each in GAP_STATES if each == state] or list(GAP_STATES)
    own = lane.replace("\x00", "")
    letters = await store.dead_letters(lane=own or None, states=states, before=before, limit=_PAGE)
    most = max((each.total for each in statuses), default=0) or 1
    rows = [
        {
            "status": each,
            "parts": parts_of(each.states, most),
            "states": {name: each.states[name] for name in SHOWN_STATES if each.states.get(name)},
        }
        for each in statuses
    ]
    return page(
        request,
        "lanes.html",
        caller,
        lanes=rows,
        names=[each.lane for each in statuses],
        lane=own,
        state=state if state in GAP_STATES else "",
        states=list(GAP_STATES),
        letters=[(each, remedy(each.state, each.last_error)) for each in letters.items],
        dead=await store.dead(own, most=_COUNTED) if own else 0,
        before=before,
        more=letters.next,
    )


@router.post("/lanes/{lane}/requeue")
async def requeue(
    _caller: Operator, app: Mistnet, lane: LanePath, failed: Annotated[str, Form(max_length=5)] = ""
) -> RedirectResponse:
    """Requeue the dead jobs of a lane, and with `failed` those that failed permanently."""
    own = await known_lane(app, lane.replace("\x00", ""))
    done = await app.dispatching.requeue_dead(own, app.operations, failed=bool(failed))
    did = "requeued" if done.requeued else "not-requeued"
    return RedirectResponse(f"/lanes?lane={quote(own)}&did={did}", 303)


@router.post("/lanes/{lane}/requeue/{job_id}")
async def requeue_one(_caller: Operator, app: Mistnet, lane: LanePath, job_id: JobPath) -> RedirectResponse:
    (change,) = await app.operations.retry([JobId(job_id)], now=app.database.clock.now(), gaps_only=True)
    if change.changed:
        await app.dispatching.remove_stale_dead_letters(Lane(lane), app.operations)
    did = "retried" if change.changed else "not-retried"
    return RedirectResponse(f"/lanes?lane={quote(lane)}&did={did}", 303)
