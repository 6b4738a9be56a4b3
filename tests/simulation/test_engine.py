"""The engine under a seeded storm: crashes at any statement, commit or await, freezes beyond the lease."""

from collections.abc import Callable, Iterator

import pytest

from mistnet.kit import statements
from mistnet.kit.errors import WriteRefused
from mistnet.kit.outage import Outage
from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.oracle import Result, endure, simulate

MUTANT_SECONDS = 1800
"""A sound fleet is done after 500 virtual seconds; one that never would be is not watched for hours."""

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


def survive(url: str, seed: int) -> Result:
    result = simulate(url, seed)
    if result.faults:
        print(*result.trace[-40:], sep="\n")
    assert result.faults == [], f"seed {seed} failed; {replay(seed)}"
    return result


@pytest.mark.parametrize("seeds", chunks(6, 3, 3, turn=1), ids=named)
def test_nothing_is_lost_or_done_twice_on_sqlite(memory: Templates, seeds: range) -> None:
    crashes = sum(survive(memory.sqlite(), seed).crashes for seed in seeds)
    if is_fixed(seeds):
        assert crashes >= 5 * len(seeds), "a storm that breaks nothing proves nothing"


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=1), ids=named)
def test_nothing_is_lost_or_done_twice_on_postgresql(memory: Templates, postgres_dsn: str, seeds: range) -> None:
    crashes = sum(survive(memory.postgresql(postgres_dsn), seed).crashes for seed in seeds)
    if is_fixed(seeds):
        assert crashes >= 5 * len(seeds), "a storm that breaks nothing proves nothing"


@pytest.mark.parametrize("seeds", chunks(3, 2, 5), ids=named)
def test_a_database_that_fails_for_longer_than_a_lease_costs_no_attempt_and_ends_no_worker(
    memory: Templates, seeds: range
) -> None:
    for seed in seeds:
        outlive(memory.sqlite(), seed, fixed=is_fixed(seeds))


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=0), ids=named)
def test_a_server_that_fails_costs_no_attempt_and_ends_no_worker(
    memory: Templates, postgres_dsn: str, seeds: range
) -> None:
    for seed in seeds:
        outlive(memory.postgresql(postgres_dsn), seed, fixed=is_fixed(seeds))


def outlive(url: str, seed: int, *, fixed: bool) -> None:
    result = endure(url, seed)
    if result.faults:
        print(*result.trace[-40:], sep="\n")
    assert result.faults == [], f"seed {seed} failed; {replay(seed)}"
    # Seeds that change with the commit may have a mild life.
    assert result.crashes > (10 if fixed else 0), "a database that is never ill proves nothing"


def test_without_mercy_after_an_outage_the_oracle_sees_attempts_spent(
    memory: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outage, "lost_before", lambda _outage, now: now)
    faults = next(filter(None, (endure(memory.sqlite(), seed).faults for seed in range(10))), [])
    assert any("the lease ran out" in fault for fault in faults)


def test_a_seed_gives_the_same_life_twice(memory: Templates) -> None:
    first, second = simulate(memory.sqlite(), 7), simulate(memory.sqlite(), 7)
    assert first.trace == second.trace
    assert simulate(memory.sqlite(), 8).trace != first.trace


def mutate(monkeypatch: pytest.MonkeyPatch, changes: dict[str, list[tuple[str, str]]]) -> None:
    """Rewrites statements for one test; a change that does not apply is an error of the test."""
    read = statements._read

    def mutated(name: str, dialect: str) -> str:
        sql = read(name, dialect)
        for old, changed in changes.get(name, []):
            assert old in sql, f"{name} for {dialect} has no {old}"
            sql = sql.replace(old, changed)
        return sql

    monkeypatch.setattr(statements, "_read", mutated)
    statements.load.cache_clear()


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    statements.load.cache_clear()


def first_fault(make_url: Callable[[], str], *, known: int, named: str = "") -> list[str]:
    """What the oracle sees of a mutant: with a seed that is known to show it, else with any other."""
    for seed in (known, *range(40)):
        try:
            faults = simulate(make_url(), seed, deadline=MUTANT_SECONDS).faults
        except WriteRefused:
            continue  # the database's own rules saw this mutant; the oracle is to see it, too
        if any(named in each for each in faults):
            print(f"seed {seed} shows it")
            return faults
    return []


def test_without_the_fence_the_oracle_sees_it(memory: Templates, mutants: pytest.MonkeyPatch) -> None:
    trusting = [(" AND j.fence = held.fence", ""), ("SELECT j.id, j.fence", "SELECT j.id, held.fence")]
    mutate(mutants, {"still_held": trusting, "put_back": [(" AND jobs.fence = next.fence", "")]})
    faults = first_fault(memory.sqlite, known=1)
    assert faults


def test_without_the_fence_the_oracle_sees_it_on_postgresql(
    memory: Templates, postgres_dsn: str, mutants: pytest.MonkeyPatch
) -> None:
    finish = [(" AND jobs.fence = held.fence", ""), ("jobs.attempts, jobs.fence", "jobs.attempts, held.fence")]
    put_back = [
        (" AND jobs.fence = next.fence", ""),
        ("RETURNING jobs.id, jobs.fence", "RETURNING jobs.id, next.fence"),
    ]
    mutate(mutants, {"finish": finish, "put_back": put_back})
    faults = first_fault(lambda: memory.postgresql(postgres_dsn), known=1)
    assert faults


def test_without_skip_locked_the_oracle_sees_a_stolen_lease(
    memory: Templates, postgres_dsn: str, mutants: pytest.MonkeyPatch
) -> None:
    mutate(mutants, {"claim": [("FOR UPDATE SKIP LOCKED", "")]})
    assert first_fault(lambda: memory.postgresql(postgres_dsn), known=0, named="STOLEN")


@pytest.mark.parametrize("statement", ["claim_expired", "reclaim"])
def test_without_the_attempt_count_the_oracle_sees_it(
    memory: Templates, mutants: pytest.MonkeyPatch, statement: str
) -> None:
    mutate(mutants, {statement: [("attempts = attempts + 1,", "attempts = attempts,")]})
    faults = first_fault(memory.sqlite, known=0)
    assert faults
