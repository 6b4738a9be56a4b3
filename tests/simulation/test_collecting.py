"""Whole worlds collected in virtual time: without faults, with all of them, and while machines crash and freeze."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from mistnet.queue.model import Continue, Done, Job, Outcome
from mistnet.sim.faults import LIST_FAULTS, SimFault
from mistnet.sim.people import WorldSize
from mistnet.social.coverage import StretchState
from mistnet.social.jobs import sweeps
from mistnet.social.jobs.args import BackfillArgs
from mistnet.social.jobs.hydration import Threads
from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.collecting import (
    Collected,
    catch_up_later,
    collect_world,
    first_posts_later,
    hidden_at_first,
    paid_and_least,
)
from tests.simulation.world import Chaos
from tests.worlds import SMALLEST

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


def collected(
    url: str,
    seed: int,
    *,
    size: WorldSize | str,
    faults: str,
    chaos: Chaos | None = None,
    day_credits: int | None = None,
) -> Collected:
    result = collect_world(url, seed, size=size, faults=faults, chaos=chaos, day_credits=day_credits)
    if result.faults and chaos:
        print(*result.trace[-40:], sep="\n")
    assert result.faults == [], f"world {seed} with {faults} faults: {result.faults[:5]}; {replay(seed)}"
    return result


@pytest.mark.parametrize("faults", ["none", "all"])
@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=0), ids=named)
def test_a_world_is_collected_whole(memory: Templates, seeds: range, faults: str) -> None:
    for seed in seeds:
        result = collected(memory.sqlite(), seed, size="tiny", faults=faults)
        if faults == "none":
            assert result.spent == result.ledger, "the ledger knows every credit"


@pytest.mark.parametrize("faults", ["none", "all"])
@pytest.mark.parametrize("seeds", chunks(0, 1, 1), ids=named)
def test_a_world_is_collected_whole_on_postgresql(
    memory: Templates, postgres_dsn: str, seeds: range, faults: str
) -> None:
    for seed in seeds:
        result = collected(memory.postgresql(postgres_dsn), seed, size="tiny", faults=faults)
        if faults == "none":
            assert result.spent == result.ledger, "the ledger knows every credit"


def storm(seed: int) -> Chaos:
    return Chaos(seed, crash=0.003, freeze=0.003)


@pytest.mark.parametrize("seeds", chunks(2, 1, 2, turn=0), ids=named)
def test_crashes_lose_nothing_on_sqlite(memory: Templates, seeds: range) -> None:
    results = [collected(memory.sqlite(), s, size=SMALLEST, faults="all", chaos=storm(s)) for s in seeds]
    if is_fixed(seeds):
        assert sum(result.crashes for result in results) >= 5 * len(seeds), "a storm that breaks nothing proves nothing"


@pytest.mark.parametrize("seeds", chunks(1, 0, 1), ids=named)
def test_crashes_lose_nothing_on_postgresql(memory: Templates, postgres_dsn: str, seeds: range) -> None:
    url = memory.postgresql
    results = [collected(url(postgres_dsn), s, size=SMALLEST, faults="all", chaos=storm(s)) for s in seeds]
    if is_fixed(seeds):
        assert sum(result.crashes for result in results) >= 3 * len(seeds), "a storm that breaks nothing proves nothing"


def cost_of(memory: Templates, faults: Mapping[SimFault, float]) -> float:
    """What some worlds cost together, beside the least that they could."""
    spent = least = 0
    for seed in range(3):
        paid, due, problems = paid_and_least(memory.sqlite(), seed, size="tiny", faults=faults)
        assert problems == [], f"world {seed}: {problems[:3]}"
        spent, least = spent + paid, least + due
    return spent / least


@pytest.mark.in_turn(0)
def test_a_collection_without_faults_costs_a_hundredth_more_than_the_least_at_most(memory: Templates) -> None:
    assert cost_of(memory, {}) <= 1.01


@pytest.mark.in_turn(2)
def test_a_collection_with_a_fault_in_every_eighth_answer_costs_a_twelfth_more_at_most(memory: Templates) -> None:
    possible = set(SimFault) - LIST_FAULTS
    assert cost_of(memory, dict.fromkeys(possible, 0.12 / len(possible))) <= 1.08


CAP = 7_000


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=1), ids=named)
def test_upstream_never_bills_more_than_the_cap_with_every_fault_on(memory: Templates, seeds: range) -> None:
    for seed in seeds:
        result = collected(memory.sqlite(), seed, size="tiny", faults="all", day_credits=CAP)
        assert result.counted > CAP - 1_000, "a cap that is never reached proves nothing"


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=2), ids=named)
def test_upstream_never_bills_more_than_the_cap_while_machines_crash(memory: Templates, seeds: range) -> None:
    for seed in seeds:
        result = collected(memory.sqlite(), seed, size=SMALLEST, faults="all", chaos=storm(seed), day_credits=CAP)
        assert result.crashes or not is_fixed(seeds)


@pytest.mark.parametrize(("backend", "faults"), [("sqlite", "none"), ("postgresql", "all")])
@pytest.mark.parametrize("seeds", chunks(1, 0, 1), ids=named)
def test_days_later_new_posts_are_there_and_a_renamed_account_is_followed(
    memory: Templates, request: pytest.FixtureRequest, seeds: range, backend: str, faults: str
) -> None:
    dsn = "" if backend == "sqlite" else request.getfixturevalue("postgres_dsn")
    for seed in seeds:
        url = memory.postgresql(dsn) if dsn else memory.sqlite()
        later = catch_up_later(url, seed, days=12, faults=faults)
        assert later.missing == {}, replay(seed)
        assert later.too_low == []
        assert later.jobs == []
        renamed = [handle for handle, now in later.handles.items() if now != handle]
        assert len(renamed) == 1
        assert renamed[0] in later.earlier[renamed[0]]
        closed = {state for state in later.states.values() if state != "active"}
        assert closed
        assert closed <= {"suspended", "vanished"}


@pytest.mark.parametrize("faults", ["none", "all"])
def test_the_first_posts_of_an_account_that_had_none_are_found(memory: Templates, faults: str) -> None:
    found = first_posts_later(memory.sqlite(), 3, faults=faults)
    assert found.posts_at_first == 0
    assert found.looked_at == 1
    assert found.wanted
    assert found.stored >= found.wanted
    assert found.boundaries == (min(found.wanted), max(found.wanted))
    assert {each.standing for each in found.stretches if each.since < found.newest_at} == {StretchState.VERIFIED}


def test_a_history_that_upstream_hid_at_first_is_suspect_and_comes_later(memory: Templates) -> None:
    found = hidden_at_first(memory.sqlite(), 3)
    assert found.at_first == (0, True)
    assert StretchState.VERIFIED not in found.shown_at_first
    assert found.alerts == ["suspect_account"]
    assert found.later[0] >= found.wanted
    assert found.later == (found.later[0], False)
    assert set(found.shown_later) <= {StretchState.VERIFIED, StretchState.NOT_LOOKED_AT}
    assert found.alerts_later == []


@pytest.mark.in_turn(2)
def test_rounds_with_the_smallest_limit_lose_nothing(memory: Templates) -> None:
    later = catch_up_later(memory.sqlite(), 0, days=30, faults="all", limit=1)
    assert (later.missing, later.too_low, later.jobs) == ({}, [], [])


def first_faults(memory: Templates, seeds: Iterable[int], faults: str) -> list[str]:
    """What the oracle finds in the first of these worlds that shows anything; the first is known to."""
    for seed in seeds:
        if found := collect_world(memory.sqlite(), seed, size="tiny", faults=faults).faults:
            return found
    return []


def test_without_the_second_look_the_oracle_sees_it(memory: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = sweeps.Sweeper.backfill

    async def hasty(self: sweeps.Sweeper, job: Job[BackfillArgs]) -> Outcome:
        believing = msgspec.structs.replace(job.args, suspected=True)
        return await backfill(self, msgspec.structs.replace(job, args=believing))

    monkeypatch.setattr(sweeps.Sweeper, "backfill", hasty)
    assert any("missing" in fault for fault in first_faults(memory, range(10), "all"))


def test_walks_that_go_one_level_only_are_seen(memory: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Threads._step

    def one_level(self: Threads, *given: Any) -> Outcome:
        outcome = step(self, *given)
        return Done(outcome.writes) if isinstance(outcome, Continue) else outcome

    monkeypatch.setattr(Threads, "_step", one_level)
    assert any("ancestors" in fault for fault in first_faults(memory, range(5), "none"))


def test_without_the_second_pass_retweets_are_missed(memory: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps.Sweeper, "_reposts", lambda _self, _account: [])
    assert any("posts are missing" in fault for fault in first_faults(memory, range(1), "none"))
