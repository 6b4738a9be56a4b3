"""Commands that change jobs: add, retry, cancel, requeue, pause, resume."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from mistnet.app import App, open_app
from mistnet.cli.broker import requeue_dead
from mistnet.cli.faults import complain
from mistnet.cli.joblines import read_jobs, storable
from mistnet.cli.jobs import require_kind
from mistnet.cli.output import document
from mistnet.cli.rows import FileOption, read_ids
from mistnet.cli.shared import Invocation, shared_options
from mistnet.domain.errors import JobNotAllowed, JobNotFound, UsageError
from mistnet.domain.jobs import JobId, KindName, Lane
from mistnet.store.gaps import GapFilter
from mistnet.store.operations import Change

_USAGE = 2

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The jobs' ids; commas may join them.")]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="The kind of job.")]


@shared_options
async def add(
    invocation: Invocation,
    kind: Kind,
    *,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="What the job is about.")] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Makes the job unique among the live ones of its kind."),
    ] = None,
    lane: Annotated[str | None, typer.Option("--lane", metavar="LANE", help="One of the kind's lanes.")] = None,
    run_at: Annotated[
        str | None,
        typer.Option("--run-at", metavar="TIME", help="When it falls due, in ISO 8601; UTC if no zone."),
    ] = None,
    wait: Annotated[
        float | None, typer.Option("--in", metavar="SECONDS", help="In how many seconds it falls due.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help='Many jobs, one {"args": …, "key": …} per line; - is stdin.'),
    ] = None,
) -> None:
    """Add a job, or many from a file. All of them are stored, or none."""
    if source is not None and not (args is None and key is None):
        raise typer.BadParameter("a file brings its own args and keys; leave out --args and --key")
    async with open_app(invocation.settings) as app:
        due_at = _due_at(run_at, wait, app.database.clock.now())
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
        return await _tell(invocation, app, changes, "retried")


@shared_options
async def cancel(
    invocation: Invocation,
    ids: Ids = None,
    *,
    source: FileOption = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Accept all gaps of this kind: dead and failed jobs.")
    ] = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Accept all gaps whose last error holds this text.")
    ] = None,
) -> int:
    """End jobs for good. A running one too: what its worker would write is void.

    With --kind or --error, gaps are accepted in bulk; jobs that are still alive are left alone.
    """
    if bool(ids or source) == (kind is not None or error is not None):
        raise typer.BadParameter("say which: some ids, or --kind KIND, or --error TEXT, or both of these")
    if error is not None and not error.strip():
        raise typer.BadParameter("give a part of the error", param_hint="--error")
    wanted = _unique(ids, source) if ids or source else []
    async with open_app(invocation.settings) as app:
        now = app.database.clock.now()
        if wanted:
            return await _tell(invocation, app, await app.operations.cancel(wanted, now=now), "cancelled")
        await require_kind(app, kind)
        accepted = await app.operations.accept(GapFilter(kind=kind, error=error), now=now)
    said = "1 gap accepted" if len(accepted) == 1 else f"{len(accepted):,} gaps accepted"
    invocation.out.show(
        document(cancelled=[str(each) for each in accepted]), said if accepted else "no gap is like that"
    )
    return 0


@shared_options
async def requeue(
    invocation: Invocation,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Dead or failed jobs; commas may join their ids."),
    ] = None,
    *,
    source: FileOption = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="All gaps of this kind.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All gaps there are.")] = False,
    dlq: Annotated[
        str | None, typer.Option("--dlq", metavar="LANE", help="All dead jobs of this lane; takes their letters.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="With --dlq: those too that failed for good, which a retry seldom mends.")
    ] = False,
) -> int:
    """Try dead and failed jobs again, with all their attempts."""
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
            return await _tell(invocation, app, changes, "requeued")
        done = await app.operations.requeue(now=now, kind=KindName(kind) if kind else None)
    said = f"{len(done.requeued)} requeued"
    said += f", {len(done.held)} left: another live job holds their key" if done.held else ""
    shown = document(requeued=[str(each) for each in done.requeued], held=[str(each) for each in done.held])
    invocation.out.show(shown, said)
    return 0


@shared_options
async def pause(
    invocation: Invocation,
    kind: Kind,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to all.")] = "paused by hand",
) -> None:
    """Stop workers from taking jobs of a kind. What runs goes on; nothing is lost."""
    storable("--reason", reason)
    async with open_app(invocation.settings) as app:
        await require_kind(app, kind)
        new = await app.operations.pause(KindName(kind), reason, now=app.database.clock.now())
    said = f"{kind} is paused: {reason}" if new else f"{kind} was paused already; the reason is now: {reason}"
    invocation.out.show(document(kind=kind, paused=True, changed=new, reason=reason), said)


@shared_options
async def resume(invocation: Invocation, kind: Kind) -> None:
    """Let workers take jobs of a paused kind again."""
    async with open_app(invocation.settings) as app:
        resumed = await app.operations.resume(KindName(kind))
        if not resumed:
            await require_kind(app, kind)
    said = f"{kind} goes on" if resumed else f"{kind} was not paused"
    invocation.out.show(document(kind=kind, paused=False, changed=resumed), said)


def _unique(ids: Sequence[str] | None, source: Path | None) -> list[JobId]:
    return [JobId(each) for each in read_ids(ids, source, spoilt="nothing was changed")]


async def _tell(invocation: Invocation, app: App, changes: Sequence[Change], verb: str) -> int:
    """What was done on stdout, what could not be on stderr, a line for each."""
    done = [change.id for change in changes if change.changed]
    refused = [await _refusal(app, change, verb) for change in changes if not change.changed]
    shown = document(changed=[str(each) for each in done], refused=[str(each) for each in refused])
    if done or invocation.out.as_json:
        invocation.out.show(shown, "\n".join(f"job {each} {verb}" for each in done))
    for each in refused:
        complain(str(each))
    return _USAGE if refused else 0


async def _refusal(app: App, change: Change, verb: str) -> UsageError:
    if change.state is not None:
        return JobNotAllowed(change.id, change.state, verb, change.why or "its state does not allow it")
    finished = await app.inspector.job(change.id)
    if finished is None:
        return JobNotFound(change.id)
    return JobNotAllowed(change.id, finished.state, verb, "it has left the queue")


def _due_at(run_at: str | None, wait: float | None, now: datetime) -> datetime | None:
    if run_at is not None and wait is not None:
        raise typer.BadParameter("--run-at and --in exclude each other")
    try:
        if wait is not None:
            if not math.isfinite(wait) or wait < 0:
                raise typer.BadParameter("--in must be a number of seconds, 0 or more")
            return now + timedelta(seconds=wait)
        if run_at is not None:
            given = datetime.fromisoformat(run_at)
            return (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter("the time must be like 2027-01-31T12:00:00Z") from None
    return None
