"""The status and alerts commands: what needs attention, the queue by kind and state, workers, what waits and why."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec
import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.output import Block, Grid, at, document, span, tables
from mistnet.governor.model import PausedBy, SourceName
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.kit.text import LARGEST_ID, counted
from mistnet.operations.alerts.store import AlertRow, AlertStore
from mistnet.queue.model import GAP_STATES, HeldLeases, JobState, KindName
from mistnet.queue.store.inspect import Inspector, SeenWorker, WaitGroup
from mistnet.social.store.tracking import Refusals, RefusedHandle

_RECENT = timedelta(minutes=1)
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


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole queue at one moment, and what needs attention."""

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


@shared_options
async def status(
    invocation: Invocation,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it, updated every second.")] = False,
) -> None:
    """Show how far it is, what it cost, what needs you, and what waits."""
    if watch and not invocation.out.on_terminal:
        raise typer.BadParameter("--watch needs a terminal and no --json")
    heartbeat = invocation.settings.heartbeat
    async with open_database(invocation.settings) as database:
        if watch:
            await _watch(database, heartbeat)
        else:
            now = await status_of(database, heartbeat)
            invocation.out.show(now, *blocks(now))


async def status_of(database: Database, heartbeat: timedelta, *, recent: timedelta = _RECENT) -> Status:
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
    gaps = {each.kind: {state: each.states[state] for state in GAP_STATES if state in each.states} for each in kinds}
    return Status(
        at=now,
        database=database.shown_url,
        kinds=kinds,
        waits=await inspector.waits(now=now),
        workers=await inspector.workers(),
        gaps={kind: states for kind, states in gaps.items() if states},
        alerts=await AlertStore(database).list_open(),
        paused_sources=[
            msgspec.convert(each, PausedSource, from_attributes=True)
            for each in await DatabaseSourceStore(database).states()
            if each.paused_at
        ],
        refused=await Refusals(database).list(),
        # One late heartbeat does not make a worker gone.
        gone=[each for each in await inspector.leases() if each.is_gone(seen_before=now - 3 * heartbeat)],
    )


async def _watch(database: Database, heartbeat: timedelta) -> None:
    from rich.console import Console  # noqa: PLC0415 (slow to load; only a terminal needs it)
    from rich.live import Live  # noqa: PLC0415

    with Live(console=Console(), auto_refresh=False, screen=False) as live:
        while True:
            try:
                live.update(tables(blocks(await status_of(database, heartbeat))), refresh=True)
            except DatabaseError as error:
                live.update(tables([str(error)]), refresh=True)
            await asyncio.sleep(1)


def blocks(status: Status) -> list[Block]:
    paused = Grid(
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
    states = (f"{count} {kind} {state}" for kind, by in status.gaps.items() for state, count in by.items())
    gaps = f"gaps: {', '.join(states)}; see `mistnet jobs dead`" if status.gaps else "no gaps"
    return [
        # Alerts come first, as they need attention now.
        *_alerts(status),
        # A source that was paused by hand raises no alert, but its jobs wait, too.
        *([paused] if paused.rows else []),
        kinds_grid(status),
        Grid(
            title="what waits, and why",
            columns=("jobs", "kind", "lane", "why", "next due"),
            rows=[
                (wait.jobs, wait.kind, wait.lane, wait.reason, _from_now(wait.next_due_at - status.at))
                for wait in status.waits
            ],
            empty="nothing waits",
        ),
        Grid(
            title="workers",
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
    title = "alerts; `mistnet alerts accept ID` accepts one as it is"
    grid = Grid(title=title, columns=("id", "", "rule", "since", "what and what to do"), rows=rows)
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
        title=f"queue on {status.database}",
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
        empty=f"the queue on {status.database} is empty: `mistnet track HANDLE` adds an account",
    )


def _from_now(ahead: timedelta) -> str:
    return f"in {span(ahead)}" if ahead > timedelta() else "now"


_REFUSED_SHOWN: Final = 20


def refused_blocks(refused: Sequence[RefusedHandle]) -> list[Block]:
    """The latest handles that could not be tracked."""
    if not refused:
        return []
    grid = Grid(
        title="refused: requested, but not tracked",
        columns=("handle", "why", "refused (UTC)"),
        rows=[(f"@{each.handle}", each.reason, each.refused_at) for each in refused[:_REFUSED_SHOWN]],
    )
    rest = len(refused) - _REFUSED_SHOWN
    more = [f"{rest:,} more: `mistnet suggest --list` shows all"] if rest > 0 else []
    return [grid, *more, "`mistnet track HANDLE` tries one again, `mistnet untrack HANDLE` removes it from this list"]


_BY: Final = "command line"


@shared_options
async def list_alerts(invocation: Invocation) -> None:
    """Show all open alerts, the worst first, accepted ones too."""
    async with open_database(invocation.settings) as database:
        alerts = await AlertStore(database).list_open()
    grid = Grid(
        columns=("id", "", "rule", "since (UTC)", "accepted (UTC)", "what and what to do"),
        rows=[
            (
                each.id,
                each.severity,
                each.rule,
                each.opened_at,
                f"{at(each.accepted_at)} by {each.accepted_by}" if each.accepted_at else None,
                each.message,
            )
            for each in alerts
        ],
        empty="no alert is open",
    )
    invocation.out.show(document(alerts=alerts), grid)


@shared_options
async def accept_alert(
    invocation: Invocation,
    alert_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="The alert's id.")],
) -> None:
    """Accept an open alert: it no longer needs attention, until it is over or its severity changes."""
    async with open_database(invocation.settings) as database:
        done = await AlertStore(database).accept(alert_id, by=_BY, now=database.clock.now())
    invocation.out.show(document(alert=done), f"alert {done.id} is accepted: {done.rule} of {done.subject}")
