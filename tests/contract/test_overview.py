"""What was collected in all, and what came last, on every database."""

from datetime import timedelta
from typing import Any

import pytest

from mistnet.operations.overview import Arrival, DashboardStore, Totals
from mistnet.social.accounts import AccountTracked, Missing
from mistnet.social.model import Detail, Post, PostId, Reference, User, UserId, X
from mistnet.social.store.accounts import write_tracked
from mistnet.social.store.posts import write_missing, write_posts, write_users
from tests.databases import open_database
from tests.support import START

pytestmark = pytest.mark.common_sql

ANN, BEA = UserId(1), UserId(2)


def user(user_id: UserId, handle: str) -> User:
    return User(platform=X, id=user_id, detail=Detail.PROFILE, handle=handle, raw=b"{}")


def post(post_id: int, author_id: UserId, **about: Any) -> Post:
    return Post(
        platform=X,
        id=PostId(post_id),
        author_id=author_id,
        text=f"post {post_id}",
        created_at=START - timedelta(days=post_id),
        raw=b"{}",
        **about,
    )


def gone(what: str, own: int) -> Missing:
    return Missing(platform=X, what=what, id=own, reason="deleted")


async def test_totals_count_everything_and_arrivals_begin_with_what_came_last(url: str) -> None:
    database = open_database(url)
    overview = DashboardStore(database)
    try:
        nothing = Totals(posts=0, native_retweets=0, users=0, gone_posts=0, gone_users=0, products=0)
        assert (await overview.totals(), list(await overview.arrivals(9))) == (nothing, [])

        async with database.transaction() as connection:
            await write_users(connection, [user(ANN, "ann"), user(BEA, "bea")], START)
            await write_tracked(connection, [AccountTracked(platform=X, user_id=ANN)], START)
            repeated = post(30, ANN, reposted=Reference(id=PostId(20)))
            await write_posts(connection, [post(10, ANN), repeated], START)
            await write_posts(connection, [post(20, BEA)], START + timedelta(seconds=1))
            await write_missing(connection, [gone("post", 1), gone("post", 2), gone("user", 1)], START)

        assert await overview.totals() == Totals(
            posts=3, native_retweets=1, users=2, gone_posts=2, gone_users=1, products=0
        )
        arrived = await overview.arrivals(2)
        assert [(each.id, each.handle, each.tracked) for each in arrived] == [(20, "bea", False), (10, "ann", True)]
        assert arrived[0] == Arrival(
            id=PostId(20), handle="bea", tracked=False, text="post 20", created_at=START - timedelta(days=20)
        )
    finally:
        await database.close()
