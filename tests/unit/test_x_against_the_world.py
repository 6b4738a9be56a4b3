"""Our client against the simulated source: two readings of the same protocol that share no code."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.faults import Faults
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.model import Page, PostId, UserId
from mistnet.sources.x.client import XClient
from tests.support import OpenGate, TurnedClock
from tests.worlds import WorldTransport

NOW = WORLD_START_AT + timedelta(days=3)


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "tiny")


def asking(world: World, faults: Faults | None = None) -> XClient:
    key = Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=10**9)
    service = XService(world, lambda: NOW, keys=[key], faults=faults)
    return XClient(WorldTransport(service), gate=OpenGate("sim-key"), clock=TurnedClock(NOW))


def handles(world: World) -> Iterator[str]:
    yield from Truth(world).accounts(NOW)


async def swept(client: XClient, query: str) -> list[PostId]:
    """Walks backward by max_id, which is inclusive, until two looks agree that there is no more."""
    found: dict[PostId, None] = {}
    ceiling, empty = "", 0
    while empty < 2:
        page: Page = await client.search(f"{query}{ceiling}")
        assert page.gathered.unreadable == []
        if page.own:
            found |= dict.fromkeys(page.own)
            ceiling, empty = f" max_id:{min(page.own) - 1}", 0
        else:
            empty += 1
    return list(found)


async def test_a_walk_by_max_id_finds_exactly_what_search_would_ever_return(world: World) -> None:
    truth, client = Truth(world), asking(world)
    accounts = list(handles(world))
    assert len(accounts) >= 3
    for handle in accounts:
        assert await swept(client, f"from:{handle}") == truth.search_ids(handle, NOW), handle


async def test_the_second_pass_finds_the_native_retweets(world: World) -> None:
    truth, client = Truth(world), asking(world)
    found = 0
    for handle in handles(world):
        retweets = await swept(client, f"from:{handle} filter:nativeretweets")
        assert retweets == truth.retweet_ids(handle, NOW), handle
        found += len(retweets)
    assert found


async def test_profiles_and_posts_come_by_id_as_far_as_they_exist(world: World) -> None:
    truth, client = Truth(world), asking(world)
    handle = next(handles(world))
    user = await client.user(handle.upper())
    assert user
    assert user.handle == handle
    known = await client.users([user.id, UserId(1)])
    assert list(known.users) == [user.id]
    ids = [PostId(each) for each in truth.search_ids(handle, NOW)[:30]]
    posts = await client.posts([*ids, PostId(1)])
    assert set(ids) <= set(posts.posts)
    assert PostId(1) not in posts.posts
    assert await client.user("nobody_has_this") is None


async def test_followers_come_page_by_page_newest_first(world: World) -> None:
    truth, client = Truth(world), asking(world)
    handle = max(handles(world), key=lambda each: len(truth.followers(each, NOW)))
    found: list[UserId] = []
    cursor = None
    while True:
        page = await client.followers(handle, size=20, cursor=cursor)
        found += page.own
        if not page.has_more:
            break
        cursor = page.cursor
    assert found == truth.followers(handle, NOW)
