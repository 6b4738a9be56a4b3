"""The first page: what came in, what is under way, what it costs, what needs somebody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from mistnet.api.auth import Operator, Reader
from mistnet.api.fields import NumberPath
from mistnet.api.pages.account_view import account_rows
from mistnet.api.pages.attention import attention
from mistnet.api.pages.dashboard import SHOWN_STATES, Queue, Shown
from mistnet.api.pages.render import page
from mistnet.api.pages.tally import Bars, Span
from mistnet.api.parts import Mistnet
from mistnet.desk.standings import standings
from mistnet.domain.jobs import JobState
from mistnet.store.account_pages import AccountPages, Wanted
from mistnet.store.post_pages import PostPages, ShownPost
from mistnet.store.refusals import Refusals

router = APIRouter(include_in_schema=False)
_ACCOUNTS: Final = 12
_REFUSED: Final = 5
_POSTS: Final = 8
_LATEST: Final = 80
_OF_EACH: Final = 2


@router.get("/")
async def overview(
    request: Request, visitor: Reader, app: Mistnet, dashboard: Shown, span: Span | None = None
) -> HTMLResponse:
    queue, collected, holdings = await dashboard.queue(), await dashboard.collected(), await dashboard.holdings()
    chosen = span or collected.span
    posts, spent = await dashboard.bars(chosen)
    listed = await AccountPages(app.database).page(Wanted(limit=_ACCOUNTS))
    sources = await standings(app)
    return page(
        request,
        "overview.html",
        visitor,
        queue=queue,
        kinds=_kinds(queue),
        collected=collected,
        spans=list(Span),
        chosen=chosen,
        chart=_chart(chosen, posts, spent),
        sources=sources,
        paid=[each for each in sources if each.day_credits or each.day_cap is not None],
        attention=attention(queue, has_key=bool(app.settings.x_api_key)),
        accounts=account_rows(listed, holdings, dashboard.now),
        refused=await Refusals(app.database).standing(_REFUSED),
        latest=_mixed(await PostPages(app.database).latest(_LATEST)),
    )


@router.post("/alerts/{alert_id:id}/accept")
async def accept_alert(visitor: Operator, app: Mistnet, alert_id: NumberPath) -> RedirectResponse:
    await app.watch.alerts.accept(alert_id, by=visitor.name, now=app.database.clock.now())
    return RedirectResponse("/?did=alert-accepted", 303)


def _chart(span: Span, posts: Bars, spent: Bars) -> str:
    """For the script that draws it."""
    drawn = {"width": span.bars[1], "at": posts.since, "posts": posts.amounts, "credits": spent.amounts}
    return msgspec.json.encode(drawn).decode()


def _mixed(latest: Sequence[ShownPost]) -> Sequence[ShownPost]:
    """A few of each author first: posts come in by pages of one."""
    counted: Counter[int] = Counter()
    first: list[ShownPost] = []
    rest: list[ShownPost] = []
    for post in latest:
        counted[post.author_id] += 1
        (first if counted[post.author_id] <= _OF_EACH else rest).append(post)
    return [*first, *rest][:_POSTS]


def _kinds(queue: Queue) -> Sequence[Mapping[str, Any]]:
    """One row for each kind, with how wide each state's part of its bar is."""
    kinds = queue.kinds
    most = max((sum(states.values()) for states in kinds.values()), default=0) or 1
    paused = {each.kind: each.reason for each in queue.paused}
    return [
        {
            "name": name,
            "states": {state: states.get(state, 0) for state in SHOWN_STATES if states.get(state)},
            "parts": parts_of(states, most),
            "total": sum(states.values()),
            "finished": queue.finished.get(name, 0),
            "paused": paused.get(name),
        }
        for name, states in kinds.items()
    ]


def parts_of(states: Mapping[JobState, int], most: int) -> Sequence[tuple[JobState, float, float]]:
    """Where each state's part begins and how wide it is, of 100."""
    parts: list[tuple[JobState, float, float]] = []
    begin = 0.0
    for state in SHOWN_STATES:
        if states.get(state):
            width = max(states[state] / most * 100, 0.8)
            parts.append((state, round(begin, 2), round(width, 2)))
            begin += width
    return parts
