"""From outcome to next state: pure, so any outcome, count and chance can be tried."""

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mistnet.queue.executor import Executor
from mistnet.queue.kinds import Policy
from mistnet.queue.model import (
    Awaited,
    Continue,
    Done,
    Fail,
    Job,
    JobId,
    JobState,
    KindName,
    Lane,
    Lease,
    Outcome,
    Retry,
    Settlement,
    Snooze,
    WorkerName,
)
from mistnet.queue.settler import backoff, settlement
from tests.support import START, Number, TurnedClock, kind, new

chances = st.floats(0, 1)
DAY = timedelta(hours=24)


def lease(attempts: int = 0, max_attempts: int = 5) -> Lease:
    return Lease(
        id=JobId(1),
        fence=3,
        worker=WorkerName("ann"),
        kind=KindName("step"),
        key=None,
        lane=Lane("x"),
        args="{}",
        attempts=attempts,
        max_attempts=max_attempts,
        run_at=START - timedelta(hours=1),
        created_at=START - timedelta(days=1),
        alone=False,
    )


def settled(outcome: Outcome, attempts: int = 0, max_attempts: int = 5, chance: float = 0.5) -> Settlement:
    return settlement(lease(attempts, max_attempts), outcome, now=START, policy=Policy(), chance=chance)


@given(st.integers(0, 10_000), chances)
def test_backoff_grows_and_never_exceeds_a_day(attempts: int, chance: float) -> None:
    wait = backoff(attempts, Policy(), chance)
    ideal = min(60.0 * 2.0 ** min(attempts, 20), DAY.total_seconds())
    assert wait <= DAY
    assert 0.8 * ideal <= wait.total_seconds() <= 1.2 * ideal


@given(st.integers(0, 9), chances, chances)
def test_backoff_of_a_later_attempt_is_longer_whatever_the_jitter(attempts: int, one: float, other: float) -> None:
    assert backoff(attempts + 1, Policy(), one) > backoff(attempts, Policy(), other)


@given(st.integers(0, 8), st.integers(1, 9), chances)
def test_only_the_last_attempt_makes_a_job_dead(attempts: int, max_attempts: int, chance: float) -> None:
    if attempts >= max_attempts:
        return
    after = settled(Retry("x"), attempts, max_attempts, chance)
    assert after.attempts == attempts + 1
    assert (after.state is JobState.DEAD) == (attempts + 1 == max_attempts)
    if after.state is JobState.RETRYABLE:
        assert after.run_at > START


def test_a_snooze_keeps_its_attempts_and_a_step_resets_them() -> None:
    snoozed = settled(Snooze(START + DAY, "closed"), attempts=3)
    assert (snoozed.state, snoozed.attempts, snoozed.run_at, snoozed.reason) == (
        JobState.PENDING,
        3,
        START + DAY,
        "closed",
    )
    stepped = settled(Continue(args=Number(n=2)), attempts=3)
    assert (stepped.state, stepped.attempts, stepped.run_at, stepped.args) == (JobState.PENDING, 0, START, '{"n":2}')


def test_done_carries_its_writes_and_failure_its_error() -> None:
    child = new(key="child")
    assert settled(Done([child])).writes == [child]
    failed = settled(Fail("no such thing"))
    assert (failed.state, failed.error, failed.writes) == (JobState.FAILED, "no such thing", ())


@given(st.integers(0, 900), chances)
def test_a_retry_may_say_how_long_it_waits_at_most(attempts: int, chance: float) -> None:
    outcome = Retry("away", within=timedelta(hours=1))
    settled = settlement(lease(attempts, 1000), outcome, now=START, policy=Policy(), chance=chance)
    plain = settlement(lease(attempts, 1000), Retry("away"), now=START, policy=Policy(), chance=chance)
    assert settled.run_at == min(plain.run_at, START + timedelta(hours=1))


async def test_an_outcome_that_waits_for_a_job_still_names_it_when_it_is_settled() -> None:
    awaited = Awaited(KindName("backfill"), "7")

    async def handler(_job: Job[Number]) -> Outcome:
        return Snooze(START + DAY, "waits for the backfill", awaited)

    executor = Executor(clock=TurnedClock(), timeout=DAY, error_limit=100)
    (outcome,) = await executor.run(kind(handler=handler), [msgspec.structs.replace(lease(), args='{"n": 1}')])
    assert settled(outcome).awaits == awaited
