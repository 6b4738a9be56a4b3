"""One account of a run: how far its pages are read, what is counted, and how it ends."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from mistnet.governor.errors import BrokenAnswer
from mistnet.operations.runs.jobs import Scraper
from mistnet.operations.runs.model import (
    BadRun,
    RunAccount,
    RunId,
    RunStatus,
    RunStep,
    ScrapeArgs,
    outcome_of,
    read_handles,
    require_startable,
    scrape_job,
)
from mistnet.queue.model import Continue, Done, Outcome
from mistnet.social.accounts import Fetched
from mistnet.social.errors import BadHandles
from mistnet.social.jobs.args import CollectRules, HydratePostArgs
from mistnet.social.model import Page, Post, PostId, Unreadable, User, X
from tests.support import START
from tests.unit.test_sweeps import (
    ANN,
    BOB,
    EMPTY,
    Harness,
    account,
    job,
    jobs_of,
    page,
    post,
    the,
    unreadable,
    user,
    writes,
)

RUN = RunId("01900000-0000-7000-8000-000000000000")


def given(limit: int = 100, **progress: Any) -> ScrapeArgs:
    return ScrapeArgs(run_id=RUN, position=0, handle="u11", limit=limit, **progress)


async def scraped(found: Page, args: ScrapeArgs, harness: Harness | None = None) -> Outcome:
    harness = harness or Harness()
    harness.source.pages = [found]
    return await Scraper(sweeper=harness.sweeper).scrape(job(args))


def stored(outcome: Outcome) -> list[int]:
    return [each.id for each in writes(outcome) if isinstance(each, Post)]


async def test_a_page_is_counted_and_the_next_one_begins_below_it() -> None:
    harness = Harness()
    outcome = await scraped(page(post(90), post(80)), given(), harness)
    assert harness.source.asked == ["from:u11"]
    assert isinstance(outcome, Continue)
    assert outcome.args == given(user_id=ANN, ceiling=79, counted=2, found=2)
    step = the(outcome, RunStep)
    assert (step.status, step.posts, step.failed, step.user_id) == (RunStatus.RUNNING, [90, 80], 0, ANN)
    await scraped(page(post(70)), given(user_id=ANN, ceiling=79, counted=2), harness)
    assert harness.source.asked[-1] == "from:u11 max_id:79"


async def test_the_limit_ends_it_and_what_was_not_asked_for_is_left_out() -> None:
    outcome = await scraped(page(post(90), post(80), post(70)), given(limit=2))
    assert isinstance(outcome, Done)
    assert the(outcome, RunStep).status is RunStatus.COMPLETED
    assert stored(outcome) == [90, 80]


async def test_what_a_run_fetched_of_an_account_counts_as_a_fetch_at_its_end() -> None:
    harness = Harness()
    harness.store.posts = {PostId(80): post(80)}
    on_the_way = await scraped(page(post(90), post(80)), given(limit=5), harness)
    assert isinstance(on_the_way, Continue)
    assert on_the_way.args == given(limit=5, user_id=ANN, ceiling=79, counted=2, found=2, known=1)
    assert not [each for each in writes(on_the_way) if isinstance(each, Fetched)]
    assert isinstance(on_the_way.args, ScrapeArgs)
    full = await scraped(page(post(70), post(60), post(50), post(40)), on_the_way.args, harness)
    assert the(full, Fetched) == Fetched(platform=X, user_id=ANN, fetched=5, new=4, limit=5)
    ended = await scraped(EMPTY, msgspec.structs.replace(on_the_way.args, suspected=True), harness)
    assert the(ended, Fetched) == Fetched(platform=X, user_id=ANN, fetched=2, new=1, limit=5)
    nobody = await scraped(EMPTY, given(suspected=True), harness)
    assert not [each for each in writes(nobody) if isinstance(each, Fetched)]


async def test_the_limit_counts_over_pages() -> None:
    outcome = await scraped(page(post(60), post(50), post(40)), given(limit=5, user_id=ANN, ceiling=69, counted=3))
    assert isinstance(outcome, Done)
    assert the(outcome, RunStep).posts == [60, 50]


async def test_an_unreadable_post_is_one_that_failed_and_takes_its_place_in_the_limit() -> None:
    bad = [unreadable(post_id=85), unreadable(above=80, below=70), unreadable(above=60)]
    whole = await scraped(page(post(90), post(80), post(70), post(60), bad=bad), given())
    assert (the(whole, RunStep).failed, len(the(whole, RunStep).posts)) == (2, 4)
    assert isinstance(whole, Continue)
    assert whole.args == given(user_id=ANN, ceiling=59, counted=6, found=4)
    cut = await scraped(page(post(90), post(80), post(70), post(60), bad=bad), given(limit=3))
    assert (the(cut, RunStep).failed, the(cut, RunStep).posts) == (1, [90, 80])
    assert [each.post_id for each in writes(cut) if isinstance(each, Unreadable)] == [85]


async def test_what_could_not_be_read_on_the_page_before_counts_once() -> None:
    bad = [unreadable(post_id=85), unreadable(above=90, below=80), unreadable(post_id=75), unreadable(post_id=78)]
    outcome = await scraped(page(post(78), bad=bad), given(user_id=ANN, ceiling=79, counted=4))
    assert (the(outcome, RunStep).posts, the(outcome, RunStep).failed) == ([78], 1)


async def test_an_account_stops_at_its_share_of_the_runs_cap() -> None:
    outcome = await scraped(page(post(90), post(80)), given(max_credits=600))
    assert isinstance(outcome, Continue)
    assert isinstance(outcome.args, ScrapeArgs)
    assert outcome.args.spent == 30
    harness = Harness()
    stopped = await scraped(EMPTY, given(max_credits=600, spent=301), harness)
    assert isinstance(stopped, Done)
    step = the(stopped, RunStep)
    assert (step.status, harness.source.asked) == (RunStatus.FAILED, [])
    assert step.reason == "stopped: 301 of the 600 credits of this account's share are spent"


async def test_an_end_is_looked_at_twice_and_then_believed() -> None:
    progress = {"user_id": ANN, "ceiling": PostId(69), "counted": 3}
    first = await scraped(EMPTY, given(**progress))
    assert isinstance(first, Continue)
    assert (first.run_at, first.args) == (START + timedelta(seconds=30), given(**progress, suspected=True))
    done = await scraped(EMPTY, given(**progress, suspected=True))
    assert isinstance(done, Done)
    assert (the(done, RunStep).status, the(done, RunStep).reason) == (RunStatus.COMPLETED, None)


async def test_a_second_look_that_finds_more_goes_on() -> None:
    outcome = await scraped(page(post(60)), given(user_id=ANN, ceiling=69, counted=3, suspected=True))
    assert isinstance(outcome, Continue)
    assert outcome.args == given(user_id=ANN, ceiling=59, counted=4, found=1)


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (None, "there is no account of that name"),
        (user(ANN, "u11", protected=True), "its posts are protected"),
        (user(ANN, "u11", unavailable_reason="Suspended"), "unavailable: Suspended"),
    ],
)
async def test_an_account_that_cannot_be_had_fails_at_once_with_the_reason(profile: User | None, why: str) -> None:
    harness = Harness()
    harness.source.handles = {"u11": profile} if profile else {}
    outcome = await scraped(EMPTY, given(), harness)
    assert isinstance(outcome, Done)
    assert (the(outcome, RunStep).status, the(outcome, RunStep).reason) == (RunStatus.FAILED, why)
    assert [each for each in writes(outcome) if isinstance(each, User)] == ([profile] if profile else [])


async def test_an_account_without_posts_is_completed_with_none() -> None:
    harness = Harness()
    harness.source.handles = {"u11": user(ANN, "u11")}
    first = await scraped(EMPTY, given(), harness)
    assert isinstance(first, Continue)
    done = await scraped(EMPTY, given(suspected=True), harness)
    assert the(done, RunStep).status is RunStatus.COMPLETED
    assert the(done, RunStep).reason == "search shows no posts of this account"


async def test_a_page_that_cannot_be_true_is_asked_for_again() -> None:
    with pytest.raises(BrokenAnswer):
        await scraped(page(), given())


async def test_posts_of_a_tracked_account_lead_on_as_if_swept_and_move_no_boundary() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account()
    found = page(post(90, answers=1, whom=BOB), bad=[unreadable(post_id=85)])
    outcome = await scraped(found, given(), harness)
    assert len(jobs_of(outcome, "walk")) == 1
    assert len(jobs_of(outcome, "hydrate_user")) == 1
    assert jobs_of(outcome, "hydrate_post") == [HydratePostArgs(post_id=PostId(85), account_id=ANN)]
    assert {type(each).__name__ for each in writes(outcome)} == {"User", "Post", "Unreadable", "RunStep", "NewJob"}


async def test_a_reply_whose_parent_was_cut_off_still_gets_its_walk() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account()
    outcome = await scraped(page(post(90, answers=70), post(70, answers=60)), given(limit=1), harness)
    (walk,) = jobs_of(outcome, "walk")
    assert getattr(walk, "next_id", None) == 70


async def test_posts_of_an_untracked_user_start_no_jobs() -> None:
    outcome = await scraped(page(post(90, answers=1, whom=BOB), bad=[unreadable(post_id=85)]), given())
    assert {type(each).__name__ for each in writes(outcome)} == {"User", "Post", "Unreadable", "RunStep"}


async def test_the_wish_for_a_summary_travels_with_the_step() -> None:
    outcome = await scraped(page(post(90)), given(), Harness(rules=CollectRules(summarize=True)))
    assert the(outcome, RunStep).summarize


def test_the_job_of_an_account_is_known_by_run_and_place() -> None:
    made = scrape_job(RUN, 3, "ann", 50)
    assert (made.kind, made.key) == ("scrape", f"{RUN}:3")


def test_handles_are_read_once_each_in_their_order() -> None:
    assert read_handles(" @Bob, ann,https://x.com/bob ,, ANN") == ["Bob", "ann"]


def test_every_bad_handle_is_told() -> None:
    with pytest.raises(BadHandles) as told:
        read_handles("ann, b b, https://example.com/x")
    assert [each.given for each in told.value.problems] == ["b b", "https://example.com/x"]
    assert "'b b'" in str(told.value)


@pytest.mark.parametrize(
    ("handles", "limit", "field"),
    [([], 10, "usernames"), (["a"] * 1001, 10, "usernames"), (["a"], 0, "limit"), (["a"], 1001, "limit")],
)
def test_what_no_run_can_be_made_of_is_refused(handles: list[str], limit: int, field: str) -> None:
    with pytest.raises(BadRun) as told:
        require_startable(handles, limit)
    assert told.value.field == field


@pytest.mark.parametrize("wrong", ["ann since:2020", "@ann", "https://x.com/ann", ""])
def test_only_bare_handles_become_questions(wrong: str) -> None:
    with pytest.raises(BadHandles):
        require_startable(["bob", wrong], 10)


@pytest.mark.parametrize(
    ("statuses", "together"),
    [
        (["pending", "pending"], "pending"),
        (["pending", "completed"], "running"),
        (["running", "failed"], "running"),
        (["completed", "failed"], "completed"),
        (["failed", "failed"], "failed"),
    ],
)
def test_a_run_fails_only_if_all_of_it_does(statuses: list[str], together: str) -> None:
    accounts = [RunAccount(position=n, handle="a", status=RunStatus(each)) for n, each in enumerate(statuses)]
    assert outcome_of(accounts) == together
