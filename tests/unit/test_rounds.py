"""Catch-ups with a limit go in rounds; statistics and events come with the end of each."""

from datetime import timedelta
from typing import Any

import msgspec

from mistnet.queue.events import EventKind, NewEvent
from mistnet.queue.model import Continue, Done, Outcome
from mistnet.social.accounts import Fetched, FetchStats, Swept
from mistnet.social.jobs.args import CollectRules, RangeArgs
from mistnet.social.jobs.sweeps import SECOND_LOOK
from mistnet.social.model import Page, PostId, X
from tests.support import START
from tests.unit.test_sweeps import ANN, EMPTY, Harness, Store, account, gathered, job, page, post, the, user, writes


def given(limit: int | None = None, **progress: Any) -> RangeArgs:
    return RangeArgs(user_id=ANN, floor=PostId(50), limit=limit, **progress)


def events(outcome: Outcome) -> list[NewEvent]:
    return [each for each in writes(outcome) if isinstance(each, NewEvent)]


def fetches(outcome: Outcome) -> list[Fetched]:
    return [each for each in writes(outcome) if isinstance(each, Fetched)]


def fetched(count: int, new: int, limit: int | None) -> Fetched:
    return Fetched(platform=X, user_id=ANN, fetched=count, new=new, limit=limit)


async def caught_up(found: Page, at: RangeArgs, harness: Harness | None = None, **about: Any) -> Outcome:
    harness = harness or Harness()
    boundaries = {"oldest_post_id": PostId(10), "newest_post_id": PostId(50), "profiled_at": START}
    harness.store.accounts[ANN] = account(**boundaries, **about)
    harness.source.pages = [found]
    return await harness.sweeper.catch_up(job(at))


async def test_a_full_round_pauses_and_says_when_it_goes_on() -> None:
    outcome = await caught_up(page(post(90), post(80)), given(limit=2))
    assert isinstance(outcome, Continue)
    assert outcome.run_at == START + timedelta(seconds=60)
    assert outcome.reason == "has more new posts than its limit of 2; goes on at 12:01"
    assert fetches(outcome) == [fetched(2, 2, 2)]
    assert not [each for each in writes(outcome) if isinstance(each, Swept)], "the newest moves at the end alone"


async def test_the_next_round_has_a_limit_that_learned_from_this_one() -> None:
    outcome = await caught_up(page(post(90), post(80)), given(limit=2), fetch=FetchStats(total_fetches=4))
    assert isinstance(outcome, Continue)
    assert outcome.args == given(limit=10, ceiling=79, top=90, found=2, found_before=2)
    lots = await caught_up(page(*(post(each) for each in range(200, 100, -1))), given(limit=60))
    assert isinstance(lots, Continue)
    assert isinstance(lots.args, RangeArgs)
    assert lots.args.limit == 120


async def test_what_was_stored_already_is_fetched_but_not_new() -> None:
    harness = Harness()
    harness.store.posts = {PostId(80): post(80)}
    outcome = await caught_up(page(post(90), post(80)), given(limit=2), harness)
    assert fetches(outcome) == [fetched(2, 1, 2)]


async def test_a_round_that_is_not_full_goes_on_at_once() -> None:
    outcome = await caught_up(page(post(90), post(80)), given(limit=3))
    assert isinstance(outcome, Continue)
    assert (outcome.run_at, fetches(outcome)) == (None, [])


async def test_a_full_round_with_nothing_more_to_come_goes_on_to_the_end() -> None:
    outcome = await caught_up(page(post(90), post(80), more=False), given(limit=2))
    assert isinstance(outcome, Continue)
    assert (outcome.reason, fetches(outcome)) == (SECOND_LOOK, [])


async def test_without_a_limit_there_is_one_round() -> None:
    outcome = await caught_up(page(*(post(each) for each in range(2000, 1000, -1))), given())
    assert isinstance(outcome, Continue)
    assert outcome.run_at is None


async def test_the_end_counts_what_its_own_round_fetched_and_tells_of_all() -> None:
    at = given(limit=20, ceiling=PostId(59), top=PostId(90), found=7, known=2, found_before=4, known_before=1)
    outcome = await caught_up(EMPTY, msgspec.structs.replace(at, suspected=True))
    assert isinstance(outcome, Done)
    assert fetches(outcome) == [fetched(3, 2, 20)]
    assert (the(outcome, Swept).newest, the(outcome, Swept).found) == (90, 7)
    (event,) = events(outcome)
    assert (event.kind, event.subject) == (EventKind.POSTS_COLLECTED, "11")
    assert event.payload == {
        "user_id": "11",
        "handle": "ann",
        "new": 5,
        "since_post_id": "50",
        "newest_post_id": "90",
    }


async def test_an_end_right_after_a_full_round_is_not_an_empty_fetch() -> None:
    at = given(limit=20, ceiling=PostId(59), top=PostId(90), found=4, found_before=4, suspected=True)
    assert fetches(await caught_up(EMPTY, at)) == []


async def test_a_catch_up_that_finds_nothing_is_an_empty_fetch_and_no_news() -> None:
    outcome = await caught_up(EMPTY, given(limit=20))
    assert fetches(outcome) == [fetched(0, 0, 20)]
    assert events(outcome) == []


async def test_a_catch_up_that_found_something_asks_for_a_summary_if_wanted() -> None:
    at = given(ceiling=PostId(59), top=PostId(90), found=3, known=1, suspected=True)
    harness = Harness(rules=CollectRules(summarize=True), store=Store(fresh={PostId(90), PostId(60), PostId(40)}))
    told = {each.kind: each for each in events(await caught_up(EMPTY, at, harness))}
    summary = told[EventKind.SUMMARIZE_REQUESTED]
    assert summary.subject == "11"
    assert summary.payload == {"user_id": "11", "handle": "ann", "post_ids": ["60", "90"], "part": 1, "parts": 1}
    nothing_new = msgspec.structs.replace(at, known=3)
    assert events(await caught_up(EMPTY, nothing_new, Harness(rules=CollectRules(summarize=True)))) == []
    assert EventKind.SUMMARIZE_REQUESTED not in {each.kind for each in events(await caught_up(EMPTY, at))}


async def test_retweets_are_no_fetch_and_no_news() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(profiled_at=START)
    harness.source.pages = [EMPTY]
    at = given(top=PostId(90), found=3, suspected=True)
    outcome = await harness.sweeper.reposts(job(at))
    assert isinstance(outcome, Done)
    assert (fetches(outcome), events(outcome)) == ([], [])


async def test_the_end_of_a_history_is_told_once() -> None:
    for before, told in ((None, 1), (START, 0)):
        harness = Harness(rules=CollectRules(reposts=False))
        harness.source.profiles = [gathered(users=[user(ANN)])]
        outcome = await harness.backfill(
            EMPTY, suspected=True, oldest_post_id=PostId(5), newest_post_id=PostId(9), backfilled_at=before
        )
        found = events(outcome)
        assert [each.kind for each in found] == [EventKind.ACCOUNT_BACKFILLED] * told
        ids = {"oldest_post_id": "5", "newest_post_id": "9"}
        assert all(each.payload == {"user_id": "11", "handle": "ann", **ids} for each in found)


async def test_pages_of_a_backfill_are_no_fetches() -> None:
    assert fetches(await Harness().backfill(page(post(90)))) == []
