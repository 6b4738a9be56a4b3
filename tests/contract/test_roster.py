"""Suggestions and accounts: one live suggestion per handle, its job with it, and a clean end to tracking."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mistnet.queue.errors import UnknownKind
from mistnet.queue.kinds import Policy
from mistnet.queue.model import Done, JobState, Lease, NewJob, WorkerName, Write
from mistnet.queue.settler import settlement
from mistnet.queue.store.writes import PreparedWrites, Writers
from mistnet.settings import load_settings
from mistnet.social.accounts import AccountState, AccountStateChange, AccountTracked, SuggestionClosed, Swept
from mistnet.social.coverage import AccountProgress, SweepKind
from mistnet.social.jobs import args
from mistnet.social.model import Detail, Post, PostId, User, UserId, X
from mistnet.social.store.account_pages import AccountPages
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.tracking import (
    NewSuggestion,
    Refusals,
    RefusedHandle,
    Suggested,
    SuggestionResult,
    TrackingStore,
)
from mistnet.social.tracking import next_step, track_handles, track_ids
from mistnet.sources.collecting import WRITERS
from tests.contract.test_plans import plan
from tests.databases import analyze, make_app
from tests.support import START, TurnedClock, new

pytestmark = pytest.mark.common_sql

ANN, BEA = UserId(12), UserId(123)


def user(user_id: UserId, handle: str, **about: Any) -> User:
    return User(platform=X, id=user_id, detail=Detail.PROFILE, handle=handle, raw=b"{}", **about)


def post(post_id: int, author: UserId = ANN) -> Post:
    return Post(platform=X, id=PostId(post_id), author_id=author, text="words", created_at=START, raw=b"{}")


def tracked(user_id: UserId) -> AccountTracked:
    return AccountTracked(platform=X, user_id=user_id)


def changed(user_id: UserId, state: AccountState, reason: str | None = None) -> AccountStateChange:
    return AccountStateChange(platform=X, user_id=user_id, state=state, reason=reason)


def swept(user_id: UserId, **about: Any) -> Swept:
    return Swept(platform=X, user_id=user_id, **about)


class Harness:
    """An app on a real database, with its tracking store."""

    def __init__(self, url: str) -> None:
        self.clock = TurnedClock()
        self.app = make_app(load_settings(database_url=url), clock=self.clock)
        self.tracking_store = TrackingStore(self.app.database, self.app.job_writer)

    async def suggest(self, *handles: str, **about: Any) -> Sequence[Suggested]:
        wanted = [NewSuggestion(handle=handle, **about) for handle in handles]
        return await self.tracking_store.suggest(wanted, job=args.suggestion, now=self.clock.now())

    async def accounts(self, user_ids: Sequence[UserId] | None = None) -> Sequence[AccountProgress]:
        return await Coverage(self.app.database).accounts(user_ids)

    async def results(self, *handles: str) -> list[SuggestionResult]:
        return [each.result for each in await self.suggest(*handles)]

    async def write(self, *writes: Write) -> None:
        async with self.app.database.transaction() as connection:
            await Writers(WRITERS).write(connection, PreparedWrites(writes), self.clock.now())

    async def enqueue(self, *jobs: NewJob) -> None:
        await self.app.enqueue(jobs)

    async def claim(self) -> Sequence[Lease]:
        return await self.app.queue.claim(
            worker=WorkerName("ann"),
            targets=self.app.kinds.targets(slots=1, lanes=None, lane_caps={}),
            room=1,
            lease=timedelta(seconds=60),
            now=self.clock.now(),
            aged_before=None,
        )

    async def sql(self, query: str) -> list[Any]:
        async with self.app.database.transaction() as connection:
            result = await connection.execute(text(query))
            return [tuple(row) for row in result] if result.returns_rows else []

    async def jobs(self) -> list[tuple[str, str]]:
        return await self.sql("SELECT kind, key FROM jobs ORDER BY kind, key")


@asynccontextmanager
async def open_harness(url: str) -> AsyncIterator[Harness]:
    harness = Harness(url)
    try:
        yield harness
    finally:
        await harness.app.database.close()


async def test_a_suggestion_lands_with_its_job_and_what_was_said_of_it(url: str) -> None:
    async with open_harness(url) as harness:
        assert await harness.suggest("Ann_1", wallet="0xabc", labels={"team": "réd"}) == [
            Suggested(handle="Ann_1", result=SuggestionResult.ADDED)
        ]
        (kept,) = await harness.tracking_store.suggestions()
        assert (kept.handle, kept.wallet, json.loads(bytes(kept.labels))) == ("Ann_1", "0xabc", {"team": "réd"})
        assert (kept.suggested_at, kept.deleted_at, kept.outcome) == (START, None, None)
        assert await harness.jobs() == [("suggestion", "ann_1")]


async def test_a_handle_is_suggested_once_however_it_is_written(url: str) -> None:
    async with open_harness(url) as harness:
        assert await harness.results("Ann", "bea", "ANN") == [SuggestionResult.ADDED, SuggestionResult.ADDED]
        assert await harness.results("ann", "cid") == [SuggestionResult.SUGGESTED, SuggestionResult.ADDED]
        assert [each.handle for each in await harness.tracking_store.suggestions()] == ["Ann", "bea", "cid"]
        assert await harness.jobs() == [("suggestion", "ann"), ("suggestion", "bea"), ("suggestion", "cid")]


async def test_what_a_second_suggestion_says_is_added_to_the_first(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.suggest("ann", labels={"team": "red", "city": "Rome"})
        (told,) = await harness.suggest("Ann", wallet="0xabc", labels={"team": "blue"})
        assert told == Suggested(handle="Ann", result=SuggestionResult.SUGGESTED, merged=True)
        (kept,) = await harness.tracking_store.suggestions()
        labels = {"team": "blue", "city": "Rome"}
        assert (kept.handle, kept.wallet, json.loads(bytes(kept.labels))) == ("ann", "0xabc", labels)
        assert [each.merged for each in await harness.suggest("ann")] == [False]
        twice = [NewSuggestion(handle="bea", wallet="0x1"), NewSuggestion(handle="BEA", labels={"a": "b"})]
        await harness.tracking_store.suggest(twice, job=args.suggestion, now=harness.clock.now())
        bea = (await harness.tracking_store.suggestions())[-1]
        assert (bea.wallet, json.loads(bytes(bea.labels))) == ("0x1", {"a": "b"})


async def test_what_is_said_of_an_account_that_is_tracked_is_kept(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.suggest("ann", labels={"team": "red"})
        accepted = SuggestionClosed(platform=X, handle="ann", accepted=True, user_id=ANN)
        await harness.write(user(ANN, "ann"), tracked(ANN), accepted)
        await harness.write(user(BEA, "bea"), tracked(BEA))  # by its id, without a suggestion
        for handle in ("ann", "bea"):
            (told,) = await harness.suggest(handle, wallet="0xabc")
            assert (told.result, told.merged) == (SuggestionResult.TRACKED, True)
        kept = await harness.tracking_store.suggestions(live_only=False)
        assert [(each.handle, each.wallet, each.outcome, each.user_id) for each in kept] == [
            ("ann", "0xabc", "accepted", ANN),
            ("bea", "0xabc", "accepted", BEA),
        ]
        assert json.loads(bytes(kept[0].labels)) == {"team": "red"}


async def refuse(harness: Harness, handle: str, reason: str = "nobody") -> None:
    await harness.suggest(handle)
    await harness.write(SuggestionClosed(platform=X, handle=handle, accepted=False, reason=reason))
    await harness.sql("DELETE FROM jobs")


async def test_a_refusal_stands_until_the_handle_is_suggested_again_tracked_or_let_go(url: str) -> None:
    async with open_harness(url) as harness:
        refusals = Refusals(harness.app.database)
        for handle in ("ann", "bea", "Cy"):
            await refuse(harness, handle, f"no {handle}")
        assert [(each.handle, each.reason) for each in await refusals.list()] == [
            ("Cy", "no Cy"),
            ("bea", "no bea"),
            ("ann", "no ann"),
        ]
        await harness.suggest("ann")
        await harness.write(user(BEA, "bea"), tracked(BEA))
        assert [each.handle for each in await refusals.list()] == ["Cy"]
        found = await refusals.of_handle("CY")
        assert found == RefusedHandle(handle="Cy", reason="no Cy", refused_at=START)
        gone = await harness.tracking_store.untrack("cy", "a typo", now=harness.clock.now())
        assert (gone.withdrawn, gone.known) == (True, True)
        assert await refusals.list() == []
        await refuse(harness, "cy", "still nobody")
        assert [each.reason for each in await refusals.list()] == ["still nobody"]


async def test_the_same_handle_suggested_by_many_at_once_gives_one_live_suggestion(url: str) -> None:
    async def somebody(order: int) -> list[SuggestionResult]:
        async with open_harness(url) as harness:
            handles = ["ann", "bea", "cid", "dan"]
            return await harness.results(*(handles if order % 2 else reversed(handles)))

    results = await asyncio.gather(*(somebody(order) for order in range(8)))
    assert sum(each is SuggestionResult.ADDED for result in results for each in result) == 4
    async with open_harness(url) as harness:
        assert len(await harness.tracking_store.suggestions()) == 4
        assert len(await harness.jobs()) == 4


async def test_without_its_job_there_is_no_suggestion(url: str) -> None:
    async with open_harness(url) as harness:
        with pytest.raises(UnknownKind):
            await harness.tracking_store.suggest(
                [NewSuggestion(handle="ann")], job=lambda _: new("nonsense"), now=START
            )
        assert await harness.tracking_store.suggestions(live_only=False) == []


async def test_many_thousand_handles_are_suggested_at_once(url: str) -> None:
    async with open_harness(url) as harness:
        handles = [f"h{number}" for number in range(6_000)]
        assert set(await harness.results(*handles)) == {SuggestionResult.ADDED}
        assert set(await harness.results(*handles)) == {SuggestionResult.SUGGESTED}
        assert await harness.sql("SELECT count(*) FROM jobs") == [(6_000,)]


@pytest.mark.parametrize("state", ["dead", "failed"])
async def test_a_suggestion_whose_job_ended_as_a_gap_is_taken_up_again(url: str, state: str) -> None:
    async with open_harness(url) as harness:
        await harness.suggest("ann")
        await harness.sql(f"UPDATE jobs SET state = '{state}', attempts = 5")
        assert await harness.results("ann") == [SuggestionResult.SUGGESTED]
        assert await harness.sql("SELECT kind, key, state, attempts FROM jobs") == [("suggestion", "ann", "pending", 0)]


async def test_a_suggestion_whose_job_was_cancelled_gets_a_new_one(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.suggest("ann")
        await harness.sql("DELETE FROM jobs")
        assert await harness.results("ann") == [SuggestionResult.SUGGESTED]
        assert await harness.jobs() == [("suggestion", "ann")]


@pytest.mark.parametrize("state", [state for state in AccountState if state is not AccountState.UNTRACKED])
async def test_who_is_tracked_is_not_suggested_again(url: str, state: AccountState) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "Ann"), tracked(ANN), changed(ANN, state))
        assert await harness.suggest("aNN") == [Suggested(handle="aNN", result=SuggestionResult.TRACKED, user_id=ANN)]
        assert await harness.tracking_store.suggestions() == []
        assert await harness.jobs() == []


async def test_who_is_known_but_not_tracked_may_be_suggested(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), user(BEA, "bea"), tracked(BEA))
        await harness.tracking_store.untrack("bea", "enough", now=START)
        assert await harness.results("ann", "bea") == [SuggestionResult.ADDED, SuggestionResult.ADDED]


async def test_a_former_holder_of_a_handle_does_not_stand_in_the_way(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "star"), tracked(ANN))
        harness.clock.turn(days=1)
        await harness.write(user(BEA, "star"))
        assert await harness.results("star") == [SuggestionResult.ADDED]
        gone = await harness.tracking_store.untrack("star", "enough", now=START)
        assert (gone.user_id, gone.was) == (ANN, AccountState.ACTIVE)


async def test_untracking_ends_the_accounts_own_jobs_and_nothing_else(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), user(BEA, "bea"), tracked(ANN), tracked(BEA), post(1))
        own = [
            args.backfill(ANN),
            args.catch_up(ANN, PostId(5)),
            args.mend(ANN, PostId(5), PostId(9)),
            args.reposts(ANN, PostId(0)),
            args.relook(ANN),
            args.hydrate_user(ANN, now=START, fill=timedelta(), tracked=True),
        ]
        others = [args.backfill(BEA), args.mend(BEA, PostId(1), None), args.hydrate_post(PostId(ANN))]
        await harness.enqueue(*own, *others)
        gone = await harness.tracking_store.untrack("ANN", "no money", now=START)
        assert (gone.user_id, gone.was, len(gone.cancelled)) == (ANN, AccountState.ACTIVE, len(own))
        assert await harness.jobs() == sorted((job.kind, job.key) for job in others)
        assert await harness.sql("SELECT DISTINCT state FROM job_history") == [("cancelled",)]
        ann, bea = await harness.accounts()
        assert (ann.state, ann.state_reason, ann.next_look_at) == (AccountState.UNTRACKED, "no money", None)
        assert (ann.stored, bea.state) == (1, AccountState.ACTIVE)


async def test_a_hydration_that_only_fetches_outlives_the_tracking(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN))
        await harness.enqueue(args.hydrate_user(ANN, now=START, fill=timedelta()))
        await harness.tracking_store.untrack(ANN, "enough", now=START)
        assert await harness.jobs() == [("hydrate_user", "12")]


async def test_what_a_worker_was_doing_for_an_untracked_account_is_void(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN))
        await harness.enqueue(args.backfill(ANN))
        (lease,) = await harness.claim()
        await harness.tracking_store.untrack("ann", "enough", now=START)
        late = settlement(lease, Done([post(1)]), now=START, policy=Policy(), chance=0.5)
        assert await harness.app.queue.settle([late], now=START) == set()
        assert await harness.sql("SELECT count(*) FROM posts") == [(0,)]


async def test_untracking_who_was_only_suggested_withdraws_the_suggestion(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.suggest("Ann", "bea")
        gone = await harness.tracking_store.untrack("ann", "a slip", now=START)
        assert (gone.was, gone.withdrawn, len(gone.cancelled)) == (None, True, 1)
        assert [each.handle for each in await harness.tracking_store.suggestions()] == ["bea"]
        closed = (await harness.tracking_store.suggestions(live_only=False))[0]
        assert (closed.handle, closed.outcome, closed.reason, closed.deleted_at) == ("Ann", "refused", "a slip", START)
        assert await harness.jobs() == [("suggestion", "bea")]
        assert await harness.results("ann") == [SuggestionResult.ADDED]


async def test_untracking_by_id_also_withdraws_what_was_suggested_meanwhile(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.suggest("ann")
        await harness.write(user(ANN, "Ann"), tracked(ANN))
        gone = await harness.tracking_store.untrack(ANN, "enough", now=START)
        assert (gone.was, gone.withdrawn) == (AccountState.ACTIVE, True)
        assert await harness.jobs() == []


async def test_untracking_twice_or_an_unknown_account_changes_nothing(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN), user(BEA, "bea"))
        await harness.tracking_store.untrack("ann", "first", now=START)
        again = await harness.tracking_store.untrack("ann", "second", now=harness.clock.turn(days=1))
        assert (again.known, again.was) == (True, AccountState.UNTRACKED)
        ann = await AccountPages(harness.app.database).account(ANN)
        assert ann is not None
        assert (ann.state_reason, ann.state_since) == ("first", START)
        for nobody in ("bea", "cid", BEA, UserId(99)):
            assert not (await harness.tracking_store.untrack(nobody, "why", now=START)).known


async def test_the_list_of_accounts_tells_how_far_each_is(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(
            user(ANN, "Zoe", posts_count=40),
            user(BEA, "bea"),
            tracked(ANN),
            tracked(BEA),
            *(post(each) for each in (5, 6, 9)),
            swept(ANN, oldest=PostId(5), newest=PostId(9), backfilled=True, found=3),
        )
        await harness.enqueue(
            args.catch_up(ANN, PostId(9)), args.mend(ANN, PostId(5), PostId(6)), args.hydrate_post(PostId(ANN))
        )
        bea, zoe = await harness.accounts()
        assert (bea.handle, bea.stored, bea.posts_count, bea.sweeps) == ("bea", 0, None, ())
        assert (zoe.handle, zoe.stored, zoe.posts_count) == ("Zoe", 3, 40)
        assert [each.kind for each in zoe.sweeps] == [SweepKind.CATCH_UP, SweepKind.CATCH_UP]
        assert (zoe.oldest_post_id, zoe.newest_post_id, zoe.backfilled_at) == (5, 9, START)
        assert [each.user_id for each in await harness.accounts([BEA, UserId(77)])] == [BEA]


async def test_posts_of_accounts_without_a_number_are_counted_through_their_index(url: str) -> None:
    async with open_harness(url) as harness:
        people = [UserId(each) for each in range(1, 41)]
        written = [post(each, people[each % 40]) for each in range(1, 4_001)]
        await harness.write(*(user(each, f"h{each}") for each in people), *map(tracked, people), *written)
        async with harness.app.database.read() as connection:
            await analyze(connection)
            explained = await plan(connection, "account_posts", {"platform": X, "ids": people[:2]})
        # On the others every account has its number, which is as quick to find by a scan of so few.
        assert harness.app.database.dialect == "sqlite" or "posts_author" in explained, explained
        assert "SCAN p" not in explained, explained
        assert {each.stored for each in await harness.accounts()} == {100}


async def test_tracking_a_new_handle_adds_a_suggestion(url: str) -> None:
    async with open_harness(url) as harness:
        (told,) = await track_handles(harness.app, [NewSuggestion(handle="Ann")])
        assert (told.result, told.user_id, str(told)) == (
            SuggestionResult.ADDED,
            None,
            "@Ann: its profile is looked up, then its posts are collected",
        )
        assert await harness.jobs() == [("suggestion", "ann")]


async def test_tracking_again_catches_up_once_the_past_is_there(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(
            user(ANN, "ann"), tracked(ANN), swept(ANN, oldest=PostId(5), newest=PostId(9), backfilled=True)
        )
        for note in ("what is new will be collected", "a catch-up is under way"):
            (told,) = await track_handles(harness.app, [NewSuggestion(handle="ann")])
            assert (told.result, told.user_id, told.note) == (SuggestionResult.TRACKED, ANN, f"is tracked; {note}")
        assert await harness.sql("SELECT kind, key, state FROM jobs") == [("catch_up", "12", "pending")]
        (lease,) = await harness.claim()
        assert json.loads(lease.args)["floor"] == 9


async def test_tracking_again_leaves_a_living_backfill_alone_and_says_so(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN), post(1))
        await harness.enqueue(args.backfill(ANN))
        (told,) = await track_handles(harness.app, [NewSuggestion(handle="ann")])
        assert told.note == "is tracked; its past is being collected (1 post so far)"
        assert await harness.jobs() == [("backfill", "12")]


async def test_tracking_again_takes_up_a_backfill_that_died(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN))
        await harness.enqueue(args.backfill(ANN))
        await harness.sql("UPDATE jobs SET state = 'dead', attempts = 5")
        (told,) = await track_handles(harness.app, [NewSuggestion(handle="ann")])
        assert told.note == "is tracked; collecting its past goes on"
        assert await harness.sql("SELECT kind, state, attempts FROM jobs") == [("backfill", "pending", 0)]


async def test_tracking_again_looks_again_at_what_could_not_be_collected(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN), changed(ANN, AccountState.SUSPENDED, "spam"))
        (told,) = await track_handles(harness.app, [NewSuggestion(handle="ann")])
        assert told.note == "is tracked, and suspended (spam); it is looked at again now"
        assert await harness.jobs() == [("relook", "12")]


async def test_an_account_that_never_posted_is_looked_at_for_its_first_post(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN), swept(ANN, backfilled=True))
        (entry,) = await harness.accounts()
        assert next_step(entry)[0] == args.catch_up(ANN, None)


async def test_tracking_by_id_fetches_the_user_and_upgrades_a_plain_fetch(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.enqueue(args.hydrate_user(ANN, now=START, fill=timedelta(minutes=1)))
        told = await track_ids(harness.app, [ANN, BEA, ANN])
        assert [(each.user_id, each.result) for each in told] == [
            (ANN, SuggestionResult.ADDED),
            (BEA, SuggestionResult.ADDED),
        ]
        rows = await harness.sql(
            "SELECT key, CAST(args AS text), state FROM jobs WHERE kind = 'hydrate_user' ORDER BY key"
        )
        assert [(key, json.loads(given)["tracked"], state) for key, given, state in rows] == [
            ("12", True, JobState.PENDING),
            ("123", True, JobState.PENDING),
        ]
        await track_ids(harness.app, [ANN])
        assert await harness.sql("SELECT count(*) FROM jobs") == [(2,)]


async def test_tracking_by_id_goes_on_with_an_account_that_is_tracked(url: str) -> None:
    async with open_harness(url) as harness:
        await harness.write(user(ANN, "ann"), tracked(ANN), user(BEA, "bea"), tracked(BEA))
        await harness.tracking_store.untrack(BEA, "enough", now=START)
        ann, bea = await track_ids(harness.app, [ANN, BEA])
        assert (str(ann), bea.result) == ("@ann: is tracked; collecting its past goes on", SuggestionResult.ADDED)
        assert await harness.jobs() == [("backfill", "12"), ("hydrate_user", "123")]
