"""What needs somebody, in the order of how much, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from mistnet.api.pages.dashboard import Queue
from mistnet.domain.alerts import ACCOUNT_RULES, Rule
from mistnet.domain.jobs import JobState

_LATE: Final = timedelta(minutes=5)
_NOBODY: Final = timedelta(seconds=20)
_PLACES: Final[Mapping[str, str]] = {
    Rule.SOURCE_PAUSED: "/sources",
    Rule.BREAKER_OPEN: "/sources",
    Rule.RATE_LIMITED: "/sources",
    Rule.BUDGET_80: "/sources",
    Rule.BUDGET_100: "/sources",
    Rule.DUE_WORK: "/jobs?state=pending",
    Rule.NO_WORKERS: "/jobs?state=pending",
}
_USED_UP: Final = "All attempts are used up. Retry gives new ones."
_REMEDIES: Final = (
    (("401", "403", "refuses"), "The source refuses the key: check it, resume the source, then retry."),
    (("402", "credit", "budget"), "Out of credits or budget: recharge or raise the cap, then retry."),
    (("timed out", "no answer", "cut short", "502", "503"), "The source did not answer: retry when it is well again."),
)
_SILENT: Final = timedelta(minutes=3)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator can do about it at once: the form's address, its word, and the kind it is about."""

    action: str
    word: str
    kind: str = ""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that needs somebody. `level` is critical, warning or note."""

    level: str
    title: str
    told: str
    error: str | None = None
    href: str | None = None
    change: Change | None = None


def attention(queue: Queue, *, has_key: bool) -> Sequence[Need]:
    found = [*_alerts(queue), *_nobody_works(queue, has_key=has_key), *_gaps(queue), *_paused(queue)]
    order = ("critical", "warning", "note")
    return sorted(found, key=lambda need: order.index(need.level))


def _alerts(queue: Queue) -> Iterator[Need]:
    """Those on dead jobs are told with the jobs themselves, where something can be done about them."""
    for alert in queue.alerts:
        if alert.rule != Rule.DEAD_JOBS:
            rule = alert.rule.replace("_", " ")
            title = rule if alert.subject in rule else f"{rule}: {alert.subject}"
            href = f"/accounts/{alert.subject}" if alert.rule in ACCOUNT_RULES else _PLACES.get(alert.rule)
            change = Change(action=f"/alerts/{alert.id}/accept", word="Accept")
            yield Need(level=alert.severity, title=title, told=alert.message, href=href, change=change)


def _nobody_works(queue: Queue, *, has_key: bool) -> Iterator[Need]:
    if not has_key and queue.live:
        yield Need(
            level="warning",
            title="no key for X",
            told="Set MISTNET_X_API_KEY for the workers; jobs wait until there is one.",
        )
    if {alert.rule for alert in queue.alerts} & {Rule.NO_WORKERS, Rule.DUE_WORK}:
        return
    seen = [worker for worker in queue.workers if queue.at - worker.seen_at < _SILENT]
    due = queue.oldest_due_at
    if due and not seen and queue.at - due > _NOBODY:
        yield Need(level="critical", title="nobody works", told="Work is due and no worker is there: `mistnet work`.")
    elif due and queue.at - due > _LATE:
        yield Need(
            level="warning",
            title="work is late",
            told="Due jobs wait for a free worker: start another, or raise its concurrency.",
            href="/jobs?state=pending",
        )


def _gaps(queue: Queue) -> Iterator[Need]:
    for gap in queue.gaps:
        many = gap.jobs > 1
        change = (
            Change(action="/jobs/requeue", word=f"Retry all of {gap.kind}", kind=gap.kind)
            if many
            else Change(action=f"/jobs/{gap.newest}/retry", word="Retry")
        )
        yield Need(
            level="note" if gone_upstream(gap.last_error) else "warning",
            title=f"{gap.jobs:,} {gap.kind} {'jobs are' if many else 'job is'} {gap.state}",
            told=remedy(gap.state, gap.last_error),
            error=gap.last_error,
            href=f"/jobs?state={gap.state}&kind={gap.kind}" if many else f"/jobs/{gap.newest}",
            change=change,
        )


def _paused(queue: Queue) -> Iterator[Need]:
    for each in queue.paused:
        yield Need(
            level="note",
            title=f"{each.kind} is paused",
            told=f"{each.reason}. `mistnet jobs resume {each.kind}` lets it go on.",
            href=f"/jobs?kind={each.kind}",
        )


def gone_upstream(error: str | None) -> bool:
    return any(said in (error or "") for said in ("does not return", "does not have"))


def remedy(state: JobState, error: str | None) -> str:
    """What helps jobs that ended without their result."""
    if gone_upstream(error):
        return "Upstream does not have it. Nothing to do; retry if you think it is back."
    said = (error or "").lower()
    found = next((advice for signs, advice in _REMEDIES if any(sign in said for sign in signs)), None)
    if found:
        return found
    return _USED_UP if state is JobState.DEAD else "It is not retried by itself. Look at the error, then retry."
