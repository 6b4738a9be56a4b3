"""Tells open pages that there is something new: one stream of small events, for as long as somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from mistnet.kit.errors import DatabaseError
from mistnet.web.auth import Reader
from mistnet.web.pages.dashboard_counts import Dashboard, Shown

router = APIRouter(include_in_schema=False)
_LOOK_SECONDS: Final = 1.0
_SILENCE: Final = 15
"""After so many looks without news a comment keeps proxies from closing the stream."""
_LONGEST: Final = 600
"""After so many looks the stream ends and the page asks anew, so that an ended log-in ends it too."""
_HEADERS: Final = {"X-Accel-Buffering": "no"}


@router.get("/live")
async def live(request: Request, _visitor: Reader, dashboard: Shown, seen: str = "") -> StreamingResponse:
    """`seen` is what the page was made from: what changed while it was on its way is news, too."""
    closing: asyncio.Event = getattr(request.app.state, "closing", None) or asyncio.Event()
    return StreamingResponse(news(closing, dashboard, seen), media_type="text/event-stream", headers=_HEADERS)


async def news(closing: asyncio.Event, dashboard: Dashboard, seen: str) -> AsyncIterator[str]:
    """The stream, from the first look to the end of somebody's patience."""
    yield "retry: 3000\n\n"
    told, quiet = seen, 0
    for _ in range(_LONGEST):
        with suppress(DatabaseError):  # busy; the next look is soon enough
            version = str(await dashboard.version())
            if version != told:
                yield f"event: changed\ndata: {version}\n\n"
                told, quiet = version, 0
        quiet += 1
        if quiet % _SILENCE == 0:
            yield ": still here\n\n"
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await closing.wait()
        if closing.is_set():
            return
