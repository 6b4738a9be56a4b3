"""Segments from nothing: a name, an empty database and a simulated X; what comes of it is the truth of that world."""

import pytest

from mistnet.governor.model import X_SOURCE
from mistnet.graph.segments.model import SegmentName
from mistnet.graph.segments.rules import read_rule
from mistnet.settings import load_settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from tests.databases import make_app
from tests.harvests import rows
from tests.segmented import Workshop
from tests.support import TurnedClock
from tests.worlds import KEY, SMALLEST, WorldTransport, service_of

pytestmark = pytest.mark.common_sql

STEPS = 400


async def test_friends_of_an_unknown_user_are_found_with_one_sync_of_each_side(url: str) -> None:
    world = World(11, SMALLEST)
    truth, clock = Truth(world), TurnedClock(WORLD_START_AT)
    handle = max(truth.accounts(WORLD_START_AT), key=lambda each: len(friends(truth, each)))
    settings = load_settings(database_url=url, x_api_key=KEY, x_rate_per_minute=6_000_000)
    app = make_app(settings, clock=clock, transports={"x": WorldTransport(service_of(world))})
    shop = Workshop(app, clock)
    rules = {
        "fans": {"kind": "followers", "subject": f"@{handle}"},
        "friends": {"kind": "mutuals", "subject": f"@{handle}"},
        "idols": {"kind": "unreciprocated_followed", "subject": f"@{handle}"},
    }
    async with app.sources[X_SOURCE].opened():
        for name, rule in rules.items():
            await app.segments.define(SegmentName(name), read_rule(name, rule))
            await shop.ask(name)
        for _ in range(STEPS):
            if await shop.step("segments", "x") is None:
                break
    assert await shop.members("fans") == set(truth.followers(handle, WORLD_START_AT))
    assert await shop.members("friends") == friends(truth, handle) != set()
    assert await shop.members("idols") == set(truth.followings(handle, WORLD_START_AT)) - friends(truth, handle)
    syncs = "SELECT kind, count(*) FROM ingest_events WHERE kind LIKE 'follow%' GROUP BY kind ORDER BY kind"
    assert await rows(app, syncs) == [("followers_sync", 1), ("followings_sync", 1)]
    shells = "SELECT count(*) FROM users WHERE last_updated_at IS NULL OR handle IS NULL"
    assert await rows(app, shells) == [(0,)]
    await app.database.close()


def friends(truth: Truth, handle: str) -> set[int]:
    return {*truth.followers(handle, WORLD_START_AT)} & {*truth.followings(handle, WORLD_START_AT)}
