"""Alert rules: what in these readings needs an operator, since when, and what to do about it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from mistnet.governor.model import KeyState, PausedBy, SourceState
from mistnet.queue.model import KindName
from mistnet.social.model import UserId


class SourceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One source with the caps that count for it, and since when nothing but failures, or nothing but 429, came."""

    state: SourceState
    keys: Sequence[KeyState] = ()
    failing_since: datetime | None = None
    limited_since: datetime | None = None
    day_cap: int | None = None
    month_cap: int | None = None


class DeadJobs(msgspec.Struct, frozen=True, kw_only=True):
    kind: KindName
    jobs: int
    since: datetime
    error: str | None


class DueWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work on one lane that is due and that nobody has begun."""

    lane: str
    jobs: int
    since: datetime


class WorkerReading(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was seen lately."""

    name: str
    lanes: Sequence[str]
    running: int
    concurrency: int
    draining: bool


class LateDeliveries(msgspec.Struct, frozen=True, kw_only=True):
    """Events that wait for one subscriber. Unknown: nobody is configured under that name."""

    subscriber: str
    events: int
    since: datetime
    known: bool
    error: str | None = None


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the standing rules look at, at one moment."""

    at: datetime
    sources: Sequence[SourceReading] = ()
    dead: Sequence[DeadJobs] = ()
    due: Sequence[DueWork] = ()
    workers: Sequence[WorkerReading] = ()
    undelivered: Sequence[LateDeliveries] = ()


class SuspectAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account whose history was swept to its end with far fewer posts than its profile counts."""

    user_id: UserId
    handle: str
    stored: int
    counted: int
    since: datetime
    next_look_at: datetime | None


class QuietAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account whose newest post is some time ago, as a later look proved, and how it used to write."""

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
"""Looked at rarely: they take posts of whole accounts, and nothing changes in half a minute."""

STANDING_RULES: Final = frozenset(AlertRule) - ACCOUNT_RULES
"""Looked at often."""


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs an operator. The same rule and subject are the same alert, however its message changes."""

    rule: AlertRule
    subject: str
    severity: Severity
    message: str


class AlertThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """From when on something is worth an alert."""

    due: timedelta = timedelta(minutes=30)
    breaker: timedelta = timedelta(minutes=15)
    breaker_failures: int = 5
    a_page: int = 0
    no_workers: timedelta = timedelta(minutes=2)


def standing_alerts(readings: Readings, patience: AlertThresholds) -> list[Alert]:
    """By all rules but those of single accounts."""
    found: list[Alert] = []
    found += paused_alerts(readings.sources)
    for source in readings.sources:
        found += _failing(source, readings.at, patience)
        found += _limited(source, readings.at, patience)
        found += _budgets(source, patience)
    found += (_dead(each) for each in readings.dead)
    found += _waiting(readings, patience)
    found += (_late(each) for each in readings.undelivered if readings.at - each.since > patience.due)
    return found


def paused_alerts(sources: Sequence[SourceReading]) -> list[Alert]:
    return [alert for source in sources for alert in _paused(source)]


def silent_alerts(accounts: Sequence[QuietAccount]) -> list[Alert]:
    return [_silent(account) for account in accounts if is_silent(account)]


def suspect_alerts(accounts: Sequence[SuspectAccount]) -> list[Alert]:
    return [_suspect(account) for account in accounts]


def is_silent(account: QuietAccount) -> bool:
    """Quiet for three times its longest usual gap, a day at least; and it was not so when it was first tracked."""
    if len(account.gaps) < LEAST_GAPS:
        return False
    limit = longest_quiet(account.gaps)
    awake = account.newest_at > account.tracked_at - limit
    return awake and account.looked_at - account.newest_at > limit


def longest_quiet(gaps: Sequence[timedelta]) -> timedelta:
    """How long an account with such gaps between its posts may be quiet without anybody wondering."""
    usual = sorted(gaps)[math.ceil(_USUALLY * len(gaps)) - 1]
    return max(_UNUSUAL * usual, QUIET_DAY)


def _paused(source: SourceReading) -> Iterator[Alert]:
    state = source.state
    if state.paused_at and state.paused_by is PausedBy.SOURCE:
        yield Alert(
            rule=AlertRule.SOURCE_PAUSED,
            subject=state.name,
            severity=Severity.CRITICAL,
            message=f"{state.name} serves us no more since {_time(state.paused_at)}: {state.pause_reason}. Nothing is "
            f"collected from it. Set another key, which is used at once; or mend the key or its credits, then "
            f"`mistnet sources resume {state.name}`.",
        )
    elif not state.paused_at:
        for key in source.keys:
            if key.paused_at:
                yield Alert(
                    rule=AlertRule.SOURCE_PAUSED,
                    subject=f"{state.name} {key.label}",
                    severity=Severity.WARNING,
                    message=f"{state.name} refuses the key {key.label} since {_time(key.paused_at)}: "
                    f"{key.pause_reason}. Work goes on with the other keys. Mend or remove this one, then "
                    f"`mistnet sources resume {state.name}`.",
                )


def _failing(source: SourceReading, now: datetime, patience: AlertThresholds) -> Iterator[Alert]:
    state, since = source.state, source.failing_since
    if state.failure_streak < patience.breaker_failures or since is None or now - since <= patience.breaker:
        return
    last = f"; the last one: {_brief(state.last_failure)}" if state.last_failure else ""
    yield Alert(
        rule=AlertRule.BREAKER_OPEN,
        subject=state.name,
        severity=Severity.WARNING,
        message=f"{state.name} has answered nothing but failures since {_time(since)}, {state.failure_streak} in a "
        f"row{last}. One call in a while tries again by itself. See whether {state.name} is down for all; "
        f"if it is not, check this machine's network and `mistnet sources`.",
    )


def _limited(source: SourceReading, now: datetime, patience: AlertThresholds) -> Iterator[Alert]:
    name, since = source.state.name, source.limited_since
    if since is not None and now - since > patience.breaker:
        yield Alert(
            rule=AlertRule.RATE_LIMITED,
            subject=name,
            severity=Severity.WARNING,
            message=f"{name} has answered nothing but 429 since {_time(since)}: it asks us to wait, and nothing is "
            f"collected from it. See whether other programs use the same key, and what rate its plan allows; "
            f"`mistnet sources set {name} --rate N` sets ours. It is tried again by itself.",
        )


def _budgets(source: SourceReading, patience: AlertThresholds) -> Iterator[Alert]:
    state = source.state
    for span, cap, spent in (
        ("day", source.day_cap, state.day_credits),
        ("month", source.month_cap, state.month_credits),
    ):
        if cap is None:
            continue
        raise_it = f"`mistnet sources set {state.name} --{span}-credits N` raises it."
        spent_of = f"{spent:,} of the {cap:,} credits allowed for {state.name} this {span} are spent or set aside"
        if spent >= 0.8 * cap:
            yield Alert(
                rule=AlertRule.BUDGET_80,
                subject=f"{state.name} {span}",
                severity=Severity.WARNING,
                message=f"{spent_of} ({_percent(spent, cap)}). At the end of the budget work waits for the next {span} "
                f"(UTC); {raise_it}",
            )
        if cap - spent < max(patience.a_page, 1):
            yield Alert(
                rule=AlertRule.BUDGET_100,
                subject=f"{state.name} {span}",
                severity=Severity.CRITICAL,
                message=f"{spent_of}: not enough is left for another page. Work waits for the next {span} (UTC); "
                f"{raise_it}",
            )


def _dead(dead: DeadJobs) -> Alert:
    error = f"; the last error: {_brief(dead.error)}" if dead.error else ""
    return Alert(
        rule=AlertRule.DEAD_JOBS,
        subject=dead.kind,
        severity=Severity.WARNING,
        message=f"{_count(dead.jobs, f'{dead.kind} job')} used up all attempts, the first at {_time(dead.since)}"
        f"{error}. What they were to bring is missing. `mistnet jobs dead` shows them, "
        f"`mistnet jobs requeue --kind {dead.kind}` tries them anew.",
    )


def _waiting(readings: Readings, patience: AlertThresholds) -> Iterator[Alert]:
    """Nobody there, nobody for this lane, or nobody free: three different things to do."""
    due = sorted(readings.due, key=lambda each: each.since)
    if due and not readings.workers:
        if readings.at - due[0].since > patience.no_workers:
            yield _no_workers(due)
        return
    for work in due:
        if readings.at - work.since > patience.due:
            able = [each for each in readings.workers if work.lane in each.lanes and not each.draining]
            yield _busy(work, able) if able else _nobody_for(work)


def _no_workers(due: Sequence[DueWork]) -> Alert:
    jobs = sum(each.jobs for each in due)
    return Alert(
        rule=AlertRule.NO_WORKERS,
        subject="workers",
        severity=Severity.CRITICAL,
        message=f"no worker is there, and {_waits(jobs, 'job')}, the first since {_time(due[0].since)}. "
        f"Start one with `mistnet work` or `mistnet up`; nothing was lost.",
    )


def _nobody_for(work: DueWork) -> Alert:
    return Alert(
        rule=AlertRule.DUE_WORK,
        subject=work.lane,
        severity=Severity.CRITICAL,
        message=f"{_waits(work.jobs, 'job')} on the lane {work.lane} since {_time(work.since)}, and no worker "
        f"serves it. Start one that does: `mistnet work` with the settings that name it, without --lanes.",
    )


def _busy(work: DueWork, able: Sequence[WorkerReading]) -> Alert:
    holds = "holds" if len(able) == 1 else "hold"
    running, places = sum(each.running for each in able), sum(each.concurrency for each in able)
    return Alert(
        rule=AlertRule.DUE_WORK,
        subject=work.lane,
        severity=Severity.WARNING,
        message=f"{_waits(work.jobs, 'job')} on the lane {work.lane} since {_time(work.since)} while "
        f"{_count(len(able), 'worker')} with {_count(places, 'handler')} {holds} {_count(running, 'job')}. "
        f"Start more with `mistnet work`, or raise `concurrency` or the source's rate; "
        f"`mistnet status` shows what goes before.",
    )


def _late(late: LateDeliveries) -> Alert:
    error = f"; the last try: {_brief(late.error)}" if late.error else ""
    known = (
        "Mend the receiver; it is tried again and again, and `mistnet jobs list --kind deliver` shows when."
        if late.known
        else "Nobody of that name is in the settings of the process that hands events on: put it back, "
        "or leave it, and they are forgotten when they are as old as `history_days`."
    )
    return Alert(
        rule=AlertRule.DELIVERY_LATE,
        subject=late.subscriber,
        severity=Severity.WARNING,
        message=f"{_waits(late.events, 'event')} for {late.subscriber}, the first since "
        f"{_time(late.since)}{error}. {known}",
    )


def _silent(account: QuietAccount) -> Alert:
    usual = longest_quiet(account.gaps) / _UNUSUAL
    return Alert(
        rule=AlertRule.SILENT_ACCOUNT,
        subject=str(account.user_id),
        severity=Severity.WARNING,
        message=f"@{account.handle} has written nothing since {_time(account.newest_at)}, though it rarely pauses for "
        f"more than {_long(usual)}; looks succeed and find nothing, the last at {_time(account.looked_at)}. "
        f"See https://x.com/{account.handle}: if there are newer posts, upstream search hides them; "
        f"`mistnet untrack @{account.handle}` if it is over.",
    )


def _suspect(account: SuspectAccount) -> Alert:
    again = f"It is looked at again at {_time(account.next_look_at)}. " if account.next_look_at else ""
    are = "is" if account.stored == 1 else "are"
    return Alert(
        rule=AlertRule.SUSPECT_ACCOUNT,
        subject=str(account.user_id),
        severity=Severity.WARNING,
        message=f"{_count(account.stored, 'post')} of @{account.handle} {are} stored, "
        f"though its profile counts {account.counted:,}; its history was read to the end by {_time(account.since)}. "
        f"{again}See https://x.com/{account.handle}: if it shows more, upstream search left posts out, and "
        f"`mistnet coverage @{account.handle} --repair` reads all of it again. If nothing helps, accept this alert: "
        f"`mistnet alerts` shows its id.",
    )


def _count(number: int, of: str) -> str:
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def _waits(number: int, of: str) -> str:
    return f"{_count(number, of)} {'waits' if number == 1 else 'wait'}"


def _percent(spent: int, cap: int) -> str:
    return f"{100 * spent / cap:.0f} %" if cap else "all"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _long(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"


def _brief(text: str | None) -> str:
    lines = (text or "").strip().splitlines() or [""]
    return lines[-1] if len(lines[-1]) <= _ERROR_CHARACTERS else f"{lines[-1][: _ERROR_CHARACTERS - 1]}…"
