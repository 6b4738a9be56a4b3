"""The doctor: looks everything over, says what to do, and mends what is safe to mend."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.output import Block, Grid, document
from mistnet.cli.status import failures_grid, health_grid, stuck_grid
from mistnet.kit.errors import SettingsError
from mistnet.operations.checkup import Checkup, Expectations
from mistnet.operations.findings import HealthFinding, fail, ok, warn
from mistnet.operations.installation import look_over
from mistnet.operations.monitoring import Monitor, OddListings, RecentJob, SourceHealth, StuckJob
from mistnet.queue.errors import BrokerMismatch, BrokerRefused, BrokerUnreachable, NoBroker
from mistnet.social.store.quarantine import Reparsed
from mistnet.sources.pushed_posts import reparse_all

_NAME = "broker"


async def broker_findings(app: App) -> Sequence[HealthFinding]:
    """Nothing where no broker is configured. Only looks: it makes no queue."""
    if app.settings.broker_url is None:
        return []
    try:
        return [await _look(app)]
    except BrokerUnreachable as error:
        advice = "start it, or mend MISTNET_BROKER_URL; `mistnet work --via db` works without it"
        return [warn(_NAME, f"RabbitMQ at {error.url} does not answer: {error.problem}", advice)]
    except BrokerRefused as error:
        advice = "check user, password, virtual host and certificates; see docs/rabbitmq.md"
        return [fail(_NAME, f"RabbitMQ at {error.url} refuses us: {error.problem}", advice)]
    except BrokerMismatch as error:
        advice = "set amqp_queue_type as it was when the queue was made, or delete the queue: no job is lost by that"
        return [fail(_NAME, error.problem, advice)]
    except (NoBroker, SettingsError) as error:
        return [fail(_NAME, str(error), "mend the setting")]


async def _look(app: App) -> HealthFinding:
    lanes = app.dispatching.lanes
    async with app.dispatching.broker("mistnet doctor") as broker:
        missing = await broker.look(lanes)
        depths = await broker.depths(lanes)
    if missing:
        made = "is not there yet" if len(missing) == 1 else "are not there yet"
        return warn(
            _NAME, f"{', '.join(missing)} {made}", "`mistnet broker declare`, or start a worker: both make them"
        )
    unheard = [lane for lane, depth in depths.items() if depth.ready and not depth.consumers]
    if unheard:
        waiting = depths[unheard[0]].ready
        said = "1 message" if waiting == 1 else f"{waiting:,} messages"
        verbs = "waits, and no worker takes it" if waiting == 1 else "wait, and no worker takes them"
        advice = f"start one: `mistnet work --via amqp --lanes {','.join(unheard)}`"
        return warn(_NAME, f"{said} of lane {unheard[0]} {verbs}", advice)
    if not lanes:
        return ok(_NAME, "RabbitMQ answers; no lane goes over it (amqp_lanes is empty)")
    queues = f"the queues of {', '.join(lanes)} are as they should be"
    return ok(_NAME, f"RabbitMQ answers; {queues}")


class Monitored(msgspec.Struct, frozen=True, kw_only=True):
    """What the views for monitoring show now."""

    source_health: Sequence[SourceHealth] = ()
    stuck_jobs: Sequence[StuckJob] = ()
    recent_failures: Sequence[RecentJob] = ()
    odd_listings: Sequence[OddListings] = ()


@shared_options
async def doctor(
    invocation: Invocation,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what is safe to mend. Never deletes a job.")] = False,
    reparse: Annotated[
        bool, typer.Option("--reparse", help="Try payloads again that could not be read; for after an upgrade.")
    ] = False,
) -> int:
    """Look over database, queue, workers, sources, keys, caps, disk, files. Exit code 1 if something is badly wrong."""
    async with open_app(invocation.settings, checked=False) as app:
        reparsed = await reparse_all(app) if reparse else None
        checkup = Checkup(app.database, expectations(app))
        found = await _checked(app, checkup)
        repaired: Sequence[str] = ()
        if fix and any(each.fixable for each in found):
            repaired = await checkup.repair()
            found = await _checked(app, checkup)
        seen = Monitored()
        if any(each.name == "leases" for each in found):  # the tables are there to be looked at
            found, seen = [*found, *await look_over(app)], await _monitored(app)
    healthy = not any(each.level == "fail" for each in found)
    shown = document(
        healthy=healthy, findings=found, repaired=repaired, reparsed=reparsed, **msgspec.structs.asdict(seen)
    )
    invocation.out.show(shown, _grid(found), *_seen(seen), *_told(reparsed), *_said(found, repaired))
    return 0 if healthy else 1


async def _checked(app: App, checkup: Checkup) -> Sequence[HealthFinding]:
    return [*await checkup.run(), *await broker_findings(app)]


def expectations(app: App) -> Expectations:
    return Expectations(
        kinds=list(app.kinds),
        live_caps=app.kinds.live_caps,
        heartbeat=app.settings.heartbeat,
        reclaim=timedelta(seconds=app.settings.reclaim_seconds),
    )


async def _monitored(app: App) -> Monitored:
    monitor = Monitor(app.database)
    return Monitored(
        source_health=await monitor.source_health(),
        stuck_jobs=await monitor.stuck_jobs(limit=20),
        recent_failures=await monitor.recent_failures(limit=10),
        odd_listings=await monitor.odd_listings(),
    )


def _seen(seen: Monitored) -> list[Block]:
    grids = (health_grid(seen.source_health), stuck_grid(seen.stuck_jobs), failures_grid(seen.recent_failures))
    return [grid for grid in grids if grid.rows]


def _told(reparsed: Reparsed | None) -> list[Block]:
    if reparsed is None:
        return []
    counts = ((reparsed.resolved, "read now"), (reparsed.left, "still not readable"))
    rows = [(f"{count:,}", what, problem) for problems, what in counts for problem, count in problems.items()]
    title = "payloads in quarantine"
    return [Grid(title=title, columns=("", "", "problem"), rows=rows, empty="no payload is in quarantine")]


def _grid(found: Sequence[HealthFinding]) -> Grid:
    return Grid(
        columns=("", "what", "found", "what to do"),
        rows=[(each.level, each.name, each.found, each.advice or "") for each in found],
    )


def _said(found: Sequence[HealthFinding], repaired: Sequence[str]) -> list[str]:
    said = [f"mended: {', '.join(repaired)}"] if repaired else []
    worst = [each for each in found if each.level != "ok"]
    if not worst:
        return [*said, "all is well"]
    hint = "; --fix mends some of it" if any(each.fixable for each in worst) else ""
    return [*said, f"{len(worst)} of {len(found)} want attention{hint}"]
