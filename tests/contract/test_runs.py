"""Runs on every database: one at a time, counted inside the transaction, ended whatever becomes of their jobs."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from mistnet.app import App
from mistnet.cli.coverage import coverage
from mistnet.cli.hydrate import runs_grid
from mistnet.operations.runs.model import (
    BadRun,
    CapTooLow,
    Run,
    RunAccount,
    RunId,
    RunInProgress,
    RunNotFound,
    RunStatus,
    RunStep,
)
from mistnet.operations.runs.store import new_run_id
from mistnet.queue.kinds import Policy
from mistnet.queue.model import Done, Fail, Lease, Outcome, WorkerName
from mistnet.queue.settler import settlement
from mistnet.social.accounts import AccountState, AccountStateChange, AccountTracked, Fetched, FetchStats, next_limit
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.accounts import STATISTICS, StoreLook, stats_of
from tests.harvests import change, open_harvest, post, rows, run, tell, told, user
from tests.loops import LOOP
from tests.support import START, TurnedClock, finished_run

pytestmark = pytest.mark.common_sql

ANN = UserId(11)


class Office:
    """An app on a real database, with a clock to turn."""

    def __init__(self, app: App, clock: TurnedClock) -> None:
        self.app, self.harness, self.clock = app, app.runs, clock

    async def start(self, *handles: str, limit: int = 10) -> Run:
        run = await self.harness.start(handles or ["ann"], limit, asked_by="somebody", now=self.clock.now())
        self.clock.turn(seconds=1)
        return run

    async def step(self, run: Run, place: int = 0, *, status: str = "running", **told: Any) -> None:
        """Tells a page as a settled job would, the posts with it."""
        posts = [post(each) for each in told.get("posts", ())]
        step = RunStep(run_id=run.id, position=place, status=RunStatus(status), **told)
        await tell(self.app, user(ANN), *posts, step)

    async def get(self, run: Run) -> Run:
        found = await self.harness.get(run.id)
        assert found is not None
        return found

    async def counts(self, run: Run, place: int = 0) -> tuple[int, int, int, int]:
        account = (await self.get(run)).accounts[place]
        return account.total, account.new, account.skipped, account.failed

    async def page(self, limit: int = 50, before: str | None = None) -> Sequence[Run]:
        return (await self.harness.page(self.clock.now(), before=before, limit=limit)).items

    async def new_posts(self, run: Run) -> Sequence[int]:
        query = "SELECT post_id FROM run_posts WHERE run_id = :id ORDER BY post_id"
        return [post_id for (post_id,) in await rows(self.app, query, id=run.id)]

    async def claim(self) -> Lease:
        (lease,) = await self.app.queue.claim(
            worker=WorkerName("ann"),
            targets=self.app.kinds.targets(slots=1, lanes=None, lane_caps={}),
            room=1,
            lease=timedelta(seconds=60),
            now=self.clock.now(),
            aged_before=None,
        )
        return lease

    async def settle_job(self, lease: Lease, outcome: Outcome) -> None:
        settled = settlement(lease, outcome, now=self.clock.now(), policy=Policy(), chance=0.5)
        assert lease.claim in await self.app.queue.settle([settled], now=self.clock.now())

    async def events(self, kind: str) -> list[Any]:
        found = await rows(
            self.app, "SELECT CAST(payload AS text) FROM events WHERE kind = :kind ORDER BY id", kind=kind
        )
        return [json.loads(each[0]) for each in found]


@asynccontextmanager
async def office(url: str, **settings: Any) -> AsyncIterator[Office]:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock, **settings) as app:
        yield Office(app, clock)


async def test_a_run_comes_with_its_accounts_and_their_jobs(url: str) -> None:
    async with office(url) as o:
        run = await o.start("Ann", "bob", limit=25)
        assert (run.status, run.post_limit, run.asked_by, run.result) == (RunStatus.PENDING, 25, "somebody", None)
        assert [(each.position, each.handle, each.status) for each in run.accounts] == [
            (0, "Ann", "pending"),
            (1, "bob", "pending"),
        ]
        jobs = await rows(o.app, "SELECT kind, key, lane, state FROM jobs ORDER BY key")
        assert jobs == [("scrape", f"{run.id}:{place}", "x", "pending") for place in (0, 1)]
        assert await o.harness.get(run.id) == run


async def test_a_runs_cap_is_shared_equally_and_buys_a_page_of_each_at_least(url: str) -> None:
    async with office(url) as o:
        with pytest.raises(CapTooLow, match="at least 600, the price of a page of each of 2 accounts"):
            await o.harness.start(["ann", "bob"], 10, asked_by="somebody", now=o.clock.now(), max_credits=599)
        await o.harness.start(["ann", "bob"], 10, asked_by="somebody", now=o.clock.now(), max_credits=1_001)
        found = await rows(o.app, "SELECT CAST(args AS text) FROM jobs ORDER BY key")
        assert [json.loads(args)["max_credits"] for (args,) in found] == [500, 500]


async def test_a_second_run_is_refused_and_told_which_one_is_going(url: str) -> None:
    async with office(url) as o:
        run = await o.start()
        with pytest.raises(RunInProgress) as refused:
            await o.start("bob")
        assert refused.value.run_id == run.id
        assert str(run.id) in str(refused.value)
        assert await rows(o.app, "SELECT count(*) FROM jobs") == [(1,)], "a refused run leaves nothing behind"


async def test_of_many_starts_at_once_exactly_one_wins(url: str) -> None:
    async with office(url) as one, office(url) as other:
        starts = [each.start(f"h{n}") for n in range(4) for each in (one, other)]
        results = await asyncio.gather(*starts, return_exceptions=True)
        won = [each for each in results if isinstance(each, Run)]
        assert len(won) == 1
        lost = [each for each in results if not isinstance(each, Run)]
        assert all(isinstance(each, RunInProgress) and each.run_id == won[0].id for each in lost), lost
        assert await rows(one.app, "SELECT count(*) FROM runs") == [(1,)]
        assert await rows(one.app, "SELECT count(*) FROM jobs") == [(1,)]


async def test_nothing_is_started_with_what_no_run_can_be_made_of(url: str) -> None:
    async with office(url) as o:
        with pytest.raises(BadRun):
            await o.harness.start([], 10, asked_by="x", now=o.clock.now())
        with pytest.raises(BadRun):
            await o.harness.start(["ann"], 0, asked_by="x", now=o.clock.now())
        assert await rows(o.app, "SELECT count(*) FROM runs") == [(0,)]


async def test_what_was_stored_before_the_run_is_skipped_and_the_rest_is_new(url: str) -> None:
    async with office(url) as o:
        await tell(o.app, user(ANN), post(80))
        o.clock.turn(seconds=1)
        run = await o.start()
        await o.step(run, posts=[PostId(90), PostId(80)], failed=1)
        assert await o.counts(run) == (3, 1, 1, 1)
        assert (await o.get(run)).status is RunStatus.RUNNING
        await o.step(run, posts=[PostId(70)], status="completed", user_id=ANN)
        assert await o.counts(run) == (4, 2, 1, 1)
        assert await o.new_posts(run) == [70, 90]
        assert (await o.get(run)).accounts[0].user_id == ANN


async def test_a_post_another_page_of_the_run_showed_along_is_still_new(url: str) -> None:
    async with office(url) as o:
        run = await o.start()
        await tell(o.app, user(ANN), post(80))
        await o.step(run, posts=[PostId(80)])
        assert await o.counts(run) == (1, 1, 0, 0)
        await o.step(run, posts=[PostId(80)])
        assert await o.counts(run) == (2, 1, 1, 0), "and is so once"


async def test_the_end_of_the_last_account_ends_the_run_and_tells_of_it(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann", "bob")
        await o.step(run, 0, status="completed", posts=[PostId(90)])
        assert not (await o.get(run)).finished
        assert await o.events("run.finished") == []
        await o.step(run, 1, status="failed", reason="nobody")
        done = await o.get(run)
        assert (done.status, done.finished_at) == (RunStatus.COMPLETED, o.clock.now())
        report = {
            "total": 1,
            "new": 1,
            "skipped": 0,
            "failed": 0,
            "accounts": [
                {
                    "username": "ann",
                    "status": "completed",
                    "total": 1,
                    "new": 1,
                    "skipped": 0,
                    "failed": 0,
                    "reason": None,
                },
                {
                    "username": "bob",
                    "status": "failed",
                    "total": 0,
                    "new": 0,
                    "skipped": 0,
                    "failed": 0,
                    "reason": "nobody",
                },
            ],
        }
        assert done.result == report
        (event,) = await o.events("run.finished")
        assert event == {"run_id": run.id, "status": "completed", "asked_by": "somebody", **report}
        assert await o.events("summarize.requested") == []


async def test_a_run_whose_accounts_all_failed_has_failed_and_another_may_begin(url: str) -> None:
    async with office(url) as o:
        run = await o.start()
        await o.step(run, status="failed", reason="nobody")
        assert (await o.get(run)).status is RunStatus.FAILED
        assert (await o.start("bob")).id > run.id


async def test_a_run_without_a_limit_takes_what_earlier_fetches_suggest(url: str) -> None:
    async with office(url) as o:
        fetched = Fetched(platform=X, user_id=ANN, fetched=60, new=60, limit=60)
        await tell(o.app, user(ANN), AccountTracked(platform=X, user_id=ANN), fetched)
        run = await o.harness.start(["Ann", "stranger"], None, asked_by="somebody", now=o.clock.now())
        assert run.post_limit == 120
        found = await rows(o.app, "SELECT CAST(args AS text) FROM jobs WHERE kind = 'scrape' ORDER BY key")
        assert [json.loads(each)["limit"] for (each,) in found] == [120, 100]


async def test_new_posts_of_an_account_are_those_stored_since_and_no_native_retweets(url: str) -> None:
    async with office(url) as o:
        await tell(o.app, user(ANN), post(70))
        o.clock.turn(minutes=1)
        since = o.clock.now()
        await tell(o.app, post(90), post(60), post(80), post(95, reposts=1))
        found = await o.app.collecting.look.new_posts(X, ANN, above=PostId(65), stored_since=since)
        assert found == [80, 90]


async def test_words_beyond_the_cut_of_the_clean_text_are_kept_for_search(url: str) -> None:
    async with office(url) as o:
        long = msgspec.structs.replace(post(90), text="word " * 6_000 + "farbeyond")
        await tell(o.app, user(ANN), long, post(80))
        found = await rows(o.app, "SELECT id, length(text), length(text_clean), search_text FROM posts ORDER BY id")
        assert [row[:3] for row in found][1] == (90, 30_009, 25_000)
        assert found[0][3] is None
        assert found[1][3].endswith("word farbeyond")


async def test_a_summary_of_what_is_new_is_asked_for_if_wanted(url: str) -> None:
    async with office(url) as o:
        run = await o.start()
        await o.step(run, status="completed", posts=[PostId(90), PostId(80)], summarize=True)
        (event,) = await o.events("summarize.requested")
        assert event == {"run_id": run.id, "post_ids": ["80", "90"], "part": 1, "parts": 1}
        again = await o.start()
        await o.step(again, status="completed", posts=[PostId(90)], summarize=True)
        assert len(await o.events("summarize.requested")) == 1, "of nothing there is no summary"


async def test_a_step_that_comes_late_changes_nothing(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann", "bob")
        await o.step(run, 0, status="completed", posts=[PostId(90)])
        await o.step(run, 0, posts=[PostId(80)])
        assert await o.counts(run) == (1, 1, 0, 0)
        await o.step(run, 1, status="completed")
        await o.step(run, 1, status="failed", posts=[PostId(70)])
        assert (await o.get(run)).status is RunStatus.COMPLETED
        assert await o.new_posts(run) == [90]
        assert len(await o.events("run.finished")) == 1


async def test_steps_of_a_run_that_is_forgotten_are_no_fault(url: str) -> None:
    async with office(url) as o:
        gone = RunStep(run_id=new_run_id(o.clock.now()), position=0, status=RunStatus.RUNNING, posts=[PostId(9)])
        await tell(o.app, user(ANN), post(9), gone)
        assert await rows(o.app, "SELECT count(*) FROM run_posts") == [(0,)]


@pytest.mark.parametrize("state", ["dead", "failed"])
async def test_an_account_whose_job_ended_badly_fails_with_what_it_said(url: str, state: str) -> None:
    async with office(url) as o:
        run = await o.start("ann", "bob")
        assert await o.harness.settle(o.clock.now()) == 0
        await change(
            o.app,
            "UPDATE jobs SET state = :state, attempts = max_attempts, last_error = :error WHERE key = :key",
            state=state,
            error="Traceback\n  somewhere\nValueError: it broke",
            key=f"{run.id}:0",
        )
        assert await o.harness.settle(o.clock.now()) == 1
        assert await o.harness.settle(o.clock.now()) == 0
        told = (await o.get(run)).accounts[0]
        assert (told.status, told.reason) == (RunStatus.FAILED, "ValueError: it broke")
        assert (await o.get(run)).status is RunStatus.RUNNING, "the others go on"
        await o.step(run, 1, status="completed")
        assert (await o.get(run)).status is RunStatus.COMPLETED


async def test_a_cancelled_job_ends_its_account_and_the_run(url: str) -> None:
    async with office(url, auto_summarization_enabled=True) as o:
        run = await o.start()
        await o.step(run, posts=[PostId(90)])
        found = await rows(o.app, "SELECT id FROM jobs")
        await o.app.operations.cancel([each[0] for each in found], now=o.clock.now())
        assert await o.app.settle_runs() == 1
        done = await o.get(run)
        assert (done.status, done.accounts[0].reason) == (RunStatus.FAILED, "its job was cancelled")
        assert await o.counts(run) == (1, 1, 0, 0), "what it had collected counts"
        assert len(await o.events("run.finished")) == 1
        assert [each["post_ids"] for each in await o.events("summarize.requested")] == [["90"]]


async def test_a_run_can_be_ended_where_it_stands_and_another_begun(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann", "bob")
        await o.step(run, 0, posts=[PostId(90)], status="completed")
        lease = await o.claim()
        done = await o.harness.cancel(run.id, o.clock.now())
        assert (done.status, done.accounts[1].reason) == (RunStatus.COMPLETED, "its job was cancelled")
        assert done.result is not None
        assert done.result["new"] == 1
        assert await rows(o.app, "SELECT count(*) FROM jobs") == [(0,)]
        settled = settlement(lease, Done(), now=o.clock.now(), policy=Policy(), chance=0.5)
        assert not await o.app.queue.settle([settled], now=o.clock.now()), "a worker on it finds its lease gone"
        assert await o.harness.cancel(run.id, o.clock.now()) == done, "a finished one is left alone"
        await o.start("carl")
        with pytest.raises(RunNotFound):
            await o.harness.cancel("nope", o.clock.now())


async def test_a_run_without_a_worker_fails_after_its_time_and_lets_another_start(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann", "bob")
        o.clock.turn(minutes=59)
        with pytest.raises(RunInProgress, match=r"has not started: no worker has taken its jobs.*runs cancel"):
            await o.start("cy")
        o.clock.turn(minutes=2)
        await o.start("cy")
        ended = await o.get(run)
        assert ended.status is RunStatus.FAILED
        assert {each.reason for each in ended.accounts} == {"no progress for 60 minutes: no worker has taken its jobs"}
        assert await rows(o.app, "SELECT key FROM jobs WHERE key LIKE :key", key=f"{run.id}:%") == []


async def test_a_run_that_waits_for_its_source_says_so_and_ends_after_its_time(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann")
        why = "x is paused: the key is refused"
        await change(o.app, "UPDATE jobs SET wait_reason = :why", why=why)
        with pytest.raises(RunInProgress, match=f"is waiting: {why}"):
            await o.start("cy")
        o.clock.turn(minutes=61)
        assert await o.harness.settle(o.clock.now()) == 1
        (account,) = (await o.get(run)).accounts
        assert account.reason == f"no progress for 60 minutes: {why}"


async def test_a_run_that_goes_on_is_not_ended_however_long_it_takes(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann")
        for _ in range(3):
            o.clock.turn(minutes=59)
            await o.step(run, posts=[PostId(1)])
            assert await o.harness.settle(o.clock.now()) == 0
        await o.claim()
        o.clock.turn(minutes=61)
        assert await o.harness.settle(o.clock.now()) == 0
        with pytest.raises(RunInProgress, match="is still running"):
            await o.start("cy")


async def test_a_start_settles_what_hangs_first(url: str) -> None:
    async with office(url) as o:
        run = await o.start()
        await change(o.app, "DELETE FROM jobs")
        assert (await o.start("bob")).id != run.id
        assert (await o.get(run)).status is RunStatus.FAILED


async def test_the_job_and_its_step_land_together(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann", "bob")
        first, second = await o.claim(), await o.claim()
        place = int((first.key or "").rpartition(":")[2])
        end = RunStep(run_id=run.id, position=place, status=RunStatus.COMPLETED)
        await o.settle_job(first, Done([end]))
        await o.settle_job(second, Fail("no such question"))
        assert not (await o.get(run)).finished
        assert await o.harness.settle(o.clock.now()) == 1
        done = await o.get(run)
        assert done.finished
        assert done.accounts[1 - place].reason == "no such question"


async def test_a_job_that_ends_while_its_run_is_settled_is_counted(url: str) -> None:
    async with office(url) as o, office(url) as other:
        for _ in range(10):
            run = await o.start()
            lease = await o.claim()
            end = RunStep(run_id=run.id, position=0, status=RunStatus.COMPLETED)
            settling = [other.harness.settle(o.clock.now()) for _ in range(6)]
            await asyncio.gather(*settling[:3], o.settle_job(lease, Done([end])), *settling[3:])
            assert (await o.get(run)).status is RunStatus.COMPLETED


async def test_steps_of_many_accounts_at_once_lose_no_count(url: str) -> None:
    async with office(url) as o, office(url) as other:
        run = await o.start(*(f"h{n}" for n in range(6)))
        await tell(o.app, *(user(100 + n, f"h{n}") for n in range(6)))

        async def collect(place: int) -> None:
            here = o if place % 2 else other
            for page in range(4):
                ids = [PostId(1000 * (place + 1) + 10 * page + n) for n in range(3)]
                status = RunStatus.RUNNING if page < 3 else RunStatus.COMPLETED
                step = RunStep(run_id=run.id, position=place, status=status, posts=ids)
                await tell(here.app, *(post(each, 100 + place) for each in ids), step)

        await asyncio.gather(*(collect(place) for place in range(6)))
        done = await o.get(run)
        assert done.result is not None
        assert (done.result["total"], done.result["new"], done.status) == (72, 72, RunStatus.COMPLETED)
        assert len(await o.new_posts(run)) == 72
        assert len(await o.events("run.finished")) == 1


async def test_a_restart_changes_nothing(url: str) -> None:
    async with office(url) as o:
        run = await o.start("ann", "bob")
        await o.step(run, posts=[PostId(90)])
        before = await o.get(run)
    async with office(url) as o:
        assert await o.get(run) == before
        assert await o.harness.settle(o.clock.now()) == 0
        with pytest.raises(RunInProgress):
            await o.start("carl")


async def test_finished_runs_are_forgotten_after_their_time_and_unfinished_ones_never(url: str) -> None:
    async with office(url, run_hours=24) as o:
        old = await o.start()
        await o.step(old, status="completed", posts=[PostId(90)])
        o.clock.turn(hours=23)
        young = await o.start()
        await o.step(young, status="completed")
        o.clock.turn(hours=2)
        going = await o.start()
        await o.app.settle_runs()
        assert [each.id for each in await o.page()] == [going.id, young.id]
        assert await o.harness.get(old.id) is None
        assert await rows(o.app, "SELECT count(*) FROM run_posts") == [(0,)]
        assert await rows(o.app, "SELECT count(*) FROM run_accounts") == [(2,)]
        assert await rows(o.app, "SELECT count(*) FROM posts") == [(1,)], "what was collected stays"
        o.clock.turn(days=30)
        await o.app.settle_runs()
        assert [each.id for each in await o.page()] == [going.id]


async def test_the_list_is_newest_first_and_pages_stay_put_while_runs_are_made(url: str) -> None:
    async with office(url) as o:
        made: list[RunId] = []
        for _ in range(5):
            run = await o.start("ann", "bob")
            await o.step(run, 0, status="completed")
            await o.step(run, 1, status="completed")
            made.insert(0, run.id)
        first = await o.page(2)
        assert [each.id for each in first] == made[:2]
        assert [len(each.accounts) for each in first] == [2, 2]
        await o.start()
        second = await o.page(2, first[-1].id)
        assert [each.id for each in second] == made[2:4]
        await change(o.app, "DELETE FROM runs WHERE id = :id", id=second[-1].id)
        assert [each.id for each in await o.page(2, second[-1].id)] == made[4:]


@pytest.mark.parametrize("hostile", ["", "nope", "a\x00b", "'; DROP TABLE runs; --", "\ud800", "%" * 36])
async def test_a_name_that_is_no_run_is_simply_not_there(url: str, hostile: str) -> None:
    async with office(url) as o:
        assert await o.harness.get(hostile) is None
        with pytest.raises(RunNotFound):
            await o.page(10, hostile)


async def test_rounds_are_counted_on_top_of_each_other(url: str) -> None:
    async with office(url) as o:
        await tell(o.app, user(ANN), AccountTracked(platform=X, user_id=ANN))
        look = StoreLook(o.app.database)
        account = await look.account(X, ANN)
        assert account is not None
        assert account.fetch == FetchStats()
        for fetched, new, limit in ((100, 50, 100), (40, 40, 60)):
            await tell(o.app, Fetched(platform=X, user_id=ANN, fetched=fetched, new=new, limit=limit))
        account = await look.account(X, ANN)
        assert account is not None
        wanted = FetchStats(
            last_fetch_at=o.clock.now(),
            last_fetched_count=40,
            last_new_count=40,
            total_fetches=2,
            avg_new_rate=account.fetch.avg_new_rate,
            last_limit=60,
        )
        assert account.fetch == wanted
        assert account.fetch.avg_new_rate == pytest.approx((0.3 * 40 + 0.7 * 50) / 300)
        assert next_limit(account.fetch) == 57


def test_an_account_that_no_catch_up_fetched_has_no_time_of_a_fetch() -> None:
    """A sweep of the past moves `last_fetched_at`, too; it is no fetch that is counted."""
    row = {column.name: None for column in STATISTICS} | {"fetches": 0, "new_rate": 0.0, "empty_fetches": 0}
    assert stats_of({**row, "last_fetched_at": START}).last_fetch_at is None
    assert stats_of({**row, "last_fetched_at": START, "fetches": 1}).last_fetch_at == START


def test_a_list_of_runs_counts_accounts_that_failed_apart_from_posts_that_cannot_be_read() -> None:
    accounts = [
        RunAccount(position=0, handle="ann", status=RunStatus.COMPLETED, total=5, new=4, failed=3),
        RunAccount(position=1, handle="nobody", status=RunStatus.FAILED, reason="there is no account of that name"),
    ]
    run = finished_run(*accounts)
    columns, (row,), _ = runs_grid([run]).cells(brief=False)
    assert dict(zip(columns, row, strict=True)) | {"started (UTC)": "", "finished (UTC)": ""} == {
        "run": "r",
        "status": "completed",
        "asked by": "ann",
        "started (UTC)": "",
        "finished (UTC)": "",
        "accounts": "2",
        "failed": "1",
        "posts": "5",
        "new": "4",
        "unreadable": "3",
    }


def test_the_statistics_of_each_account_are_shown(url: str) -> None:
    async def prepare() -> None:
        async with office(url) as o:
            fetched = Fetched(platform=X, user_id=ANN, fetched=60, new=60, limit=60)
            await tell(o.app, user(ANN), AccountTracked(platform=X, user_id=ANN), fetched)

    LOOP.run(prepare())
    (listed,) = told(run(coverage, url, "--json"))["accounts"]
    alone = told(run(coverage, url, "@ann", "--json"))["account"]
    for each in (listed, alone):
        assert each["next_limit"] == 120
        assert (each["fetch"]["total_fetches"], each["fetch"]["last_new_count"]) == (1, 60)
        assert each["fetch"]["avg_new_rate"] == 0.2
    shown = run(coverage, url, "@ann").stdout
    last = "rounds of catch-ups and runs: 1; the last fetched 60 posts, 60 of them new"
    assert f"{last}; about 60 new on average; the next may fetch 120" in shown


async def test_a_change_of_state_is_told_when_it_is_one(url: str) -> None:
    async with office(url) as o:
        await tell(o.app, user(ANN), AccountTracked(platform=X, user_id=ANN))
        for state in (AccountState.SUSPENDED, AccountState.SUSPENDED, AccountState.ACTIVE, AccountState.UNTRACKED):
            await tell(o.app, AccountStateChange(platform=X, user_id=ANN, state=state, reason="so it is"))
        await tell(o.app, AccountStateChange(platform=X, user_id=ANN, state=AccountState.PROTECTED))
        told = await o.events("account.state_changed")
        assert [(each["was"], each["state"]) for each in told] == [
            ("active", "suspended"),
            ("suspended", "active"),
            ("active", "untracked"),
        ]
        assert {(each["user_id"], each["handle"], each["reason"]) for each in told} == {("11", "ann", "so it is")}
