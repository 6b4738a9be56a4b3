"""Price events in virtual time: with lying and failing shops, crashes and freezes, exactly what was true is told."""

import pytest

from mistnet.governor import governor
from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.watching import Restless, Watched, watch_prices

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


@pytest.fixture(autouse=True)
def hours_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was called is written down less often: hours are spent here, of which nothing happens in most seconds."""
    monkeypatch.setattr(governor, "_FLUSH_SECONDS", 20.0)


def checked(result: Watched, seed: int) -> Watched:
    if result.wrong:
        print(*result.trace[-40:], sep="\n")
    assert result.wrong == [], f"seed {seed}: {result.wrong[:5]}; {replay(seed)}"
    return result


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=2), ids=named)
def test_every_lasting_change_is_told_once_and_nothing_else_is(memory: Templates, seeds: range) -> None:
    told = lies = crashes = faults = 0
    for seed in seeds:
        result = checked(watch_prices(memory.sqlite(), seed, chaos=Restless(seed)), seed)
        told, lies = told + result.told, lies + result.lies
        crashes, faults = crashes + result.crashes, faults + result.faults
    if is_fixed(seeds):
        assert told
        assert lies
        assert crashes
        assert faults


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seeds", chunks(0, 1, 1, turn=0), ids=named)
def test_the_same_is_told_on_a_server(memory: Templates, postgres_dsn: str, seeds: range) -> None:
    for seed in seeds:
        chaos = Restless(seed)
        checked(watch_prices(memory.postgresql(postgres_dsn), seed, chaos=chaos), seed)
