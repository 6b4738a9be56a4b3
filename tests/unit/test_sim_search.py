"""Search and lists: paging reaches exactly what the truth says is there."""

from datetime import timedelta

import pytest

from mistnet.sim.clock import SimClock, time_of
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from tests.simulated import SimVisitor

KEY = Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=10**9)


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "tiny")


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def visitor(world: World, clock: SimClock) -> SimVisitor:
    return SimVisitor(XService(world, clock.now, keys=[KEY]))


@pytest.fixture
def truth(world: World) -> Truth:
    return Truth(world)


def ids(page: dict[str, list[dict[str, str]]]) -> list[int]:
    return [int(post["id"]) for post in page["tweets"]]


async def by_ceiling(visitor: SimVisitor, query: str) -> list[int]:
    found: list[int] = []
    while page := ids(await visitor.search(f"{query} max_id:{found[-1] - 1}" if found else query)):
        assert len(page) <= 20
        found += page
    return found


async def by_cursor(visitor: SimVisitor, path: str, key: str, **params: object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    cursor = ""
    while True:
        page = await visitor.get(path, cursor=cursor, **params)
        found += page[key]
        cursor = page["next_cursor"]
        if not page["has_next_page"]:
            return found


async def test_paging_by_ceiling_and_by_cursor_covers_exactly_the_truth(
    visitor: SimVisitor, truth: Truth, clock: SimClock
) -> None:
    handles = truth.accounts(clock.now())
    assert len(handles) >= 6
    for handle in handles:
        expected = truth.search_ids(handle, clock.now())
        assert await by_ceiling(visitor, f"from:{handle}") == expected
        listed = await by_cursor(visitor, "/twitter/tweet/advanced_search", "tweets", query=f"from:{handle}")
        assert [int(post["id"]) for post in listed] == expected


async def test_native_retweets_come_only_in_the_second_pass(
    visitor: SimVisitor, world: World, truth: Truth, clock: SimClock
) -> None:
    handle = truth.accounts(clock.now())[0]
    posts, retweets = truth.search_ids(handle, clock.now()), truth.retweet_ids(handle, clock.now())
    assert retweets
    assert await by_ceiling(visitor, f"from:{handle} filter:nativeretweets") == retweets
    assert not set(posts) & set(retweets)
    page = await visitor.search(f"from:{handle} filter:nativeretweets")
    for post in page["tweets"]:
        original = post["retweeted_tweet"]
        author = world.person(int(original["author"]["id"]))
        assert author is not None
        assert post["text"].partition(": ")[0] == f"RT @{author.handle_at(time_of(int(post['id'])))}"
        assert len(post["text"]) <= 140
        assert post["likeCount"] == original["likeCount"]


async def test_the_ceiling_is_inclusive_and_the_floor_is_not(
    visitor: SimVisitor, truth: Truth, clock: SimClock
) -> None:
    handle = truth.accounts(clock.now())[0]
    known = truth.search_ids(handle, clock.now())
    assert ids(await visitor.search(f"from:{handle} max_id:{known[5]}"))[0] == known[5]
    assert ids(await visitor.search(f"from:{handle} since_id:{known[5]}")) == known[:5]
    assert ids(await visitor.search(f"from:{handle} since_id:{known[9]} max_id:{known[3]}")) == known[3:9]


async def test_an_unknown_protected_or_suspended_author_gives_an_empty_page(visitor: SimVisitor, world: World) -> None:
    for handle in ("nobody_at_all", world.stars[4].handle_at(0), world.stars[6].handle_at(0)):
        page = await visitor.search(f"from:{handle}")
        assert page == {"tweets": [], "has_next_page": False, "next_cursor": ""}


async def test_hidden_posts_are_had_by_id_and_by_nothing_else(
    visitor: SimVisitor, truth: Truth, clock: SimClock
) -> None:
    handle = truth.accounts(clock.now())[0]
    hidden = truth.hidden_ids(handle, clock.now())
    assert hidden
    for query in (f"from:{handle}", f"from:{handle} filter:nativeretweets"):
        assert not set(hidden) & set(await by_ceiling(visitor, query))
    page = await visitor.get("/twitter/tweets", tweet_ids=",".join(map(str, hidden[:50])))
    assert ids(page) == hidden[:50]


async def test_an_account_too_new_for_search_is_had_by_id_alone(
    visitor: SimVisitor, world: World, truth: Truth, clock: SimClock
) -> None:
    new = world.stars[7]
    assert truth.search_ids(new.handle_at(0), clock.now()) == []
    hidden = truth.hidden_ids(new.handle_at(0), clock.now())
    assert hidden
    assert ids(await visitor.get("/twitter/tweets", tweet_ids=hidden[0])) == [hidden[0]]


async def test_search_goes_by_the_handle_of_the_hour(
    visitor: SimVisitor, world: World, truth: Truth, clock: SimClock
) -> None:
    (_, old), (_, new) = world.stars[1].handles
    assert ids(await visitor.search(f"from:{old}"))
    assert not ids(await visitor.search(f"from:{new}"))
    clock.advance(timedelta(days=4))
    assert not ids(await visitor.search(f"from:{old}"))
    page = await visitor.search(f"from:{new.upper()}")
    assert {post["author"]["userName"] for post in page["tweets"]} == {new}
    assert {post["author"]["id"] for post in page["tweets"]} == {str(world.stars[1].id)}


async def test_a_suspension_takes_everything_away(
    visitor: SimVisitor, world: World, truth: Truth, clock: SimClock
) -> None:
    star = world.stars[5]
    handle = star.handle_at(0)
    known = truth.search_ids(handle, clock.now())
    assert known
    clock.advance(timedelta(days=11))
    assert truth.search_ids(handle, clock.now()) == []
    assert not ids(await visitor.search(f"from:{handle}"))
    page = await visitor.get("/twitter/tweets", tweet_ids=",".join(map(str, known[:20])))
    assert not [post for post in page["tweets"] if post["id"]]


@pytest.mark.parametrize("side", ["followers", "followings"])
async def test_follow_lists_page_through_the_graph_newest_first(
    side: str, visitor: SimVisitor, world: World, truth: Truth, clock: SimClock
) -> None:
    handle = world.stars[0].handle_at(0)
    listed = await by_cursor(visitor, f"/twitter/user/{side}", side, userName=handle, pageSize=20)
    expected = truth.followers(handle, clock.now()) if side == "followers" else truth.followings(handle, clock.now())
    assert [int(user["id"]) for user in listed] == expected
    assert expected


async def test_looking_up_gone_posts_gives_nothing_or_an_empty_shell(
    visitor: SimVisitor, world: World, truth: Truth
) -> None:
    gone = [world.stories.ghost_leaf - 1, world.stories.ghost_leaf - 9, 8, 9]
    page = await visitor.get("/twitter/tweets", tweet_ids=",".join(map(str, gone)))
    assert page["tweets"]
    assert not any(post["id"] for post in page["tweets"])


async def test_batches_leave_out_users_who_never_existed(
    visitor: SimVisitor, world: World, truth: Truth, clock: SimClock
) -> None:
    ghost = truth.parent_of(world.stories.ghost_leaf)
    assert ghost is not None
    asked = [person.id for person in world.people] + [ghost.user_id]
    page = await visitor.get("/twitter/user/batch_info_by_ids", userIds=",".join(map(str, asked)))
    shown = {int(user["id"]) for user in page["users"] if not user.get("unavailable")}
    marked = {int(user["id"]) for user in page["users"] if user.get("unavailable")}
    assert shown == truth.hydratable(asked, clock.now())
    assert marked == truth.unavailable(asked, clock.now())
    assert ghost.user_id not in shown | marked
