"""The work command: one worker in this process with its metrics, or a crew of processes with one each."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import Annotated, Final

import msgspec
import typer
from loguru import logger
from prometheus_client import make_asgi_app

from mistnet.app import App, Via, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import flag, option, unique
from mistnet.cli.processes import Crew, ask_when_orphaned, share_one_heap, stopping
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE, Halt
from mistnet.kit.errors import did_you_mean
from mistnet.kit.outage import patiently
from mistnet.kit.text import split_list
from mistnet.operations.health import HealthCheck, QueueGauges
from mistnet.queue.store.operations import GapFilter
from mistnet.queue.upkeep import watched
from mistnet.settings import ENV_FILE, Settings, load_settings

LOOPBACK: Final = "127.0.0.1"
DONE_WITH_GAPS: Final = 3
STOPPED_BY_BUDGET: Final = 4
SOURCE_REFUSED: Final = 5


_HALTS: Final[Mapping[Halt | None, str]] = {
    Halt.BUDGET: "; stopped by the budget of {0}: `mistnet sources` shows it, `mistnet sources set {0}` raises it",
    Halt.REFUSED: "; stopped because {0} refuses the key: set another, or mend it, then `mistnet sources resume {0}`",
    Halt.PAUSED: "; stopped because {0} is paused: `mistnet sources resume {0}` ends that",
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the work."""

    settled: int
    gaps: int
    seconds: float
    drained: bool
    halt: Halt | None = None
    source: str | None = None

    def __str__(self) -> str:
        found = "1 gap" if self.gaps == 1 else f"{self.gaps} gaps"
        gaps = f"{found} (see `mistnet jobs dead`)" if self.gaps else "no gaps"
        settled = "1 job" if self.settled == 1 else f"{self.settled:,} jobs"
        return f"{settled} settled in {self.seconds:.1f} s, {gaps}{_HALTS.get(self.halt, '').format(self.source)}"

    @property
    def code(self) -> int:
        """What --until-idle tells the shell."""
        if self.drained:
            return 0
        if self.halt:
            return STOPPED_BY_BUDGET if self.halt is Halt.BUDGET else SOURCE_REFUSED
        return DONE_WITH_GAPS if self.gaps else 0


class WorkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to work: the options of `work`."""

    concurrency: Annotated[
        int | None, option("--concurrency", None, "How many handlers a process runs at once.", min=1, max=10_000)
    ] = None
    processes: Annotated[int, option("--processes", None, "How many processes.", min=1, max=256)] = 1
    lanes: Annotated[list[str] | None, option("--lanes", "A,B", "Only jobs on these lanes; may be repeated.")] = None
    via: Annotated[
        Via | None,
        option(
            "--via",
            None,
            "How jobs come: amqp takes messages of the lanes in `amqp_lanes`, db takes these lanes from the "
            "database too. Default: the database, without these lanes.",
        ),
    ] = None
    until_idle: Annotated[bool, flag("--until-idle", "Stop when nothing is left to do.")] = False
    metrics_port: Annotated[
        int | None,
        option(
            "--metrics-port",
            None,
            "Serve Prometheus metrics on this port; each further process on the next.",
            min=1,
            max=65_535,
        ),
    ] = None
    metrics_host: Annotated[str, option("--metrics-host", "ADDRESS", "The address to serve them on.")] = LOOPBACK
    wait_for_key: Annotated[
        bool, flag("--wait-for-key", "Without a key for X, say so and wait for one. For services.")
    ] = False
    child_of: Annotated[int | None, typer.Option("--child-of", hidden=True)] = None


@shared_options
async def work(invocation: Invocation, *, plan: WorkPlan) -> int:
    """Run jobs until it is stopped.

    SIGTERM or Ctrl-C lets running jobs finish; a second one stops at once. With --until-idle the exit code is
    0 when all is done, 3 when some jobs are dead or failed, 4 when the budget is spent, 5 when a source refuses
    the key or is paused.
    """
    share_one_heap()
    if plan.wait_for_key:
        found = await _settings_with_key(invocation.settings, plan.lanes, plan.via)
        if found is None:
            return 0
        invocation = msgspec.structs.replace(invocation, settings=found)
    async with open_app(invocation.settings, patient=True) as app:
        plan = msgspec.structs.replace(plan, lanes=wanted_lanes(app, plan.lanes, plan.via))
        if plan.processes == 1:
            report = await _work_here(app, plan)
            invocation.out.show(report, str(report))
            return report.code if plan.until_idle else 0
    report, code = await _work_together(invocation, plan)
    invocation.out.show(report, str(report))
    return code


async def _settings_with_key(settings: Settings, lanes: Sequence[str] | None, via: Via | None) -> Settings | None:
    """The settings once they have the key that these lanes need; None if the process is to end before.

    A service that ended with an error would be started again for ever, and its reason would be lost among the starts.
    """
    stop = asyncio.Event()
    said = False
    with stopping(stop.set, meaning="the worker ends"):
        while not stop.is_set():
            try:
                async with open_app(settings, patient=True) as app:
                    wanted_lanes(app, lanes, via)
            except NoKey as error:
                if not said:
                    logger.error("{problem}. This worker waits for a key in {file}", problem=error, file=ENV_FILE)
                said = True
            else:
                return settings
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.reclaim_seconds):
                    await stop.wait()
            names = ("database_url", "log_format", "log_level")
            settings = load_settings(**{name: getattr(settings, name) for name in names})
    return None


def wanted_lanes(app: App, lanes: Sequence[str] | None, via: Via | None = None) -> Sequence[str] | None:
    """The lanes to work on; a name that no kind has is a slip of the pen."""
    if via is Via.AMQP and not lanes:
        return app.dispatching.chosen(None)
    named = unique(split_list(*lanes)) if lanes else []
    others = any(source.needs_key and source.keys for name, source in app.sources.items() if name != X_SOURCE)
    needs_x = X_SOURCE in named if lanes else not others
    if needs_x and not app.settings.plugins and not app.sources[X_SOURCE].keys:
        raise NoKey
    if not lanes:
        return None
    unknown = [lane for lane in named if lane not in app.kinds.lanes]
    if unknown or not named:
        known = ", ".join(app.kinds.lanes)
        wrong = f"there is no lane {unknown[0]!r}.{did_you_mean(unknown[0], app.kinds.lanes)} " if unknown else ""
        raise typer.BadParameter(f"{wrong}Known lanes: {known}", param_hint="--lanes")
    if via is Via.AMQP:
        return app.dispatching.chosen(named)
    dispatched = [lane for lane in named if lane in app.dispatching.lanes]
    if dispatched and via is None:
        raise typer.BadParameter(
            f"lane {dispatched[0]!r} is dispatched over RabbitMQ: add --via amqp to take its messages, "
            f"or --via db to take its jobs from the database all the same",
            param_hint="--lanes",
        )
    return named


async def _work_here(app: App, plan: WorkPlan) -> Report:
    begun = time.monotonic()
    lanes = app.lanes_of(plan.lanes, plan.via)
    grace = app.settings.grace_seconds
    meaning = f"no new jobs; what runs may finish within {grace:g} s, then its lease is handed back"
    async with app.worker(
        concurrency=plan.concurrency, lanes=plan.lanes, until_idle=plan.until_idle, via=plan.via
    ) as worker:
        with watched(app.watchdog_seconds), stopping(worker.drain, meaning=meaning) as stop:
            async with serve_metrics(app, plan.metrics_port, plan.metrics_host):
                watch = plan.child_of and asyncio.create_task(ask_when_orphaned(stop, plan.child_of))
                try:
                    await worker.run()
                finally:
                    if watch:
                        watch.cancel()
    # The database may be gone for a moment just now, and the report of all that work is worth waiting for.
    wait = app.settings.database_wait_seconds
    stopped = await patiently(lambda: app.stopped_by(lanes), seconds=wait) if plan.until_idle else None
    source, halt = stopped or (None, None)
    return Report(
        settled=worker.ended_count,
        gaps=await patiently(lambda: app.inspector.gaps(GapFilter(lanes=lanes)), seconds=wait),
        seconds=time.monotonic() - begun,
        drained=stop.asked,
        halt=halt,
        source=source,
    )


@asynccontextmanager
async def serve_metrics(app: App, port: int | None, host: str = LOOPBACK) -> AsyncIterator[str | None]:
    """Serve the metrics while the block runs, by default for this machine only. Without a port do nothing."""
    if port is None:
        yield None
        return
    # The web server takes long to load, and workers without a port do not need it.
    from mistnet.cli.listening import (  # noqa: PLC0415
        bind,
        limits_of,
        serving_app,
        url_of,
    )

    try:
        listener = bind(host, port)
    except OSError as error:
        problem = f"port {port} cannot be used on {host}: {error.strerror}"
        raise typer.BadParameter(problem, param_hint="--metrics-port") from None
    url = url_of(listener)
    logger.info("metrics at {url}/metrics", url=url)
    meters = make_asgi_app(registry=app.metrics.registry)
    health = HealthCheck(app)
    refresher = asyncio.create_task(QueueGauges(app, health).run(), name="gauges")
    try:
        with closing(listener):
            async with serving_app(meters, listener, limits_of(app.settings), lifespan="off"):
                yield url
    finally:
        refresher.cancel()
        await health.close()


async def _work_together(invocation: Invocation, plan: WorkPlan) -> tuple[Report, int]:
    begun = time.monotonic()
    # Settings come by the environment; only what this command line adds is passed on.
    flags = [
        *(["--concurrency", str(plan.concurrency)] if plan.concurrency else []),
        *(["--lanes", ",".join(plan.lanes)] if plan.lanes else []),
        *(["--via", plan.via] if plan.via else []),
        *(["--until-idle"] if plan.until_idle else []),
        *(["--metrics-host", plan.metrics_host] if plan.metrics_host != LOOPBACK else []),
    ]
    crew = Crew(invocation.settings, plan.processes, flags, metrics_port=plan.metrics_port)
    with stopping(crew.drain, meaning="the worker processes are told to finish", at_once=crew.kill) as stop:
        code = await crew.run()
    report = Report(
        settled=sum(child.settled for child in crew.reports),
        # Each child counts the gaps of the same lanes, so that a sum would count them several times.
        gaps=max((child.gaps for child in crew.reports), default=0),
        seconds=time.monotonic() - begun,
        drained=stop.asked,
    )
    return report, code
