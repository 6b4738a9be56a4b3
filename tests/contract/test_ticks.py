"""Ticks: each slot once, by the leader, with a catch-up for everybody who has none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import text

from mistnet.operations.schedule.store import Members, NewTick, StoreSchedule, Tick, TickRefusal
from mistnet.operations.schedule.ticks import catch_up
from mistnet.queue.leader import LeaderTerm, StoreLeaders
from mistnet.queue.model import Write
from mistnet.queue.store.writes import PreparedWrites, Writers
from mistnet.settings import load_settings
from mistnet.social.accounts import AccountState, AccountStateChange, AccountTracked, Swept
from mistnet.social.model import Detail, Post, PostId, User, UserId, X
from mistnet.sources.collecting import WRITERS
from tests.databases import make_app
from tests.support import START, TurnedClock

ANN, BEA, CY, DEE = UserId(1), UserId(2), UserId(3), UserId(4)
EVERYBODY = Members(all_others=True)
LEASE = timedelta(seconds=30)


class Office:
    """An app on a real database, with its schedule, and a process that leads."""

    def __init__(self, url: str) -> None:
        self.clock = TurnedClock()
        self.app = make_app(load_settings(database_url=url), clock=self.clock)
        self.store = StoreSchedule(self.app.database, self.app.job_writer)
        self.leaders = StoreLeaders(self.app.database)

    async def lead(self, holder: str = "ann") -> LeaderTerm:
        term = await self.leaders.take("schedule", holder, lease=LEASE, now=self.clock.now())
        assert term
        return term

    async def tick(
        self,
        term: LeaderTerm,
        *,
        at: datetime = START,
        missed: int = 0,
        members: Members = EVERYBODY,
        group: str = "default",
    ) -> Tick | TickRefusal:
        wanted = NewTick(group=group, at=at, missed=missed, members=members)
        return await self.store.tick(wanted, term, job=catch_up, now=self.clock.now())

    async def write(self, *writes: Write) -> None:
        async with self.app.database.transaction() as connection:
            await Writers(list(WRITERS)).write(connection, PreparedWrites(writes), self.clock.now())

    async def account(self, user_id: UserId, handle: str, *, newest: int | None = 100) -> None:
        await self.write(
            User(platform=X, id=user_id, detail=Detail.PROFILE, handle=handle, raw=b"{}"),
            AccountTracked(platform=X, user_id=user_id),
        )
        if newest:
            post = Post(platform=X, id=PostId(newest), author_id=user_id, text="", created_at=START, raw=b"{}")
            bounds = Swept(platform=X, user_id=user_id, oldest=PostId(newest), newest=PostId(newest))
            await self.write(post, bounds)

    async def rows(self, sql: str) -> list[Any]:
        async with self.app.database.read() as connection:
            return list((await connection.execute(text(sql))).all())

    async def keys(self) -> list[str]:
        return [row.key for row in await self.rows("SELECT key FROM jobs WHERE kind = 'catch_up' ORDER BY key")]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Office]:
    office = Office(url)
    try:
        yield office
    finally:
        await office.app.database.close()


async def test_a_tick_creates_a_catch_up_for_every_account_that_can_be_caught_up_with(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "Ann", newest=111)
        await office.account(BEA, "bea", newest=222)
        await office.account(CY, "cy", newest=None)  # its backfill has not found anything yet
        await office.account(DEE, "dee")
        gone = AccountStateChange(platform=X, user_id=DEE, state=AccountState.SUSPENDED)
        await office.write(gone)
        made = await office.tick(await office.lead(), missed=4)
        assert made == Tick(
            group="default", tick_at=START, made_at=START, holder="ann", fence=1, accounts=2, jobs=2, missed=4
        )
        assert await office.keys() == ["1", "2"]
        args = {row.key: row.args for row in await office.rows("SELECT key, args FROM jobs")}
        found = args["1"] if isinstance(args["1"], dict) else msgspec.json.decode(args["1"])
        assert (found["user_id"], found["floor"], found["limit"]) == (ANN, 111, 100)
        assert await office.store.last_tick("default") == START
        assert await office.store.last_ticks() == {"default": made}


async def test_an_account_without_posts_is_looked_at_once_its_backfill_has_ended(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann", newest=None)
        await office.account(BEA, "bea", newest=None)
        await office.write(Swept(platform=X, user_id=ANN, backfilled=True))
        made = await office.tick(await office.lead())
        assert isinstance(made, Tick)
        assert (made.accounts, made.jobs) == (1, 1)
        ((given,),) = await office.rows("SELECT args FROM jobs WHERE kind = 'catch_up'")
        found = given if isinstance(given, dict) else msgspec.json.decode(given)
        assert (found["user_id"], found["floor"]) == (ANN, 0)


async def test_a_tick_that_is_there_is_not_made_twice(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        term = await office.lead()
        assert isinstance(await office.tick(term), Tick)
        assert await office.tick(term) is TickRefusal.ALREADY_MADE
        assert await office.tick(term, at=START - timedelta(minutes=15)) is TickRefusal.ALREADY_MADE
        assert await office.rows("SELECT count(*) FROM ticks") == [(1,)]


async def test_two_at_once_make_one_tick(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        term = await office.lead()
        made = await asyncio.gather(*(office.tick(term) for _ in range(8)))
        assert [type(each) for each in made].count(Tick) == 1
        assert await office.keys() == ["1"]


async def test_a_catch_up_that_is_alive_is_not_joined_by_another(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        await office.account(BEA, "bea")
        term = await office.lead()
        await office.tick(term, members=Members(handles=frozenset({"ann"})), group="news")
        made = await office.tick(term)
        assert isinstance(made, Tick)
        assert (made.accounts, made.jobs) == (2, 1)
        assert await office.keys() == ["1", "2"]


async def test_a_catch_up_that_ended_as_a_gap_goes_on_in_its_place(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        term = await office.lead()
        await office.tick(term)
        async with office.app.database.transaction() as connection:
            await connection.execute(text("UPDATE jobs SET state = 'dead'"))
        made = await office.tick(term, at=START + timedelta(minutes=15))
        assert isinstance(made, Tick)
        assert made.jobs == 1
        assert await office.rows("SELECT state FROM jobs") == [("pending",)]


async def test_groups_have_their_own_accounts(url: str) -> None:
    async with opened(url) as office:
        for user_id, handle in ((ANN, "Ann"), (BEA, "bea"), (CY, "cy")):
            await office.account(user_id, handle)
        term = await office.lead()
        news = frozenset({"ann", "nobody"})
        await office.tick(term, members=Members(handles=news), group="news")
        assert await office.keys() == ["1"]
        await office.tick(term, members=Members(handles=news, all_others=True))
        assert await office.keys() == ["1", "2", "3"]
        assert await office.store.tracked(news) == {"ann"}
        assert set(await office.store.last_ticks()) == {"default", "news"}


async def test_a_group_with_a_budget_may_tick_for_some_of_its_accounts(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        await office.account(BEA, "bea")
        await office.tick(await office.lead(), members=Members(all_others=True, only=frozenset({BEA})))
        assert await office.keys() == ["2"]


async def test_an_account_follows_its_present_handle(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        await office.write(User(platform=X, id=ANN, detail=Detail.PROFILE, handle="anna", raw=b"{}"))
        made = await office.tick(await office.lead(), members=Members(handles=frozenset({"ann"})), group="news")
        assert isinstance(made, Tick)
        assert made.accounts == 0
        assert await office.store.tracked(["ann", "anna"]) == {"anna"}


async def test_the_fence_makes_a_late_leaders_tick_void(url: str) -> None:
    async with opened(url) as office:
        await office.account(ANN, "ann")
        late = await office.lead("ann")
        office.clock.turn(seconds=31)
        assert await office.tick(late) is TickRefusal.NOT_LEADING  # its lease ran out, though there is no other leader
        leading = await office.lead("bea")
        assert await office.tick(late) is TickRefusal.NOT_LEADING
        assert await office.keys() == []
        made = await office.tick(leading)
        assert isinstance(made, Tick)
        assert (made.holder, made.fence) == ("bea", 2)
        assert await office.tick(late, at=START + timedelta(minutes=15)) is TickRefusal.NOT_LEADING
        assert await office.rows("SELECT count(*) FROM ticks") == [(1,)]


async def test_old_ticks_are_forgotten_but_the_latest_of_each_group(url: str) -> None:
    async with opened(url) as office:
        for hour in range(3):
            term = await office.lead()
            for group in ("default", "news"):
                at = START + timedelta(hours=hour)
                await office.tick(term, at=at, group=group)
            office.clock.turn(hours=1)
        assert await office.store.prune(before=START + timedelta(minutes=90)) == 4
        assert await office.store.prune(before=START + timedelta(days=9)) == 0
        assert await office.store.last_tick("news") == START + timedelta(hours=2)
        assert [tick.tick_at for tick in await office.store.ticks("news", limit=9)] == [START + timedelta(hours=2)]


async def test_ticks_are_listed_from_the_newest(url: str) -> None:
    async with opened(url) as office:
        term = await office.lead()
        for minute in range(5):
            await office.tick(term, at=START + timedelta(minutes=minute))
        minutes = [
            (tick.tick_at - START) // timedelta(minutes=1) for tick in await office.store.ticks("default", limit=4)
        ]
        assert minutes == [4, 3, 2, 1]
