"""Posts that cannot be read: one gap each, tried again at growing intervals, closed when the post is stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from mistnet.app import App
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId, X
from tests import schema as tables
from tests.harvests import change, end_badly, open_harvest, post, rows, tell, user
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql


async def jobs(app: App) -> list[tuple[Any, ...]]:
    return await rows(app, "SELECT key, state, max_attempts - attempts FROM jobs ORDER BY key")


async def die(app: App) -> None:
    """Its last attempt fails now."""
    await change(app, "UPDATE jobs SET state = 'dead', attempts = max_attempts")
    await try_now(app)


async def try_now(app: App) -> None:
    async with app.database.transaction() as connection:
        await connection.execute(update(tables.jobs).values(started_at=app.database.clock.now()))


async def test_a_gap_is_tried_once_more_and_later_each_time(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await app.enqueue([args.hydrate_post(PostId(70), UserId(11))])
        tried: list[timedelta] = []
        await die(app)
        for _ in range(8 * 24):
            clock.turn(hours=1)
            if await app.collecting.retry_unreadable():
                assert await jobs(app) == [("70", "pending", 1)]
                tried.append(clock.now() - START)
                await die(app)
        assert [each / timedelta(hours=1) for each in tried] == [1, 2, 4, 8, 16, 32, 64, 128]


async def test_a_gap_is_closed_when_its_post_is_stored_by_any_path(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        wanted = [args.hydrate_post(PostId(each), UserId(11)) for each in (70, 71)]
        await end_badly(app, wanted[0])
        await end_badly(app, wanted[1], state="failed")
        await try_now(app)
        clock.turn(minutes=1)
        assert await app.collecting.retry_unreadable() == 0
        await tell(app, user(11), post(70), post(71))
        assert await app.collecting.retry_unreadable() == 2
        assert [state for _, state, _ in await jobs(app)] == ["pending", "pending"]
        await end_badly(app)  # no other job was added
        assert await app.collecting.retry_unreadable() == 0


async def test_a_sighting_knows_the_gaps(url: str) -> None:
    async with open_harvest(url) as app:
        await end_badly(app, args.hydrate_post(PostId(70), UserId(11)))
        await app.enqueue([args.hydrate_post(PostId(71), UserId(11))])
        assert await app.collecting.look.unreadable_posts(X, [PostId(70), PostId(71), PostId(72)]) == {70}
        assert await app.collecting.look.unreadable_posts(X, []) == set()
