"""Posts syncs in virtual time, with all faults while machines crash: everything since a post, and nothing in vain."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.kit.database import Database
from mistnet.sim.world import World
from mistnet.social.jobs.posts_sync import posts_sync
from mistnet.social.model import PostId, UserId
from tests.databases import Templates
from tests.seeds import chunks, named, replay
from tests.simulation.collecting import HarvestFleet, settings_for
from tests.simulation.virtual import run_virtually
from tests.simulation.world import Chaos, open_database
from tests.worlds import SMALLEST, Oracle, WorldTransport, service_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the dead leave connections behind


async def synced(url: str, seed: int) -> list[str]:
    """What is not as it should be, in words."""
    database = open_database(url)
    world = World(seed, SMALLEST)
    service, oracle = service_of(world, faults="all"), Oracle(world)
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    found = [oracle.truth.account(handle, oracle.at) for handle in oracle.handles]
    targets = [each for each in found if each is not None]
    posts = sorted(each for target in targets for each in target.search)
    floor = posts[len(posts) // 2]
    try:
        await app.enqueue([posts_sync([UserId(target.user_id) for target in targets], PostId(floor))])

        async def done() -> bool:
            return not await app.upkeep.work_left(list(app.kinds), ["x"], now=database.clock.now())

        fleet = HarvestFleet(url, Chaos(seed, crash=0.003, freeze=0.003), size=2, service=service)
        await fleet.run(until=done, deadline=asyncio.get_running_loop().time() + 12 * 3600)
        return await compared(database, {each for each in posts if each > floor})
    finally:
        await database.close()


async def compared(database: Database, wanted: set[int]) -> list[str]:
    async with database.read() as connection:

        async def rows(sql: str) -> list[Any]:
            return list((await connection.execute(text(sql))).all())

        stored = {row.id for row in await rows("SELECT id FROM posts")}
        events = await rows("SELECT status, items, problem FROM ingest_events WHERE kind = 'posts_sync'")
        shells = await rows("SELECT id FROM users WHERE handle IS NULL AND unavailable_reason IS NULL")
    problems = [f"{len(wanted - stored)} posts are missing"] if wanted - stored else []
    problems += [] if [event.status for event in events] == ["success"] else [f"its events are {events}"]
    return [*problems, *(f"user {row.id} is a shell" for row in shells)]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize("seeds", chunks(2, 2, 2, turn=0), ids=named)
def test_a_sync_brings_everything_whatever_happens_on_the_way(
    memory: Templates, request: pytest.FixtureRequest, seeds: range, backend: str
) -> None:
    dsn = "" if backend == "sqlite" else request.getfixturevalue("postgres_dsn")
    for seed in seeds if backend == "sqlite" else seeds[:1]:
        url = memory.postgresql(dsn) if dsn else memory.sqlite()
        assert run_virtually(synced(url, seed)) == [], f"world {seed}; {replay(seed)}"
