"""Leases that could not be renewed because the database failed are not taken for lost."""

import random
from datetime import timedelta

import pytest

from mistnet.kit.errors import DatabaseFails
from mistnet.kit.outage import Outage
from mistnet.queue.kinds import RENEW_AGAIN, Policy
from tests.support import TurnedClock

MERCY = timedelta(seconds=10)


def outage_at(clock: TurnedClock) -> Outage:
    return Outage(clock, renewal_grace=MERCY, chance=random.Random(1))


def fail(outage: Outage, *, renewing: bool = False) -> None:
    outage.failed(DatabaseFails("no space left on device"), renewing=renewing)


def test_without_failures_a_lease_is_lost_when_it_runs_out() -> None:
    clock = TurnedClock()
    assert outage_at(clock).lost_before(clock.now()) == clock.now()


def test_after_an_outage_workers_have_time_to_renew_their_leases() -> None:
    clock = TurnedClock()
    outage, begun = outage_at(clock), clock.now()
    fail(outage)
    clock.turn(seconds=60)
    outage.over()
    clock.turn(seconds=9)
    assert outage.lost_before(clock.now()) == begun
    clock.turn(seconds=1)
    assert outage.lost_before(clock.now()) == clock.now()


def test_what_is_read_from_a_full_disk_does_not_show_that_leases_can_be_renewed() -> None:
    clock = TurnedClock()
    outage, begun = outage_at(clock), clock.now()
    fail(outage)
    for _ in range(20):
        clock.turn(seconds=3)
        outage.over(wrote=False)
        fail(outage)
        assert outage.lost_before(clock.now()) == begun


def test_a_lease_that_cannot_be_renewed_begins_the_wait_again() -> None:
    clock = TurnedClock()
    outage, begun = outage_at(clock), clock.now()
    for _ in range(20):
        fail(outage, renewing=True)
        clock.turn(seconds=3)
        outage.over()
        assert outage.lost_before(clock.now()) == begun
    clock.turn(seconds=10)
    outage.over()
    assert outage.lost_before(clock.now()) == clock.now()


def test_a_statement_that_always_fails_does_not_keep_dead_workers_jobs_for_ever() -> None:
    clock = TurnedClock()
    outage, begun = outage_at(clock), clock.now()
    for _ in range(40):
        fail(outage)
        outage.over()
        clock.turn(seconds=1)
        lost_before = outage.lost_before(clock.now())
    assert lost_before >= begun + timedelta(seconds=20)


@pytest.mark.parametrize("heartbeat", [0.1, 0.5, 20.0])
def test_workers_can_try_to_renew_several_times_before_others_take_their_jobs(heartbeat: float) -> None:
    policy = Policy(heartbeat=timedelta(seconds=heartbeat))
    assert policy.renewal_grace >= 5 * RENEW_AGAIN
    assert policy.renewal_grace >= 2 * policy.heartbeat
