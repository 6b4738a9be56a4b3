"""Alert rules: which of these readings need an operator, since when, and what to do. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from mistnet.governor.model import KeyState, PausedBy, SourceState
from mistnet.kit.text import are, counted, last_line
from mistnet.queue.model import KindName
from mistnet.social.model import UserId


class SourceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One source, its caps, what a page costs, and since when every answer was a failure, or a 429."""

    state: SourceState
    keys: Sequence[KeyState] = ()
    failing_since: datetime | None = None
    limited_since: datetime | None = None
    day_cap: int | None = None
    month_cap: int | None = None
    page_credits: int = 0


class DeadJobs(msgspec.Struct, frozen=True, kw_only=True):
    kind: KindName
    jobs: int
    since: datetime
    error: str | None


class DueWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work on one lane that is due and not started."""

    lane: str
    jobs: int
    since: datetime


class WorkerReading(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is running."""

    name: str
    lanes: Sequence[str]
    running: int
    concurrency: int
    draining: bool


class LateDeliveries(msgspec.Struct, frozen=True, kw_only=True):
    """Events that wait for one subscriber. `known` is whether the settings name it."""

    subscriber: str
    events: int
    since: datetime
    known: bool
    error: str | None = None


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What the service rules are checked against, at one moment."""

    at: datetime
    sources: Sequence[SourceReading] = ()
    dead: Sequence[DeadJobs] = ()
    due: Sequence[DueWork] = ()
    workers: Sequence[WorkerReading] = ()
    undelivered: Sequence[LateDeliveries] = ()


class SuspectAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account with far fewer posts than its profile counts, though its history was swept to the end."""

    user_id: UserId
    handle: str
    stored: int
    counted: int
    since: datetime
    next_look_at: datetime | None


class QuietAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account that has posted nothing for a while, as a later catch-up proved, and its gaps before that."""

    user_id: UserId
    handle: str
    tracked_at: datetime
    newest_at: datetime
    looked_at: datetime
    gaps: Sequence[timedelta]


LEAST_GAPS: Final = 20
QUIET_DAY: Final = timedelta(days=1)
_UNUSUAL: Final = 3
_USUALLY: Final = 0.95
_ERROR_CHARACTERS: Final = 160


class AlertRule(StrEnum):
    SOURCE_PAUSED = "source_paused"
    BREAKER_OPEN = "breaker_open"
    RATE_LIMITED = "rate_limited"
    DEAD_JOBS = "dead_jobs"
    DUE_WORK = "due_work"
    NO_WORKERS = "no_workers"
    BUDGET_80 = "budget_80"
    BUDGET_100 = "budget_100"
    DELIVERY_LATE = "delivery_late"
    SILENT_ACCOUNT = "silent_account"
    SUSPECT_ACCOUNT = "suspect_account"


ACCOUNT_RULES: Final = frozenset({AlertRule.SILENT_ACCOUNT, AlertRule.SUSPECT_ACCOUNT})
"""Checked rarely: they read the posts of whole accounts, and their answers change slowly."""

SERVICE_RULES: Final = frozenset(AlertRule) - ACCOUNT_RULES


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs an operator. Its rule and subject identify it; its message may change."""

    rule: AlertRule
    subject: str
    severity: Severity
    message: str


class AlertThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """How long something must last, or how bad it must be, to become an alert."""

    due: timedelta = timedelta(minutes=30)
    breaker: timedelta = timedelta(minutes=15)
    breaker_failures: int = 5
    no_workers: timedelta = timedelta(minutes=2)


def service_alerts(readings: Readings, thresholds: AlertThresholds) -> list[Alert]:
    """The alerts of all rules except those about single accounts."""
    alerts = paused_alerts(readings.sources)
    for source in readings.sources:
        alerts += _find_source_alerts(source, readings.at, thresholds)
    for dead in readings.dead:
        error = f"; the last error: {_brief(dead.error)}" if dead.error else ""
        message = (
            f"{counted(dead.jobs, f'{dead.kind} job')} used up all attempts, the first at {_time(dead.since)}{error}. "
            f"Their results are missing. `mistnet jobs dead` shows them, `mistnet jobs requeue --kind {dead.kind}` "
            f"retries them."
        )
        alerts.append(_alert(AlertRule.DEAD_JOBS, dead.kind, message))
    alerts += _waiting(readings, thresholds)
    for late in readings.undelivered:
        if readings.at - late.since > thresholds.due:
            error = f"; the last attempt: {_brief(late.error)}" if late.error else ""
            remedy = (
                "Fix the receiver; delivery is retried, and `mistnet jobs list --kind deliver` shows when."
                if late.known
                else "The settings of the process that hands out events do not name it: add it again, or do nothing, "
                "and they are deleted when they are as old as `history_days`."
            )
            events = _waits(late.events, "event")
            message = f"{events} for {late.subscriber}, the first since {_time(late.since)}{error}. {remedy}"
            alerts.append(_alert(AlertRule.DELIVERY_LATE, late.subscriber, message))
    return alerts


def paused_alerts(sources: Sequence[SourceReading]) -> list[Alert]:
    alerts = []
    for source in sources:
        state = source.state
        if state.paused_at and state.paused_by is PausedBy.SOURCE:
            message = (
                f"{state.name} refuses to serve us since {_time(state.paused_at)}: {state.pause_reason}. Nothing is "
                f"collected from it. Set another key, which is used at once; or fix the key or its credits, then "
                f"`mistnet sources resume {state.name}`."
            )
            alerts.append(_alert(AlertRule.SOURCE_PAUSED, state.name, message, Severity.CRITICAL))
        for key in source.keys:
            if key.paused_at and not state.paused_at:
                message = (
                    f"{state.name} refuses the key {key.label} since {_time(key.paused_at)}: {key.pause_reason}. "
                    f"Work continues with the other keys. Fix or remove this one, then "
                    f"`mistnet sources resume {state.name}`."
                )
                alerts.append(_alert(AlertRule.SOURCE_PAUSED, f"{state.name} {key.label}", message))
    return alerts


def silent_alerts(accounts: Sequence[QuietAccount]) -> list[Alert]:
    alerts = []
    for account in filter(is_silent, accounts):
        hours = longest_quiet(account.gaps).total_seconds() / _UNUSUAL / 3600
        usual = f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
        message = (
            f"@{account.handle} has written nothing since {_time(account.newest_at)}, though it rarely pauses for "
            f"more than {usual}; catch-ups succeed and find nothing, the last at {_time(account.looked_at)}. "
            f"See https://x.com/{account.handle}: if there are newer posts, upstream search hides them. If the account "
            f"is abandoned, `mistnet untrack @{account.handle}`."
        )
        alerts.append(_alert(AlertRule.SILENT_ACCOUNT, str(account.user_id), message))
    return alerts


def is_silent(account: QuietAccount) -> bool:
    """Quiet for three times its longest usual gap, a day at least, and it was not so when it was first tracked."""
    if len(account.gaps) < LEAST_GAPS:
        return False
    limit = longest_quiet(account.gaps)
    awake = account.newest_at > account.tracked_at - limit
    return awake and account.looked_at - account.newest_at > limit


def longest_quiet(gaps: Sequence[timedelta]) -> timedelta:
    """The longest silence that is normal for an account with these gaps between its posts."""
    usual = sorted(gaps)[math.ceil(_USUALLY * len(gaps)) - 1]
    return max(_UNUSUAL * usual, QUIET_DAY)


def _alert(rule: AlertRule, subject: str, message: str, severity: Severity = Severity.WARNING) -> Alert:
    return Alert(rule=rule, subject=subject, severity=severity, message=message)


def _find_source_alerts(source: SourceReading, now: datetime, thresholds: AlertThresholds) -> Iterator[Alert]:
    """Failures, answers of 429, and budgets that are nearly or wholly spent."""
    state, since = source.state, source.failing_since
    name = state.name
    if state.failure_streak >= thresholds.breaker_failures and since and now - since > thresholds.breaker:
        last = f"; the last one: {_brief(state.last_failure)}" if state.last_failure else ""
        message = (
            f"{name} has answered nothing but failures since {_time(since)}, {state.failure_streak} in a "
            f"row{last}. It is retried automatically, one call at a time. Check whether {name} is down for "
            f"everyone; if it is not, check this machine's network and `mistnet sources`."
        )
        yield _alert(AlertRule.BREAKER_OPEN, name, message)
    since = source.limited_since
    if since and now - since > thresholds.breaker:
        message = (
            f"{name} has answered nothing but 429 since {_time(since)}: it asks us to wait, and nothing is "
            f"collected from it. Check whether other programs use the same key, and which rate its plan allows; "
            f"`mistnet sources set {name} --rate N` sets ours. It is retried automatically."
        )
        yield _alert(AlertRule.RATE_LIMITED, name, message)
    budgets = ("day", source.day_cap, state.day_credits), ("month", source.month_cap, state.month_credits)
    for span, cap, spent in budgets:
        if cap is None:
            continue
        subject = f"{name} {span}"
        raise_it = f"`mistnet sources set {name} --{span}-credits N` raises the budget."
        spent_of = f"{spent:,} of the {cap:,} credits allowed for {name} this {span} are spent or reserved"
        if spent >= 0.8 * cap:
            share = f"{100 * spent / cap:.0f} %" if cap else "all"
            message = f"{spent_of} ({share}). Once they are spent, work waits for the next {span} (UTC); {raise_it}"
            yield _alert(AlertRule.BUDGET_80, subject, message)
        if cap - spent < max(source.page_credits, 1):
            message = f"{spent_of}: too few are left for another page. Work waits for the next {span} (UTC); {raise_it}"
            yield _alert(AlertRule.BUDGET_100, subject, message, Severity.CRITICAL)


def _waiting(readings: Readings, thresholds: AlertThresholds) -> Iterator[Alert]:
    """No worker at all, none for this lane, or none free: each has another remedy."""
    due = sorted(readings.due, key=lambda each: each.since)
    if due and not readings.workers:
        if readings.at - due[0].since > thresholds.no_workers:
            jobs = sum(each.jobs for each in due)
            message = (
                f"no worker is running, and {_waits(jobs, 'job')}, the first since {_time(due[0].since)}. "
                f"Start one with `mistnet work` or `mistnet up`; nothing was lost."
            )
            yield _alert(AlertRule.NO_WORKERS, "workers", message, Severity.CRITICAL)
        return
    for work in due:
        if readings.at - work.since <= thresholds.due:
            continue
        able = [each for each in readings.workers if work.lane in each.lanes and not each.draining]
        waits = f"{_waits(work.jobs, 'job')} on the lane {work.lane} since {_time(work.since)}"
        holds = "holds" if len(able) == 1 else "hold"
        running, handlers = sum(each.running for each in able), sum(each.concurrency for each in able)
        message = (
            f"{waits} while {counted(len(able), 'worker')} with {counted(handlers, 'handler')} {holds} "
            f"{counted(running, 'job')}. Start more with `mistnet work`, or raise `concurrency` or the source's rate; "
            f"`mistnet status` shows what has priority."
        )
        if not able:
            message = (
                f"{waits}, and no worker serves it. Start one that does: `mistnet work` with the settings that name "
                f"it, without --lanes."
            )
        yield _alert(AlertRule.DUE_WORK, work.lane, message, Severity.WARNING if able else Severity.CRITICAL)


def suspect_alert(account: SuspectAccount) -> Alert:
    again = f"It is checked again at {_time(account.next_look_at)}. " if account.next_look_at else ""
    message = (
        f"{counted(account.stored, 'post')} of @{account.handle} {are(account.stored)} stored, "
        f"though its profile counts {account.counted:,}; its history was read to the end by {_time(account.since)}. "
        f"{again}See https://x.com/{account.handle}: if it shows more, upstream search left posts out, and "
        f"`mistnet coverage @{account.handle} --repair` reads all of it again. If nothing helps, accept this alert: "
        f"`mistnet alerts` shows its id."
    )
    return _alert(AlertRule.SUSPECT_ACCOUNT, str(account.user_id), message)


def _waits(number: int, noun: str) -> str:
    return f"{counted(number, noun)} {'waits' if number == 1 else 'wait'}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _brief(error: str | None) -> str:
    line = last_line(error)
    return line if len(line) <= _ERROR_CHARACTERS else f"{line[: _ERROR_CHARACTERS - 1]}…"
