"""Segments worked out by machines that crash and freeze, from a source that errs: what is known, or nothing and why."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.graph.segments.rules import read_rule
from mistnet.kit.errors import MistnetError
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from tests.databases import Templates
from tests.seeds import chunks, is_fixed, named, replay
from tests.segmented import members_after
from tests.simulation.collecting import HarvestFleet, settings_for
from tests.simulation.virtual import run_virtually
from tests.simulation.world import Chaos, open_database
from tests.worlds import SMALLEST, WorldTransport, service_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


@dataclass
class Segmented:
    """What came of it: what is wrong, and enough to know that something was tested at all."""

    wrong: list[str] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    crashes: int = 0


def segment(url: str, seed: int, *, faults: str, storm: bool) -> Segmented:
    return run_virtually(_segment(url, seed, faults, storm=storm))


async def _segment(url: str, seed: int, faults: str, *, storm: bool) -> Segmented:
    database = open_database(url)
    world = World(seed, SMALLEST)
    truth = Truth(world)
    one, other = truth.accounts(WORLD_START_AT)[:2]
    service = service_of(world)
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    chaos = Chaos(seed, crash=0.02, freeze=0.02) if storm else calm
    fleet = HarvestFleet(url, chaos, size=3 if storm else 1, service=service, concurrency=4)
    result = Segmented()
    try:
        await _define(app, one, other)
        service.faults = service_of(world, faults=faults).faults
        for _ in range(2):
            await _work_out(app, fleet)
        expected = _expected(truth, one, other) if faults == "none" else await _known(app, world, one, other)
        await _compare(app, expected, result)
    finally:
        await database.close()
    result.crashes = sum("CRASHES" in line for line in fleet.trace)
    return result


async def _define(app: App, one: str, other: str) -> None:
    rules: dict[str, dict[str, Any]] = {
        "fans": {"kind": "followers", "subject": f"@{one}"},
        "friends": {"kind": "mutuals", "subject": f"@{one}"},
        "idols": {"kind": "followed", "subject": f"@{other}"},
        "all": {"kind": "union", "of": ["friends", "idols"]},
        "rest": {"kind": "difference", "of": ["fans", "all"]},
    }
    for name, rule in rules.items():
        await app.segments.define(name, read_rule(name, rule))


def _expected(truth: Truth, one: str, other: str) -> dict[str, set[int]]:
    """By the truth of the world."""
    fans = set(truth.followers(one, WORLD_START_AT))
    return _sets(fans, set(truth.followings(one, WORLD_START_AT)), set(truth.followings(other, WORLD_START_AT)))


async def _known(app: App, world: World, one: str, other: str) -> dict[str, set[int]]:
    """By the edges that are stored: of a list that errs, a few may be lacking."""
    async with app.database.read() as connection:
        people = await connection.execute(text("SELECT id, handle FROM users"))
        ids = {str(row.handle).lower(): row.id for row in people}
        rows = await connection.execute(text("SELECT follower_id, followed_id FROM follows WHERE ended_at IS NULL"))
        edges = {(row.follower_id, row.followed_id) for row in rows}
    subject, another = ids[one.lower()], ids[other.lower()]
    assert {person.id for person in world.people} >= {each for edge in edges for each in edge}
    fans = {follower for follower, followed in edges if followed == subject}
    followed = {followed for follower, followed in edges if follower == subject}
    return _sets(fans, followed, {followed for follower, followed in edges if follower == another})


def _sets(fans: set[int], followed: set[int], idols: set[int]) -> dict[str, set[int]]:
    friends = fans & followed
    return {"fans": fans, "friends": friends, "idols": idols, "all": friends | idols, "rest": fans - friends - idols}


async def _work_out(app: App, fleet: HarvestFleet) -> None:
    await asyncio.sleep(1)
    for name in ("rest", "fans", "friends", "all", "idols"):
        await app.segments.materialize(name, asked_by="a test", job_writer=app.job_writer)

    async def done() -> bool:
        lanes = ["segments", "x"]
        try:
            return not await app.upkeep.work_left(list(app.kinds), lanes, now=app.database.clock.now())
        except MistnetError:
            return False

    await fleet.run(until=done, deadline=asyncio.get_running_loop().time() + 12 * 3600)


async def _events(app: App, segment_id: int) -> list[tuple[str, int]]:
    """All of them, those of the first time too, which no command shows as changes."""
    asked = text("SELECT kind, user_id FROM segment_events WHERE segment_id = :own ORDER BY id")
    async with app.database.read() as connection:
        return [(row.kind, int(row.user_id or 0)) for row in await connection.execute(asked, {"own": segment_id})]


async def _compare(app: App, expected: dict[str, set[int]], result: Segmented) -> None:
    async with app.database.read() as connection:
        gaps = await connection.execute(text("SELECT key, state, last_error FROM jobs WHERE kind = 'materialize'"))
        failed = {int(row.key): str(row.last_error) for row in gaps}
    for name, members in expected.items():
        own = await app.segments.store.get(name)
        found = {int(each.user_id or 0) for each in (await app.segments.store.members(name, limit=10_000)).items}
        if members_after(await _events(app, own.id)) != found:
            result.wrong.append(f"{name}: its events do not lead to its members")
        if own.materialized_at is not None:
            result.done += 1
            result.wrong += [f"{name}: {found ^ members}"] if found != members else []
        else:
            result.failed += 1
            told = failed.get(own.id, "")
            result.wrong += [f"{name}: {told!r}"] if found or "could not be synced" not in told else []


@pytest.mark.parametrize("seeds", chunks(1, 1, 1, turn=0), ids=named)
@pytest.mark.parametrize("faults", ["none", "all"])
def test_a_segment_is_what_is_known_or_nothing_with_a_reason(memory: Templates, seeds: range, faults: str) -> None:
    crashes = done = 0
    for seed in seeds:
        result = segment(memory.sqlite(), seed, faults=faults, storm=True)
        assert result.wrong == [], replay(seed)
        assert faults != "none" or result.failed == 0, replay(seed)
        crashes, done = crashes + result.crashes, done + result.done
    if is_fixed(seeds):
        assert done, "nothing was worked out"
        assert crashes >= len(seeds), "a storm that breaks nothing proves nothing"


def test_a_storm_on_a_server(memory: Templates, postgres_dsn: str) -> None:
    result = segment(memory.postgresql(postgres_dsn), 1, faults="none", storm=True)
    assert (result.wrong, result.failed) == ([], 0)
