"""Who follows whom in worlds that change: with lists cut by up to 30 %, all faults, and machines that die."""

from typing import Any

import pytest

from mistnet.graph.follows import jobs as follow_sync
from mistnet.graph.follows.model import SyncVerdict
from mistnet.sim.faults import NO_FAULTS
from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.following import CUTS, MANY_PAGES, Followed, follow

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind

CHUNK = 4


def right(result: Followed, seed: int) -> Followed:
    assert result.wrong == [], f"world {seed}: {result.wrong[:5]}; {replay(seed)}"
    return result


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_after_syncs_without_faults_membership_is_the_truth(
    memory: Templates, request: pytest.FixtureRequest, backend: str
) -> None:
    dsn = "" if backend == "sqlite" else request.getfixturevalue("postgres_dsn")
    ended: list[str] = []
    for seed in range(1 if dsn else 4):
        url = memory.postgresql(dsn) if dsn else memory.sqlite()
        ended += right(follow(url, seed, rates=NO_FAULTS), seed).ended
    assert ended
    assert dsn or set(ended) == {"unfollowed", "suspended", "vanished"}


@pytest.mark.parametrize("seeds", chunks(CHUNK, CHUNK, CHUNK, turn=1), ids=named)
def test_cut_lists_and_crashes_make_no_false_unfollow(memory: Templates, seeds: range) -> None:
    results = [right(follow(memory.sqlite(), seed, storm=True), seed) for seed in seeds]
    if is_fixed(seeds):
        assert sum(each.cut for each in results) >= len(seeds), "lists that are whole prove nothing"
        assert sum(each.crashes for each in results) >= len(seeds), "a storm that breaks nothing proves nothing"
        assert {"unfollowed", "suspended", "vanished"} <= {cause for each in results for cause in each.ended}


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=1), ids=named)
def test_cut_lists_and_crashes_make_no_false_unfollow_on_postgresql(
    memory: Templates, postgres_dsn: str, seeds: range
) -> None:
    for seed in seeds:
        right(follow(memory.postgresql(postgres_dsn), seed, storm=True), seed)


@pytest.mark.in_turn(0)
def test_lists_of_many_pages_are_no_different(memory: Templates) -> None:
    for seed in range(3):
        right(follow(memory.sqlite(), seed, size=MANY_PAGES, rates=CUTS), seed)


def first_wrong(memory: Templates, worlds: int) -> list[str]:
    for seed in range(worlds):
        if found := follow(memory.sqlite(), seed).wrong:
            return found
    return []


def test_the_oracle_notices_a_sync_that_takes_every_list_for_whole(
    memory: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def credulous(*_: Any, **__: Any) -> SyncVerdict:
        return SyncVerdict(plausible=True, accounted=True)

    monkeypatch.setattr(follow_sync, "judge_list", credulous)
    assert any("false: unfollowed" in each for each in first_wrong(memory, 10))


def test_the_oracle_notices_a_sync_that_never_doubts(memory: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    def sceptical(*_: Any, **__: Any) -> SyncVerdict:
        return SyncVerdict(plausible=False, problem="nothing is believed")

    monkeypatch.setattr(follow_sync, "judge_list", sceptical)
    assert any("too many" in each for each in first_wrong(memory, 5))
