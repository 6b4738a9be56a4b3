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
from mistnet.queue.store.inspect import Inspector, PausedKind, SeenWorker, StateCount, WaitGroup
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
    """Show what needs attention, and the queue: its jobs, workers, what waits and why, what is missing."""
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
    kinds = [_kind_status(name, counts, paused, done) for name in sorted(names)]
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
            PausedSource(
                name=each.name, paused_at=each.paused_at, paused_by=each.paused_by, pause_reason=each.pause_reason
            )
            for each in await DatabaseSourceStore(database).states()
            if each.paused_at
        ],
        refused=await Refusals(database).list(),
        gone=[each for each in await inspector.leases() if each.is_gone(seen_before=now - 3 * heartbeat)],
    )


def _kind_status(
    name: KindName, counts: Sequence[StateCount], paused: Sequence[PausedKind], done: Mapping[KindName, int]
) -> KindStatus:
    own = [count for count in counts if count.kind == name]
    return KindStatus(
        kind=name,
        states={count.state: count.jobs for count in own},
        due=sum(count.due for count in own),
        parked=sum(count.parked for count in own),
        oldest_due_at=min((count.oldest_due_at for count in own if count.oldest_due_at), default=None),
        next_due_at=min((count.next_due_at for count in own if count.next_due_at), default=None),
        paused=next((each.reason for each in paused if each.kind == name), None),
        done_last_minute=done.get(name, 0),
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
    return [
        *_alerts(status),
        *_paused(status),
        kinds_grid(status),
        Grid(
            title="what waits, and why",
            columns=("jobs", "kind", "why", "next due"),
            rows=[
                (str(wait.jobs), wait.kind, wait.reason, _from_now(wait.next_due_at - status.at))
                for wait in status.waits
            ],
            empty="nothing waits",
        ),
        _workers_grid(status),
        *_gone(status),
        *refused_blocks(status.refused),
        _gaps_line(status),
    ]


def _alerts(status: Status) -> list[Block]:
    """Alerts come first, as they need attention now."""
    rows = [
        (str(alert.id), alert.severity, alert.rule, f"{span(status.at - alert.opened_at)} ago", alert.message)
        for alert in status.alerts
        if alert.accepted_at is None
    ]
    title = "alerts; `mistnet alerts accept ID` accepts one as it is"
    grid = Grid(title=title, columns=("id", "", "rule", "since", "what and what to do"), rows=rows)
    accepted = len(status.alerts) - len(rows)
    rest = "is accepted: `mistnet alerts` shows it" if accepted == 1 else "are accepted: `mistnet alerts` shows them"
    return [*([grid] if rows else ()), *([f"{counted(accepted, 'alert')} {rest}"] if accepted else ())]


def _paused(status: Status) -> list[Block]:
    """A source that was paused by hand raises no alert, but its jobs wait, too."""
    if not status.paused_sources:
        return []
    rows = [
        (
            each.name,
            "by hand" if each.paused_by is PausedBy.OPERATOR else "because it refuses us",
            f"{span(status.at - each.paused_at)} ago",
            each.pause_reason or "no reason given",
        )
        for each in status.paused_sources
    ]
    title = "paused sources; `mistnet sources resume NAME` allows calls again"
    return [Grid(title=title, columns=("source", "paused", "since", "why"), rows=rows)]


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
                *(str(kind.states.get(state, "")) for state in used),
                str(kind.due or ""),
                span(status.at - kind.oldest_due_at) if kind.oldest_due_at else "",
                f"in {span(kind.next_due_at - status.at)}" if kind.next_due_at else "",
                str(kind.parked or ""),
                str(kind.done_last_minute or ""),
                kind.paused or "",
            )
            for kind in status.kinds
            if kind.states or kind.paused or kind.done_last_minute
        ],
        empty=f"the queue on {status.database} is empty: `mistnet track HANDLE` adds an account",
    )


def _from_now(ahead: timedelta) -> str:
    return f"in {span(ahead)}" if ahead > timedelta() else "now"


def _workers_grid(status: Status) -> Grid:
    return Grid(
        title="workers",
        columns=("name", "jobs held", "handlers", "lanes", "seen", "version", ""),
        rows=[
            (
                worker.name,
                str(worker.running),
                str(worker.concurrency),
                worker.lanes,
                f"{span(status.at - worker.seen_at)} ago",
                worker.version,
                "draining" if worker.draining else "",
            )
            for worker in status.workers
        ],
        empty="no workers: start one with `mistnet work`",
    )


def _gone(status: Status) -> list[Block]:
    """Jobs that no worker works on, and when another worker can take them."""
    if not status.gone:
        return []
    rows = [
        (
            each.worker,
            str(each.jobs),
            f"{span(status.at - each.seen_at)} ago" if each.seen_at else "signed out",
            _from_now(each.lease_until - status.at),
        )
        for each in status.gone
    ]
    title = "leases of workers that are gone; another worker takes their jobs when these run out"
    return [Grid(title=title, columns=("worker", "jobs", "seen", "runs out"), rows=rows)]


def _gaps_line(status: Status) -> str:
    if not status.gaps:
        return "no gaps"
    listed = ", ".join(
        f"{count} {kind} {state}" for kind, states in status.gaps.items() for state, count in states.items()
    )
    return f"gaps: {listed}; see `mistnet jobs dead`"


_REFUSED_SHOWN: Final = 20


def refused_blocks(refused: Sequence[RefusedHandle]) -> list[Block]:
    """The latest handles that could not be tracked."""
    if not refused:
        return []
    grid = Grid(
        title="refused: requested, but not tracked",
        columns=("handle", "why", "refused (UTC)"),
        rows=[(f"@{each.handle}", each.reason, at(each.refused_at)) for each in refused[:_REFUSED_SHOWN]],
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
                *(str(each.id), each.severity, each.rule, at(each.opened_at)),
                f"{at(each.accepted_at)} by {each.accepted_by}" if each.accepted_at else "",
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
