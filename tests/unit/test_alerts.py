"""The alert rules on readings made by hand: when each opens, what it says, and what it leaves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mistnet.governor.model import X_SOURCE, KeyLabel, KeyState, PausedBy, SourceState
from mistnet.operations.alerts.model import (
    LEAST_GAPS,
    QUIET_DAY,
    Alert,
    AlertRule,
    AlertThresholds,
    DeadJobs,
    DueWork,
    LateDeliveries,
    QuietAccount,
    Readings,
    Severity,
    SourceReading,
    SuspectAccount,
    WorkerReading,
    is_silent,
    longest_quiet,
    service_alerts,
    silent_alerts,
    suspect_alert,
)
from mistnet.queue.model import KindName
from mistnet.social.model import UserId
from tests.support import START

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PATIENCE = AlertThresholds()


def found(**about: Any) -> list[Alert]:
    return service_alerts(Readings(at=START, **about), PATIENCE)


def source(*, keys: Any = (), since: Any = None, day: int | None = None, month: int | None = None, **state: Any) -> Any:
    known = SourceState(name=X_SOURCE, **state)
    return SourceReading(state=known, keys=keys, failing_since=since, day_cap=day, month_cap=month, page_credits=300)


def worker(*lanes: str, draining: bool = False) -> WorkerReading:
    return WorkerReading(name="ann", lanes=lanes, running=3, concurrency=20, draining=draining)


def places(alerts: list[Alert]) -> list[tuple[str, str, str]]:
    return [(alert.rule.value, alert.subject, alert.severity.value) for alert in alerts]


def test_nothing_to_read_is_nothing_to_say() -> None:
    assert found() == []
    assert found(sources=[source()], workers=[worker("x")]) == []


def test_a_source_that_closed_itself_is_critical_and_one_paused_by_hand_is_nothing() -> None:
    refused = source(paused_at=START - HOUR, paused_by=PausedBy.SOURCE, pause_reason="its credits are spent")
    (alert,) = found(sources=[refused])
    assert places([alert]) == [("source_paused", "x", "critical")]
    assert "its credits are spent" in alert.message
    assert "2026-03-01 11:00 UTC" in alert.message
    assert "mistnet sources resume x" in alert.message
    assert found(sources=[source(paused_at=START, paused_by=PausedBy.OPERATOR, pause_reason="by hand")]) == []


def test_one_refused_key_of_several_is_a_warning() -> None:
    keys = [
        KeyState(source=X_SOURCE, label=KeyLabel("key-1"), paused_at=START, pause_reason="wrong"),
        KeyState(source=X_SOURCE, label=KeyLabel("key-2")),
    ]
    assert places(found(sources=[source(keys=keys)])) == [("source_paused", "x key-1", "warning")]


def test_a_breaker_that_stays_open_raises_an_alert() -> None:
    failing: dict[str, Any] = {"failure_streak": 7, "last_failure": "x is down: 503"}
    (alert,) = found(sources=[source(since=START - 16 * MINUTE, **failing)])
    assert places([alert]) == [("breaker_open", "x", "warning")]
    assert "7 in a row" in alert.message
    assert "x is down: 503" in alert.message
    assert found(sources=[source(since=START - 14 * MINUTE, **failing)]) == []
    assert found(sources=[source(since=START - 16 * MINUTE, failure_streak=4)]) == []


def test_a_lasting_rate_limit_raises_an_alert_with_its_remedy() -> None:
    def limited(minutes: int) -> Any:
        return SourceReading(state=SourceState(name=X_SOURCE), limited_since=START - minutes * MINUTE)

    (alert,) = found(sources=[limited(16)])
    assert places([alert]) == [("rate_limited", "x", "warning")]
    assert "has answered nothing but 429 since 2026-03-01 11:44 UTC" in alert.message
    assert "mistnet sources set x --rate N" in alert.message
    assert found(sources=[limited(14)]) == []


@pytest.mark.parametrize(
    ("spent", "rules"),
    [(0, []), (7_999, []), (8_000, ["budget_80"]), (9_700, ["budget_80"]), (9_701, ["budget_80", "budget_100"])],
)
def test_a_budget_raises_alerts_at_eighty_and_at_a_hundred_percent(spent: int, rules: list[str]) -> None:
    assert [alert.rule for alert in found(sources=[source(day=10_000, day_credits=spent)])] == rules
    of_month = found(sources=[source(month=10_000, month_credits=spent)])
    assert [(alert.rule, alert.subject) for alert in of_month] == [(rule, "x month") for rule in rules]


def test_a_budget_of_nothing_is_spent_from_the_start() -> None:
    assert places(found(sources=[source(day=0)])) == [
        ("budget_80", "x day", "warning"),
        ("budget_100", "x day", "critical"),
    ]


def test_dead_jobs_raise_an_alert_per_kind_with_the_requeue_command() -> None:
    dead = [DeadJobs(kind=KindName("walk"), jobs=3, since=START - HOUR, error="Traceback\nValueError: broke")]
    (alert,) = found(dead=dead)
    assert places([alert]) == [("dead_jobs", "walk", "warning")]
    assert alert.message.startswith("3 walk jobs")
    assert "ValueError: broke" in alert.message
    assert "Traceback" not in alert.message
    assert "mistnet jobs requeue --kind walk" in alert.message


def test_work_that_waits_tells_missing_workers_from_busy_ones() -> None:
    old, fresh = DueWork(lane="x", jobs=9, since=START - HOUR), DueWork(lane="x", jobs=9, since=START - MINUTE)
    assert places(found(due=[old])) == [("no_workers", "workers", "critical")]
    assert places(found(due=[old], workers=[worker("shopee")])) == [("due_work", "x", "critical")]
    assert places(found(due=[old], workers=[worker("x", draining=True)])) == [("due_work", "x", "critical")]
    (busy,) = found(due=[old], workers=[worker("x"), worker("x")])
    assert places([busy]) == [("due_work", "x", "warning")]
    assert "2 workers with 40 handlers hold 6 jobs" in busy.message
    assert found(due=[fresh], workers=[worker("x")]) == []
    assert found(due=[fresh]) == []
    assert places(found(due=[DueWork(lane="x", jobs=1, since=START - 3 * MINUTE)])) == [
        ("no_workers", "workers", "critical")
    ]


def test_undelivered_events_raise_an_alert() -> None:
    late = LateDeliveries(subscriber="crm", events=4, since=START - HOUR, known=True, error="it answered 410")
    (alert,) = found(undelivered=[late])
    assert places([alert]) == [("delivery_late", "crm", "warning")]
    assert "it answered 410" in alert.message
    (gone,) = found(undelivered=[LateDeliveries(subscriber="old", events=1, since=START - HOUR, known=False)])
    assert "history_days" in gone.message
    assert found(undelivered=[LateDeliveries(subscriber="crm", events=1, since=START, known=True)]) == []


def quiet(hours: float, *, gaps: list[float], tracked: float = 24 * 365, looked: float = 0) -> QuietAccount:
    return QuietAccount(
        user_id=UserId(11),
        handle="ann",
        tracked_at=START - tracked * HOUR,
        newest_at=START - hours * HOUR,
        looked_at=START - looked * HOUR,
        gaps=[gap * HOUR for gap in gaps],
    )


def test_an_account_is_silent_by_its_own_rhythm() -> None:
    hourly, weekly = [1.0] * 50, [24 * 7.0] * 50
    assert is_silent(quiet(25, gaps=hourly))
    assert not is_silent(quiet(23, gaps=hourly)), "a day at least"
    assert not is_silent(quiet(24 * 20, gaps=weekly))
    assert is_silent(quiet(24 * 22, gaps=weekly))
    assert not is_silent(quiet(24 * 22, gaps=[*[1.0] * 20, *[24 * 9.0] * 30])), "its usual pauses are long"
    assert not is_silent(quiet(30, gaps=[1.0] * (LEAST_GAPS - 1))), "too few posts to know it"


def test_an_account_not_looked_at_or_asleep_when_first_tracked_is_not_silent() -> None:
    assert not is_silent(quiet(50, gaps=[1.0] * 50, looked=40)), "the last look was ten hours after its last post"
    assert not is_silent(quiet(24 * 30, gaps=[1.0] * 50, tracked=10)), "it slept before it was tracked"


def test_a_silent_account_is_named_by_its_id_and_handle() -> None:
    (alert,) = silent_alerts([quiet(72, gaps=[2.0] * 50), quiet(1, gaps=[2.0] * 50)])
    assert (alert.rule, alert.subject, alert.severity) == (AlertRule.SILENT_ACCOUNT, "11", Severity.WARNING)
    assert "@ann" in alert.message


def suspect(stored: int = 0) -> SuspectAccount:
    return SuspectAccount(
        user_id=UserId(11), handle="ann", stored=stored, counted=500, since=START, next_look_at=START + HOUR
    )


def test_a_suspect_account_is_told_with_both_counts_and_its_next_look() -> None:
    alert = suspect_alert(suspect())
    assert (alert.rule, alert.subject, alert.severity) == (AlertRule.SUSPECT_ACCOUNT, "11", Severity.WARNING)
    assert "0 posts of @ann are stored, though its profile counts 500" in alert.message
    assert f"again at {START + HOUR:%Y-%m-%d %H:%M} UTC" in alert.message
    assert "1 post of @ann is stored" in suspect_alert(suspect(stored=1)).message


@given(some.lists(some.floats(0, 10_000), min_size=1, max_size=200))
def test_the_longest_quiet_is_within_its_bounds(hours: list[float]) -> None:
    gaps = [hour * HOUR for hour in hours]
    allowed = longest_quiet(gaps)
    assert max(QUIET_DAY, 3 * min(gaps)) <= allowed <= max(QUIET_DAY, 3 * max(gaps))
    assert sum(3 * gap > allowed for gap in gaps) <= len(gaps) / 20


def test_every_message_says_what_to_do() -> None:
    alerts = found(
        sources=[
            source(
                paused_at=START,
                paused_by=PausedBy.SOURCE,
                pause_reason="wrong key",
                failure_streak=9,
                since=START - HOUR,
                day=1,
                month=1,
                day_credits=1,
                month_credits=1,
            )
        ],
        dead=[DeadJobs(kind=KindName("walk"), jobs=1, since=START, error=None)],
        due=[DueWork(lane="x", jobs=1, since=START - HOUR)],
        undelivered=[LateDeliveries(subscriber="crm", events=1, since=START - HOUR, known=True)],
    )
    alerts += found(due=[DueWork(lane="x", jobs=1, since=START - HOUR)], workers=[worker("x")])
    alerts += silent_alerts([quiet(72, gaps=[2.0] * 50)])
    alerts.append(suspect_alert(suspect()))
    alerts += found(sources=[SourceReading(state=SourceState(name=X_SOURCE), limited_since=START - HOUR)])
    assert {alert.rule for alert in alerts} == set(AlertRule)
    assert all("`mistnet " in alert.message for alert in alerts)
