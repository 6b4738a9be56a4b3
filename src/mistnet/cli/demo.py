"""The demo: a fresh queue in a temporary folder, three toy kinds, a few seconds of work to look at."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.live import Live

from mistnet.app import App, Plugin, open_app
from mistnet.cli import logs
from mistnet.cli.output import Grid, document, rendered
from mistnet.cli.shared import Invocation, shared_options
from mistnet.cli.status import Status, status_of
from mistnet.domain.errors import Temporary
from mistnet.domain.jobs import Args, Continue, Done, Job, JobClass, JobState, KindName, NewJob, Outcome
from mistnet.engine.kinds import batched, single
from mistnet.settings import Settings, load_settings

_WALKS: Final = 12
_STEPS: Final = 5
_NOTES_PER_WALK: Final = 22
_FLAKY: Final = 24
_JOBS: Final = _WALKS + _WALKS * _NOTES_PER_WALK + _FLAKY
_LANE: Final = "demo"
_LONG: Final = timedelta(days=1)


class WalkArgs(Args, frozen=True):
    """How far a walk has come."""

    walk: int
    step: int = 0


class NoteArgs(Args, frozen=True):
    """Which thing of which walk is to be noted."""

    walk: int
    number: int


class FlakyArgs(Args, frozen=True):
    number: int


async def walk(job: Job[WalkArgs]) -> Outcome:
    """A page per step; the last one creates the notes, in the same transaction that ends the walk."""
    await asyncio.sleep(0.2)
    at = job.args
    if at.step < _STEPS:
        return Continue(args=WalkArgs(walk=at.walk, step=at.step + 1))
    numbers = range(_NOTES_PER_WALK)
    return Done([NewJob(kind=KindName("note"), args=NoteArgs(walk=at.walk, number=n)) for n in numbers])


async def note(jobs: Sequence[Job[NoteArgs]]) -> Sequence[Outcome]:
    """Up to twenty at once, as one call to a source would bring them."""
    await asyncio.sleep(0.2)
    return [Done() for _ in jobs]


async def flaky(job: Job[FlakyArgs]) -> Outcome:
    await asyncio.sleep(0.1)
    if job.attempt <= 2:
        raise Temporary("the source coughed")
    return Done()


def plugin() -> Plugin:
    return Plugin(
        kinds=[
            single("walk", walk, WalkArgs, job_class=JobClass.SWEEP, lanes=[_LANE]),
            batched("note", note, NoteArgs, batch=20, job_class=JobClass.HYDRATION, lanes=[_LANE]),
            single("flaky", flaky, FlakyArgs, job_class=JobClass.WALK, lanes=[_LANE]),
        ]
    )


class DemoReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo did."""

    jobs: int
    succeeded: int
    retries: int
    seconds: float


@shared_options
async def demo(invocation: Invocation) -> None:
    """Watch the queue work for a few seconds, in a temporary folder that is removed afterwards."""
    settings = invocation.settings
    if settings.log_level == "INFO":
        logs.set_up(style=settings.log_format, level="ERROR")  # hundreds of lines would hide the table
    with tempfile.TemporaryDirectory(prefix="mistnet-demo-") as folder:
        async with open_app(_demo_settings(Path(folder)), plugins=[plugin()]) as app:
            report = await _run(app, live=invocation.out.on_terminal)
    invocation.out.show(document(report=report), _said(report))


def _demo_settings(folder: Path) -> Settings:
    return load_settings(
        database_url=f"sqlite:///{folder / 'demo.db'}",
        backoff_base_seconds=0.4,
        max_attempts=5,
        plugins=[],
        kinds={},
        lane_caps={},
        aging_minutes=None,
    )


async def _run(app: App, *, live: bool) -> DemoReport:
    begun = time.monotonic()
    walks = [NewJob(kind=KindName("walk"), args=WalkArgs(walk=n), key=str(n)) for n in range(_WALKS)]
    shaky = [NewJob(kind=KindName("flaky"), args=FlakyArgs(number=n), key=str(n)) for n in range(_FLAKY)]
    await app.enqueue([*walks, *shaky])
    async with app.worker(concurrency=4, until_idle=True) as worker:
        watching = asyncio.create_task(_watch(app)) if live else None
        await worker.run()
        if watching:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    done = await app.inspector.finished(since=app.database.clock.now() - _LONG)
    retries = app.metrics.registry.get_sample_value("mistnet_job_retries_total", {"kind": "flaky"})
    return DemoReport(
        jobs=_JOBS, succeeded=sum(done.values()), retries=int(retries or 0), seconds=time.monotonic() - begun
    )


async def _watch(app: App) -> None:
    with Live(console=Console(), auto_refresh=False) as table:
        try:
            while True:
                table.update(rendered([_grid(await status_of(app, recent=_LONG))]), refresh=True)
                await asyncio.sleep(0.2)
        finally:
            table.update("")


def _grid(status: Status) -> Grid:
    states = (JobState.PENDING, JobState.RUNNING, JobState.RETRYABLE)
    return Grid(
        title="the queue at work",
        columns=("kind", *map(str, states), "succeeded"),
        rows=[
            (kind.kind, *(str(kind.states.get(state, 0)) for state in states), str(kind.done_last_minute))
            for kind in status.kinds
        ],
    )


def _said(report: DemoReport) -> str:
    return (
        f"{report.succeeded} of {report.jobs} jobs done in {report.seconds:.1f} s; {report.retries} attempts "
        f"failed on purpose and were tried again.\n"
        f"Each walk went step by step, taking turns with the others, and left {_NOTES_PER_WALK} notes,\n"
        f"which were then handled twenty at a time.\n"
        f"Next: `mistnet status` looks at your own queue, `mistnet doctor` checks it, `mistnet -h` says more."
    )
