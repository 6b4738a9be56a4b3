"""Commands for jobs and for RabbitMQ, which dispatches the jobs of some lanes."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import FileOption, argument, flag, option, read_ids, read_jobs, storable
from mistnet.cli.output import Grid, Output, complain, document, fields_of, last_line, next_page
from mistnet.kit.errors import UsageError
from mistnet.kit.text import LARGEST_ID, counted
from mistnet.queue.dispatch import DeadRequeued
from mistnet.queue.errors import JobNotAllowed, JobNotFound, UnknownKind
from mistnet.queue.model import GAP_STATES, JobId, JobState, KindName, Lane
from mistnet.queue.rabbitmq import DEAD_EXCHANGE, EXCHANGE, dead_queue_of, queue_of
from mistnet.queue.store.inspect import JobFilter
from mistnet.queue.store.operations import GapFilter, JobChange, Requeued

OneId = Annotated[int, argument("ID", "The job's id.", min=1, max=LARGEST_ID)]
KindOption = Annotated[str | None, option("--kind", "KIND", "Only jobs of this kind.")]
BeforeId = Annotated[int | None, option("--before-id", "ID", "Only older jobs: the next page.", min=1, max=LARGEST_ID)]
Limit = Annotated[int, option("--limit", None, "How many at most.", min=1, max=10_000)]


@app_command
async def list_jobs(
    app: App,
    out: Output,
    *,
    state: Annotated[
        list[JobState] | None,
        option("--state", None, "Only jobs in this state; may be given more than once. Default: all unfinished."),
    ] = None,
    kind: KindOption = None,
    lane: Annotated[str | None, option("--lane", "LANE", "Only jobs on this lane.")] = None,
    key: Annotated[str | None, option("--key", "PREFIX", "Only keys that begin so.")] = None,
    limit: Limit = 50,
    before_id: BeforeId = None,
) -> None:
    """List jobs, newest first."""
    narrowed = kind or lane or state or key or before_id
    wanted = JobFilter(kind=kind, lane=lane, states=state or (), key_prefix=key, before_id=before_id, limit=limit)
    await _show_page(app, out, wanted, empty="no such jobs" if narrowed else "the queue is empty")


@app_command
async def dead(app: App, out: Output, kind: KindOption = None, limit: Limit = 50, before_id: BeforeId = None) -> None:
    """List gaps: dead and failed jobs, with their errors."""
    wanted = JobFilter(kind=kind, states=GAP_STATES, before_id=before_id, limit=limit)
    await _show_page(app, out, wanted, empty="no gaps: no job is dead or failed")


@app_command
async def show(app: App, out: Output, job_id: OneId) -> None:
    """Show one job, with the errors of all attempts."""
    job = await app.inspector.job(JobId(job_id))
    if job is None:
        raise JobNotFound(job_id)
    errors = Grid.of(job.errors, "at, worker, error", heading="what went wrong", empty="nothing went wrong so far")
    shown = {
        **fields_of(job, "errors", "args", "last_error"),
        "args": bytes(job.args).decode("utf-8", "replace"),
        "last_error": last_line(job.last_error, width=1_000),
    }
    rows = []
    for name, value in shown.items():
        match value:
            case None | "":
                continue
            case bool():
                written = "yes" if value else "no"
            case str() | int():
                written = str(value)
            case _:
                written = f"{value:%Y-%m-%d %H:%M:%S.%f} UTC"
        rows.append((name.replace("_", " "), written))
    out.show(job, Grid(columns=("field", "value"), rows=rows), errors)


async def require_kind(app: App, kind: str | None) -> None:
    """Raises UnknownKind for a kind that is neither known here nor present in the queue."""
    if kind is None or kind in app.kinds:
        return
    present = {count.kind for count in await app.inspector.counts(now=app.database.clock.now())}
    if kind not in present and not await app.inspector.list_jobs(
        JobFilter(kind=kind, states=(JobState.SUCCEEDED, JobState.CANCELLED), limit=1)
    ):
        raise UnknownKind(kind, sorted({*app.kinds, *present}))


async def _show_page(app: App, out: Output, wanted: JobFilter, *, empty: str) -> None:
    await require_kind(app, wanted.kind)
    found = await app.inspector.page(wanted)
    grid = Grid.of(
        found.items,
        "id, kind, key, lane, state, attempts, run at (UTC), note",
        state=lambda job: "parked" if job.parked else job.state,
        attempts=lambda job: f"{job.attempts}/{job.max_attempts}" if job.max_attempts else job.attempts,
        note=lambda job: (None if job.state in GAP_STATES else job.wait_reason) or last_line(job.last_error),
        empty=empty,
    )
    shown = document(jobs=[fields_of(job, "errors") for job in found.items], next_before_id=found.next)
    out.show(shown, grid, *next_page(found.next, "--before-id"))


_USAGE = 2

Ids = Annotated[list[str] | None, argument("[ID]...", "The jobs' ids; commas may join them.")]
Kind = Annotated[str, argument("KIND", "The kind of job.")]


@shared_options
async def add(
    invocation: Invocation,
    kind: Kind,
    *,
    args: Annotated[str | None, option("--args", "JSON", "What the job is about.")] = None,
    key: Annotated[str | None, option("--key", "KEY", "Makes the job unique among the live ones of its kind.")] = None,
    lane: Annotated[str | None, option("--lane", "LANE", "One of the kind's lanes.")] = None,
    run_at: Annotated[str | None, option("--run-at", "TIME", "When it falls due, in ISO 8601; UTC if no zone.")] = None,
    wait: Annotated[float | None, option("--in", "SECONDS", "In how many seconds it falls due.")] = None,
    source: Annotated[
        Path | None, option("--from", "FILE", 'Many jobs, one {"args": …, "key": …} per line; - is stdin.')
    ] = None,
) -> None:
    """Add a job, or many from a file. All of them are stored, or none."""
    if source is not None and not (args is None and key is None):
        raise typer.BadParameter("a file brings its own args and keys; leave out --args and --key")
    async with open_app(invocation.settings) as app:
        if run_at is not None and wait is not None:
            raise typer.BadParameter("--run-at and --in exclude each other")
        # `float` reads "nan" and "inf", too.
        if wait is not None and not (math.isfinite(wait) and wait >= 0):
            raise typer.BadParameter("--in must be a number of seconds, 0 or more")
        try:
            due_at = datetime.fromisoformat(run_at) if run_at is not None else None
            if due_at is not None:
                due_at = (due_at if due_at.tzinfo else due_at.replace(tzinfo=UTC)).astimezone(UTC)
            if wait is not None:
                due_at = app.database.clock.now() + timedelta(seconds=wait)
        except (ValueError, OverflowError):
            raise typer.BadParameter("the time must be like 2027-01-31T12:00:00Z") from None
        if source is not None:
            wanted = read_jobs(app.kinds, kind, source, lane=lane, run_at=due_at)
        else:
            storable("--key", key)
            own_lane = Lane(lane) if lane else None
            wanted = [app.kinds.new_job(kind, args or "{}", key=key, lane=own_lane, run_at=due_at)]
        added = await app.enqueue(wanted)
    said = f"{added.created} added"
    said += f", {added.duplicates} already there" if added.duplicates else ""
    said += f", {added.parked} of them parked until there is room" if added.parked else ""
    invocation.out.show(added, said)


@shared_options
async def retry(invocation: Invocation, ids: Ids = None, *, source: FileOption = None) -> int:
    """Make jobs due now. Dead and failed ones start again with all their attempts."""
    wanted = _unique(ids, source)
    async with open_app(invocation.settings) as app:
        changes = await app.operations.retry(wanted, now=app.database.clock.now())
        return await _tell(invocation.out, app, changes, "retried")


@shared_options
async def cancel(
    invocation: Invocation,
    ids: Ids = None,
    *,
    source: FileOption = None,
    kind: Annotated[str | None, option("--kind", "KIND", "Accept all gaps of this kind: dead and failed jobs.")] = None,
    error: Annotated[str | None, option("--error", "TEXT", "Accept all gaps whose last error holds this text.")] = None,
) -> int:
    """Cancel jobs, also running ones, whose writes are discarded.

    With --kind or --error, gaps are accepted in bulk; live jobs are not changed.
    """
    if bool(ids or source) == (kind is not None or error is not None):
        raise typer.BadParameter("say which: some ids, or --kind KIND, or --error TEXT, or both of these")
    if error is not None and not error.strip():
        raise typer.BadParameter("give a part of the error", param_hint="--error")
    wanted = _unique(ids, source) if ids or source else []
    async with open_app(invocation.settings) as app:
        now = app.database.clock.now()
        if wanted:
            return await _tell(invocation.out, app, await app.operations.cancel(wanted, now=now), "cancelled")
        await require_kind(app, kind)
        accepted = await app.operations.accept(GapFilter(kind=kind, error=error), now=now)
    said = f"{counted(len(accepted), 'gap')} accepted"
    invocation.out.show(document(cancelled=_texts(accepted)), said if accepted else "no gap is like that")
    return 0


@shared_options
async def requeue(
    invocation: Invocation,
    ids: Annotated[list[str] | None, argument("[ID]...", "Dead or failed jobs; commas may join their ids.")] = None,
    *,
    source: FileOption = None,
    kind: Annotated[str | None, option("--kind", "KIND", "All gaps of this kind.")] = None,
    everything: Annotated[bool, flag("--all", "All gaps there are.")] = False,
    dlq: Annotated[str | None, option("--dlq", "LANE", "All dead jobs of this lane; takes their letters.")] = None,
    failed: Annotated[bool, flag("--failed", "With --dlq: also failed jobs, which a retry seldom fixes.")] = False,
) -> int:
    """Retry dead and failed jobs, with all their attempts."""
    if failed and dlq is None:
        raise typer.BadParameter(
            "it goes with --dlq; without that, failed jobs are taken anyway", param_hint="--failed"
        )
    if sum((bool(ids or source), kind is not None, everything, dlq is not None)) != 1:
        raise typer.BadParameter("say which: some ids, or --kind KIND, or --dlq LANE, or --all")
    wanted = _unique(ids, source) if ids or source else []
    async with open_app(invocation.settings) as app:
        if dlq is not None:
            return await requeue_dead(invocation, app, dlq, failed=failed)
        await require_kind(app, kind)
        now = app.database.clock.now()
        if wanted:
            changes = await app.operations.retry(wanted, now=now, gaps_only=True)
            return await _tell(invocation.out, app, changes, "requeued")
        done = await app.operations.requeue(GapFilter(kind=kind), now=now)
    shown = document(requeued=_texts(done.requeued), held=_texts(done.held))
    invocation.out.show(shown, _describe_requeued(done))
    return 0


@shared_options
async def pause(
    invocation: Invocation,
    kind: Kind,
    reason: Annotated[str, option("--reason", "TEXT", "Why; shown to all.")] = "paused by hand",
) -> None:
    """Stop workers from taking jobs of a kind. Running jobs continue; nothing is lost."""
    storable("--reason", reason)
    async with open_app(invocation.settings) as app:
        await require_kind(app, kind)
        new = await app.operations.pause(KindName(kind), reason, now=app.database.clock.now())
    said = f"{kind} is paused: {reason}" if new else f"{kind} was paused already; the reason is now: {reason}"
    invocation.out.show(document(kind=kind, paused=True, changed=new, reason=reason), said)


@app_command
async def resume(app: App, out: Output, kind: Kind) -> None:
    """Let workers take jobs of a paused kind again."""
    resumed = await app.operations.resume(KindName(kind))
    if not resumed:
        await require_kind(app, kind)
    said = f"{kind} goes on" if resumed else f"{kind} was not paused"
    out.show(document(kind=kind, paused=False, changed=resumed), said)


def _describe_requeued(done: Requeued | DeadRequeued) -> str:
    held = f", {len(done.held)} left: another live job holds their key" if done.held else ""
    return f"{len(done.requeued)} requeued{held}"


def _texts(values: Sequence[object]) -> list[str]:
    return [str(each) for each in values]


def _unique(ids: Sequence[str] | None, source: Path | None) -> list[JobId]:
    return [JobId(each) for each in read_ids(ids, source, spoilt="nothing was changed")]


async def _tell(out: Output, app: App, changes: Sequence[JobChange], verb: str) -> int:
    """What was done on stdout, what could not be on stderr, a line for each."""
    done = [change.id for change in changes if change.changed]
    refused: list[UsageError] = []
    for change in changes:
        if not change.changed:
            # A change without a state met a job that has left the queue.
            job = None if change.state else await app.inspector.job(change.id)
            state = change.state or (job and job.state)
            why = (change.why or "its state does not allow it") if change.state else "it has left the queue"
            refused.append(JobNotAllowed(change.id, state, verb, why) if state else JobNotFound(change.id))
    if done or out.as_json:
        shown = document(changed=_texts(done), refused=_texts(refused))
        out.show(shown, "\n".join(f"job {each} {verb}" for each in done))
    for each in refused:
        complain(str(each))
    return _USAGE if refused else 0


@shared_options
async def declare_queues(invocation: Invocation) -> None:
    """Create the exchanges and queues of all lanes in `amqp_lanes`. Safe to repeat."""
    async with open_app(invocation.settings, checked=False) as app:
        lanes = await app.dispatching.declare()
    queues = [name for lane in lanes for name in (queue_of(lane), dead_queue_of(lane))]
    shown = document(exchanges=[EXCHANGE, DEAD_EXCHANGE], queues=queues)
    invocation.out.show(shown, f"{EXCHANGE}, {DEAD_EXCHANGE} and {len(queues)} queues are there: {', '.join(queues)}")


@app_command
async def broker_status(app: App, out: Output) -> None:
    """Show each dispatched lane: its queued jobs in the database, and its messages in RabbitMQ."""
    depths = await app.dispatching.depths()
    columns = ("lane", "queued here", "overdue", "ready there", "consumers", "dead letters")
    rows = [(each.lane, each.queued, each.overdue, each.ready, each.consumers, each.dead) for each in depths]
    out.show(document(lanes=list(depths)), Grid(columns=columns, rows=rows))


async def requeue_dead(invocation: Invocation, app: App, lane: str, *, failed: bool) -> int:
    """Requeue the dead jobs of a lane. The database has them all, even if the broker lost dead letters."""
    app.dispatching.chosen([lane])
    done = await app.dispatching.requeue_dead(Lane(lane), app.operations, failed=failed)
    said = _describe_requeued(done)
    left = 0 if failed else await app.inspector.gaps(GapFilter(lanes=[lane], states=[JobState.FAILED]))
    said += f", {left} that failed for good left: --failed takes {'it' if left == 1 else 'them'} too" if left else ""
    said += f", {counted(done.stale, 'letter')} of jobs that are dead no more removed" if done.stale else ""
    if done.unreadable:
        said += f", {counted(done.unreadable, 'letter')} that cannot be read left in {dead_queue_of(lane)}"
    shown = document(
        requeued=_texts(done.requeued),
        held=_texts(done.held),
        failed_left=left,
        stale=done.stale,
        unreadable=done.unreadable,
        problem=done.problem,
    )
    invocation.out.show(shown, said)
    if done.problem:
        complain(f"the letters are still in {dead_queue_of(lane)}: {done.problem}")
        return 1
    return 0
