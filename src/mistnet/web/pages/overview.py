"""The overview: what was collected, what is under way, what it costs, and what needs attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response

from mistnet.operations.alerts.model import ACCOUNT_RULES, AlertRule
from mistnet.queue.model import JobState
from mistnet.social.store.account_pages import AccountPages
from mistnet.social.store.post_listing import ListedPost, PostListing
from mistnet.social.store.tracking import Refusals
from mistnet.sources.status import source_statuses
from mistnet.web.fields import NumberPath
from mistnet.web.pages.cached_counts import ChartSpan
from mistnet.web.pages.charts import account_rows
from mistnet.web.pages.dashboard import SHOWN_STATES, QueueSnapshot
from mistnet.web.pages.render import OperatorPage, ReaderPage, redirect_to

_LATE: Final = timedelta(minutes=5)
_NO_WORKER: Final = timedelta(seconds=20)
_PLACES: Final[Mapping[str, str]] = {
    AlertRule.SOURCE_PAUSED: "/sources",
    AlertRule.BREAKER_OPEN: "/sources",
    AlertRule.RATE_LIMITED: "/sources",
    AlertRule.BUDGET_80: "/sources",
    AlertRule.BUDGET_100: "/sources",
    AlertRule.DUE_WORK: "/jobs?state=pending",
    AlertRule.NO_WORKERS: "/jobs?state=pending",
}
_REMEDIES: Final = (
    (("401", "403", "refuses"), "The source refuses the key: check it, resume the source, then retry."),
    (("402", "credit", "budget"), "Out of credits or budget: recharge or raise the cap, then retry."),
    (("timed out", "no answer", "cut short", "502", "503"), "The source did not answer: retry when it works again."),
)
_SILENT: Final = timedelta(minutes=3)


class OfferedAction(msgspec.Struct, frozen=True, kw_only=True):
    """A form that an operator can submit at once: its address, the label of its button, and the kind of jobs."""

    action: str
    label: str
    kind: str = ""


class AttentionItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that needs attention. `level` is critical, warning or note."""

    level: str
    title: str
    text: str
    error: str | None = None
    href: str | None = None
    change: OfferedAction | None = None


def attention(queue: QueueSnapshot, *, has_key: bool) -> Sequence[AttentionItem]:
    paused = [
        AttentionItem(
            level="note",
            title=f"{each.kind} is paused",
            text=f"{each.reason}. `mistnet jobs resume {each.kind}` continues it.",
            href=f"/jobs?kind={each.kind}",
        )
        for each in queue.paused
    ]
    items = [*_alerts(queue), *_missing_workers(queue, has_key=has_key), *_gaps(queue), *paused]
    order = ("critical", "warning", "note")
    return sorted(items, key=lambda item: order.index(item.level))


def _alerts(queue: QueueSnapshot) -> Iterator[AttentionItem]:
    """Alerts about dead jobs are left out: the jobs themselves are listed, with a button to retry them."""
    for alert in queue.alerts:
        if alert.rule != AlertRule.DEAD_JOBS:
            rule = alert.rule.replace("_", " ")
            title = rule if alert.subject in rule else f"{rule}: {alert.subject}"
            href = f"/accounts/{alert.subject}" if alert.rule in ACCOUNT_RULES else _PLACES.get(alert.rule)
            change = OfferedAction(action=f"/alerts/{alert.id}/accept", label="Accept")
            yield AttentionItem(level=alert.severity, title=title, text=alert.message, href=href, change=change)


def _missing_workers(queue: QueueSnapshot, *, has_key: bool) -> Iterator[AttentionItem]:
    if not has_key and queue.live:
        yield AttentionItem(
            level="warning",
            title="no key for X",
            text="Set MISTNET_X_API_KEY for the workers; jobs wait until there is one.",
        )
    if {alert.rule for alert in queue.alerts} & {AlertRule.NO_WORKERS, AlertRule.DUE_WORK}:
        return
    seen = [worker for worker in queue.workers if queue.at - worker.seen_at < _SILENT]
    due = queue.oldest_due_at
    if due and not seen and queue.at - due > _NO_WORKER:
        yield AttentionItem(
            level="critical", title="no worker", text="Work is due and no worker is running: `mistnet work`."
        )
    elif due and queue.at - due > _LATE:
        yield AttentionItem(
            level="warning",
            title="work is late",
            text="Due jobs wait for a free worker: start another one, or raise `concurrency`.",
            href="/jobs?state=pending",
        )


def _gaps(queue: QueueSnapshot) -> Iterator[AttentionItem]:
    for gap in queue.gaps:
        many = gap.jobs > 1
        change = (
            OfferedAction(action="/jobs/requeue", label=f"Retry all of {gap.kind}", kind=gap.kind)
            if many
            else OfferedAction(action=f"/jobs/{gap.newest}/retry", label="Retry")
        )
        yield AttentionItem(
            level="note" if gone_upstream(gap.last_error) else "warning",
            title=f"{gap.jobs:,} {gap.kind} {'jobs are' if many else 'job is'} {gap.state}",
            text=remedy(gap.state, gap.last_error),
            error=gap.last_error,
            href=f"/jobs?state={gap.state}&kind={gap.kind}" if many else f"/jobs/{gap.newest}",
            change=change,
        )


def gone_upstream(error: str | None) -> bool:
    return any(words in (error or "") for words in ("does not return", "does not have"))


def remedy(state: JobState, error: str | None) -> str:
    """What to do about a failed job."""
    if gone_upstream(error):
        return "Upstream does not have it. Nothing to do; retry if it may be back."
    message = (error or "").lower()
    for signs, advice in _REMEDIES:
        if any(sign in message for sign in signs):
            return advice
    if state is JobState.DEAD:
        return "All attempts are used up. Retry gives new ones."
    return "It is not retried automatically. Check the error, then retry."


router = APIRouter(include_in_schema=False)
_ACCOUNTS: Final = 12
_REFUSED: Final = 5
_POSTS: Final = 8
_LATEST: Final = 80
_OF_EACH: Final = 2


@router.get("/")
async def overview(page: ReaderPage, span: ChartSpan | None = None) -> Response:
    app, dashboard = page.app, page.dashboard
    queue, collected = await dashboard.queue.get(), await dashboard.collected.get()
    account_counts = await dashboard.account_counts.get()
    chosen = span or collected.span
    posts, spent = await dashboard.bars(chosen)
    listed = await AccountPages(app.database).page(limit=_ACCOUNTS)
    sources = await source_statuses(app)
    by_author: Counter[int] = Counter()
    first: list[ListedPost] = []
    rest: list[ListedPost] = []
    for post in await PostListing(app.database).latest(_LATEST):
        # A few posts of each author first: they are stored in pages of one author.
        by_author[post.author_id] += 1
        (first if by_author[post.author_id] <= _OF_EACH else rest).append(post)
    return page.render(
        "overview.html",
        queue=queue,
        kinds=_kinds(queue),
        collected=collected,
        spans=list(ChartSpan),
        chosen=chosen,
        chart=msgspec.json.encode(
            {"width": chosen.bars[1], "at": posts.since, "posts": posts.amounts, "credits": spent.amounts}
        ).decode(),
        sources=sources,
        paid=[each for each in sources if each.day_credits or each.day_cap is not None],
        attention=attention(queue, has_key=bool(app.settings.x_api_key)),
        accounts=account_rows(listed.items, account_counts, dashboard.now),
        refused=await Refusals(app.database).list(_REFUSED),
        latest=[*first, *rest][:_POSTS],
    )


@router.post("/alerts/{alert_id:id}/accept")
async def accept_alert(page: OperatorPage, alert_id: NumberPath) -> Response:
    await page.app.watch.alerts.accept(alert_id, by=page.caller.name, now=page.now)
    return redirect_to("/", "alert-accepted")


def _kinds(queue: QueueSnapshot) -> Sequence[Mapping[str, Any]]:
    """One row for each kind, with the widths of the parts of its bar."""
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
    """The begin and the width of each state's part of a bar, in percent."""
    parts: list[tuple[JobState, float, float]] = []
    begin = 0.0
    for state in SHOWN_STATES:
        if states.get(state):
            width = max(states[state] / most * 100, 0.8)
            parts.append((state, round(begin, 2), round(width, 2)))
            begin += width
    return parts
