"""The book of ingests on every database: begun once, ended once, read in pages, and no user need exist for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.errors import SourceDown
from mistnet.kit.transport import Exchange
from mistnet.queue.model import GAP_STATES, Fail, JobId, Lease, NewJob, Retry, WorkerName
from mistnet.queue.settler import settlement
from mistnet.social.ingests import (
    Ingest,
    IngestAdvanced,
    IngestBegun,
    IngestEnded,
    IngestId,
    IngestKind,
    IngestStatus,
)
from mistnet.social.jobs.posts_sync import posts_sync
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.ingests import CANCELLED, LOST, open_ingests
from tests.command_groups import commands_of
from tests.harvests import change, end_badly, open_harvest, post, rows, run, tell, told
from tests.loops import LOOP
from tests.support import TurnedClock

pytestmark = pytest.mark.common_sql

commands = commands_of("hydrate")

NOBODY = UserId(99)
JOB = JobId(5)
SAID = Exchange(endpoint="user/followers", status=502, headers={"server": "x"}, body="bad gateway")


class Book:
    """The ingests of an app, and short ways to what is in them."""

    def __init__(self, app: App, clock: TurnedClock) -> None:
        self.app, self.clock, self.ingests = app, clock, app.ingests

    async def begin(self, kind: IngestKind = IngestKind.FOLLOWERS_SYNC, **about: Any) -> IngestId:
        given: dict[str, Any] = {"subject_id": NOBODY, "asked_by": "test", **about}
        self.clock.turn(minutes=1)
        return await self.ingests.begin(kind, **given)

    async def finished(self, status: IngestStatus, **about: Any) -> IngestId:
        ingest_id = await self.begin(**about)
        await self.ingests.end(ingest_id, status)
        return ingest_id

    async def get(self, ingest_id: int) -> Ingest:
        found = await self.ingests.get(ingest_id)
        assert found is not None
        return found

    async def claim(self, *jobs: NewJob) -> Lease:
        """The only job there is."""
        await self.app.enqueue(jobs)
        (lease,) = await self.app.queue.claim(
            worker=WorkerName("ann"),
            targets=self.app.kinds.targets(slots=1, lanes=None, lane_caps={}),
            room=1,
            lease=timedelta(minutes=5),
            now=self.clock.now(),
            aged_before=None,
        )
        return lease

    async def settle(self) -> int:
        now = self.clock.now()
        return await self.ingests.settle(now, lost_before=now - timedelta(hours=1))

    async def only(self) -> Ingest:
        (found,) = (await self.ingests.list()).items
        return found


@asynccontextmanager
async def book(url: str, **settings: Any) -> AsyncIterator[Book]:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock, **settings) as app:
        yield Book(app, clock)


def begun(**about: Any) -> IngestBegun:
    given: dict[str, Any] = {"subject_id": NOBODY, "asked_by": "test", "job_id": JOB, **about}
    return IngestBegun(platform=X, kind=IngestKind.FOLLOWERS_SYNC, **given)


async def test_an_ingest_may_name_users_who_do_not_exist(url: str) -> None:
    async with book(url) as b:
        ingest_id = await b.begin(ids=[98, 97, 98], mode="full")
        assert await rows(b.app, "SELECT id FROM users") == []
        found = await b.get(ingest_id)
        assert (found.kind, found.status, found.subject_id, found.mode) == (
            IngestKind.FOLLOWERS_SYNC,
            IngestStatus.IN_PROGRESS,
            NOBODY,
            "full",
        )
        assert (found.started_at, found.finished_at, found.exchange) == (b.clock.now(), None, None)
        assert await b.ingests.ids(ingest_id) == [97, 98]


async def test_a_failure_keeps_the_exchange(url: str) -> None:
    async with book(url) as b:
        ingest_id = await b.begin()
        b.clock.turn(seconds=5)
        assert await b.ingests.end(ingest_id, IngestStatus.ERROR, calls=2, problem="it broke\x00", exchange=SAID)
        found = await b.get(ingest_id)
        assert (found.status, found.calls, found.endpoint, found.http_status) == ("error", 2, "user/followers", 502)
        assert (found.exchange, found.finished_at) == (SAID, b.clock.now())
        assert found.problem == "it broke\N{SYMBOL FOR NULL}"


async def test_an_ingest_ends_once(url: str) -> None:
    async with book(url) as b:
        ingest_id = await b.finished(IngestStatus.SUCCESS)
        assert not await b.ingests.end(ingest_id, IngestStatus.ERROR, problem="too late")
        assert (await b.get(ingest_id)).status is IngestStatus.SUCCESS


async def test_pages_neither_repeat_nor_skip_while_ingests_come_in(url: str) -> None:
    async with book(url) as b:
        made = [await b.finished(IngestStatus.SUCCESS) for _ in range(5)]
        first = (await b.ingests.list(limit=2)).items
        await b.begin()
        second = (await b.ingests.list(limit=3, before=first[-1].id)).items
        assert [each.id for each in (*first, *second)] == made[::-1]
        assert [each.id for each in (await b.ingests.list(status=IngestStatus.IN_PROGRESS)).items] == [made[-1] + 1]
        assert (await b.ingests.list(kind=IngestKind.WEBHOOK)).items == []


async def test_a_job_begins_its_ingest_once_and_adds_to_it_step_by_step(url: str) -> None:
    async with book(url) as b:
        for _ in range(3):
            await tell(b.app, begun(ids=[1, 2]), IngestAdvanced(job_id=JOB, calls=1, items=20))
        await tell(b.app, IngestEnded(job_id=JOB, status=IngestStatus.SUCCESS, calls=1, items=7, plausible=True))
        found = await b.only()
        assert (found.status, found.calls, found.items, found.plausible) == ("success", 4, 67, True)
        assert await b.ingests.ids(found.id) == [1, 2]


async def test_a_success_does_not_carry_the_stumbles_before_it(url: str) -> None:
    async with book(url) as b:
        await tell(b.app, begun(), IngestAdvanced(job_id=JOB, calls=1, problem="it stumbled", exchange=SAID))
        stumbled = await b.only()
        assert (stumbled.status, stumbled.problem, stumbled.exchange) == ("in_progress", "it stumbled", SAID)
        await tell(b.app, IngestEnded(job_id=JOB, status=IngestStatus.SUCCESS))
        found = await b.only()
        assert (found.problem, found.exchange, found.http_status, found.endpoint) == (None, None, None, None)


async def test_after_its_end_a_job_may_begin_another_ingest(url: str) -> None:
    async with book(url) as b:
        for status in (IngestStatus.ERROR, IngestStatus.SUCCESS):
            await tell(b.app, begun(), IngestEnded(job_id=JOB, status=status))
        assert [each.status for each in (await b.ingests.list()).items] == ["success", "error"]


async def test_the_open_ingest_of_a_job_can_be_found_by_what_refers_to_it(url: str) -> None:
    async with book(url) as b:
        await tell(b.app, begun(), begun(job_id=JobId(6)), IngestEnded(job_id=JobId(6), status=IngestStatus.SUCCESS))
        async with b.app.database.read() as connection:
            found = await open_ingests(connection, [JOB, JobId(6), JobId(7)])
        assert list(found) == [JOB]


async def test_an_ingest_whose_job_died_is_an_error_with_what_was_said_last(url: str) -> None:
    async with book(url) as b:
        job = posts_sync([NOBODY], PostId(7))
        await b.app.enqueue([job])
        ((job_id,),) = await rows(b.app, "SELECT id FROM jobs")
        await tell(b.app, begun(job_id=job_id), IngestAdvanced(job_id=job_id, problem="it stumbled", exchange=SAID))
        assert await b.settle() == 0, "a live job may still end it"
        await end_badly(b.app, job)
        assert (await b.settle(), await b.settle()) == (1, 0)
        found = await b.only()
        assert (found.status, found.problem, found.exchange) == ("error", "it stumbled", SAID)


async def test_an_ingest_whose_job_died_without_a_word_says_what_the_job_says(url: str) -> None:
    async with book(url) as b:
        job = posts_sync([NOBODY], PostId(7))
        await b.app.enqueue([job])
        ((job_id,),) = await rows(b.app, "SELECT id FROM jobs")
        await tell(b.app, begun(job_id=job_id))
        await end_badly(b.app, job, state="failed")
        assert await b.app.settle_ingests() == 1
        assert (await b.only()).problem == "it broke"


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [(Retry("a trace\nit broke"), "it broke"), (Fail("it will never work"), "it will never work")],
    ids=["dead", "failed"],
)
async def test_an_ingest_ends_in_the_transaction_in_which_its_job_does(
    url: str, outcome: Retry | Fail, problem: str
) -> None:
    async with book(url) as b:
        lease = await b.claim(posts_sync([NOBODY], PostId(7), asked_by="test"))
        ended = settlement(lease, Retry("once"), now=b.clock.now(), policy=b.app.policy, chance=0.5)
        began = msgspec.structs.replace(ended, writes=[begun(job_id=lease.id)])
        assert await b.app.queue.settle([began], now=b.clock.now())
        assert (await b.only()).status is IngestStatus.IN_PROGRESS, "it is tried again"
        b.clock.turn(days=1)
        last = msgspec.structs.replace(await b.claim(), max_attempts=2)
        over = settlement(last, outcome, now=b.clock.now(), policy=b.app.policy, chance=0.5)
        assert over.state in GAP_STATES
        assert await b.app.queue.settle([over], now=b.clock.now())
        found = await b.only()
        assert (found.status, found.problem, found.finished_at) == ("error", problem, b.clock.now())


async def test_an_ingest_ends_when_the_last_worker_of_its_job_is_given_up(url: str) -> None:
    async with book(url) as b:
        lease = await b.claim(posts_sync([NOBODY], PostId(7), asked_by="test"))
        await tell(b.app, begun(job_id=lease.id))
        async with b.app.database.transaction() as connection:
            await connection.execute(text("UPDATE jobs SET max_attempts = 1"))
        b.clock.turn(hours=1)
        (lost,) = await b.app.upkeep.reclaim(now=b.clock.now(), limit=10)
        assert lost.state == "dead"
        found = await b.only()
        assert (found.status, "ran out" in str(found.problem)) == ("error", True)


async def test_an_ingest_whose_job_is_gone_was_cancelled(url: str) -> None:
    async with book(url) as b:
        await tell(b.app, begun(job_id=JobId(4_000)))
        assert await b.settle() == 1
        found = await b.only()
        assert (found.status, found.problem) == ("cancelled", CANCELLED)


async def test_an_ingest_whose_process_is_gone_is_given_up_after_a_while(url: str) -> None:
    async with book(url) as b:
        await b.begin()
        assert await b.settle() == 0
        b.clock.turn(hours=2)
        assert await b.settle() == 1
        found = await b.only()
        assert (found.status, found.problem, found.finished_at) == ("cancelled", LOST, b.clock.now())
        assert await b.ingests.end(found.id, IngestStatus.SUCCESS, problem=""), "it was not gone after all"
        assert (await b.only()).status is IngestStatus.SUCCESS


async def test_old_hydrations_are_forgotten_and_syncs_stay(url: str) -> None:
    async with book(url, history_days=7) as b:
        for kind in IngestKind:
            await b.finished(IngestStatus.SUCCESS, kind=kind, ids=[1, 2])
        still_open = await b.begin(IngestKind.USERS_BY_IDS)
        b.clock.turn(days=6)
        recent = await b.finished(IngestStatus.ERROR, kind=IngestKind.WEBHOOK)
        b.clock.turn(days=2)
        await b.app.settle_ingests()
        left = {each.id: each.kind for each in (await b.ingests.list()).items}
        syncs = {IngestKind.FOLLOWERS_SYNC, IngestKind.FOLLOWINGS_SYNC, IngestKind.POSTS_SYNC}
        assert {kind for ingest_id, kind in left.items() if ingest_id not in (still_open, recent)} == syncs
        assert {still_open, recent} <= left.keys()
        assert await rows(b.app, "SELECT count(*) FROM ingest_ids") == [(2 * len(syncs),)]


async def test_what_goes_wrong_inside_is_kept_and_told_on(url: str) -> None:
    async with book(url) as b:
        ingest_id = await b.begin()
        error = SourceDown("x", "502 with token=abcdef and hunter2-secret", status=502)
        error.exchange = SAID

        async def work() -> None:
            async with b.ingests.ending(ingest_id, secrets=["hunter2-secret"]) as tab:
                tab.calls += 2
                raise error

        with pytest.raises(SourceDown) as raised:
            await work()
        found = await b.get(ingest_id)
        assert (found.status, found.calls, found.exchange, raised.value.ingest_id) == ("error", 3, SAID, ingest_id)
        assert "hunter2" not in str(found.problem)
        assert "abcdef" not in str(found.problem)


async def test_an_interrupted_ingest_is_cancelled(url: str) -> None:
    async with book(url) as b:
        ingest_id = await b.begin()

        async def work() -> None:
            async with b.ingests.ending(ingest_id):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await b.get(ingest_id)).status is IngestStatus.CANCELLED


async def test_words_that_are_not_known_are_refused_by_the_database(url: str) -> None:
    async with book(url) as b:
        ingest_id = await b.begin()
        for column, word in (("status", "finished"), ("kind", "gossip")):
            with pytest.raises(Exception, match=r"known|finished"):
                await change(
                    b.app, f"UPDATE ingest_events SET {column} = :word WHERE id = :id", word=word, id=ingest_id
                )
        with pytest.raises(Exception, match="finished_ones_say_when"):
            await change(b.app, "UPDATE ingest_events SET status = 'success' WHERE id = :id", id=ingest_id)


async def test_a_post_without_its_author_fails_fast_and_leaves_nothing(url: str) -> None:
    async with book(url) as b:
        with pytest.raises(Exception, match=r"(?i)foreign key"):
            await tell(b.app, post(1, author_id=NOBODY))
        assert await rows(b.app, "SELECT id FROM posts") == []
        assert await rows(b.app, "SELECT id FROM users") == []


async def test_a_user_by_his_id_alone_is_refused_by_the_database(url: str) -> None:
    async with book(url) as b:
        for columns in ("platform, id", "platform, id, detail, raw, first_seen_at"):
            values = {"platform, id": "'x', 1"}.get(columns, "'x', 1, 'author', '{}', '2026-01-01 00:00:00.000000'")
            with pytest.raises(Exception, match=r"(?i)not.null"):
                await change(b.app, f"INSERT INTO users ({columns}) VALUES ({values})")


def test_ingests_are_shown_on_the_command_line(url: str) -> None:
    async def fill() -> None:
        async with book(url) as b:
            await b.begin(ids=[7])
            await tell(b.app, begun(), IngestEnded(job_id=JOB, status=IngestStatus.ERROR, problem="no", exchange=SAID))

    LOOP.run(fill())
    listed = told(run(commands, url, "events", "--json"))["ingests"]
    assert [(each["id"], each["status"], each["subject_id"]) for each in listed] == [
        ("2", "error", "99"),
        ("1", "in_progress", "99"),
    ]
    assert told(run(commands, url, "event", "1", "--json"))["ids"] == ["7"]
    shown = run(commands, url, "event", "2").stdout
    assert "user/followers answered 502" in shown
    assert "bad gateway" in shown
    refused = run(commands, url, "event", "9")
    assert (refused.exit_code, "`mistnet hydrate events`" in refused.stderr) == (2, True)
