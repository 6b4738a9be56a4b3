"""The overview: first steps, or what was collected, what it costs, what waits and needs attention. All alerts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Form
from fastapi.responses import Response

from mistnet.app import App
from mistnet.governor.model import X_SOURCE
from mistnet.graph.follows.model import FOLLOW_SYNC
from mistnet.graph.segments.model import MATERIALIZE
from mistnet.kit.text import counted
from mistnet.operations.alerts.model import ACCOUNT_RULES, AlertRule
from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.overview import OpenAlert
from mistnet.operations.runs.model import SCRAPE
from mistnet.operations.webhooks import DELIVER
from mistnet.prices.model import PRICE
from mistnet.queue.model import JobState
from mistnet.queue.store.inspect import SeenWorker, WaitGroup
from mistnet.shops.model import CRAWL
from mistnet.social.accounts import AccountState
from mistnet.social.feeds import FEED_POLL
from mistnet.social.jobs import args
from mistnet.social.jobs.posts_sync import POSTS_SYNC
from mistnet.social.model import UserId, X
from mistnet.social.store.account_pages import AccountPages, People
from mistnet.social.store.post_listing import ListedPost, PostListing
from mistnet.social.store.tracking import Refusals, TrackingStore
from mistnet.sources.controls import SourceStatus, costs_credits, source_statuses
from mistnet.sources.x.client import CREDITS_PER_DOLLAR
from mistnet.web.fields import BeforeId, NumberPath
from mistnet.web.pages.cached_counts import ChartSpan
from mistnet.web.pages.charts import account_rows
from mistnet.web.pages.dashboard import QueueSnapshot
from mistnet.web.pages.plots import bar_plot
from mistnet.web.pages.render import OperatorPage, ReaderPage, number, redirect_to

_LATE: Final = timedelta(minutes=5)
_NO_WORKER: Final = timedelta(seconds=20)
_REMEDIES: Final = (
    (("401", "403", "refuses"), "The source refuses the key: check it, resume the source, then retry."),
    (("402", "credit", "budget"), "Out of credits or budget: recharge or raise the cap, then retry."),
    (("timed out", "no answer", "cut short", "502", "503"), "The source did not answer: retry when it works again."),
)
_SILENT: Final = timedelta(minutes=3)
_SWEEP_AWAITED: Final = re.compile(args.awaits_sweep(X, UserId(0)).replace("0", r"(\d{1,19})"))


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
    alerts = []
    for alert in queue.alerts:
        # Dead jobs themselves are listed, with a button to retry them.
        if alert.rule != AlertRule.DEAD_JOBS:
            rule, href = alert.rule.replace("_", " "), alert_place(alert)
            title = rule if alert.subject in rule else f"{rule}: {alert.subject}"
            change = OfferedAction(action=f"/alerts/{alert.id}/accept", label="Accept")
            alerts.append(
                AttentionItem(level=alert.severity, title=title, text=alert.message, href=href, change=change)
            )
    items = [*alerts, *_missing_workers(queue, has_key=has_key), *_gaps(queue), *paused]
    order = ("critical", "warning", "note")
    return sorted(items, key=lambda item: order.index(item.level))


def _missing_workers(queue: QueueSnapshot, *, has_key: bool) -> Iterator[AttentionItem]:
    if not has_key and queue.live:
        yield AttentionItem(
            level="warning",
            title="no key for X",
            text="Set MISTNET_X_API_KEY for the workers; jobs wait until there is one.",
        )
    if {alert.rule for alert in queue.alerts} & {AlertRule.NO_WORKERS, AlertRule.DUE_WORK}:
        return
    due = queue.oldest_due_at
    if due and not _running_workers(queue) and queue.at - due > _NO_WORKER:
        yield AttentionItem(
            level="critical", title="no worker", text="Work is due and no worker is running: `mistnet up`."
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


def _running_workers(queue: QueueSnapshot) -> Sequence[SeenWorker]:
    return [worker for worker in queue.workers if queue.at - worker.seen_at < _SILENT]


class FirstStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a fresh installation. `text` says what is so, or which command does it."""

    name: str
    title: str
    text: str
    done: bool


def first_steps(queue: QueueSnapshot, paid: SourceStatus | None, *, asked_for: int, has_key: bool) -> list[FirstStep]:
    """What a new installation needs before posts arrive, in the order of doing it."""
    has_key = has_key or bool(paid and paid.last_success_at)
    cap = paid.day_cap if paid else None
    accounts = sum(count for state, count in queue.accounts.items() if state != AccountState.UNTRACKED)
    known = [*([counted(accounts, "account")] if accounts else []), *([f"{asked_for} asked for"] if asked_for else [])]
    workers = _running_workers(queue)
    return [
        FirstStep(
            name="key",
            title="A key of TwitterAPI.io",
            text="It is set."
            if has_key
            else "Run `mistnet init`, which asks for it and stores it, or set `MISTNET_X_API_KEY`; then start mistnet "
            "again. Without a key nothing is called and nothing is spent.",
            done=has_key,
        ),
        FirstStep(
            name="budget",
            title="A budget",
            text=f"At most ${cap / CREDITS_PER_DOLLAR:,.2f} a day. 1,000 posts cost about $0.15."
            if cap is not None
            else "There is no limit. Set `x_day_credits = 200000` in `mistnet.toml` for at most $2 a day, or here:",
            done=cap is not None,
        ),
        FirstStep(
            name="account",
            title="The first account",
            text=f"{', '.join(known)}." if known else "Run `mistnet track NAME`, or type a handle here:",
            done=bool(known),
        ),
        FirstStep(
            name="worker",
            title="A worker",
            text=f"{counted(len(workers), 'worker')} running."
            if workers
            else "Run `mistnet up`: it works and serves this dashboard. `mistnet work` adds workers.",
            done=bool(workers),
        ),
    ]


_WORK: Final[Mapping[str, tuple[str, str | None]]] = {
    args.SUGGESTION: ("handle to look up", "handles to look up"),
    args.BACKFILL: ("history to collect", "histories to collect"),
    args.REPOSTS: ("account's reposts to collect", "accounts' reposts to collect"),
    args.CATCH_UP: ("account to check for new posts", "accounts to check for new posts"),
    args.RELOOK: ("account to check again", "accounts to check again"),
    args.WALK: ("reply chain to follow", "reply chains to follow"),
    args.HYDRATE_USER: ("profile to fetch", "profiles to fetch"),
    args.HYDRATE_POST: ("post to fetch", "posts to fetch"),
    POSTS_SYNC: ("set of posts to fetch", "sets of posts to fetch"),
    FOLLOW_SYNC: ("list of follows to read", "lists of follows to read"),
    MATERIALIZE: ("segment to materialize", "segments to materialize"),
    FEED_POLL: ("feed to read", "feeds to read"),
    CRAWL: ("page to visit", "pages to visit"),
    PRICE: ("price to look up", "prices to look up"),
    DELIVER: ("webhook to call", "webhooks to call"),
    SCRAPE: ("account of a run to fetch", "accounts of a run to fetch"),
}


def work_words(wait: WaitGroup) -> str:
    """Waiting jobs in words: `3 profiles to fetch`."""
    return counted(wait.jobs, *_WORK.get(wait.kind, (f"{wait.kind} job", None)))


async def reason_words(app: App, reasons: Iterable[str | None]) -> Mapping[str, str]:
    """Reasons of waiting jobs, in words with handles instead of ids."""
    found = {each: _SWEEP_AWAITED.fullmatch(each) for each in reasons if each}
    names = await People(app.database).names({UserId(int(match[1])) for match in found.values() if match})
    words = {}
    for reason, match in found.items():
        user = names.get(UserId(int(match[1]))) if match else None
        handle = f"@{user.handle}" if user and user.handle else f"account {match[1]}" if match else ""
        words[reason] = f"waits for the next posts of {handle}" if match else reason
    return words


_WIDTHS: Final = {
    ChartSpan.MINUTES: "2 seconds",
    ChartSpan.HOUR: "minute",
    ChartSpan.DAY: "hour",
    ChartSpan.MONTH: "day",
}


def _dollar_words(amount: float) -> str:
    """Cents, and parts of a cent where there are any in a small amount."""
    cents = f"${amount:,.2f}"
    return cents if amount >= 0.1 or f"{amount:.4f}".endswith("00") else f"${amount:.4f}"


router = APIRouter(include_in_schema=False)
_ACCOUNTS: Final = 10
_REFUSED: Final = 5
_POSTS: Final = 6
_WAITS: Final = 6
_LATEST: Final = 80
_OF_EACH: Final = 2


@router.get("/")
async def overview(page: ReaderPage, span: ChartSpan | None = None) -> Response:
    app, dashboard = page.app, page.dashboard
    queue, collected = await dashboard.queue.get(), await dashboard.collected.get()
    account_counts = await dashboard.account_counts.get()
    chosen = span or collected.span
    posts, spent = await dashboard.bars(chosen)
    pages = AccountPages(app.database)
    listed = list((await pages.page(unfinished=True, limit=_ACCOUNTS)).items)
    listed += (
        (await pages.page(unfinished=False, limit=_ACCOUNTS - len(listed))).items if len(listed) < _ACCOUNTS else []
    )
    sources = await source_statuses(app)
    paid = [each for each in sources if costs_credits(app, each)]
    cap = sum(each.day_cap or 0 for each in paid) if all(each.day_cap is not None for each in paid) else None
    # A cap is that of a day: only the bars of a month are days.
    limit = cap / CREDITS_PER_DOLLAR if cap and chosen is ChartSpan.MONTH else None
    asked_for = await TrackingStore(app.database, app.job_writer).suggestions()
    has_key = bool(app.settings.x_api_key)
    x_source = next((each for each in paid if each.name == X_SOURCE), None)
    by_author: Counter[int] = Counter()
    first: list[ListedPost] = []
    rest: list[ListedPost] = []
    for post in await PostListing(app.database).latest(_LATEST):
        # A few posts of each author first: they are stored in pages of one author.
        by_author[post.author_id] += 1
        (first if by_author[post.author_id] <= _OF_EACH else rest).append(post)
    return page.render(
        "overview.html",
        steps=None if collected.posts else first_steps(queue, x_source, asked_for=len(asked_for), has_key=has_key),
        queue=queue,
        collected=collected,
        spans=list(ChartSpan),
        chosen=chosen,
        every=_WIDTHS[chosen],
        posts_plot=bar_plot(posts.edges, posts.amounts, number),
        money_plot=bar_plot(
            spent.edges, [each / CREDITS_PER_DOLLAR for each in spent.amounts], _dollar_words, cap=limit
        ),
        cap=cap,
        stopped=[each for each in sources if each.state != "serving"],
        attention=attention(queue, has_key=has_key),
        workers=_running_workers(queue),
        waits=[
            (work_words(each) + (f" at {each.lane}" if each.kind == CRAWL else ""), each)
            for each in queue.waits[:_WAITS]
        ],
        reasons=await reason_words(app, [each.reason for each in queue.waits[:_WAITS]]),
        more_waits=sum(each.jobs for each in queue.waits[_WAITS:]),
        accounts=account_rows(listed, account_counts, dashboard.now),
        asked_for=asked_for[:_ACCOUNTS],
        refused=await Refusals(app.database).list(_REFUSED),
        latest=[*first, *rest][:_POSTS],
    )


_PAST: Final = 10
_PLACES: Final[Mapping[str, str]] = {
    AlertRule.SOURCE_PAUSED: "/sources",
    AlertRule.BREAKER_OPEN: "/sources",
    AlertRule.RATE_LIMITED: "/sources",
    AlertRule.BUDGET_80: "/sources",
    AlertRule.BUDGET_100: "/sources",
    AlertRule.DUE_WORK: "/jobs?state=pending",
    AlertRule.NO_WORKERS: "/jobs?state=pending",
}


def alert_place(alert: AlertRow | OpenAlert) -> str | None:
    """The page that shows what an alert is about."""
    return f"/accounts/{alert.subject}" if alert.rule in ACCOUNT_RULES else _PLACES.get(alert.rule)


@router.get("/alerts")
async def alerts(page: ReaderPage, before: BeforeId = None) -> Response:
    store = page.app.watch.alerts
    past = await store.page(is_open=False, after=before, limit=_PAST)
    return page.render(
        "alerts.html",
        open=sorted(await store.list_open(), key=lambda each: each.accepted_at is not None),
        past=past.items,
        before=before,
        more=past.next,
        places=alert_place,
        account_rules=ACCOUNT_RULES,
    )


@router.post("/alerts/{alert_id:id}/accept")
async def accept_alert(
    page: OperatorPage, alert_id: NumberPath, back: Annotated[str, Form(max_length=20)] = ""
) -> Response:
    await page.app.watch.alerts.accept(alert_id, by=page.caller.name, now=page.now)
    return redirect_to("/alerts" if back == "/alerts" else "/", "alert-accepted")
