"""Posts to products in virtual time: with faulty shops, crashes and freezes, compared with what is true."""

import pytest

from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.crawling import Visited, visit_shops
from tests.simulation.world import Chaos

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


def checked(result: Visited, seed: int) -> Visited:
    if result.wrong:
        print(*result.trace[-40:], sep="\n")
    assert result.wrong == [], f"seed {seed}: {result.wrong[:5]}; {replay(seed)}"
    return result


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_every_link_of_a_collected_world_is_visited_once(
    memory: Templates, request: pytest.FixtureRequest, backend: str
) -> None:
    dsn = "" if backend == "sqlite" else request.getfixturevalue("postgres_dsn")
    url = memory.postgresql(dsn) if dsn else memory.sqlite()
    result = checked(visit_shops(url, 1, faults=False), 1)
    assert result.met == []


@pytest.mark.parametrize("seeds", chunks(2, 1, 5, turn=1), ids=named)
def test_faulty_shops_and_dying_machines_lose_nothing_and_visit_nothing_twice_at_once(
    memory: Templates, seeds: range
) -> None:
    crashes = faults = 0
    for seed in seeds:
        chaos = Chaos(seed, crash=0.01, freeze=0.0)
        result = checked(visit_shops(memory.sqlite(), seed, faults=True, chaos=chaos, world=seed % 5 == 0), seed)
        assert result.met == [], "no two in one shop at once while leases are kept"
        crashes, faults = crashes + result.crashes, faults + result.faults
    if is_fixed(seeds):
        assert crashes
        assert faults


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=1), ids=named)
def test_a_frozen_machine_that_comes_back_writes_nothing(memory: Templates, seeds: range) -> None:
    for seed in seeds:
        chaos = Chaos(seed, crash=0.005, freeze=0.02)
        checked(visit_shops(memory.sqlite(), seed, faults=True, chaos=chaos, world=False), seed)


@pytest.mark.parametrize("seeds", chunks(0, 1, 1, turn=2), ids=named)
def test_the_same_holds_on_a_server(memory: Templates, postgres_dsn: str, seeds: range) -> None:
    for seed in seeds:
        chaos = Chaos(seed, crash=0.01, freeze=0.01)
        checked(visit_shops(memory.postgresql(postgres_dsn), seed, faults=True, chaos=chaos, world=False), seed)
