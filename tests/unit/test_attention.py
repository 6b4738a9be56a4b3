"""Each problem that needs attention is listed once, the worst first, with what to do about it."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from mistnet.operations.overview import GapGroup, OpenAlert
from mistnet.queue.model import JobId, JobState, KindName, Lane, WorkerName
from mistnet.queue.store.inspect import PausedKind, SeenWorker, StateCount, WaitGroup
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import AccountProgress, StretchState
from mistnet.social.model import PostId, UserId
from mistnet.social.store.account_pages import Listed
from mistnet.web.pages.charts import account_row
from mistnet.web.pages.dashboard import AccountCounts, QueueSnapshot
from mistnet.web.pages.overview import AttentionItem, attention, first_steps, remedy, work_words
from mistnet.web.pages.render import with_code
from tests.support import START

STEP = KindName("step")


def queue(**about: Any) -> QueueSnapshot:
    nothing: dict[str, Any] = {"counts": [], "waits": [], "workers": [], "held": {}, "paused": [], "finished": {}}
    return QueueSnapshot(**{"at": START, **nothing, "alerts": [], "gaps": [], "accounts": {}, **about})


def due(since: datetime) -> StateCount:
    return StateCount(
        kind=STEP,
        state=JobState.PENDING,
        jobs=3,
        parked=0,
        due=3,
        oldest_due_at=since,
        next_due_at=None,
        oldest_at=since,
    )


def worker(seen_at: datetime) -> SeenWorker:
    return SeenWorker(
        name=WorkerName("ann"),
        host="here",
        pid=1,
        version="1",
        lanes="x",
        concurrency=1,
        running=0,
        draining=False,
        started_at=START,
        seen_at=seen_at,
    )


def alert(rule: str, severity: str) -> OpenAlert:
    return OpenAlert(id=1, rule=rule, subject="x", severity=severity, message="it is so", opened_at=START)


def gap(state: JobState, error: str | None, jobs: int = 1) -> GapGroup:
    return GapGroup(kind=STEP, state=state, last_error=error, jobs=jobs, newest=JobId(9))


def told(found: QueueSnapshot, *, has_key: bool = True) -> list[AttentionItem]:
    return [*attention(found, has_key=has_key)]


def test_when_all_is_well_nothing_is_told() -> None:
    assert told(queue(counts=[due(START - timedelta(seconds=3))], workers=[worker(START)])) == []


def test_work_without_workers_or_a_key_is_told() -> None:
    waiting = queue(counts=[due(START - timedelta(minutes=1))], workers=[worker(START - timedelta(hours=1))])
    assert [each.title for each in told(waiting, has_key=False)] == ["no worker", "no key for X"]
    late = queue(counts=[due(START - timedelta(minutes=10))], workers=[worker(START)])
    assert [each.title for each in told(late)] == ["work is late"]


def test_an_open_alert_is_not_told_a_second_time_in_other_words() -> None:
    waiting = queue(counts=[due(START - timedelta(minutes=9))], alerts=[alert("no_workers", "critical")])
    assert [each.title for each in told(waiting)] == ["no workers: x"]
    dead = queue(gaps=[gap(JobState.DEAD, "it broke")], alerts=[alert("dead_jobs", "warning")])
    assert [each.title for each in told(dead)] == ["1 step job is dead"]


def test_the_title_of_an_alert_says_nothing_twice() -> None:
    (need,) = told(queue(alerts=[msgspec.structs.replace(alert("no_workers", "critical"), subject="workers")]))
    assert need.title == "no workers"


def test_commands_in_a_text_stand_out_and_nothing_in_it_is_markup() -> None:
    assert with_code("start `mistnet <up>` & wait") == "start <code>mistnet &lt;up&gt;</code> &amp; wait"
    assert with_code("a ` b <i>") == "a ` b &lt;i&gt;"


def test_the_worst_comes_first() -> None:
    found = queue(
        gaps=[gap(JobState.FAILED, "upstream does not return this user", jobs=300), gap(JobState.DEAD, "it broke")],
        alerts=[alert("budget_80", "warning"), alert("source_paused", "critical")],
        paused=[PausedKind(kind=STEP, reason="a test", paused_at=START)],
    )
    assert [each.level for each in told(found)] == ["critical", "warning", "warning", "note", "note"]
    assert told(found)[0].href == "/sources"


def test_one_job_is_retried_alone_and_many_by_their_kind() -> None:
    (one,) = told(queue(gaps=[gap(JobState.DEAD, "it broke")]))
    assert one.change is not None
    assert (one.change.action, one.change.kind) == ("/jobs/9/retry", "")
    (many,) = told(queue(gaps=[gap(JobState.DEAD, "it broke", jobs=2)]))
    assert many.change is not None
    assert (many.change.action, many.change.kind) == ("/jobs/requeue", "step")


def test_each_error_has_its_remedy() -> None:
    said = {
        "upstream does not return this user": "Nothing to do",
        "x answers 401": "check it, resume the source",
        "402: not enough credits": "raise the cap",
        "no answer in time": "when it works again",
        "it broke": "Retry gives new ones",
    }
    for error, advice in said.items():
        assert advice in remedy(JobState.DEAD, error), error
    assert "Check the error" in remedy(JobState.FAILED, None)


def test_an_account_younger_than_what_is_known_of_it_waits_to_begin() -> None:
    """The page reads accounts at once and their sweeps a few seconds apart."""
    progress = AccountProgress(
        user_id=UserId(1),
        handle="ann",
        state=AccountState.ACTIVE,
        state_reason=None,
        tracked_at=START,
        born_at=START - timedelta(days=7_300),
        oldest_post_id=PostId(1),
        newest_post_id=PostId(2),
    )
    listed = Listed(progress=progress, name="Ann")
    before, after = (
        account_row(listed, AccountCounts(at=at, stored={}, spent={}, sweeps={}), START + timedelta(seconds=1))
        for at in (START - timedelta(seconds=1), START + timedelta(seconds=1))
    )
    assert (before["doing"], before["strip"], before["stored"]) == ("waits to begin", (), None)
    assert {part["standing"] for part in after["strip"]} >= {StretchState.VERIFIED, StretchState.MISSING}


def test_a_fresh_installation_is_told_what_is_left_to_do() -> None:
    nothing = first_steps(queue(), None, asked_for=0, has_key=False)
    assert [(step.name, step.done) for step in nothing] == [
        ("key", False),
        ("budget", False),
        ("account", False),
        ("worker", False),
    ]
    some = first_steps(queue(workers=[worker(START)], accounts={"active": 1}), None, asked_for=2, has_key=True)
    assert [(step.name, step.text) for step in some if step.done] == [
        ("key", "It is set."),
        ("account", "1 account, 2 asked for."),
        ("worker", "1 worker running."),
    ]
    gone = first_steps(queue(workers=[worker(START - timedelta(hours=1))]), None, asked_for=0, has_key=True)
    assert not gone[-1].done


def test_what_waits_is_told_in_words() -> None:
    def wait(kind: str, jobs: int, lane: str = "x") -> str:
        group = WaitGroup(kind=KindName(kind), lane=Lane(lane), reason="paused", jobs=jobs, next_due_at=START)
        return work_words(group)

    assert wait("backfill", 1) == "1 history to collect"
    assert wait("hydrate_user", 3) == "3 profiles to fetch"
    assert wait("crawl", 1, "ebay") == "1 page to visit"
    assert wait("step", 2) == "2 step jobs"
