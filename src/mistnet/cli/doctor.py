"""What is wrong and what to do: the doctor, which repairs what is safe to repair, and the commands for alerts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

import msgspec

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.input import argument, flag
from mistnet.cli.output import Block, Grid, at, document, last_line, span
from mistnet.kit.errors import SettingsError
from mistnet.kit.text import LARGEST_ID, counted
from mistnet.operations.alerts.store import AlertStore
from mistnet.operations.checks import HealthFinding, fail, ok, warn
from mistnet.operations.doctor import Checkup, check_installation, expectations_of
from mistnet.operations.monitoring import Monitor, OddListings, RecentJob, SourceHealth, StuckJob
from mistnet.queue.errors import BrokerMismatch, BrokerRefused, BrokerUnreachable, NoBroker
from mistnet.sources.collecting import reparse_all

_NAME = "broker"


async def broker_findings(app: App) -> Sequence[HealthFinding]:
    """Check RabbitMQ, if it is configured, without declaring any queue."""
    if app.settings.broker_url is None:
        return []
    try:
        lanes = app.dispatching.lanes
        async with app.dispatching.broker("mistnet doctor") as broker:
            missing = await broker.look(lanes)
            depths = await broker.depths(lanes)
    except BrokerUnreachable as error:
        advice = "start it, or correct MISTNET_BROKER_URL; `mistnet work --via db` works without it"
        return [warn(_NAME, f"RabbitMQ at {error.url} does not answer: {error.problem}", advice)]
    except BrokerRefused as error:
        advice = "check user, password, virtual host and certificates; see docs/rabbitmq.md"
        return [fail(_NAME, f"RabbitMQ at {error.url} refuses us: {error.problem}", advice)]
    except BrokerMismatch as error:
        advice = "set amqp_queue_type to its value when the queue was declared, or delete the queue: no job is lost"
        return [fail(_NAME, error.problem, advice)]
    except (NoBroker, SettingsError) as error:
        return [fail(_NAME, str(error), "correct the setting")]
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        advice = "`mistnet broker declare`, or start a worker: both declare them"
        found = warn(_NAME, f"{', '.join(missing)} {verb} not exist yet", advice)
    elif unheard := [lane for lane, depth in depths.items() if depth.ready and not depth.consumers]:
        waiting = depths[unheard[0]].ready
        verbs = "waits, and no worker takes it" if waiting == 1 else "wait, and no worker takes them"
        advice = f"start one: `mistnet work --via amqp --lanes {','.join(unheard)}`"
        found = warn(_NAME, f"{counted(waiting, 'message')} of lane {unheard[0]} {verbs}", advice)
    elif not lanes:
        found = ok(_NAME, "RabbitMQ answers; no lane goes over it (amqp_lanes is empty)")
    else:
        found = ok(_NAME, f"RabbitMQ answers; the queues of {', '.join(lanes)} are declared correctly")
    return [found]


class MonitoringViews(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of the views for monitoring."""

    source_health: Sequence[SourceHealth] = ()
    stuck_jobs: Sequence[StuckJob] = ()
    recent_failures: Sequence[RecentJob] = ()
    odd_listings: Sequence[OddListings] = ()


@shared_options
async def doctor(
    invocation: Invocation,
    fix: Annotated[bool, flag("--fix", "Repair what is safe to repair. Never deletes a job.")] = False,
    reparse: Annotated[bool, flag("--reparse", "Parse unreadable payloads again; for use after an upgrade.")] = False,
) -> int:
    """Check database, workers, sources, keys, caps, disk; say what to do."""
    async with open_app(invocation.settings, checked=False) as app:
        reparsed = await reparse_all(app) if reparse else None
        checkup = Checkup(app.database, expectations_of(app))
        found = [*await checkup.run(), *await broker_findings(app)]
        repaired: Sequence[str] = ()
        if fix and any(each.fixable for each in found):
            repaired = await checkup.repair()
            # The report is about what is left after the repair.
            found = [*await checkup.run(), *await broker_findings(app)]
        views = MonitoringViews()
        # The leases are checked only where the tables exist.
        if any(each.name == "leases" for each in found):
            found, monitor = [*found, *await check_installation(app)], Monitor(app.database)
            views = MonitoringViews(
                source_health=await monitor.source_health(),
                stuck_jobs=await monitor.stuck_jobs(limit=20),
                recent_failures=await monitor.recent_failures(limit=10),
                odd_listings=await monitor.odd_listings(),
            )
    healthy = not any(each.level == "fail" for each in found)
    facts = document(
        healthy=healthy, findings=found, repaired=repaired, reparsed=reparsed, **msgspec.structs.asdict(views)
    )
    rows = [(each.level, each.name, each.found, each.advice) for each in found]
    blocks: list[Block] = [Grid(columns=("", "what", "found", "what to do"), rows=rows), *_view_grids(views)]
    if reparsed is not None:
        counts = ((reparsed.resolved, "read now"), (reparsed.left, "still unreadable"))
        parsed = [(f"{count:,}", what, problem) for problems, what in counts for problem, count in problems.items()]
        title, empty = "payloads in quarantine", "no payload is in quarantine"
        blocks.append(Grid(title=title, columns=("", "", "problem"), rows=parsed, empty=empty))
    if repaired:
        blocks.append(f"repaired: {', '.join(repaired)}")
    worst = [each for each in found if each.level != "ok"]
    hint = "; --fix repairs some of it" if any(each.fixable for each in worst) else ""
    needs = "needs" if len(worst) == 1 else "need"
    blocks.append(f"{len(worst)} of {len(found)} {needs} attention{hint}" if worst else "all is well")
    invocation.out.show(facts, *blocks)
    return 0 if healthy else 1


def _view_grids(views: MonitoringViews) -> list[Grid]:
    health = Grid.of(
        views.source_health,
        "source, state, failures in a row, last success, last failure, until, why",
        source="name",
        failures_in_a_row="failure_streak",
        until="paused_until",
        why=lambda each: each.pause_reason or (last_line(each.last_failure) if each.failure_streak else ""),
        heading="sources",
    )
    stuck = Grid.of(
        views.stuck_jobs,
        "job, kind, lane, held by, last heartbeat, silent for",
        job="id",
        held_by="locked_by",
        last_heartbeat="heartbeat_at",
        silent_for=lambda each: span(timedelta(seconds=each.seconds_since_heartbeat)),
        heading="stuck jobs: their leases ran out",
    )
    failures = Grid.of(
        views.recent_failures,
        "job, kind, key, lane, status, attempts, ended, why",
        job="id",
        ended="completed_at",
        why=lambda each: last_line(each.error_message),
        heading="failed and dead jobs, newest first",
    )
    return [grid for grid in (health, stuck, failures) if grid.rows]


_BY: Final = "command line"


@shared_options
async def list_alerts(invocation: Invocation) -> None:
    """Show all open alerts, the worst first, accepted ones too."""
    async with open_database(invocation.settings) as database:
        alerts = await AlertStore(database).list_open()
    grid = Grid.of(
        alerts,
        "id, , rule, since (UTC), accepted (UTC), what and what to do",
        untitled="severity",
        since="opened_at",
        accepted=lambda each: f"{at(each.accepted_at)} by {each.accepted_by}" if each.accepted_at else None,
        what_and_what_to_do="message",
        empty="no alert is open",
    )
    invocation.out.show(document(alerts=alerts), grid)


@shared_options
async def accept_alert(
    invocation: Invocation,
    alert_id: Annotated[int, argument("ID", "The alert's id.", min=1, max=LARGEST_ID)],
) -> None:
    """Accept an open alert: it no longer needs attention, until it is over or its severity changes."""
    async with open_database(invocation.settings) as database:
        done = await AlertStore(database).accept(alert_id, by=_BY, now=database.clock.now())
    invocation.out.show(document(alert=done), f"alert {done.id} is accepted: {done.rule} of {done.subject}")


@shared_options
async def test_alerts(invocation: Invocation) -> int:
    """Send a test alert to every receiver of alerts, now. Exit code 1 if one does not accept it, or there is none."""
    async with open_app(invocation.settings, checked=False) as app:
        results = await app.outgoing.send_test_alert()
    grid = Grid(
        columns=("receiver", "", "problem"),
        rows=[(name, "failed" if problem else "took it", problem) for name, problem in results.items()],
        empty='alerts have no receiver: set `alert_urls`, or a webhook with channel = "alerts"',
    )
    receivers = [{"receiver": name, "problem": problem} for name, problem in results.items()]
    invocation.out.show(document(receivers=receivers), grid)
    return 0 if results and not any(results.values()) else 1
