"""Money and limits: what each call costs, what a key may do, and the least a backfill can cost."""

from datetime import timedelta
from typing import Any

import pytest

from mistnet.sim.clock import SimClock
from mistnet.sim.endpoints import follow_list_price, posts_price, profiles_price
from mistnet.sim.faults import Faults, SimFault
from mistnet.sim.people import WorldSize
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.truth import Cost, Truth, least_credits, lookup_cost, profiles_cost, sweep_cost
from mistnet.sim.world import World
from tests.simulated import SimVisitor

CREDITS = 1_000_000
WORLD = World(7, "tiny")
HANDLE = WORLD.stars[0].handle_at(0)


def service_for(key: Key, clock: SimClock, **more: object) -> XService:
    return XService(WORLD, clock.now, keys=[key], **more)  # type: ignore[arg-type]  # keywords of XService


def paid() -> Key:
    return Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=CREDITS)


def spent(service: XService) -> int:
    return CREDITS - service.ledger.balances["sim-key"].left


def test_prices_step_with_the_fill_of_a_page() -> None:
    assert [posts_price(posts) for posts in (0, 1, 20)] == [15, 15, 300]
    assert [profiles_price(users, users) for users in (0, 1, 99, 100, 150)] == [15, 18, 1782, 100, 150]
    assert [follow_list_price(users) for users in (0, 4, 20, 99, 100, 199, 200)] == [15, 15, 60, 297, 200, 398, 200]


@pytest.mark.parametrize(
    ("path", "params", "price"),
    [
        ("/twitter/tweet/advanced_search", {"query": f"from:{HANDLE}"}, 300),
        ("/twitter/tweet/advanced_search", {"query": "from:nobody_here"}, 15),
        ("/twitter/user/info", {"userName": HANDLE}, 18),
        ("/twitter/user/info", {"userName": "nobody_here"}, 15),
        ("/twitter/tweets", {"tweet_ids": "1,2,3"}, 15),
        ("/twitter/user/batch_info_by_ids", {"userIds": f"{WORLD.stars[0].id},{WORLD.stars[1].id},5"}, 36),
        ("/oapi/my/info", {}, 0),
    ],
)
async def test_each_call_costs_what_the_price_list_says(path: str, params: dict[str, object], price: int) -> None:
    service = service_for(paid(), SimClock())
    await SimVisitor(service).get(path, **params)
    assert spent(service) == price == service.stats.credits["sim-key"]


async def test_a_hundred_profiles_at_once_cost_less_than_six_alone() -> None:
    world = World(7, WorldSize(users=160, stars=10, posts=400))
    shown = [person.id for person in world.people if person.shown_at(0)]
    service = XService(world, SimClock().now, keys=[paid()])
    await SimVisitor(service).get("/twitter/user/batch_info_by_ids", userIds=",".join(map(str, shown[:100])))
    assert spent(service) == 100
    await SimVisitor(service).get("/twitter/user/batch_info_by_ids", userIds=",".join(map(str, shown[:6])))
    assert spent(service) == 100 + 6 * 18


async def test_the_balance_follows_a_minute_behind() -> None:
    clock = SimClock()
    key = Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=1000, bonus_credits=100)
    service = service_for(key, clock)
    visitor = SimVisitor(service)
    await visitor.search(f"from:{HANDLE}")
    assert await visitor.get("/oapi/my/info") == {"recharge_credits": 1000, "total_bonus_credits": 100}
    clock.advance(timedelta(seconds=19))
    assert await visitor.get("/oapi/my/info") == {"recharge_credits": 1000, "total_bonus_credits": 100}
    clock.advance(timedelta(seconds=41))
    assert await visitor.get("/oapi/my/info") == {"recharge_credits": 800, "total_bonus_credits": 0}


async def test_a_spent_key_is_refused_at_once_and_works_again_when_recharged() -> None:
    service = service_for(Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=20), SimClock())
    visitor = SimVisitor(service)
    assert (await visitor.ask("/twitter/user/info", userName=HANDLE)).status == 200
    refused = await visitor.ask("/twitter/user/info", userName=HANDLE)
    assert refused.status == 402
    assert b"Credits is not enough.Please recharge" in refused.body
    assert (await visitor.ask("/oapi/my/info")).status == 200
    service.ledger.grant("sim-key", 500)
    assert (await visitor.get("/oapi/my/info"))["recharge_credits"] == 500
    assert (await visitor.ask("/twitter/user/info", userName=HANDLE)).status == 200


async def test_a_free_key_may_ask_once_in_five_seconds_for_anything() -> None:
    clock = SimClock()
    visitor = SimVisitor(service_for(Key(name="sim-key", tier=Tier.FREE, bonus_credits=10_000), clock))
    assert (await visitor.ask("/oapi/my/info")).status == 200
    clock.advance(timedelta(seconds=4.9))
    refused = await visitor.ask("/twitter/user/info", userName=HANDLE)
    assert refused.status == 429
    assert "retry-after" not in refused.headers
    clock.advance(timedelta(seconds=0.1))
    assert (await visitor.ask("/twitter/user/info", userName=HANDLE)).status == 200


async def test_a_paid_key_may_ask_twenty_times_a_second() -> None:
    clock = SimClock()
    visitor = SimVisitor(service_for(Key(name="sim-key", recharge_credits=CREDITS), clock))
    statuses = [(await visitor.ask("/twitter/user/info", userName=HANDLE)).status for _ in range(21)]
    assert statuses == [200] * 20 + [429]
    clock.advance(timedelta(seconds=1))
    assert (await visitor.ask("/twitter/user/info", userName=HANDLE)).status == 200


@pytest.mark.parametrize(("bill_failures", "price"), [(False, 0), (True, 15)])
async def test_failures_are_free_unless_told_otherwise(bill_failures: bool, price: int) -> None:
    faults = Faults(1, {SimFault.SERVER_ERROR: 1.0})
    service = service_for(paid(), SimClock(), faults=faults, bill_failures=bill_failures)
    assert (await SimVisitor(service).ask("/twitter/user/info", userName=HANDLE)).status >= 500
    assert spent(service) == price
    assert (await SimVisitor(service).ask("/twitter/nowhere")).status == 404
    assert spent(service) == 2 * price


def test_the_least_cost_counts_full_pages_a_confirming_look_and_full_batches() -> None:
    assert sweep_cost(0) == Cost(calls=2, credits=30)
    assert sweep_cost(41) == Cost(calls=4, credits=41 * 15 + 15)
    assert lookup_cost(41) == Cost(calls=3, credits=41 * 15)
    assert lookup_cost(1, gone=40) == Cost(calls=3, credits=3 * 15)
    assert [profiles_cost(users).credits for users in (0, 1, 5, 6, 100, 101, 250)] == [0, 18, 90, 100, 100, 118, 300]


def test_unknown_users_are_not_charged_and_help_to_fill_a_batch() -> None:
    assert profiles_cost(0, unknown=7) == Cost(calls=1, credits=15)
    assert profiles_cost(30, unknown=90) == Cost(calls=2, credits=30 + 15)
    assert profiles_cost(30, unknown=40) == Cost(calls=1, credits=30 + 30)
    assert profiles_cost(3, unknown=40) == Cost(calls=1, credits=3 * 18)


async def test_a_perfect_backfill_costs_exactly_the_least() -> None:
    clock = SimClock()
    service = service_for(paid(), clock)
    visitor, truth = SimVisitor(service), Truth(WORLD)
    handles = truth.accounts(clock.now())[:3]
    swept: list[Any] = []
    for handle in handles:
        await visitor.get("/twitter/user/info", userName=handle)
        swept += await perfect_sweep(visitor, handle)
    shown = [*swept, *(post["quoted_tweet"] for post in swept if post["quoted_tweet"])]
    chains = [truth.chain(int(post["id"]), clock.now()) for post in swept]
    lacking = {each for chain in chains for each in chain.ancestors} - {int(post["id"]) for post in shown}
    gone = {chain.end_id for chain in chains if chain.end != "root"}
    assert lacking
    assert gone
    ancestors = await perfect_lookup(visitor, sorted(lacking), sorted(gone))
    authors = {post["author"]["id"] for post in [*shown, *ancestors]}
    ends = [truth.parent_of(chain.ancestors[-1]) for chain in chains if chain.ancestors and chain.end != "root"]
    spoken_to = {post["inReplyToUserId"] for post in swept} | {str(end.user_id) for end in ends if end}
    strangers = sorted(spoken_to - authors - {None})
    found = await visitor.get("/twitter/user/batch_info_by_ids", userIds=",".join(strangers))
    assert 0 < len(found["users"]) < 6, "so few that a batch is not worth filling"
    least = least_credits(truth, handles, clock.now())
    assert least == Cost(calls=sum(service.stats.calls.values()), credits=spent(service))


async def perfect_sweep(visitor: SimVisitor, handle: str) -> list[Any]:
    query, looks, swept = f"from:{handle}", 0, []
    while looks < 2:
        answer = await visitor.search(query)
        page = answer["tweets"]
        swept += page
        looks += not answer["has_next_page"]
        query = f"from:{handle} max_id:{int(page[-1]['id']) - 1}" if page else query
    return swept


async def perfect_lookup(visitor: SimVisitor, lacking: list[int], gone: list[int]) -> list[Any]:
    """No call without something to find, as long as there is."""
    calls = -(-(len(lacking) + len(gone)) // 20)
    asked = [[*lacking[call::calls], *gone[call::calls]] for call in range(calls)]
    pages = [await visitor.get("/twitter/tweets", tweet_ids=",".join(map(str, ids))) for ids in asked]
    return [post for page in pages for post in page["tweets"] if post["id"]]
