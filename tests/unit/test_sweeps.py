"""What a page of a sweep leads to: progress, faults, ends, renames, and the work that follows from it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from mistnet.governor.errors import BrokenAnswer
from mistnet.governor.model import CallPurpose
from mistnet.queue.events import NewEvent
from mistnet.queue.model import (
    Args,
    Awaited,
    Continue,
    Done,
    Fail,
    Job,
    JobId,
    KindName,
    Lane,
    NewJob,
    Outcome,
    Retry,
    Snooze,
    Write,
)
from mistnet.social.accounts import (
    Account,
    AccountState,
    AccountStateChange,
    AccountTracked,
    Fetched,
    Frontier,
    HistoryJudged,
    Missing,
    StoredProfile,
    SuggestionClosed,
    Swept,
)
from mistnet.social.jobs import args
from mistnet.social.jobs.args import (
    BackfillArgs,
    CollectRules,
    HydratePostArgs,
    HydrateUserArgs,
    RangeArgs,
    RelookArgs,
    WalkArgs,
)
from mistnet.social.jobs.hydration import Profiler, Threads
from mistnet.social.jobs.sweeps import Sweeper
from mistnet.social.model import (
    Detail,
    Gathered,
    Page,
    Platform,
    Post,
    PostId,
    SocialSources,
    Span,
    Unreadable,
    User,
    UserId,
    X,
)
from mistnet.sources.x.client import query_of
from tests.support import START, TurnedClock

ANN, BOB, CHARLIE = UserId(11), UserId(22), UserId(33)


def user(user_id: int, handle: str = "ann", **about: Any) -> User:
    return User(platform=X, id=UserId(user_id), detail=Detail.PROFILE, handle=handle, raw=b"{}", **about)


def post(post_id: int, author: int = ANN, *, answers: int | None = None, whom: int | None = None) -> Post:
    return Post(
        platform=X,
        id=PostId(post_id),
        author_id=UserId(author),
        text="hello",
        created_at=START,
        conversation_id=PostId(1),
        in_reply_to_id=PostId(answers) if answers else None,
        in_reply_to_user_id=UserId(whom) if whom else None,
        raw=b"{}",
    )


def unreadable(*, post_id: int | None = None, above: int | None = None, below: int | None = None) -> Unreadable:
    return Unreadable(
        platform=X,
        endpoint="tweet/advanced_search",
        problem="no author",
        payload=b"{}",
        post_id=PostId(post_id) if post_id else None,
        above=PostId(above) if above else None,
        below=PostId(below) if below else None,
    )


def gathered(*posts: Post, bad: Sequence[Unreadable] = (), users: Sequence[User] = ()) -> Gathered:
    authors = {each.author_id: user(each.author_id, f"u{each.author_id}") for each in posts}
    return Gathered({each.id: each for each in posts}, authors | {each.id: each for each in users}, list(bad))


def page(*posts: Post, more: bool = True, bad: Sequence[Unreadable] = (), along: Sequence[Post] = ()) -> Page:
    return Page(own=[each.id for each in posts], gathered=gathered(*posts, *along, bad=bad), has_more=more)


EMPTY = page(more=False)


@dataclass
class Store:
    """What handlers see of the store, told by the test."""

    accounts: dict[UserId, Account] = field(default_factory=dict)
    posts: dict[PostId, Post] = field(default_factory=dict)
    users: set[UserId] = field(default_factory=set)
    swept: set[UserId] = field(default_factory=set)
    gone: set[PostId] = field(default_factory=set)
    stored: int = 0
    gaps: set[PostId] = field(default_factory=set)
    fresh: set[PostId] = field(default_factory=set)
    stale: Sequence[UserId] = ()

    async def account(self, platform: Platform, user_id: UserId) -> Account | None:
        return self.accounts.get(user_id)

    async def frontiers(self, platform: Platform, ids: Collection[PostId]) -> Mapping[PostId, Frontier]:
        found = {}
        for start in ids:
            up: PostId | None = start
            whom: UserId | None = None
            while up is not None and up in self.posts:
                stored = self.posts[up]
                up, whom = stored.in_reply_to_id, stored.in_reply_to_user_id
            if up is not None and up not in self.gone:
                found[start] = Frontier(up, whom)
        return found

    async def leads(
        self, platform: Platform, ids: Collection[PostId], user_ids: Collection[UserId]
    ) -> tuple[Mapping[PostId, Frontier], set[UserId]]:
        return await self.frontiers(platform, ids), await self.known_users(platform, user_ids)

    async def known_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        return self.posts.keys() & set(ids)

    async def stored_posts(self, platform: Platform, user_id: UserId, *, most: int) -> int:
        return min(self.stored, most)

    async def unreadable_posts(self, platform: Platform, ids: Collection[PostId]) -> set[PostId]:
        return self.gaps & set(ids)

    async def new_posts(
        self, platform: Platform, user_id: UserId, *, above: PostId, stored_since: datetime
    ) -> Sequence[PostId]:
        assert stored_since == START
        return sorted(each for each in self.fresh if each > above)

    async def known_users(self, platform: Platform, ids: Collection[UserId]) -> set[UserId]:
        return self.users & set(ids)

    async def being_backfilled(self, platform: Platform, user_ids: Collection[UserId]) -> set[UserId]:
        return self.swept & set(user_ids)

    async def profiles(self, platform: Platform, ids: Collection[UserId]) -> Mapping[UserId, StoredProfile]:
        return {}

    async def stalest_users(self, platform: Platform, limit: int, without: Collection[UserId]) -> Sequence[UserId]:
        return [each for each in self.stale if each not in without][:limit]


@dataclass
class Source:
    """Answers in the order it was told to, and remembers the questions."""

    pages: list[Page] = field(default_factory=list)
    profiles: list[Gathered] = field(default_factory=list)
    lookups: list[Gathered] = field(default_factory=list)
    handles: dict[str, User] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    by_id: list[Sequence[int]] = field(default_factory=list)
    platform: Platform = X
    separate_reposts: bool = True
    full_batch_from: int | None = 6

    async def user(self, handle: str, *, purpose: CallPurpose) -> User | None:
        return self.handles.get(handle)

    async def users(self, ids: Sequence[UserId], *, purpose: CallPurpose) -> Gathered:
        self.by_id.append(ids)
        return self.profiles.pop(0)

    async def posts(self, ids: Sequence[PostId], *, purpose: CallPurpose) -> Gathered:
        self.by_id.append(ids)
        return self.lookups.pop(0)

    async def search_posts(
        self, handles: Collection[str], span: Span, *, reposts: bool = False, purpose: CallPurpose
    ) -> Page:
        self.asked.append(query_of(handles, span, reposts=reposts))
        found = self.pages.pop(0)
        if purpose.meter:
            purpose.meter.credits += 15 * max(len(found.own), 1)
        return found


def account(**about: Any) -> Account:
    return Account(platform=X, user_id=ANN, handle="ann", state=AccountState.ACTIVE, **about)


def job(given: Any, *, job_id: int = 1) -> Job[Any]:
    return Job(
        id=JobId(job_id),
        kind=KindName("test"),
        key=None,
        lane=Lane("x"),
        args=given,
        attempt=1,
        run_at=START,
        created_at=START,
    )


@dataclass
class Harness:
    """Handlers on a told store and a told source."""

    store: Store = field(default_factory=Store)
    source: Source = field(default_factory=Source)
    clock: TurnedClock = field(default_factory=TurnedClock)
    rules: CollectRules = field(default_factory=CollectRules)

    def __post_init__(self) -> None:
        parts: dict[str, Any] = {
            "look": self.store,
            "sources": SocialSources([self.source]),
            "clock": self.clock,
            "rules": self.rules,
        }
        self.sweeper = Sweeper(**parts)
        self.profiler = Profiler(**parts)
        self.threads = Threads(**parts, in_flight={})

    async def backfill(self, found: Page, *, suspected: bool = False, **progress: Any) -> Outcome:
        self.store.accounts[ANN] = account(**progress)
        self.source.pages = [found]
        return await self.sweeper.backfill(job(BackfillArgs(user_id=ANN, suspected=suspected)))

    async def catch_up(self, found: Page, given: RangeArgs) -> Outcome:
        self.store.accounts[ANN] = account(oldest_post_id=PostId(10), newest_post_id=PostId(50), profiled_at=START)
        self.source.pages = [found]
        return await self.sweeper.catch_up(job(given))


def writes(outcome: Outcome) -> Sequence[Write]:
    assert isinstance(outcome, Done | Continue | Fail)
    return outcome.writes


def jobs_of(outcome: Outcome, kind: str) -> list[Args]:
    return [each.args for each in writes(outcome) if isinstance(each, NewJob) and each.kind == kind]


def the(outcome: Outcome, kind: type[Any]) -> Any:
    (found,) = [each for each in writes(outcome) if isinstance(each, kind)]
    return found


async def test_a_page_moves_the_boundaries_and_the_job_goes_on() -> None:
    harness = Harness()
    outcome = await harness.backfill(page(post(90), post(80)), oldest_post_id=PostId(95), newest_post_id=PostId(99))
    assert harness.source.asked == ["from:ann max_id:94"]
    assert isinstance(outcome, Continue)
    assert outcome.args == BackfillArgs(user_id=ANN)
    swept = the(outcome, Swept)
    assert (swept.oldest, swept.newest, swept.found) == (80, 90, 2)
    assert {each.id for each in writes(outcome) if isinstance(each, Post)} == {90, 80}


async def test_the_first_page_is_asked_without_a_ceiling() -> None:
    harness = Harness()
    await harness.backfill(page(post(90)))
    assert harness.source.asked == ["from:ann"]


@pytest.mark.parametrize(
    "wrong",
    [page(), page(post(96)), page(bad=[unreadable()])],
    ids=["empty but claims more", "above the ceiling", "nothing legible"],
)
async def test_a_page_that_cannot_be_true_is_asked_for_again(wrong: Page) -> None:
    with pytest.raises(BrokenAnswer):
        await Harness().backfill(wrong, oldest_post_id=PostId(95), newest_post_id=PostId(99))


async def test_an_end_is_looked_at_twice_with_a_pause() -> None:
    outcome = await Harness().backfill(EMPTY, oldest_post_id=PostId(5), newest_post_id=PostId(9))
    assert outcome == Continue(
        args=BackfillArgs(user_id=ANN, suspected=True),
        run_at=START + timedelta(seconds=30),
        reason="checks a second time before it accepts the end",
    )


async def test_a_page_that_says_there_is_no_more_needs_one_look_to_confirm_it() -> None:
    outcome = await Harness().backfill(page(post(5), more=False))
    assert isinstance(outcome, Continue)
    assert (outcome.args, outcome.run_at) == (
        BackfillArgs(user_id=ANN, suspected=True),
        START + timedelta(seconds=30),
    )
    found = await Harness().catch_up(page(post(60), more=False), RangeArgs(user_id=ANN, floor=PostId(50)))
    assert isinstance(found, Continue)
    assert isinstance(found.args, RangeArgs)
    assert (found.args.suspected, found.run_at) == (True, START + timedelta(seconds=30))


async def test_a_profile_that_was_just_seen_is_not_asked_for_again() -> None:
    seen, harness = {"profiled_at": START, "oldest_post_id": PostId(5), "newest_post_id": PostId(9)}, Harness()
    assert isinstance(await harness.backfill(EMPTY, suspected=True, **seen), Done)
    assert harness.source.by_id == []


@pytest.mark.parametrize(
    ("found", "progress"),
    [
        (EMPTY, {"profiled_at": START - timedelta(minutes=6), "oldest_post_id": PostId(5)}),
        (EMPTY, {"profiled_at": START, "posts_count": 500}),
        (EMPTY, {"profiled_at": START}),
        (page(post(3, BOB), more=False), {"profiled_at": START, "oldest_post_id": PostId(5)}),
    ],
    ids=["seen long ago", "nothing found of 500", "nothing found", "posts of somebody else"],
)
async def test_an_end_that_may_be_a_rename_is_checked(found: Page, progress: dict[str, Any]) -> None:
    harness = Harness()
    harness.source.profiles = [gathered(users=[user(ANN, "ann_now")])]
    outcome = await harness.backfill(found, suspected=True, **progress)
    assert isinstance(outcome, Continue)
    assert harness.source.by_id == [[ANN]]


async def test_an_account_without_retweets_is_looked_at_once_for_them_at_each_catch_up() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(newest_post_id=PostId(50), profiled_at=START, reposts_backfilled_at=START)
    harness.source.pages = [EMPTY, EMPTY]
    caught_up = await harness.sweeper.catch_up(job(RangeArgs(user_id=ANN, floor=PostId(50))))
    (given,) = jobs_of(caught_up, "reposts")
    assert isinstance(await harness.sweeper.reposts(job(given)), Done)
    assert len(harness.source.asked) == 2


async def test_walks_of_one_span_fall_due_together_and_people_after_them() -> None:
    outcome = await Harness().backfill(page(post(90, answers=1, whom=BOB)))
    due = {each.kind: each.run_at for each in writes(outcome) if isinstance(each, NewJob)}
    assert due == {"walk": START + timedelta(seconds=30), "hydrate_user": START + timedelta(seconds=90)}


async def test_a_second_look_that_finds_more_forgets_the_suspicion() -> None:
    outcome = await Harness().backfill(
        page(post(4)), suspected=True, oldest_post_id=PostId(5), newest_post_id=PostId(9)
    )
    assert isinstance(outcome, Continue)
    assert outcome.args == BackfillArgs(user_id=ANN)


async def test_two_looks_and_the_profile_end_the_backfill_and_start_the_retweets() -> None:
    harness = Harness()
    harness.source.profiles = [gathered(users=[user(ANN)])]
    outcome = await harness.backfill(EMPTY, suspected=True, oldest_post_id=PostId(5), newest_post_id=PostId(9))
    assert isinstance(outcome, Done)
    assert the(outcome, Swept).backfilled
    assert jobs_of(outcome, "reposts") == [RangeArgs(user_id=ANN)]


async def end_of_backfill(harness: Harness, counted: int, **progress: Any) -> list[HistoryJudged]:
    harness.source.profiles = [gathered(users=[user(ANN, posts_count=counted)])]
    outcome = await harness.backfill(EMPTY, suspected=True, **progress)
    return [each for each in writes(outcome) if isinstance(each, HistoryJudged)]


async def end_of_retweets(harness: Harness, counted: int, **progress: Any) -> list[HistoryJudged]:
    harness.store.accounts[ANN] = account(backfilled_at=START, profiled_at=START, posts_count=counted, **progress)
    harness.source.pages = [EMPTY]
    outcome = await harness.sweeper.reposts(job(RangeArgs(user_id=ANN, suspected=True)))
    return [each for each in writes(outcome) if isinstance(each, HistoryJudged)]


def judged(*, suspect: bool) -> list[HistoryJudged]:
    return [HistoryJudged(platform=X, user_id=ANN, suspect=suspect)]


async def test_an_end_without_any_post_is_suspect_if_the_profile_counts_many() -> None:
    assert await end_of_backfill(Harness(), 500) == judged(suspect=True)
    assert await end_of_backfill(Harness(), 12) == []
    assert await end_of_backfill(Harness(store=Store(stored=3)), 500) == []  # retweets are still to come


async def test_after_the_retweets_half_of_what_the_profile_counts_must_be_stored() -> None:
    assert await end_of_retweets(Harness(store=Store(stored=249)), 500) == judged(suspect=True)
    assert await end_of_retweets(Harness(store=Store(stored=250)), 500) == []
    assert await end_of_retweets(Harness(store=Store(stored=0)), 19) == []


async def test_a_suspect_account_is_cleared_when_enough_came() -> None:
    since: dict[str, Any] = {"suspect_since": START, "reposts_backfilled_at": START}
    assert await end_of_retweets(Harness(store=Store(stored=400)), 500, **since) == judged(suspect=False)
    assert await end_of_retweets(Harness(store=Store(stored=40)), 500, **since) == judged(suspect=True)
    without = Harness(store=Store(stored=400), rules=CollectRules(reposts=False))
    assert await end_of_backfill(without, 500, suspect_since=START) == judged(suspect=False)


async def test_a_history_that_is_swept_again_is_no_fetch_and_no_news_of_what_was_stored() -> None:
    harness = Harness(store=Store(posts={PostId(90): post(90), PostId(80): post(80)}))
    harness.store.accounts[ANN] = account(
        oldest_post_id=PostId(80), newest_post_id=PostId(90), backfilled_at=START, profiled_at=START
    )
    harness.source.pages = [page(post(90), post(80)), EMPTY, EMPTY]
    outcome = await harness.sweeper.catch_up(job(args.resweep(ANN).args))
    for _ in range(2):
        assert isinstance(outcome, Continue)
        outcome = await harness.sweeper.catch_up(job(outcome.args))
    assert the(outcome, Swept).oldest == 80
    assert not [each for each in writes(outcome) if isinstance(each, Fetched | NewEvent)]


async def test_without_the_second_pass_no_retweets_are_asked_for() -> None:
    harness = Harness(rules=CollectRules(reposts=False))
    harness.source.profiles = [gathered(users=[user(ANN)])]
    outcome = await harness.backfill(EMPTY, suspected=True, oldest_post_id=PostId(5), newest_post_id=PostId(9))
    assert jobs_of(outcome, "reposts") == []


async def test_a_renamed_account_is_followed_by_its_id() -> None:
    harness = Harness()
    harness.source.profiles = [gathered(users=[user(ANN, "ann_now")])]
    outcome = await harness.backfill(EMPTY, suspected=True, oldest_post_id=PostId(5), newest_post_id=PostId(9))
    assert isinstance(outcome, Continue)
    assert the(outcome, User).handle == "ann_now"
    assert not [each for each in writes(outcome) if isinstance(each, Swept)]


async def test_posts_of_another_user_under_the_handle_are_kept_but_move_nothing() -> None:
    harness = Harness()
    harness.source.profiles = [gathered(users=[user(ANN, "ann_now")])]
    strangers = page(post(3, BOB))
    for suspected in (False, True):
        outcome = await harness.backfill(
            strangers, suspected=suspected, oldest_post_id=PostId(5), newest_post_id=PostId(9)
        )
        assert isinstance(outcome, Continue)
        assert outcome.args == BackfillArgs(user_id=ANN, suspected=not suspected)
        assert [each.id for each in writes(outcome) if isinstance(each, Post)] == [3]
        assert not [each for each in writes(outcome) if isinstance(each, Swept)]


async def test_a_profile_without_a_handle_is_not_a_rename() -> None:
    harness = Harness()
    harness.source.profiles = [gathered(users=[msgspec.structs.replace(user(ANN), handle=None)])]
    outcome = await harness.backfill(EMPTY, suspected=True, oldest_post_id=PostId(5), newest_post_id=PostId(9))
    assert isinstance(outcome, Done)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (gathered(users=[user(ANN, protected=True)]), AccountState.PROTECTED),
        (gathered(users=[user(ANN, unavailable_reason="Suspended")]), AccountState.SUSPENDED),
        (gathered(users=[user(ANN, unavailable_reason="gone fishing")]), AccountState.VANISHED),
        (gathered(), AccountState.VANISHED),
    ],
)
async def test_an_account_that_cannot_be_collected_says_why_and_is_looked_at_again(
    found: Gathered, state: AccountState
) -> None:
    harness = Harness()
    harness.source.profiles = [found]
    outcome = await harness.backfill(EMPTY, suspected=True)
    change = the(outcome, AccountStateChange)
    assert (change.state, change.next_look_at) == (state, START + timedelta(days=7))
    assert change.reason


async def test_a_reply_whose_parent_is_missing_gets_one_walk() -> None:
    harness = Harness()
    harness.store.posts = {PostId(40): post(40, BOB)}
    replies = [post(90, answers=70, whom=BOB), post(80, answers=40, whom=BOB), post(75, answers=60, whom=CHARLIE)]
    outcome = await harness.backfill(page(*replies, along=[post(70, BOB)]))
    assert jobs_of(outcome, "walk") == [
        WalkArgs(
            conversation_id=PostId(1),
            reply_id=PostId(75),
            next_id=PostId(60),
            next_user_id=CHARLIE,
            account_id=ANN,
        )
    ]


async def test_a_stored_parent_that_is_itself_a_reply_is_climbed_to_where_we_lack_something() -> None:
    harness = Harness()
    harness.store.posts = {PostId(40): post(40, BOB, answers=30, whom=CHARLIE)}
    outcome = await harness.backfill(page(post(80, answers=40, whom=BOB)))
    (walk,) = jobs_of(outcome, "walk")
    assert isinstance(walk, WalkArgs)
    assert (walk.next_id, walk.next_user_id) == (30, CHARLIE)


async def test_whom_a_reply_answers_is_hydrated_if_unknown() -> None:
    harness = Harness()
    harness.store.users = {BOB}
    outcome = await harness.backfill(page(post(90, answers=1, whom=BOB), post(80, answers=2, whom=CHARLIE)))
    assert jobs_of(outcome, "hydrate_user") == [HydrateUserArgs(user_id=CHARLIE)]


async def test_hydrations_of_one_span_fall_due_together() -> None:
    fill = timedelta(seconds=30)
    jobs = [args.hydrate_user(ANN, now=START + timedelta(seconds=second), fill=fill) for second in (0, 7, 29)]
    assert {each.run_at for each in jobs} == {START + timedelta(seconds=90)}
    tracked = args.hydrate_user(ANN, now=START, fill=fill, tracked=True)
    assert tracked.run_at is not None
    assert tracked.run_at < START


async def test_a_post_that_is_a_gap_or_stored_already_gets_no_new_job() -> None:
    harness = Harness()
    harness.store.gaps, harness.store.posts = {PostId(85)}, {PostId(84): post(84)}
    bad = [unreadable(post_id=each) for each in (85, 84, 83)]
    outcome = await harness.backfill(page(post(90), bad=bad))
    assert jobs_of(outcome, "hydrate_post") == [HydratePostArgs(post_id=PostId(83), account_id=ANN)]


async def test_an_unreadable_post_is_asked_for_again_by_id_or_between_its_neighbours() -> None:
    harness = Harness()
    bad = [unreadable(post_id=85), unreadable(above=80, below=70), unreadable(above=60)]
    outcome = await harness.backfill(page(post(90), post(80), post(70), post(60), bad=bad))
    assert jobs_of(outcome, "hydrate_post") == [HydratePostArgs(post_id=PostId(85), account_id=ANN)]
    assert jobs_of(outcome, "catch_up") == [RangeArgs(user_id=ANN, floor=PostId(70), ceiling=PostId(79), mending=True)]
    assert [each for each in writes(outcome) if isinstance(each, Unreadable)] == bad


async def test_a_page_of_nothing_but_legible_ids_is_passed() -> None:
    outcome = await Harness().backfill(page(bad=[unreadable(post_id=44)]), oldest_post_id=PostId(50))
    assert the(outcome, Swept).oldest == 44
    assert jobs_of(outcome, "hydrate_post") == [HydratePostArgs(post_id=PostId(44), account_id=ANN)]


async def test_a_mending_look_ends_with_what_it_finds_and_with_nothing_after_a_second_one() -> None:
    given = RangeArgs(user_id=ANN, floor=PostId(70), ceiling=PostId(79), mending=True)
    outcome = await Harness().catch_up(page(post(75), more=False), given)
    assert isinstance(outcome, Done)
    assert not [each for each in writes(outcome) if isinstance(each, Swept)]
    again = await Harness().catch_up(EMPTY, given)
    assert isinstance(again, Continue)
    assert isinstance(await Harness().catch_up(EMPTY, msgspec.structs.replace(given, suspected=True)), Done)


@pytest.mark.parametrize(
    ("found", "newest"), [(page(post(95), more=False), 95), (page(post(95), more=True), None)], ids=["all", "some"]
)
async def test_a_mending_look_above_everything_may_find_the_newest(found: Page, newest: int | None) -> None:
    outcome = await Harness().catch_up(found, RangeArgs(user_id=ANN, floor=PostId(50), mending=True))
    assert [each.newest for each in writes(outcome) if isinstance(each, Swept)] == ([newest] if newest else [])


async def test_unreadable_retweets_are_mended_by_their_own_pass() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(profiled_at=START)
    harness.source.pages = [page(post(44), bad=[unreadable(below=44)])]
    outcome = await harness.sweeper.reposts(job(RangeArgs(user_id=ANN)))
    assert jobs_of(outcome, "reposts") == [RangeArgs(user_id=ANN, floor=PostId(44), mending=True)]
    assert jobs_of(outcome, "catch_up") == []


async def test_a_catch_up_raises_the_newest_only_when_all_between_is_there() -> None:
    harness, given = Harness(), RangeArgs(user_id=ANN, floor=PostId(50))
    first = await harness.catch_up(page(post(90), post(80)), given)
    assert harness.source.asked == ["from:ann since_id:50"]
    assert isinstance(first, Continue)
    assert first.args == RangeArgs(user_id=ANN, floor=PostId(50), ceiling=PostId(79), top=PostId(90), found=2)
    assert not [each for each in writes(first) if isinstance(each, Swept)]
    assert isinstance(first.args, RangeArgs)
    suspects = await harness.catch_up(EMPTY, first.args)
    assert harness.source.asked[-1] == "from:ann since_id:50 max_id:79"
    assert isinstance(suspects, Continue)
    assert isinstance(suspects.args, RangeArgs)
    assert suspects.args.suspected
    done = await harness.catch_up(EMPTY, suspects.args)
    swept = the(done, Swept)
    assert (swept.newest, swept.oldest, swept.found) == (90, None, 2)


async def test_a_catch_up_that_finds_nothing_costs_one_page() -> None:
    outcome = await Harness().catch_up(EMPTY, RangeArgs(user_id=ANN, floor=PostId(50)))
    assert isinstance(outcome, Done)
    assert (the(outcome, Swept).newest, the(outcome, Swept).found) == (None, 0)


async def test_the_first_posts_of_an_account_that_had_none_set_both_boundaries() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(backfilled_at=START, profiled_at=START)
    harness.source.pages = [page(post(90), post(80)), EMPTY, EMPTY]
    outcome = await harness.sweeper.catch_up(job(args.catch_up(ANN, None).args))
    assert harness.source.asked == ["from:ann"]
    for _ in range(2):
        assert isinstance(outcome, Continue)
        outcome = await harness.sweeper.catch_up(job(outcome.args))
    swept = the(outcome, Swept)
    assert (swept.oldest, swept.newest, swept.found) == (80, 90, 2)


async def test_a_look_at_an_account_that_still_has_no_posts_costs_one_page() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(backfilled_at=START, profiled_at=START)
    harness.source.pages = [EMPTY]
    outcome = await harness.sweeper.catch_up(job(args.catch_up(ANN, None).args))
    assert isinstance(outcome, Done)
    swept = the(outcome, Swept)
    assert (swept.oldest, swept.newest, swept.found) == (None, None, 0)


async def test_retweets_take_a_pass_of_their_own_and_move_their_own_boundary() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(oldest_post_id=PostId(10), newest_post_id=PostId(50), profiled_at=START)
    harness.source.pages = [page(post(44)), EMPTY, EMPTY]
    outcome = await harness.sweeper.reposts(job(RangeArgs(user_id=ANN)))
    assert harness.source.asked == ["from:ann filter:nativeretweets"]
    for _ in range(2):
        assert isinstance(outcome, Continue)
        outcome = await harness.sweeper.reposts(job(outcome.args))
    swept = the(outcome, Swept)
    assert (swept.newest_repost, swept.newest, swept.reposts_backfilled) == (44, None, True)


async def test_an_untracked_account_is_swept_no_further() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = msgspec.structs.replace(account(), state=AccountState.UNTRACKED)
    assert await harness.sweeper.backfill(job(BackfillArgs(user_id=ANN))) == Done()
    assert harness.source.asked == []


def walk(next_id: int, *, reply: int = 90, whom: int | None = BOB, job_id: int = 1) -> Job[WalkArgs]:
    given = WalkArgs(
        conversation_id=PostId(1),
        reply_id=PostId(reply),
        next_id=PostId(next_id),
        next_user_id=UserId(whom) if whom else None,
        account_id=ANN,
    )
    return job(given, job_id=job_id)


async def test_walks_go_up_one_level_with_one_call() -> None:
    harness = Harness()
    harness.store.posts = {PostId(30): post(30, BOB)}
    harness.source.lookups = [gathered(post(70, BOB, answers=60, whom=CHARLIE), post(50, BOB))]
    walks = [walk(70), walk(50, job_id=2), walk(30, job_id=3), walk(40, job_id=4), walk(70, reply=91, job_id=5)]
    up, root, stored, gone, same = await harness.threads.walk(walks)
    assert harness.source.by_id == [[40, 50, 70]]
    assert isinstance(up, Continue)
    assert up.args == msgspec.structs.replace(walks[0].args, next_id=PostId(60), next_user_id=CHARLIE)
    assert isinstance(root, Done)
    assert [each.id for each in root.writes if isinstance(each, Post)] == [50]
    assert stored == Done([])
    assert the(gone, Missing).id == 40
    assert jobs_of(gone, "hydrate_user") == [HydrateUserArgs(user_id=BOB)]
    assert isinstance(same, Continue)
    assert [each.id for each in same.writes if isinstance(each, Post)] == [70]
    for outcome in (up, root, stored, gone, same):
        assert jobs_of(outcome, "walk") == []
        assert not [each for each in writes(outcome) if isinstance(each, Swept)]


async def test_a_walk_waits_for_the_sweep_that_will_bring_its_post() -> None:
    harness = Harness()
    harness.store.swept = {BOB}
    (outcome,) = await harness.threads.walk([walk(70)])
    assert isinstance(outcome, Snooze)
    assert outcome.until == START + timedelta(seconds=5)
    assert outcome.awaits == Awaited(KindName("backfill"), str(BOB))
    assert harness.source.by_id == []
    harness.clock.turn(hours=2)
    (outcome,) = await harness.threads.walk([walk(70)])
    assert isinstance(outcome, Snooze)
    assert outcome.until == harness.clock.now() + timedelta(minutes=10)


async def test_two_batches_do_not_pay_for_the_same_post() -> None:
    harness = Harness()
    harness.source.lookups = [gathered(post(70, BOB))]
    await harness.threads.walk([walk(70)])
    (outcome,) = await harness.threads.walk([walk(70, reply=91)])
    assert isinstance(outcome, Snooze)
    assert len(harness.source.by_id) == 1


async def test_a_post_that_could_not_be_read_is_not_taken_for_gone() -> None:
    harness = Harness()
    harness.source.lookups = [gathered(bad=[unreadable()])]
    (outcome,) = await harness.threads.walk([walk(70)])
    assert isinstance(outcome, Retry)


async def test_each_post_of_a_batch_has_its_own_error() -> None:
    harness = Harness()
    bad = [unreadable(post_id=71), msgspec.structs.replace(unreadable(post_id=72), problem="no text")]
    given = [job(HydratePostArgs(post_id=PostId(each)), job_id=each) for each in (70, 71, 72, 73)]
    harness.source.lookups = [gathered(post(70), bad=bad)]
    found, first, second, gone = await harness.threads.hydrate(given)
    assert isinstance(found, Done)
    assert isinstance(first, Retry)
    assert isinstance(second, Retry)
    assert (first.error, second.error) == ("cannot be read: no author", "cannot be read: no text")
    assert isinstance(gone, Done)
    assert the(gone, Missing).id == 73
    harness.source.lookups = [gathered(post(70), bad=[unreadable()])]
    (unsure,) = await harness.threads.hydrate([given[3]])
    assert isinstance(unsure, Retry)
    assert unsure.error == "not among the posts that could be read; one without an id: no author"


async def test_walks_have_their_own_errors() -> None:
    harness = Harness()
    harness.source.lookups = [gathered(bad=[unreadable(post_id=70)])]
    unread, gone = await harness.threads.walk([walk(70), walk(60, job_id=2)])
    assert unread == Retry("cannot be read: no author")
    assert the(gone, Missing).id == 60


async def test_a_post_that_is_stored_by_now_is_not_asked_for_again() -> None:
    harness = Harness()
    harness.store.posts = {PostId(70): post(70)}
    (outcome,) = await harness.threads.hydrate([job(HydratePostArgs(post_id=PostId(70), account_id=ANN))])
    assert (outcome, harness.source.by_id) == (Done(), [])


async def test_posts_by_id_are_settled_each_alone() -> None:
    harness = Harness()
    harness.source.lookups = [gathered(post(70, ANN, answers=60, whom=BOB))]
    swept = HydratePostArgs(post_id=PostId(70), account_id=ANN)
    found, gone = await harness.threads.hydrate([job(swept), job(HydratePostArgs(post_id=PostId(71)), job_id=2)])
    assert len(jobs_of(found, "walk")) == 1
    assert isinstance(gone, Done), "there is nothing to do about a post that is gone: it is no failure"
    assert the(gone, Missing).id == 71


async def test_users_by_id_are_settled_each_alone() -> None:
    harness = Harness()
    harness.store.users = {BOB}
    harness.source.profiles = [gathered(users=[user(ANN)])]
    given = [HydrateUserArgs(user_id=each) for each in (ANN, BOB, CHARLIE)]
    found, known, gone = await harness.profiler.hydrate([job(each, job_id=n) for n, each in enumerate(given)])
    assert harness.source.by_id == [[ANN, CHARLIE]]
    assert the(found, User).id == ANN
    assert known == Done([])
    assert isinstance(gone, Done), "there is nothing to do about users who are gone: it is no failure"
    assert the(gone, Missing).what == "user"


@pytest.mark.parametrize(("wanted", "stale", "asked"), [(5, 500, 5), (6, 500, 100), (6, 50, 6), (100, 500, 100)])
async def test_a_batch_is_filled_up_where_that_is_cheaper(wanted: int, stale: int, asked: int) -> None:
    harness = Harness()
    harness.store.stale = [UserId(number) for number in range(1000, 1000 + stale)]
    harness.source.profiles = [gathered()]
    await harness.profiler.hydrate([job(HydrateUserArgs(user_id=UserId(n)), job_id=n) for n in range(1, wanted + 1)])
    assert len(harness.source.by_id[0]) == asked


async def test_a_tracked_user_known_by_id_becomes_an_account_with_a_backfill() -> None:
    harness = Harness()
    harness.source.profiles = [gathered(users=[user(ANN)])]
    (outcome,) = await harness.profiler.hydrate([job(HydrateUserArgs(user_id=ANN, tracked=True))])
    assert the(outcome, AccountTracked).user_id == ANN
    assert jobs_of(outcome, "backfill") == [BackfillArgs(user_id=ANN)]


async def test_a_suggestion_becomes_an_account_with_one_backfill() -> None:
    harness = Harness()
    harness.source.handles = {"ann": user(ANN)}
    outcome = await harness.profiler.suggestion(job(args.SuggestionArgs(handle="ann")))
    assert the(outcome, AccountTracked).user_id == ANN
    assert the(outcome, SuggestionClosed).accepted
    assert jobs_of(outcome, "backfill") == [BackfillArgs(user_id=ANN)]


async def test_a_suggestion_of_a_tracked_account_catches_up() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(
        backfilled_at=START, oldest_post_id=PostId(1), newest_post_id=PostId(9), profiled_at=START
    )
    harness.source.handles = {"ann_now": user(ANN, "ann_now")}
    outcome = await harness.profiler.suggestion(job(args.SuggestionArgs(handle="ann_now")))
    assert jobs_of(outcome, "catch_up") == [RangeArgs(user_id=ANN, floor=PostId(9))]
    assert jobs_of(outcome, "backfill") == []


async def test_a_suggestion_of_a_tracked_account_without_posts_catches_up() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = account(backfilled_at=START, profiled_at=START)
    harness.source.handles = {"ann": user(ANN)}
    outcome = await harness.profiler.suggestion(job(args.SuggestionArgs(handle="ann")))
    assert jobs_of(outcome, "catch_up") == [RangeArgs(user_id=ANN)]


@pytest.mark.parametrize(
    ("found", "why"),
    [({}, "no account of that name"), ({"ann": user(ANN, unavailable_reason="Suspended")}, "Suspended")],
)
async def test_a_suggestion_that_leads_nowhere_is_closed_with_the_reason(found: dict[str, User], why: str) -> None:
    harness = Harness()
    harness.source.handles = found
    outcome = await harness.profiler.suggestion(job(args.SuggestionArgs(handle="ann")))
    closed = the(outcome, SuggestionClosed)
    assert not closed.accepted
    assert why in (closed.reason or "")
    assert not [each for each in writes(outcome) if isinstance(each, NewJob | AccountTracked)]


async def test_a_protected_user_is_tracked_and_waits() -> None:
    harness = Harness()
    harness.source.handles = {"ann": user(ANN, protected=True)}
    outcome = await harness.profiler.suggestion(job(args.SuggestionArgs(handle="ann")))
    assert the(outcome, AccountStateChange).state is AccountState.PROTECTED
    assert jobs_of(outcome, "backfill") == []


async def test_a_second_look_at_an_account_that_opened_starts_its_sweep() -> None:
    harness = Harness()
    harness.store.accounts[ANN] = msgspec.structs.replace(account(), state=AccountState.PROTECTED)
    harness.source.profiles = [gathered(users=[user(ANN)])]
    outcome = await harness.profiler.relook(job(RelookArgs(user_id=ANN)))
    assert the(outcome, AccountStateChange).state is AccountState.ACTIVE
    assert jobs_of(outcome, "backfill") == [BackfillArgs(user_id=ANN)]
