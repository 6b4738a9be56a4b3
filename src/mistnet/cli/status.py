"""The status command: how far collecting is, what it cost, what needs you, the queue, workers, what waits and why."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec
import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.output import Block, Grid, last_line, span, tables
from mistnet.governor.model import X_SOURCE, PausedBy, SourceName, SourceState, on_day
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.text import counted
from mistnet.operations.alerts.model import AlertRule
from mistnet.operations.alerts.store import AlertRow, AlertStore
from mistnet.queue.model import GAP_STATES, LIVE_STATES, HeldLeases, JobState, KindName
from mistnet.queue.store.inspect import Inspector, SeenWorker, WaitGroup
from mistnet.settings import Settings
from mistnet.social.store.tracking import Collected, Refusals, RefusedHandle, collected
from mistnet.sources.x.client import format_dollars

_RECENT = timedelta(minutes=1)
_SILENT = timedelta(minutes=3)
_SHORT: Final = 20
_FEW: Final = 3
_NEED_KEY: Final = frozenset(("suggestion", "backfill", "catch_up", "reposts", "walk", "hydrate_user", "hydrate_post"))
_SHOWN_STATES = (
    JobState.PENDING,
    JobState.QUEUED,
    JobState.RUNNING,
    JobState.RETRYABLE,
    JobState.FAILED,
    JobState.DEAD,
)


class KindStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one kind."""

    kind: KindName
    states: Mapping[JobState, int]
    due: int
    parked: int
    oldest_due_at: datetime | None
    next_due_at: datetime | None
    paused: str | None
    done_last_minute: int


class PausedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source that is not called until it is resumed."""

    name: SourceName
    paused_at: datetime
    paused_by: PausedBy | None
    pause_reason: str | None


class SpentToday(msgspec.Struct, frozen=True, kw_only=True):
    """Credits spent on X since midnight (UTC), and the cap of the day."""

    credits: int
    cap: int | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is collected and the whole queue at one moment, and what needs attention."""

    at: datetime
    database: str
    kinds: Sequence[KindStatus]
    waits: Sequence[WaitGroup]
    workers: Sequence[SeenWorker]
    gaps: Mapping[KindName, Mapping[JobState, int]]
    alerts: Sequence[AlertRow] = ()
    paused_sources: Sequence[PausedSource] = ()
    refused: Sequence[RefusedHandle] = ()
    gone: Sequence[HeldLeases] = ()
    """Leases of workers that are gone. Their jobs wait until these run out."""
    collected: Collected
    spent_today: SpentToday
    needs: Sequence[str]
    """What needs an operator, one line each."""


@shared_options
async def status(
    invocation: Invocation,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it, updated every second.")] = False,
) -> None:
    """Show progress, cost, what needs attention, and what waits."""
    if watch and not invocation.out.on_terminal:
        raise typer.BadParameter("--watch needs a terminal and no --json")
    async with open_database(invocation.settings) as database:
        if not watch:
            now = await status_of(database, invocation.settings)
            invocation.out.show(now, *blocks(now))
            return
        from rich.console import Console  # noqa: PLC0415 (slow to load; only a terminal needs it)
        from rich.live import Live  # noqa: PLC0415

        console = Console()
        with Live(console=console, auto_refresh=False, screen=False) as live:
            while True:
                try:
                    shown = blocks(await status_of(database, invocation.settings))
                except DatabaseError as error:
                    shown = [str(error)]
                live.update(tables(shown, console.width), refresh=True)
                await asyncio.sleep(1)


async def status_of(database: Database, settings: Settings, *, recent: timedelta = _RECENT) -> Status:
    now, inspector = database.clock.now(), Inspector(database)
    counts, paused = await inspector.counts(now=now), await inspector.paused()
    done = await inspector.finished(since=now - recent)
    names = {*(count.kind for count in counts), *(each.kind for each in paused), *done}
    kinds = []
    for name in sorted(names):
        own = [count for count in counts if count.kind == name]
        kind = KindStatus(
            kind=name,
            states={count.state: count.jobs for count in own},
            due=sum(count.due for count in own),
            parked=sum(count.parked for count in own),
            oldest_due_at=min((count.oldest_due_at for count in own if count.oldest_due_at), default=None),
            next_due_at=min((count.next_due_at for count in own if count.next_due_at), default=None),
            paused=next((each.reason for each in paused if each.kind == name), None),
            done_last_minute=done.get(name, 0),
        )
        kinds.append(kind)
    sources = [on_day(each, now) for each in await DatabaseSourceStore(database).states()]
    spending = next((each for each in sources if each.name == X_SOURCE), SourceState(name=X_SOURCE))
    cap = settings.x_day_credits if spending.day_cap is None else spending.day_cap
    gaps = {each.kind: {state: each.states[state] for state in GAP_STATES if state in each.states} for each in kinds}
    known = Status(
        at=now,
        database=database.shown_url,
        kinds=kinds,
        waits=await inspector.waits(now=now),
        workers=await inspector.workers(),
        gaps={kind: states for kind, states in gaps.items() if states},
        alerts=await AlertStore(database).list_open(),
        paused_sources=[
            msgspec.convert(each, PausedSource, from_attributes=True) for each in sources if each.paused_at
        ],
        refused=await Refusals(database).list(),
        # One late heartbeat does not make a worker gone.
        gone=[each for each in await inspector.leases() if each.is_gone(seen_before=now - 3 * settings.heartbeat)],
        collected=await collected(database),
        spent_today=SpentToday(credits=spending.day_credits, cap=cap),
        needs=(),
    )
    return msgspec.structs.replace(known, needs=list(needs_of(known, has_key=bool(settings.x_api_key))))


def needs_of(status: Status, *, has_key: bool) -> Iterator[str]:
    open_alerts = [alert for alert in status.alerts if alert.accepted_at is None]
    told = {alert.rule for alert in status.alerts}
    yield from (f"{alert.rule}: {alert.message}" for alert in open_alerts)
    for source in status.paused_sources:
        resume = f"`mistnet sources resume {source.name}` allows calls again"
        if source.paused_by is PausedBy.OPERATOR:
            yield f"{source.name} is paused by hand: {resume}"
        elif AlertRule.SOURCE_PAUSED not in told:
            why = last_line(source.pause_reason, width=_SHORT)
            yield f"{source.name} is paused ({why}): another key is used at once; {resume}"
    if not told & {AlertRule.DEAD_JOBS}:
        for kind, states in status.gaps.items():
            count = sum(states.values())
            yield f"{counted(count, f'{kind} job')} failed: `mistnet jobs dead --kind {kind}` says why"
    if not has_key and any(kind.kind in _NEED_KEY and set(kind.states) & set(LIVE_STATES) for kind in status.kinds):
        yield "work waits for a key for X, and none is set here: `mistnet init --key KEY` stores one"
    running = [each for each in status.workers if status.at - each.seen_at < _SILENT]
    if not running and any(kind.due for kind in status.kinds) and not told & {AlertRule.NO_WORKERS, AlertRule.DUE_WORK}:
        yield "work is due and no worker is running: `mistnet up` starts one"


def summary(status: Status) -> str:
    """One sentence: what is collected, what it cost today, what needs an operator."""
    stored, tracked = status.collected, sum(status.collected.accounts.values())
    parts = [counted(stored.posts, "post")]
    if tracked:
        parts[0] += f" of {counted(tracked, 'account')}, {stored.complete:,} complete"
    if stored.suggested:
        parts.append(f"{counted(stored.suggested, 'profile')} to look up")
    spent = format_dollars(status.spent_today.credits)
    cap = f" of {format_dollars(status.spent_today.cap)}" if status.spent_today.cap is not None else ""
    parts.append(f"{spent}{cap} today" if cap else f"{spent} spent today")
    count = len(status.needs)
    parts.append(f"{counted(count, 'thing')} {'needs' if count == 1 else 'need'} you" if count else "nothing needs you")
    if not (stored.posts or tracked or stored.suggested):
        return f"Nothing is collected yet: `mistnet track HANDLE` adds an account; {'; '.join(parts[-2:])}."
    return f"{'; '.join(parts)}."


def blocks(status: Status) -> list[Block]:
    paused = Grid(
        cut=True,
        title="paused sources; `mistnet sources resume NAME` allows calls again",
        columns=("source", "paused", "since", "why"),
        rows=[
            (
                each.name,
                "by hand" if each.paused_by is PausedBy.OPERATOR else "because it refuses us",
                f"{span(status.at - each.paused_at)} ago",
                each.pause_reason or "no reason given",
            )
            for each in status.paused_sources
        ],
    )
    # Jobs that no worker works on, and when another worker can take them.
    gone = Grid(
        cut=True,
        title="leases of workers that are gone; another worker takes their jobs when these run out",
        columns=("worker", "jobs", "seen", "runs out"),
        rows=[
            (
                each.worker,
                each.jobs,
                f"{span(status.at - each.seen_at)} ago" if each.seen_at else "signed out",
                _from_now(each.lease_until - status.at),
            )
            for each in status.gone
        ],
    )
    states = [f"{count} {kind} {state}" for kind, by in status.gaps.items() for state, count in by.items()]
    others = [f"{len(states) - _FEW} more"] if len(states) > _FEW else []
    gaps = f"gaps: {', '.join([*states[:_FEW], *others])}; see `mistnet jobs dead`" if states else "no gaps"
    shown = len([alert for alert in status.alerts if alert.accepted_at is None])
    return [
        summary(status),
        # Alerts come first, as they need attention now.
        *_alerts(status),
        *(["\n".join(status.needs[shown:])] if status.needs[shown:] else []),
        # A source that was paused by hand raises no alert, but its jobs wait, too.
        *([paused] if paused.rows else []),
        kinds_grid(status),
        Grid(
            cut=True,
            title="what waits, and why",
            columns=("kind", "lane", "jobs", "next due", "why"),
            rows=[
                (wait.kind, wait.lane, wait.jobs, _from_now(wait.next_due_at - status.at), wait.reason)
                for wait in status.waits
            ],
            empty="nothing waits",
        ),
        Grid(
            cut=True,
            title="workers",
            brief=True,
            columns=("name", "jobs held", "handlers", "lanes", "seen", "version", ""),
            rows=[
                (
                    worker.name,
                    worker.running,
                    worker.concurrency,
                    worker.lanes,
                    f"{span(status.at - worker.seen_at)} ago",
                    worker.version,
                    "draining" if worker.draining else None,
                )
                for worker in status.workers
            ],
            empty="no workers: start one with `mistnet work`",
        ),
        *([gone] if gone.rows else []),
        *refused_blocks(status.refused),
        gaps,
    ]


def _alerts(status: Status) -> list[Block]:
    rows = [
        (alert.id, alert.severity, alert.rule, f"{span(status.at - alert.opened_at)} ago", alert.message)
        for alert in status.alerts
        if alert.accepted_at is None
    ]
    title = "alerts; `mistnet alerts` shows them in full, `mistnet alerts accept ID` accepts one as it is"
    grid = Grid(title=title, cut=True, columns=("id", "", "rule", "since", "what and what to do"), rows=rows)
    accepted = len(status.alerts) - len(rows)
    rest = "is accepted: `mistnet alerts` shows it" if accepted == 1 else "are accepted: `mistnet alerts` shows them"
    return [*([grid] if rows else ()), *([f"{counted(accepted, 'alert')} {rest}"] if accepted else ())]


def kinds_grid(status: Status) -> Grid:
    used = [
        state
        for state in _SHOWN_STATES
        if state is not JobState.QUEUED or any(state in kind.states for kind in status.kinds)
    ]
    return Grid(
        cut=True,
        title=f"queue on {status.database}",
        brief=True,
        columns=("kind", *map(str, used), "due", "oldest due", "next due", "parked", "done/min", "paused"),
        rows=[
            (
                kind.kind,
                *(kind.states.get(state) for state in used),
                kind.due or None,
                span(status.at - kind.oldest_due_at) if kind.oldest_due_at else None,
                f"in {span(kind.next_due_at - status.at)}" if kind.next_due_at else None,
                kind.parked or None,
                kind.done_last_minute or None,
                kind.paused,
            )
            for kind in status.kinds
            if kind.states or kind.paused or kind.done_last_minute
        ],
        empty=f"the queue on {status.database} is empty",
    )


def _from_now(ahead: timedelta) -> str:
    return f"in {span(ahead)}" if ahead > timedelta() else "now"


_REFUSED_SHOWN: Final = 20


def refused_blocks(refused: Sequence[RefusedHandle]) -> list[Block]:
    """The latest handles that could not be tracked."""
    if not refused:
        return []
    grid = Grid(
        cut=True,
        title="refused: requested, but not tracked",
        columns=("handle", "why", "refused (UTC)"),
        rows=[(f"@{each.handle}", each.reason, each.refused_at) for each in refused[:_REFUSED_SHOWN]],
    )
    rest = len(refused) - _REFUSED_SHOWN
    more = [f"{rest:,} more: `mistnet suggest --list` shows all"] if rest > 0 else []
    return [grid, *more, "`mistnet track HANDLE` tries one again, `mistnet untrack HANDLE` removes it from this list"]
