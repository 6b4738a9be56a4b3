"""Prices in virtual time: with faulty markets, crashes and freezes, compared with what is true."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.pricing import Looked, look_for_prices
from tests.simulation.world import Chaos

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


def checked(result: Looked, seed: int) -> Looked:
    if result.wrong:
        print(*result.trace[-40:], sep="\n")
    assert result.wrong == [], f"seed {seed}: {result.wrong[:5]}; {replay(seed)}"
    assert result.repeated == [], f"seed {seed}: {result.repeated[:3]}; {replay(seed)}"
    return result


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_every_source_is_asked_once_for_each_item_and_what_is_remembered_costs_no_call(
    memory: Templates, request: pytest.FixtureRequest, tmp_path: Path, backend: str
) -> None:
    dsn = "" if backend == "sqlite" else request.getfixturevalue("postgres_dsn")
    once, again = (memory.postgresql(dsn) if dsn else memory.sqlite() for _ in range(2))
    alone = checked(look_for_prices(once, tmp_path, 1), 1)
    doubled = checked(look_for_prices(again, tmp_path, 1, twice=True), 1)
    assert alone.calls == doubled.calls, "the second of two like items is answered from memory"


@pytest.mark.parametrize("seeds", chunks(2, 1, 2, turn=0), ids=named)
def test_faulty_markets_and_dying_machines_lose_nothing_and_double_nothing(
    memory: Templates, tmp_path: Path, seeds: range
) -> None:
    crashes = faults = 0
    for seed in seeds:
        chaos = Chaos(seed, crash=0.006, freeze=0.01 if seed % 3 == 2 else 0.0) if seed % 3 else None
        result = checked(look_for_prices(memory.sqlite(), tmp_path, seed, faults=True, chaos=chaos), seed)
        crashes, faults = crashes + result.crashes, faults + result.faults
    if is_fixed(seeds):
        assert crashes
        assert faults


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seeds", [range(4, 5), *chunks(0, 0, 1)], ids=named)
def test_the_same_holds_on_a_server(memory: Templates, postgres_dsn: str, tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        chaos = Chaos(seed, crash=0.006, freeze=0.005)
        url = memory.postgresql(postgres_dsn)
        checked(look_for_prices(url, tmp_path, seed, faults=True, chaos=chaos), seed)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_dead_worker_is_missed_after_the_usual_five_minutes_and_another_finishes(
    memory: Templates, tmp_path: Path, seed: int
) -> None:
    chaos = Chaos(seed, crash=0.02, freeze=0.0, crashes_left=3)
    usual = timedelta(seconds=300)
    result = checked(look_for_prices(memory.sqlite(), tmp_path, seed, chaos=chaos, lease=usual), seed)
    assert result.crashes
    assert result.seconds >= usual.total_seconds(), "what the dead held was free when its lease ran out, not before"
