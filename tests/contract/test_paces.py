"""What a rhythm is made of: habits from ids alone, looks as they are, and what they cost."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert, text, update

from mistnet.governor.model import X_SOURCE, CallRecord, KeyLabel
from mistnet.operations.schedule.store import HOURS, Habit, Members, PostingRateStore, counting, first_id_at
from mistnet.queue.model import JobId, KindName, NewJob
from mistnet.queue.tables import job_history
from mistnet.social.accounts import Swept
from mistnet.social.jobs import args
from mistnet.social.model import Post, PostId, UserId, X
from mistnet.social.tables import accounts
from tests.contract.test_ticks import ANN, BEA, CY, EVERYBODY, Office, opened
from tests.databases import analyze
from tests.support import START

pytestmark = pytest.mark.common_sql


def post(author: UserId, at: datetime, *, serial: int = 0) -> Post:
    post_id = PostId(first_id_at(at) + serial)
    return Post(platform=X, id=post_id, author_id=author, text="", created_at=at, raw=b"{}")


def call(job_id: int, credits_: int, *, at: datetime = START, account: UserId = ANN) -> CallRecord:
    return CallRecord(
        source=X_SOURCE,
        key_label=KeyLabel("key"),
        endpoint="advanced_search",
        at=at,
        seconds=0.1,
        status=200,
        items=1,
        credits=credits_,
        job_id=JobId(job_id),
        account_id=account,
    )


async def add(office: Office, job: NewJob) -> int:
    await office.app.enqueue([job])
    rows = await office.rows(f"SELECT id FROM jobs WHERE kind = '{job.kind}' AND key = '{job.key}'")
    return int(rows[0].id)


async def test_habits_are_posts_by_hour_of_the_last_four_weeks(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann", newest=first_id_at(START - timedelta(days=400)))
        await office.account(BEA, "bea", newest=first_id_at(START - timedelta(days=7)))
        await office.account(CY, "cy", newest=None)
        noon = [post(ANN, START - timedelta(days=day), serial=day) for day in range(1, 28)]
        night = [post(ANN, START - timedelta(days=2, hours=9, minutes=minute)) for minute in (1, 2)]
        old = [post(ANN, START - timedelta(days=29))]
        await office.write(*noon, *night, *old)
        found = await PostingRateStore(office.app.database).habits([ANN, BEA, CY], now=START)
        ann = [0] * HOURS
        ann[12], ann[2] = 27, 2
        assert found[ANN] == Habit(counts=tuple(ann), days=28)
        assert sum(found[BEA].counts) == 1
        assert round(found[BEA].days, 3) == 7
        assert found[CY] == Habit(counts=(0,) * HOURS, days=28)


async def test_the_hour_of_a_post_comes_from_an_index_alone(url: str) -> None:
    """At a million posts a look at every row would take longer than the minute between two looks."""
    async with opened(url) as office:
        everybody = [UserId(n) for n in range(1, 41)]
        for user_id in everybody:
            await office.account(user_id, f"user{user_id}")
        await office.write(
            *(
                post(user_id, START + timedelta(hours=serial), serial=int(user_id))
                for user_id in everybody
                for serial in range(100)
            )
        )
        asked = counting(X, [ANN, BEA], START).compile(
            office.app.database.engine.sync_engine, compile_kwargs={"literal_binds": True}
        )
        explain = "EXPLAIN QUERY PLAN" if office.app.database.dialect == "sqlite" else "EXPLAIN"
        async with office.app.database.read() as connection:
            await analyze(connection)
            if office.app.database.dialect == "postgresql":
                await connection.execute(text("SET enable_seqscan = off"))
                await connection.execute(text("SET enable_bitmapscan = off"))
            plan = "\n".join(
                str(tuple(row)) for row in await connection.execute(text(f"{explain} {asked}".replace(":", r"\:")))
            )
            await connection.invalidate()
        assert "COVERING INDEX posts_author" in plan or "Index Only Scan using posts_author" in plan, plan


async def test_last_looks_tell_when_an_account_was_fetched_and_whether_a_job_is_live(url: str) -> None:
    async with opened(url) as office:
        for user_id, handle in ((ANN, "ann"), (BEA, "bea"), (CY, "cy")):
            await office.account(user_id, handle)
        office.clock.turn(hours=1)
        async with office.app.database.transaction() as connection:
            looked = (
                update(accounts)
                .where(accounts.c.user_id == BEA)
                .values(last_fetched_at=office.clock.now(), backfilled_at=START, fetches=1)
            )
            await connection.execute(looked)
            paged = update(accounts).where(accounts.c.user_id == CY).values(last_fetched_at=office.clock.now())
            await connection.execute(paged)
        await office.app.enqueue([args.catch_up(ANN, PostId(100))])
        paces = PostingRateStore(office.app.database)
        found = await paces.last_looks(EVERYBODY)
        assert {user_id: each.alive for user_id, each in found.items()} == {ANN: True, BEA: False, CY: False}
        assert found[BEA].looked_at == office.clock.now()
        assert found[CY].looked_at == START  # the pages of its backfill are no looks
        assert set(await paces.last_looks(Members(handles=frozenset({"bea"})))) == {BEA}
        assert set(await paces.last_looks(Members(handles=frozenset({"bea"}), all_others=True))) == {ANN, CY}


async def test_an_account_without_posts_has_its_time_in_a_rhythm_by_budget_too(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann", newest=None)
        await office.account(BEA, "bea", newest=None)
        await office.write(Swept(platform=X, user_id=ANN, backfilled=True))
        assert set(await PostingRateStore(office.app.database).last_looks(EVERYBODY)) == {ANN}


async def test_looks_cost_what_the_ledger_says_and_history_does_not_count(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        await office.account(BEA, "bea")
        async with office.app.database.transaction() as connection:
            done = update(accounts).where(accounts.c.user_id == BEA)
            await connection.execute(done.values(reposts_backfilled_at=START - timedelta(days=3)))
        book = office.app.sources.store
        backfill = await add(office, args.backfill(ANN))
        look = await add(office, args.catch_up(ANN, PostId(100)))
        first_pass = await add(office, args.reposts(ANN, PostId(0)))
        later_pass = await add(office, args.reposts(BEA, PostId(7)))
        await book.record(
            [
                call(backfill, 1_000_000),
                call(look, 30),
                call(look, 15, at=START - timedelta(hours=13)),  # yesterday
                call(first_pass, 1_000_000),
                call(later_pass, 15, account=BEA),
            ]
        )
        paces, midnight = PostingRateStore(office.app.database), START - timedelta(hours=12)
        assert await paces.spent([ANN], since=midnight) == 30
        assert await paces.spent([ANN, BEA], since=midnight) == 45
        assert await paces.spent([CY], since=midnight) == 0
        await finish(office, look)
        assert await paces.spent([ANN, BEA], since=midnight) == 45


async def finish(office: Office, job_id: int) -> None:
    """As a worker does: from the live table to the history."""
    async with office.app.database.transaction() as connection:
        await connection.execute(text("DELETE FROM jobs WHERE id = :id"), {"id": job_id})
        row = {
            "id": job_id,
            "kind": KindName("catch_up"),
            "key": "1",
            "lane": "x",
            "class": 1,
            "args": {},
            "state": "succeeded",
            "attempts": 0,
            "fence": 1,
            "run_at": START,
            "created_at": START,
            "finished_at": START,
        }
        await connection.execute(insert(job_history).values(row))


def test_ids_carry_their_time() -> None:
    assert first_id_at(datetime.fromisoformat("2010-11-04T01:42:54.657+00:00")) == 0
    assert first_id_at(datetime.fromisoformat("2006-03-21T00:00:00+00:00")) == 0
