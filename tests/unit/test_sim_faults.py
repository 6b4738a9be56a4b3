"""Faults: each does what it says, can be repeated from its seed, and hides nothing for good."""

import json
from collections import Counter
from typing import Any

import pytest

from mistnet.sim.clock import SimClock
from mistnet.sim.faults import ALL_FAULTS, Faults, SimFault
from mistnet.sim.service import Key, NeverAnswers, NeverConnects, SimAnswer, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from tests.simulated import SEARCH_PATH, SimVisitor

WORLD = World(7, "tiny")
CLOCK = SimClock()
TRUTH = Truth(WORLD)
HANDLE = WORLD.stars[0].handle_at(0)
KNOWN = TRUTH.search_ids(HANDLE, CLOCK.now())
KEY = Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=10**9)
MIDWAY = f"from:{HANDLE} max_id:{KNOWN[20]}"  # the second page


def suffering(*faults: SimFault, rate: float = 1.0, seed: int = 5) -> XService:
    return XService(WORLD, CLOCK.now, keys=[KEY], faults=Faults(seed, dict.fromkeys(faults, rate)))


async def page_under(fault: SimFault, query: str = MIDWAY) -> Any:
    service = suffering(fault)
    page = await SimVisitor(service).search(query)
    assert service.stats.faults[fault] == 1
    return page


async def answer_under(fault: SimFault) -> SimAnswer:
    return await SimVisitor(suffering(fault)).ask(SEARCH_PATH, query=MIDWAY)


def ids(page: Any) -> list[int]:
    return [int(post["id"]) for post in page["tweets"]]


async def test_without_faults_every_answer_is_right() -> None:
    service = suffering()
    assert service.faults.quiet
    assert ids(await SimVisitor(service).search(MIDWAY)) == KNOWN[20:40]


async def test_a_rate_limit_comes_with_or_without_a_wait() -> None:
    plain, waiting = await answer_under(SimFault.RATE_LIMITED), await answer_under(SimFault.RATE_LIMITED_WITH_WAIT)
    assert plain.status == waiting.status == 429
    assert "retry-after" not in plain.headers
    assert int(waiting.headers["retry-after"]) > 0


async def test_a_server_error_speaks_json_or_html() -> None:
    spoken, shown = await answer_under(SimFault.SERVER_ERROR), await answer_under(SimFault.SERVER_ERROR_PAGE)
    assert spoken.status >= 500
    assert json.loads(spoken.body)["message"]
    assert shown.status >= 500
    assert shown.body.startswith(b"<html>")


async def test_a_key_can_be_refused_although_it_was_sent() -> None:
    refused = await answer_under(SimFault.KEY_REFUSED)
    assert refused.status == 403
    assert b"API key required" in refused.body


async def test_an_answer_that_never_comes_is_still_paid_for() -> None:
    service = suffering(SimFault.TIMEOUT)
    with pytest.raises(NeverAnswers):
        await SimVisitor(service).search(MIDWAY)
    assert service.stats.credits["sim-key"] == 300


async def test_a_connection_that_is_refused_costs_nothing() -> None:
    service = suffering(SimFault.CONNECTION_REFUSED)
    with pytest.raises(NeverConnects):
        await SimVisitor(service).search(MIDWAY)
    assert service.stats.credits["sim-key"] == 0


async def test_a_body_can_be_cut_or_broken() -> None:
    cut, broken = await answer_under(SimFault.CUT_BODY), await answer_under(SimFault.BROKEN_JSON)
    assert cut.cut
    assert len(cut.body) < int(cut.headers["content-length"])
    assert len(broken.body) == int(broken.headers["content-length"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken.body)


async def test_an_empty_page_can_claim_more_and_is_billed() -> None:
    service = suffering(SimFault.EMPTY_CLAIMS_MORE)
    page = await SimVisitor(service).search(MIDWAY)
    assert page["tweets"] == []
    assert page["has_next_page"] is True
    assert page["next_cursor"]
    assert service.stats.credits["sim-key"] == 15


async def test_a_false_end_is_never_told_twice_in_a_row_whatever_comes_between() -> None:
    page = await page_under(SimFault.EMPTY_CLAIMS_END)
    assert page == {"tweets": [], "has_next_page": False, "next_cursor": ""}
    service = suffering(SimFault.EMPTY_CLAIMS_END)
    lengths = [len((await SimVisitor(service).search(MIDWAY))["tweets"]) for _ in range(5)]
    assert lengths == [0, 20, 0, 20, 0]
    service = XService(
        WORLD, CLOCK.now, keys=[KEY], faults=Faults(3, {SimFault.SERVER_ERROR: 0.5, SimFault.EMPTY_CLAIMS_END: 1.0})
    )
    told = [await SimVisitor(service).ask(SEARCH_PATH, query=MIDWAY) for _ in range(60)]
    lengths = [len(json.loads(answer.body)["tweets"]) for answer in told if answer.status == 200]
    assert 10 < len(lengths) < 50
    assert lengths == [0 if place % 2 == 0 else 20 for place in range(len(lengths))]


async def test_a_false_end_is_not_told_again_by_faults_that_take_the_place_of_others() -> None:
    service = suffering(SimFault.EMPTY_CLAIMS_END)
    lengths = [len((await SimVisitor(service).search(MIDWAY))["tweets"])]
    service.faults = Faults(4, {SimFault.EMPTY_CLAIMS_END: 1.0}, false_ends=service.faults.false_ends)
    lengths += [len((await SimVisitor(service).search(MIDWAY))["tweets"]) for _ in range(2)]
    assert lengths == [0, 20, 0]


async def test_a_post_can_come_twice_in_a_page_and_is_paid_once() -> None:
    service = suffering(SimFault.DUPLICATE_POSTS)
    found = ids(await SimVisitor(service).search(MIDWAY))
    assert len(found) == 21
    assert sorted(set(found), reverse=True) == KNOWN[20:40]
    assert service.stats.credits["sim-key"] == 300


async def test_the_page_before_can_come_again() -> None:
    assert ids(await page_under(SimFault.REPEATED_PAGE)) == KNOWN[:20]


async def test_the_ceiling_can_fail_to_fall() -> None:
    page = await page_under(SimFault.STUCK_CEILING)
    assert ids(page) == KNOWN[20 - len(page["tweets"]) : 20]
    assert 1 <= len(page["tweets"]) <= 3
    assert page["has_next_page"] is True


async def test_a_cursor_can_lead_back_to_its_own_page() -> None:
    visitor = SimVisitor(suffering(SimFault.LOOPING_CURSOR))
    first = await visitor.search(f"from:{HANDLE}")
    again = await visitor.search(f"from:{HANDLE}", first["next_cursor"])
    assert ids(again) == ids(first) == KNOWN[:20]
    assert again["next_cursor"] == first["next_cursor"]


async def test_records_can_be_missing_or_null() -> None:
    assert "tweets" not in await page_under(SimFault.MISSING_RECORDS)
    assert (await page_under(SimFault.NULL_DATA))["tweets"] is None
    assert "followers" not in await SimVisitor(suffering(SimFault.MISSING_RECORDS)).get(
        "/twitter/user/followers", userName=HANDLE
    )


async def test_one_post_of_a_page_can_be_malformed_and_the_service_knows_which() -> None:
    ways = Counter[str]()
    for seed in range(40):
        service = suffering(SimFault.MALFORMED_POST, seed=seed)
        page = (await SimVisitor(service).search(MIDWAY))["tweets"]
        right = (await SimVisitor(suffering()).search(MIDWAY))["tweets"]
        wrong = [(ours, theirs) for ours, theirs in zip(page, right, strict=True) if ours != theirs]
        ((ours, theirs),) = wrong
        assert service.stats.spoiled == [theirs["id"]]
        ways.update(name for name in theirs if ours.get(name, ...) != theirs[name])
    assert set(ways) == {"id", "author", "createdAt", "text"}


async def test_a_fault_that_makes_no_sense_for_an_answer_leaves_it_alone() -> None:
    for fault in (SimFault.EMPTY_CLAIMS_END, SimFault.STUCK_CEILING, SimFault.MALFORMED_POST, SimFault.NULL_DATA):
        service = suffering(fault)
        assert (await SimVisitor(service).get("/twitter/user/info", userName=HANDLE))["data"]["userName"] == HANDLE
        assert not service.stats.faults
    at_the_top = await SimVisitor(suffering(SimFault.STUCK_CEILING)).search(f"from:{HANDLE}")
    assert ids(at_the_top) == KNOWN[:20]


async def test_latency_goes_through_the_sleep_that_was_given() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    faults = Faults(5, latency_seconds=(0.5, 2.0))
    service = XService(WORLD, CLOCK.now, keys=[KEY], faults=faults, sleep=sleep)
    for _ in range(20):
        await SimVisitor(service).search(MIDWAY)
    assert len(set(slept)) == 20
    assert all(0.5 <= seconds < 2.0 for seconds in slept)


async def outcomes(service: XService, queries: list[str], times: int) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {query: [] for query in queries}
    for query in queries * times:
        try:
            answer = await SimVisitor(service).ask(SEARCH_PATH, query=query)
            found[query].append((answer.status, answer.body))
        except NeverAnswers:
            found[query].append("never")
    return found


PASSING = frozenset(SimFault) - {SimFault.EMPTY_AT_FIRST}


async def test_a_search_that_is_empty_at_first_shows_everything_after_four_looks() -> None:
    service = XService(WORLD, CLOCK.now, keys=[KEY], faults=Faults(3, {SimFault.EMPTY_AT_FIRST: 1.0}))
    for more in ("", "", " filter:nativeretweets", f" max_id:{KNOWN[0]}"):
        query = f"from:{HANDLE}{more}"
        page = json.loads((await SimVisitor(service).ask(SEARCH_PATH, query=query)).body)
        assert (page["tweets"], page["has_next_page"]) == ([], False)
    assert json.loads((await SimVisitor(service).ask(SEARCH_PATH, query=f"from:{HANDLE}")).body)["tweets"]


async def test_faults_depend_on_the_question_and_not_on_the_order_of_questions() -> None:
    queries = [f"from:{HANDLE} max_id:{post_id}" for post_id in KNOWN[::7]]
    rates = dict.fromkeys(PASSING, 0.05)
    forth, back, other = (XService(WORLD, CLOCK.now, keys=[KEY], faults=Faults(seed, rates)) for seed in (5, 5, 6))
    assert await outcomes(forth, queries, 3) == await outcomes(back, queries[::-1], 3)
    assert forth.stats.faults
    assert await outcomes(other, queries, 3) != await outcomes(forth, queries, 3)


async def believable(visitor: SimVisitor, query: str) -> Any:
    """What a careful collector makes of one question: asked again until the answer can be a page."""
    ceiling = int(query.rpartition("max_id:")[2]) if "max_id" in query else 1 << 63
    while True:
        try:
            page = json.loads((await visitor.ask(SEARCH_PATH, query=query)).body)
            found = [int(post["id"]) for post in page["tweets"] if isinstance(post["author"], dict)]
        except (NeverAnswers, ValueError, KeyError, TypeError):
            continue
        whole = len(found) == len(page["tweets"]) and all(each <= ceiling for each in found)
        if whole and (found or not page["has_next_page"]):
            return sorted(set(found), reverse=True)


@pytest.mark.parametrize("rates", [ALL_FAULTS, dict.fromkeys(PASSING, 0.08), {SimFault.EMPTY_CLAIMS_END: 1.0}])
async def test_no_fault_hides_a_post_from_a_repeated_request(rates: dict[SimFault, float]) -> None:
    for seed in range(3):
        service = XService(WORLD, CLOCK.now, keys=[KEY], faults=Faults(seed, rates))
        visitor = SimVisitor(service)
        collected: list[int] = []
        ends = 0
        while ends < 2:
            ceiling = f" max_id:{collected[-1] - 1}" if collected else ""
            page = await believable(visitor, f"from:{HANDLE}{ceiling}")
            ends = 0 if page else ends + 1
            collected += page
        assert collected == KNOWN
        assert service.stats.faults
