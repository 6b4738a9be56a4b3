"""What a look at the queue may find, and the verdicts that counts alone allow. Pure."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from mistnet.kit.text import are, counted
from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.health_checks import STALLED, DatabaseHealth, DatabaseState, stalled
from mistnet.operations.monitoring import OddListings, SourceHealth
from mistnet.queue.model import GAP_STATES, KindName
from mistnet.queue.ports import HeldLeases
from mistnet.queue.store.inspect import StateCount

Level = Literal["ok", "warn", "fail"]
_WRITE_ADVICE: Final[Mapping[DatabaseState, str]] = {
    "read-only": "let it take writes again: promote the standby, or end default_transaction_read_only",
    "full": "make room where the database is kept: nothing can be collected until then",
    "busy": "another process holds a lock; if this stays so, find and end it",
}
_OVERDUE: Final = timedelta(hours=1)
_NAMED: Final = 5
_WATCHED: Final = timedelta(minutes=15)


class HealthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at: how it stands, and what to do about it."""

    name: str
    level: Level
    found: str
    advice: str | None = None
    fixable: bool = False


def ok(name: str, found: str) -> HealthFinding:
    return HealthFinding(name=name, level="ok", found=found)


def warn(name: str, found: str, advice: str, *, fixable: bool = False) -> HealthFinding:
    return HealthFinding(name=name, level="warn", found=found, advice=advice, fixable=fixable)


def fail(name: str, found: str, advice: str, *, fixable: bool = False) -> HealthFinding:
    return HealthFinding(name=name, level="fail", found=found, advice=advice, fixable=fixable)


def shown_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def writes(found: DatabaseHealth) -> HealthFinding:
    if found.state == "ok":
        return ok("writes", f"a test write was kept after {(found.write_seconds or 0) * 1000:.1f} ms")
    return fail("writes", found.problem or found.state, _WRITE_ADVICE.get(found.state, "look into the database's log"))


def connections(found: DatabaseHealth) -> list[HealthFinding]:
    """Of a server that tells how many it has."""
    if found.connections is None or found.most_connections is None:
        return []
    told = f"{found.connections} of {found.most_connections} are in use"
    if not found.few_connections:
        return [ok("connections", told)]
    advice = "raise max_connections, or run fewer processes: a process takes up to 48"
    return [warn("connections", told, advice)]


def progress(due_since: datetime | None, found: DatabaseHealth, now: datetime) -> HealthFinding:
    idle = timedelta(seconds=stalled(due_since, found.last_progress_at, now))
    if idle <= STALLED:
        return ok("progress", "work that is due is being done" if due_since else "nothing is due")
    since = shown_time(now - idle)
    return warn("progress", f"jobs are due, and none was begun or settled since {since}", "look into the workers' logs")


def unknown_kinds(counts: Sequence[StateCount], known: Collection[KindName]) -> HealthFinding:
    unknown = [count for count in counts if count.kind not in known and count.state not in GAP_STATES]
    if not unknown:
        return ok("kinds", "every live job is of a kind known here")
    advice = "name the plugin that brings them in the setting 'plugins', or `mistnet jobs cancel` them"
    return warn("kinds", f"not known here: {_listed(unknown)}", advice)


def waiting_while_paused(counts: Sequence[StateCount], paused: Collection[KindName]) -> HealthFinding:
    waiting = [count for count in counts if count.kind in paused and count.state not in GAP_STATES]
    if not waiting:
        return ok("paused kinds", "nothing waits for a paused kind")
    return warn("paused kinds", f"these wait: {_listed(waiting)}", "`mistnet jobs resume KIND` lets them go on")


def parked(counts: Sequence[StateCount]) -> HealthFinding:
    held = [msgspec.structs.replace(count, jobs=count.parked) for count in counts if count.parked]
    if not held:
        return ok("parked jobs", "none")
    advice = "workers let them in as there is room; raise the kind's live_cap for more, or use --fix"
    return warn("parked jobs", f"held back by their cap on live jobs: {_listed(held)}", advice, fixable=True)


def gaps(counts: Sequence[StateCount]) -> HealthFinding:
    found = [count for count in counts if count.state in GAP_STATES]
    if not found:
        return ok("gaps", "no job has failed for good")
    advice = "`mistnet jobs dead` shows why, `mistnet jobs requeue` tries them anew, `mistnet jobs cancel` accepts them"
    return warn("gaps", f"dead or failed: {_listed(found)}", advice)


def overdue(counts: Sequence[StateCount], paused: Collection[KindName], now: datetime) -> HealthFinding:
    late = [
        msgspec.structs.replace(count, jobs=count.due)
        for count in counts
        if count.oldest_due_at and now - count.oldest_due_at > _OVERDUE and count.kind not in paused
    ]
    if not late:
        return ok("due work", "none has waited for more than an hour")
    oldest = min(count.oldest_due_at for count in late if count.oldest_due_at)
    found = f"due since {shown_time(oldest)} and not begun: {_listed(late)}"
    return warn("due work", found, "start more workers with `mistnet work`")


def orphaned(held: Sequence[HeldLeases]) -> HealthFinding:
    """Leases of workers that are gone, and have not run out yet."""
    if not held:
        return ok("running jobs", "each has a worker that is there")
    jobs = sum(each.jobs for each in held)
    named = ", ".join(each.worker for each in held[:_NAMED]) + (" and others" if len(held) > _NAMED else "")
    found = f"{jobs:,} {'job is' if jobs == 1 else 'jobs are'} leased to workers that are gone: {named}"
    until = max(each.lease_until for each in held)
    return warn("running jobs", found, f"wait: the last of these leases runs out at {shown_time(until)}")


def quarantined(payloads: int) -> HealthFinding:
    if not payloads:
        return ok("quarantine", "every payload could be read")
    found = f"{counted(payloads, 'payload')} could not be read and {are(payloads)} kept"
    return warn("quarantine", found, "after an upgrade, `mistnet doctor --reparse` tries them again")


def sources(found: Sequence[SourceHealth]) -> list[HealthFinding]:
    """Those that do not serve us, and what ends that."""
    troubled = [each for each in found if each.state != "serving"]
    if not troubled:
        return [ok("sources", f"all {len(found)} that were asked serve us" if found else "none was asked yet")]
    return [_troubled(each) for each in troubled]


def _troubled(source: SourceHealth) -> HealthFinding:
    name = f"source {source.name}"
    match source.state:
        case "paused":
            advice = f"when it is mended: `mistnet sources resume {source.name}`"
            return warn(name, f"paused: {source.pause_reason or 'no reason given'}", advice)
        case "breaker open":
            until = shown_time(source.paused_until) if source.paused_until else "a while"
            why = (
                source.pause_reason
                or f"{counted(source.failure_streak, 'failure')} in a row: {source.last_failure or 'unknown'}"
            )
            return warn(name, f"no calls until {until}: {why}", f"wait, or `mistnet sources close {source.name}`")
        case _:
            found = f"one call tries whether it is well after {counted(source.failure_streak, 'failure')} in a row"
            return warn(name, found, f"wait, or `mistnet sources close {source.name}`")


def odd_listings(found: Sequence[OddListings]) -> HealthFinding:
    if not found:
        return ok("listings", "every listing could be read")
    told = ", ".join(f"{each.listings:,} of {each.source}" for each in found)
    return warn("listings", f"could not be read and are kept: {told}", "look at them in the table odd_listings")


def open_alerts(alerts: Sequence[AlertRow], now: datetime) -> list[HealthFinding]:
    """What was told to operators already and is not over."""
    pending = [each for each in alerts if each.accepted_at is None]
    if not pending:
        return [ok("alerts", "all that are open are accepted" if alerts else "none is open")]
    return [warn(f"alert {each.rule}", each.message, _watched(each.last_seen_at, now)) for each in pending]


def _watched(seen_at: datetime, now: datetime) -> str:
    if now - seen_at < _WATCHED:
        return "it says so itself; it closes by itself when it is over"
    return f"nobody has looked since {shown_time(seen_at)}: alerts are watched while `mistnet up` or `serve` runs"


def _listed(counts: Sequence[StateCount]) -> str:
    total: dict[KindName, int] = {}
    for count in counts:
        total[count.kind] = total.get(count.kind, 0) + count.jobs
    return ", ".join(f"{jobs} {kind}" for kind, jobs in sorted(total.items()))
