"""The doctor's checks: what facts about the database, the queue and the installation mean, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec

from mistnet.kit.text import are, counted
from mistnet.operations.alerts.store import AlertRow
from mistnet.operations.health import NO_SPACE, STALLED, DatabaseHealth, DatabaseState, stalled
from mistnet.operations.monitoring import OddListings, SourceHealth
from mistnet.queue.model import GAP_STATES, HeldLeases, KindName
from mistnet.queue.store.inspect import StateCount

SKEW: Final = timedelta(seconds=5)
"""Clocks that are no further apart than this agree."""

_WRITE_ADVICE: Final[Mapping[DatabaseState, str]] = {
    "read-only": "allow writes again: promote the standby, or end default_transaction_read_only",
    "full": "free disk space for the database: nothing can be collected until then",
    "busy": "another process holds a lock; if this persists, find and end it",
}
_OVERDUE: Final = timedelta(hours=1)
_NAMED: Final = 5
LITTLE_SPACE: Final = 1_000_000_000
_TOKEN_WARNING: Final = timedelta(days=7)
_RECENT: Final = timedelta(minutes=15)


Level = Literal["ok", "warn", "fail"]


class HealthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked: its state, and what to do about it."""

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


def check_writes(health: DatabaseHealth) -> HealthFinding:
    if health.state == "ok":
        return ok("writes", f"a test write took {(health.write_seconds or 0) * 1000:.1f} ms")
    return fail("writes", health.problem or health.state, _WRITE_ADVICE.get(health.state, "check the database's log"))


def check_connections(health: DatabaseHealth) -> list[HealthFinding]:
    """Only of a server that reports how many it allows."""
    if health.connections is None or health.most_connections is None:
        return []
    used = f"{health.connections} of {health.most_connections} are in use"
    if not health.few_connections:
        return [ok("connections", used)]
    advice = "raise max_connections, or run fewer processes: a process takes up to 48"
    return [warn("connections", used, advice)]


def check_progress(due_since: datetime | None, health: DatabaseHealth, now: datetime) -> HealthFinding:
    idle = timedelta(seconds=stalled(due_since, health.last_progress_at, now))
    if idle <= STALLED:
        return ok("progress", "due work is being done" if due_since else "nothing is due")
    since = shown_time(now - idle)
    return warn("progress", f"jobs are due, and none was started or settled since {since}", "check the workers' logs")


def check_kinds(counts: Sequence[StateCount], known: Collection[KindName]) -> HealthFinding:
    unknown = [count for count in counts if count.kind not in known and count.state not in GAP_STATES]
    if not unknown:
        return ok("kinds", "every live job has a kind that is known here")
    advice = "name the plugin that defines them in the setting 'plugins', or `mistnet jobs cancel` them"
    return warn("kinds", f"not known here: {_listed(unknown)}", advice)


def check_paused_kinds(counts: Sequence[StateCount], paused: Collection[KindName]) -> HealthFinding:
    waiting = [count for count in counts if count.kind in paused and count.state not in GAP_STATES]
    if not waiting:
        return ok("paused kinds", "no job waits for a paused kind")
    return warn("paused kinds", f"these wait: {_listed(waiting)}", "`mistnet jobs resume KIND` continues them")


def check_parked_jobs(counts: Sequence[StateCount]) -> HealthFinding:
    held = [msgspec.structs.replace(count, jobs=count.parked) for count in counts if count.parked]
    if not held:
        return ok("parked jobs", "none")
    advice = "workers admit them when there is room; raise the kind's live_cap for more, or use --fix"
    return warn("parked jobs", f"held back by the cap on live jobs: {_listed(held)}", advice, fixable=True)


def check_gaps(counts: Sequence[StateCount]) -> HealthFinding:
    found = [count for count in counts if count.state in GAP_STATES]
    if not found:
        return ok("gaps", "no job has failed permanently")
    advice = "`mistnet jobs dead` shows why, `mistnet jobs requeue` retries them, `mistnet jobs cancel` accepts them"
    return warn("gaps", f"dead or failed: {_listed(found)}", advice)


def check_due_work(counts: Sequence[StateCount], paused: Collection[KindName], now: datetime) -> HealthFinding:
    late = [
        msgspec.structs.replace(count, jobs=count.due)
        for count in counts
        if count.oldest_due_at and now - count.oldest_due_at > _OVERDUE and count.kind not in paused
    ]
    if not late:
        return ok("due work", "none has waited for more than an hour")
    oldest = min(count.oldest_due_at for count in late if count.oldest_due_at)
    found = f"due since {shown_time(oldest)} and not started: {_listed(late)}"
    return warn("due work", found, "start more workers with `mistnet work`")


def check_running_jobs(held: Sequence[HeldLeases]) -> HealthFinding:
    """Leases that have not run out, of workers that are gone."""
    if not held:
        return ok("running jobs", "each has a running worker")
    jobs = sum(each.jobs for each in held)
    named = ", ".join(each.worker for each in held[:_NAMED]) + (" and others" if len(held) > _NAMED else "")
    found = f"{jobs:,} {'job is' if jobs == 1 else 'jobs are'} leased to workers that are gone: {named}"
    until = max(each.lease_until for each in held)
    return warn("running jobs", found, f"wait: the last of these leases runs out at {shown_time(until)}")


def check_leftovers(name: str, rows: int, noun: str, problem: str, *, none: str) -> HealthFinding:
    """Rows that `--fix` deletes."""
    if not rows:
        return ok(name, none)
    return warn(name, f"{counted(rows, noun)} {problem}", "use --fix to delete them", fixable=True)


def check_quarantine(payloads: int) -> HealthFinding:
    if not payloads:
        return ok("quarantine", "every payload could be read")
    found = f"{counted(payloads, 'payload')} could not be read and {are(payloads)} kept"
    return warn("quarantine", found, "after an upgrade, `mistnet doctor --reparse` tries them again")


def check_sources(found: Sequence[SourceHealth]) -> list[HealthFinding]:
    """Sources that do not serve us, and what to do."""
    troubled = [each for each in found if each.state != "serving"]
    if not troubled:
        return [ok("sources", f"all {len(found)} that were called serve us" if found else "none was called yet")]
    findings = []
    for each in troubled:
        failures = f"{counted(each.failure_streak, 'failure')} in a row"
        advice = f"wait, or `mistnet sources close {each.name}`"
        match each.state:
            case "paused":
                problem = f"paused: {each.pause_reason or 'no reason given'}"
                advice = f"when that is fixed: `mistnet sources resume {each.name}`"
            case "breaker open":
                until = shown_time(each.paused_until) if each.paused_until else "a while"
                why = each.pause_reason or f"{failures}: {each.last_failure or 'unknown'}"
                problem = f"no calls until {until}: {why}"
            case _:
                problem = f"one call tests whether it works again after {failures}"
        findings.append(warn(f"source {each.name}", problem, advice))
    return findings


def check_odd_listings(found: Sequence[OddListings]) -> HealthFinding:
    if not found:
        return ok("listings", "every listing could be read")
    listed = ", ".join(f"{each.listings:,} of {each.source}" for each in found)
    return warn("listings", f"could not be read and are kept: {listed}", "see the table odd_listings")


def check_alerts(alerts: Sequence[AlertRow], now: datetime) -> list[HealthFinding]:
    """Alerts that are open and not accepted."""
    pending = [each for each in alerts if each.accepted_at is None]
    if not pending:
        return [ok("alerts", "all that are open are accepted" if alerts else "none is open")]
    findings = []
    for each in pending:
        advice = "see its message; it closes automatically when it is over"
        if now - each.last_seen_at >= _RECENT:
            checked = shown_time(each.last_seen_at)
            advice = f"last checked at {checked}: alerts are checked while `mistnet up` or `serve` runs"
        findings.append(warn(f"alert {each.rule}", each.message, advice))
    return findings


def check_key(source: str, setup: str, *, used: bool, configured: bool) -> HealthFinding:
    name = f"key for {source}"
    if configured:
        return ok(name, "configured here")
    if not used:
        return ok(name, "none, and none is needed")
    return warn(name, f"none is configured here, and {source} is used", f"{setup} where workers run")


def check_worker(*, due: int, there: int) -> HealthFinding:
    jobs = "1 job is due" if due == 1 else f"{due:,} jobs are due"
    if due and not there:
        return warn("worker", f"{jobs} and no worker is running", "start one: `mistnet work` or `mistnet up`")
    workers = "no worker" if not there else "1 worker" if there == 1 else f"{there} workers"
    return ok("worker", f"{workers} running, {jobs if due else 'nothing is due'}")


def check_budget(source: str, caps: Iterable[int | None], *, configured: bool) -> HealthFinding:
    if not configured:
        return ok("budget", f"without a key for {source}, nothing is spent")
    if any(cap is not None for cap in caps):
        return ok("budget", f"the credits of {source} are capped")
    advice = f"`mistnet sources set {source} --day-credits 200000` caps them at $2 a day, for all machines"
    return warn("budget", f"nothing limits what {source} may cost", advice)


def check_disk(folder: Path, *, free: int) -> HealthFinding:
    found = f"{free / 1_000_000:,.0f} MB are free in {folder}"
    if free >= LITTLE_SPACE:
        return ok("disk", found)
    advice = "free disk space, or move the database: nothing can be collected when the disk is full"
    return (fail if free < NO_SPACE else warn)("disk", found, advice)


def check_clock(latest: datetime | None, now: datetime) -> HealthFinding:
    """For a database on this machine. Only rows from the future show that the clock was set back."""
    if latest is None or latest - now <= SKEW:
        return ok("clock", "nothing was written in the future")
    advice = "set this machine's clock; until then, due work and leases are late"
    return warn("clock", f"the clock says {shown_time(now)}, but a row was written at {shown_time(latest)}", advice)


def check_token(expires_at: datetime | None, now: datetime, *, refreshed: bool) -> HealthFinding:
    name, renew = "token for threads", "get a new one and set MISTNET_THREADS_TOKEN"
    if expires_at is None:
        return ok(name, "configured; `mistnet feeds token --check` shows when it expires")
    if expires_at <= now:
        return fail(name, f"expired at {shown_time(expires_at)}", renew)
    if expires_at - now < _TOKEN_WARNING and not refreshed:
        return warn(name, f"expires at {shown_time(expires_at)}", f"{renew}, or set threads_token_file to refresh it")
    return ok(name, f"valid until {shown_time(expires_at)}")


def check_files(readable: Sequence[Path]) -> HealthFinding:
    """Of these files, which other users can read."""
    if not readable:
        return ok("files", "other users of this machine cannot read them")
    names = " ".join(str(file) for file in readable)
    return warn("files", f"other users of this machine can read {names}", f"chmod o-rwx {names}")


def _listed(counts: Sequence[StateCount]) -> str:
    total: dict[KindName, int] = {}
    for count in counts:
        total[count.kind] = total.get(count.kind, 0) + count.jobs
    return ", ".join(f"{jobs} {kind}" for kind, jobs in sorted(total.items()))
