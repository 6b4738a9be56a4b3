"""What the views for monitoring show: recent jobs, the health of sources, stuck jobs."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from mistnet.api.auth import Reader
from mistnet.api.fields import LARGEST_ID
from mistnet.api.pages.render import page
from mistnet.api.parts import Mistnet
from mistnet.domain.jobs import JobId
from mistnet.store.monitoring import Monitor

router = APIRouter(include_in_schema=False)
_PAGE: Final = 20
_MOST_STUCK: Final = 50


@router.get("/monitoring")
async def monitoring(
    request: Request,
    visitor: Reader,
    app: Mistnet,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
) -> HTMLResponse:
    monitor = Monitor(app.database)
    jobs = await monitor.recent_jobs(before=None if before is None else JobId(before), limit=_PAGE)
    return page(
        request,
        "monitoring.html",
        visitor,
        jobs=jobs,
        sources=await monitor.source_health(),
        stuck=await monitor.stuck_jobs(limit=_MOST_STUCK),
        odd=await monitor.odd_listings(),
        before=before,
        more=jobs[-1].id if len(jobs) == _PAGE else None,
    )
