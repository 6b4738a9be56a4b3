"""The verdicts that counts alone allow."""

from datetime import UTC, datetime, timedelta

import pytest

from mistnet.operations import checks, doctor
from mistnet.queue.model import JobState, KindName
from mistnet.queue.store.inspect import StateCount

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)
WALK = KindName("walk")


def count(
    state: JobState = JobState.PENDING,
    *,
    jobs: int = 1,
    parked: int = 0,
    due: int = 0,
    waited: timedelta | None = None,
) -> StateCount:
    return StateCount(
        kind=WALK,
        state=state,
        jobs=jobs,
        parked=parked,
        due=due,
        oldest_due_at=NOW - waited if waited else None,
        next_due_at=None,
        oldest_at=NOW,
    )


def test_an_empty_queue_is_well() -> None:
    found = [
        checks.check_kinds([], []),
        checks.check_paused_kinds([], [WALK]),
        checks.check_parked_jobs([]),
        checks.check_gaps([]),
        checks.check_due_work([], [], NOW),
    ]
    assert {each.level for each in found} == {"ok"}


def test_live_jobs_of_an_unknown_kind_are_named_but_gaps_are_not() -> None:
    assert checks.check_kinds([count(jobs=3)], []).found == "not known here: 3 walk"
    assert checks.check_kinds([count(JobState.DEAD)], []).level == "ok"


def test_jobs_of_a_kind_are_added_up_over_its_states() -> None:
    found = checks.check_gaps([count(JobState.DEAD, jobs=2), count(JobState.FAILED, jobs=5)])
    assert found.found == "dead or failed: 7 walk"


def test_parked_jobs_can_be_mended() -> None:
    found = checks.check_parked_jobs([count(jobs=10, parked=4)])
    assert (found.fixable, "4 walk" in found.found) == (True, True)


@pytest.mark.parametrize(
    ("waited", "paused", "level"),
    [
        (timedelta(minutes=59), [], "ok"),
        (timedelta(minutes=61), [], "warn"),
        (timedelta(minutes=61), [WALK], "ok"),
    ],
)
def test_work_is_overdue_after_an_hour_unless_its_kind_is_paused(
    waited: timedelta, paused: list[KindName], level: str
) -> None:
    assert checks.check_due_work([count(due=1, waited=waited)], paused, NOW).level == level


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3.40.1", (3, 40, 1)),
        ("15.18 (Debian 15.18-0+deb12u1)", (15, 18)),
        ("17beta1", (17,)),
        ("unknown", ()),
        ("16", (16,)),
    ],
)
def test_versions_are_read_from_what_servers_say(text: str, numbers: tuple[int, ...]) -> None:
    assert doctor.version_tuple(text) == numbers
