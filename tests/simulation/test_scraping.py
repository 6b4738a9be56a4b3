"""Whole runs against simulated worlds in virtual time: with faults, crashes, and accounts that cannot be had."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.operations.runs.model import Run, RunStatus
from mistnet.sim.faults import SimFault
from mistnet.sim.people import SimAccountState
from mistnet.sim.service import SimAnswer, XService
from mistnet.sim.world import World
from mistnet.social.jobs import args
from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.simulation.collecting import FewerAccounts, HarvestFleet, settings_for
from tests.simulation.virtual import run_virtually
from tests.simulation.world import Chaos, open_database
from tests.worlds import NOBODY, Oracle, WorldTransport, service_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind

REFUSED = "refused_always"
LIMIT = 30


class Choosy(XService):
    """Answers every question but those about one handle, which it calls wrong."""

    @classmethod
    def of(cls, plain: XService) -> "Choosy":
        plain.__class__ = cls
        assert isinstance(plain, cls)
        return plain

    async def handle(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes = b""
    ) -> SimAnswer:
        if f"from:{REFUSED}" in unquote_plus(query):
            return SimAnswer(status=400, headers={}, body=json.dumps({"detail": "a bad question"}).encode())
        return await super().handle(method, path, query, headers, body)


@dataclass(frozen=True)
class Held:
    """Two runs one after the other, and what the database holds after the first."""

    first: Run
    second: Run
    new: set[int]
    stored: set[int]
    boundaries: list[tuple[Any, ...]]
    events: list[str]
    crashes: int


def run_twice(url: str, seed: int, *, faults: str, chaos: Chaos | None = None, tracked: bool = False) -> Held:
    return run_virtually(_run_twice(url, seed, faults, chaos, tracked=tracked))


async def _run_twice(url: str, seed: int, faults: str, chaos: Chaos | None, *, tracked: bool) -> Held:
    database = open_database(url)
    world = World(seed, "tiny")
    service = Choosy.of(service_of(world, faults=faults))
    if chaos:  # a false end, the true page lost in a crash, and a false end again look like the end
        service.faults.rates.pop(SimFault.EMPTY_CLAIMS_END, None)
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    fleet = HarvestFleet(url, chaos or calm, size=3 if chaos else 1, service=service, concurrency=4)
    try:
        oracle = FewerAccounts(world) if chaos else Oracle(world)
        if tracked:
            await app.enqueue([args.suggestion(handle) for handle in oracle.handles[:2]])
            await _until_idle(app, fleet)
        first = await _one_run(app, fleet, [*oracle.suggested, REFUSED])
        async with database.read() as connection:
            rows = await connection.execute(text("SELECT p.id FROM posts p WHERE NOT p.nested"))
            stored = set(rows.scalars())
            found = await connection.execute(text("SELECT user_id, oldest_post_id, newest_post_id FROM accounts"))
            boundaries = [tuple(row) for row in found]
            of_run = text("SELECT post_id FROM run_posts WHERE run_id = :id")
            new: set[int] = set((await connection.execute(of_run, {"id": first.id})).scalars())
        second = await _one_run(app, fleet, [*oracle.suggested, REFUSED])
        async with database.read() as connection:
            kinds = await connection.execute(text("SELECT kind FROM events ORDER BY id"))
            events = list(kinds.scalars())
    finally:
        await database.close()
    crashes = sum("CRASHES" in line for line in fleet.trace)
    return Held(first, second, new, stored, boundaries, events, crashes)


async def _one_run(app: App, fleet: HarvestFleet, handles: list[str]) -> Run:
    await asyncio.sleep(1)
    run = await app.runs.start(handles, LIMIT, asked_by="a test", now=app.database.clock.now())
    await _until_idle(app, fleet, run)
    found = await app.runs.get(run.id)
    assert found is not None
    return found


async def _until_idle(app: App, fleet: HarvestFleet, run: Run | None = None) -> None:
    async def done() -> bool:
        found = await app.runs.get(run.id) if run else None
        if run and not (found and found.finished):
            return False
        return not await app.upkeep.work_left(list(app.kinds), ["x"], now=app.database.clock.now())

    await fleet.run(until=done, deadline=asyncio.get_running_loop().time() + 12 * 3600)


def expected(oracle: Oracle, handle: str) -> tuple[RunStatus, str | None, list[int]]:
    """How an account must end, why, and which posts it must have counted."""
    if handle == REFUSED:
        return RunStatus.FAILED, "a bad question", []
    truth = oracle.truth.account(handle, oracle.at)
    if handle == NOBODY or truth is None:
        return RunStatus.FAILED, "no account of that name", []
    match truth.state:
        case SimAccountState.PROTECTED:
            return RunStatus.FAILED, "protected", []
        case SimAccountState.SUSPENDED | SimAccountState.GONE:
            return RunStatus.FAILED, "unavailable", []
        case SimAccountState.ACTIVE:
            return RunStatus.COMPLETED, None if truth.search else "no posts", list(truth.search[:LIMIT])


def check(oracle: Oracle, run: Run) -> set[int]:
    """Every account against the truth; returns the posts that were to be had."""
    assert run.status is RunStatus.COMPLETED
    wanted: set[int] = set()
    for account in run.accounts:
        status, why, ids = expected(oracle, account.handle)
        assert account.status is status, account
        assert (account.reason is None) is (why is None), account
        assert why is None or why in (account.reason or ""), account
        assert account.total == len(ids), account
        assert account.new + account.skipped + account.failed == account.total, account
        wanted |= set(ids)
    assert {each.reason for each in run.accounts} >= {None}
    return wanted


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_run_counts_the_truth_and_a_second_one_skips_it_all(
    memory: Templates, request: pytest.FixtureRequest, backend: str
) -> None:
    dsn = "" if backend == "sqlite" else request.getfixturevalue("postgres_dsn")
    held = run_twice(memory.postgresql(dsn) if dsn else memory.sqlite(), 1, faults="none")
    oracle = Oracle(World(1, "tiny"))
    wanted = check(oracle, held.first)
    assert held.new == wanted == held.stored
    assert held.first.result is not None
    assert (held.first.result["new"], held.first.result["skipped"]) == (len(wanted), 0)
    check(oracle, held.second)
    assert held.second.result is not None
    assert (held.second.result["new"], held.second.result["skipped"]) == (0, len(wanted))
    assert held.events == ["run.finished", "run.finished"]
    assert held.boundaries == []


def check_faulty(held: Held, seed: int) -> None:
    """What could not be read is told, and nothing is counted twice."""
    oracle = Oracle(World(seed, "tiny"))
    wanted = check(oracle, held.first)
    assert held.first.result is not None
    assert held.new <= wanted
    assert len(held.new) == held.first.result["new"]
    assert len(wanted) - len(held.new) == held.first.result["failed"]
    check(oracle, held.second)
    assert held.second.result is not None
    assert held.second.result["skipped"] <= len(held.new)
    assert held.second.result["new"] <= held.first.result["failed"], "only what could not be read is new"
    assert held.events == ["run.finished", "run.finished"]


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=1), ids=named)
def test_faults_of_the_source_cost_no_account(memory: Templates, seeds: range) -> None:
    for seed in seeds:
        print(replay(seed))
        check_faulty(run_twice(memory.sqlite(), seed, faults="all"), seed)


def run_in_a_storm(url: str, seed: int) -> Held:
    print(replay(seed))
    held = run_twice(url, seed, faults="all", chaos=Chaos(seed, crash=0.004, freeze=0.004))
    check_faulty(held, seed)
    return held


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=2), ids=named)
def test_crashes_cost_no_account_and_count_nothing_twice(memory: Templates, seeds: range) -> None:
    crashes = sum(run_in_a_storm(memory.sqlite(), seed).crashes for seed in seeds)
    assert crashes or not is_fixed(seeds), "a storm that breaks nothing proves nothing"


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seeds", chunks(1, 0, 1), ids=named)
def test_crashes_count_nothing_twice_on_postgresql(memory: Templates, postgres_dsn: str, seeds: range) -> None:
    for seed in seeds:
        run_in_a_storm(memory.postgresql(postgres_dsn), seed)


def test_a_run_leaves_the_boundaries_of_tracked_accounts_where_they_are(memory: Templates) -> None:
    held = run_twice(memory.sqlite(), 0, faults="none", tracked=True)
    oracle = Oracle(World(0, "tiny"))
    wanted = check(oracle, held.first)
    truths = [oracle.truth.account(handle, oracle.at) for handle in oracle.handles[:2]]
    own = {each.user_id: (min(each.search), max(each.search)) for each in truths if each}
    assert {row[0]: row[1:] for row in held.boundaries} == own
    known = {post_id for each in truths if each for post_id in each.search[:LIMIT]}
    assert held.new <= wanted - known
    skipped = {each.handle: each.skipped for each in held.first.accounts}
    assert all(skipped[each.handle] == len(each.search[:LIMIT]) for each in truths if each)
