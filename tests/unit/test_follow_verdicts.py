"""When a list of follows is believed, decided from counts alone; and the simulator's lists, cut and whole."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from mistnet.graph.follows.model import (
    Cause,
    Relation,
    Side,
    SyncTally,
    absence_cause,
    check_limit,
    judge_list,
    page_limit,
)
from mistnet.sim.clock import WORLD_START_AT, to_ms
from mistnet.sim.faults import LIST_FAULTS, Faults, SimFault
from mistnet.sim.people import SimAccountState
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.model import Detail, Gathered, User, UserId, UserPage, X
from mistnet.sources.x import client as prices
from mistnet.sources.x.client import XClient
from tests.simulated import SimVisitor
from tests.support import OpenGate, TurnedClock, no_wait
from tests.worlds import KEY, WorldTransport, service_of

WORLD = World(7, "small")
STAR = WORLD.stars[0]
FOLLOWERS = "/twitter/user/followers"


def judged(seen: int, start: int | None, end: int | None, *, explained: int = 0, **tally: int) -> tuple[bool, bool]:
    told = SyncTally(**{"pages": 1, "listed": seen, **tally})
    found = judge_list(told, seen=seen, at_start=start, at_end=end, explained=explained)
    assert (found.problem is None) is found.plausible
    return found.plausible, found.accounted


@pytest.mark.parametrize(
    ("seen", "start", "end", "expected"),
    [
        (100, 100, 100, (True, True)),
        (0, 0, 0, (True, True)),
        (100, 99, 100, (True, False)),
        (100, 100, 101, (True, False)),
        (100, 100, None, (True, False)),
        (100, None, None, (True, False)),
        (99, 100, 100, (True, False)),
        (90, 100, 100, (True, False)),
        (89, 100, 100, (False, False)),
        (0, 1, 1, (False, False)),
        (95, 200, 100, (True, False)),
        (110, 100, 100, (True, False)),
        (111, 100, 100, (False, False)),
    ],
)
def test_a_list_is_measured_by_the_counts_of_its_profile(
    seen: int, start: int | None, end: int | None, expected: tuple[bool, bool]
) -> None:
    assert judged(seen, start, end) == expected


def test_those_who_cannot_be_shown_make_a_short_list_plausible_and_never_whole() -> None:
    assert judged(70, 100, 100, explained=20) == (True, False)
    assert judged(70, 100, 100, explained=30) == (True, False)
    assert judged(70, 100, 100, explained=19) == (False, False)


def test_a_list_that_repeats_itself_or_runs_dry_is_not_believed() -> None:
    assert judged(100, 100, 100, listed=110) == (True, True)
    assert judged(100, 100, 100, listed=111) == (False, False)
    assert judged(400, 400, 400, pages=4, short=1) == (True, True)
    assert judged(400, 400, 400, pages=4, short=2) == (False, False)
    assert judged(100, 100, 100, unreadable=1) == (True, False)


def test_a_short_page_counts_unless_it_is_the_last() -> None:
    nobody = Gathered({}, {}, [])
    more = UserPage(own=[], gathered=nobody, has_more=True, cursor="c")
    last = UserPage(own=[], gathered=nobody, has_more=False)
    tally = SyncTally().with_page(more, listed=99).with_page(more, listed=100).with_page(last, listed=1)
    assert tally == SyncTally(pages=3, listed=200, short=1)


def test_limits_grow_with_the_list() -> None:
    assert [check_limit(seen) for seen in (0, 40_000, 100_000, 10**7)] == [20, 20, 50, 200]
    assert [page_limit(count) for count in (None, 0, 1_000_000)] == [None, 10, 20_010]


@pytest.mark.parametrize(
    ("reason", "cause"), [(None, None), ("User is suspended", Cause.SUSPENDED), ("gone", Cause.VANISHED)]
)
def test_the_cause_is_what_upstream_says(reason: str | None, cause: Cause | None) -> None:
    told = User(platform=X, id=UserId(1), detail=Detail.PROFILE, unavailable_reason=reason, raw=b"{}")
    assert absence_cause(told) is cause


def test_a_page_that_is_not_quite_full_is_the_dearest() -> None:
    assert prices.follow_page_at_most(200) == max(map(prices.follow_page, range(201))) == 398


async def listed(faults: Mapping[SimFault, float], seed: int = 1) -> list[list[str]]:
    """The same list, asked for twice, page by page."""
    key = Key(name=KEY, tier=Tier.UNLIMITED, recharge_credits=10**9)
    service = XService(WORLD, lambda: WORLD_START_AT, keys=[key], faults=Faults(seed, faults))
    found: list[list[str]] = []
    for _ in range(2):
        cursor, more, ids = "", True, list[str]()
        while more:
            page = await SimVisitor(service).get(FOLLOWERS, userName=STAR.handle_at(0), cursor=cursor, pageSize="40")
            ids += [each["id"] for each in page["followers"]]
            cursor, more = page["next_cursor"], page["has_next_page"]
        found.append(ids)
    return found


@pytest.mark.parametrize("fault", sorted(LIST_FAULTS))
async def test_a_list_can_be_cut_by_up_to_a_third_and_nothing_shows_it(fault: SimFault) -> None:
    whole = (await listed({}))[0]
    assert len(whole) == len(Truth(WORLD).followers(STAR.handle_at(0), WORLD_START_AT))
    cuts, alike = [], 0
    for seed in range(20):
        first, second = await listed({fault: 1.0}, seed)
        for found in (first, second):
            assert set(found) < set(whole)
            cuts.append(1 - len(found) / len(whole))
        alike += first == second
        if fault is SimFault.LIST_CUT_SHORT:
            assert first == whole[: len(first)]
    if fault is SimFault.LIST_HIDES_SOME:
        assert alike == 20
    if fault is SimFault.LIST_CUT_OPEN:
        assert alike == 0
    assert 0 < min(cuts) <= max(cuts) <= 0.3 + 0.02  # those who cannot be shown are cut along


def asking(world: World) -> tuple[XClient, OpenGate]:
    gate = OpenGate(KEY)
    return XClient(WorldTransport(service_of(world)), gate=gate, clock=TurnedClock(), sleep=no_wait), gate


async def test_one_edge_can_be_asked_for_alone() -> None:
    client, gate = asking(WORLD)
    now_ms = to_ms(WORLD_START_AT)
    shown = [each for each in WORLD.people if each.shown_at(now_ms)]
    for other in shown[1:40]:
        told = await client.relation(other.handle_at(now_ms), STAR.handle_at(now_ms))
        assert told == Relation(
            following=WORLD.follows.follows(other.index, STAR.index, now_ms),
            followed_by=WORLD.follows.follows(STAR.index, other.index, now_ms),
        )
    assert {call.credits for call in gate.calls} == {100}
    assert await client.relation("nobody_has_this", STAR.handle_at(now_ms)) is None


def test_asking_for_one_edge_and_for_the_list_agree() -> None:
    for days in (0, 20, 50):
        now_ms = to_ms(WORLD_START_AT + timedelta(days=days))
        for person in (*WORLD.people[:3], *WORLD.people[50:53]):
            others = range(len(WORLD.people))
            follows = WORLD.follows
            assert set(follows.followers(person.index, now_ms)) == {
                each for each in others if each != person.index and follows.follows(each, person.index, now_ms)
            }
            assert set(follows.followings(person.index, now_ms)) == {
                each for each in others if each != person.index and follows.follows(person.index, each, now_ms)
            }


def test_a_restless_world_loses_and_renames_people_and_a_calm_one_stays_as_it_was() -> None:
    calm, restless = World(3, "small"), World(3, "small", restless=True)
    start, later = to_ms(WORLD_START_AT), to_ms(WORLD_START_AT + timedelta(days=62))
    assert [each.id for each in calm.people] == [each.id for each in restless.people]
    turned = [each for each in restless.people if each.state_at(start) is not each.state_at(later)]
    renamed = [each for each in restless.people if each.handle_at(start) != each.handle_at(later)]
    assert {each.state for each in turned} == {SimAccountState.SUSPENDED, SimAccountState.GONE}
    assert len(turned) > 60
    assert len(renamed) > 20
    assert all(ours == theirs for ours, theirs in zip(calm.stars, restless.stars, strict=True))


def test_each_side_knows_its_count() -> None:
    told = User(platform=X, id=UserId(1), detail=Detail.PROFILE, followers_count=5, following_count=7, raw=b"{}")
    assert [side.count_of(told) for side in Side] == [5, 7]
