"""Commands that look at jobs: list, show, dead."""

from collections.abc import Sequence
from typing import Annotated

import typer

from mistnet.app import App, open_app
from mistnet.cli.output import Grid, at, document, last_line
from mistnet.cli.shared import Invocation, shared_options
from mistnet.domain.errors import JobNotFound, UnknownKind
from mistnet.domain.jobs import GAP_STATES, JobId, JobState
from mistnet.store.inspect import JobFilter, JobView

LARGEST_ID = 2**63 - 1

OneId = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="The job's id.")]
KindOption = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind.")]
BeforeId = Annotated[
    int | None,
    typer.Option("--before-id", min=1, max=LARGEST_ID, metavar="ID", help="Only older jobs: the next page."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")]


@shared_options
async def list_jobs(
    invocation: Invocation,
    *,
    state: Annotated[
        list[JobState] | None,
        typer.Option("--state", help="Only jobs in this state; may be given more than once. Default: all unfinished."),
    ] = None,
    kind: KindOption = None,
    lane: Annotated[str | None, typer.Option("--lane", metavar="LANE", help="Only jobs on this lane.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="PREFIX", help="Only keys that begin so.")] = None,
    limit: Limit = 50,
    before_id: BeforeId = None,
) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(kind=kind, lane=lane, states=state or (), key_prefix=key, before_id=before_id, limit=limit)
    async with open_app(invocation.settings) as app:
        await require_kind(app, kind)
        found = await app.inspector.list_jobs(wanted)
    narrowed = kind or lane or state or key or before_id
    _show_page(invocation, found, wanted, empty="no such jobs" if narrowed else "the queue is empty")


@shared_options
async def dead(invocation: Invocation, kind: KindOption = None, limit: Limit = 50, before_id: BeforeId = None) -> None:
    """List gaps: jobs that ended without their result, with what went wrong."""
    wanted = JobFilter(kind=kind, states=GAP_STATES, before_id=before_id, limit=limit)
    async with open_app(invocation.settings) as app:
        await require_kind(app, kind)
        found = await app.inspector.list_jobs(wanted)
    _show_page(invocation, found, wanted, empty="no gaps: no job is dead or failed")


@shared_options
async def show(invocation: Invocation, job_id: OneId) -> None:
    """Show all that is known of one job, with everything that went wrong."""
    async with open_app(invocation.settings) as app:
        job = await app.inspector.job(JobId(job_id))
    if job is None:
        raise JobNotFound(job_id)
    errors = Grid(
        title="what went wrong",
        columns=("at", "worker", "error"),
        rows=[(at(each.at), each.worker, each.error) for each in job.errors],
        empty="nothing went wrong so far",
    )
    facts = Grid(columns=("field", "value"), rows=_facts(job))
    invocation.out.show(job, facts, errors)


async def require_kind(app: App, kind: str | None) -> None:
    """A kind that is neither known here nor present in the queue is a slip of the pen."""
    if kind is None or kind in app.kinds:
        return
    present = {count.kind for count in await app.inspector.counts(now=app.database.clock.now())}
    if kind not in present and not await app.inspector.list_jobs(
        JobFilter(kind=kind, states=(JobState.SUCCEEDED, JobState.CANCELLED), limit=1)
    ):
        raise UnknownKind(kind, sorted({*app.kinds, *present}))


def _show_page(invocation: Invocation, found: Sequence[JobView], wanted: JobFilter, *, empty: str) -> None:
    more = found[-1].id if len(found) == wanted.limit else None
    grid = Grid(
        columns=("id", "kind", "key", "lane", "state", "attempts", "run at (UTC)", "note"),
        rows=[_row(job) for job in found],
        empty=empty,
    )
    hint = [f"more: --before-id {more}"] if more else []
    listed = [{name: value for name, value in _fields(job).items() if name != "errors"} for job in found]
    invocation.out.show(document(jobs=listed, next_before_id=str(more) if more else None), grid, *hint)


def _row(job: JobView) -> Sequence[str]:
    note = last_line(job.last_error) if job.state in GAP_STATES else job.wait_reason or last_line(job.last_error)
    state = "parked" if job.parked else str(job.state)
    tries = f"{job.attempts}/{job.max_attempts}" if job.max_attempts else str(job.attempts)
    return (str(job.id), job.kind, job.key or "", job.lane, state, tries, at(job.run_at), note)


def _facts(job: JobView) -> list[tuple[str, str]]:
    shown = {
        **{name: value for name, value in _fields(job).items() if name not in ("errors", "args", "last_error")},
        "args": bytes(job.args).decode("utf-8", "replace"),
        "last_error": last_line(job.last_error, width=1_000),
    }
    return [(name.replace("_", " "), _cell(value)) for name, value in shown.items() if value not in (None, "")]


def _cell(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str() | int():
            return str(value)
        case _:
            return f"{value:%Y-%m-%d %H:%M:%S.%f} UTC"


def _fields(job: JobView) -> dict[str, object]:
    return {name: getattr(job, name) for name in job.__struct_fields__}
