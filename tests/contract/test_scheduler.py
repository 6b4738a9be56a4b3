"""The scheduler on a real database: one of many leads, ticks come, duties run, and the next one takes over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from loguru import logger
from sqlalchemy import text, update

from mistnet.kit.errors import DatabaseBusy
from mistnet.operations.schedule.groups import Interval, groups_of
from mistnet.operations.schedule.scheduler import Scheduler, SlotTrigger, Ticker, schedule_status
from mistnet.operations.schedule.store import PostingRateStore, StoreSchedule, first_id_at
from mistnet.operations.schedule.ticks import BudgetTicks
from mistnet.operations.tables import ticks
from mistnet.queue.leader import Duty, StoreLeaders
from mistnet.settings import load_settings
from mistnet.social.accounts import SuggestionClosed
from mistnet.social.jobs import args
from mistnet.social.model import X
from mistnet.social.store.tracking import NewSuggestion, TrackingStore
from mistnet.social.tables import accounts
from mistnet.sources.x.client import COSTS
from tests.contract.test_paces import post
from tests.contract.test_ticks import ANN, BEA, Office, opened
from tests.databases import make_app
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql

SECOND = {"default": {"every_seconds": 1}}


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What is logged."""
    said: list[str] = []
    sink = logger.add(lambda message: said.append(str(message)), format="{message}", level="INFO")
    yield said
    logger.remove(sink)


async def until(condition: Callable[[], Any], *, seconds: float = 50) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def scheduling(url: str, *duties: Duty, **given: Any) -> AsyncIterator[tuple[Scheduler, asyncio.Task[None]]]:
    settings = load_settings(database_url=url, **{"groups": SECOND, "leader_lease_seconds": 2, **given})
    app = make_app(settings)
    scheduler = Scheduler(settings, app.database, app.job_writer, costs=COSTS, duties=duties)
    running = asyncio.create_task(scheduler.run())
    try:
        yield scheduler, running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await app.database.close()


async def slots(office: Office) -> list[tuple[datetime, int]]:
    return [(tick.tick_at, tick.missed) for tick in reversed(await office.store.ticks("default", limit=1000))]


def covered(ticks: list[tuple[datetime, int]]) -> bool:
    """Whether each slot between the first and the last has one tick that stands for it."""
    (first, _), *rest = ticks
    return (ticks[-1][0] - first) // timedelta(seconds=1) == sum(1 + missed for _, missed in rest)


async def test_one_of_three_leads_and_no_slot_is_lost_or_doubled(url: str) -> None:
    async with (
        opened(url) as office,
        scheduling(url) as (one, first),
        scheduling(url) as (two, second),
        scheduling(url) as (three, third),
    ):
        await office.account(ANN, "ann")
        crew = {one: first, two: second, three: third}
        await until(lambda: any(each.leads for each in crew))
        for _ in range(2):
            (leader,) = [each for each in crew if each.leads]
            before = len(await slots(office))
            async with asyncio.timeout(50):
                while len(await slots(office)) < before + 2:
                    await asyncio.sleep(0.05)
            crew.pop(leader).cancel()
            await until(lambda: any(each.leads for each in crew))
        made = await slots(office)
        assert covered(made)
        assert await office.keys() == ["1"]  # the job stays live: no worker runs here
        fences = {tick.fence for tick in await office.store.ticks("default", limit=1000)}
        assert fences <= {1, 2, 3}


async def test_slots_missed_without_a_scheduler_are_one_tick(url: str) -> None:
    async with opened(url) as office:
        async with scheduling(url):
            async with asyncio.timeout(50):
                while not await slots(office):
                    await asyncio.sleep(0.05)
        before = len(await slots(office))
        async with office.app.database.transaction() as connection:
            for at, _missed in await slots(office):
                earlier = at - timedelta(seconds=50)
                await connection.execute(update(ticks).where(ticks.c.tick_at == at).values(tick_at=earlier))
        async with scheduling(url):
            async with asyncio.timeout(50):
                while len(await slots(office)) <= before:
                    await asyncio.sleep(0.05)
        made = await slots(office)
        assert made[before][1] >= 49
        assert covered(made[-2:] if before == 1 else made[before - 1 :])


async def test_duties_run_on_the_leader_alone(url: str) -> None:
    done: list[str] = []

    def duty(who: str) -> Duty:
        async def run() -> None:
            done.append(who)

        return Duty(name="something", every=timedelta(milliseconds=100), run=run)

    async with scheduling(url, duty("one")) as (one, first), scheduling(url, duty("two")) as (two, _):
        await until(lambda: len(done) > 3)
        assert len(set(done)) == 1
        if one.leads:
            first.cancel()
            await until(lambda: two.leads and done[-1] == "two")


async def test_a_failed_duty_is_retried_and_disturbs_no_other(url: str, lines: list[str]) -> None:
    tries: list[str] = []

    async def busy() -> None:
        tries.append("busy")
        raise DatabaseBusy("locked")

    async def broken() -> None:
        tries.append("broken")
        raise RuntimeError("a bug")

    duties = [Duty(name=each.__name__, every=timedelta(milliseconds=100), run=each) for each in (busy, broken)]
    async with opened(url) as office, scheduling(url, *duties):
        await until(lambda: tries.count("busy") > 2 and tries.count("broken") > 2)
        async with asyncio.timeout(50):
            while not await slots(office):
                await asyncio.sleep(0.05)
    assert any(line.startswith("broken failed: RuntimeError: a bug") for line in lines)
    assert [line for line in lines if "locked" in line] == [
        "busy: the database is busy: locked; the scheduler tries again until it answers\n"
    ]


async def test_a_database_that_fails_is_one_line_for_all_duties_and_one_when_it_answers(
    sqlite_url: str, lines: list[str]
) -> None:
    tries: list[str] = []
    is_down = True

    def duty(name: str) -> Duty:
        async def run() -> None:
            tries.append(name)
            if is_down:
                raise DatabaseBusy("locked")

        return Duty(name=name, every=timedelta(milliseconds=50), run=run)

    async with opened(sqlite_url), scheduling(sqlite_url, duty("one"), duty("two")):
        await until(lambda: tries.count("one") > 3 and tries.count("two") > 3)
        is_down = False
        tries.clear()
        await until(lambda: tries.count("one") > 3 and tries.count("two") > 3)
    told = [line.strip() for line in lines if "the database" in line]
    assert told == [
        "one: the database is busy: locked; the scheduler tries again until it answers",
        "the database answers the scheduler again",
    ]


async def test_a_duty_never_overlaps_itself(url: str) -> None:
    at_once, most, runs = 0, 0, 0

    async def slow() -> None:
        nonlocal at_once, most, runs
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.25)
        at_once -= 1
        runs += 1

    async with scheduling(url, Duty(name="slow", every=timedelta(milliseconds=50), run=slow)):
        await until(lambda: runs >= 3)
    assert most == 1
    assert at_once in (0, 1)


async def test_a_duty_is_ended_with_the_term(url: str) -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def long() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with scheduling(url, Duty(name="long", every=timedelta(hours=1), run=long)) as (_, running):
        await asyncio.wait_for(begun.wait(), 20)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert ended.is_set()


async def test_switched_off_it_leads_and_does_its_duties_but_makes_no_ticks(url: str, lines: list[str]) -> None:
    done: list[int] = []

    async def run() -> None:
        done.append(1)

    duty = Duty(name="something", every=timedelta(milliseconds=100), run=run)
    async with opened(url) as office, scheduling(url, duty, scheduler_enabled=False) as (scheduler, _):
        await until(lambda: len(done) > 12)  # longer than a slot of this group
        assert scheduler.leads
        assert await slots(office) == []
        shown = await schedule_status(
            load_settings(scheduler_enabled=False), office.app.database, office.app.job_writer
        )
        assert not shown.enabled
        assert shown.groups[0].next_at is None
    assert len([line for line in lines if "scheduler_enabled is off" in line]) == 1


async def looked_after(url: str, groups: Any, **given: Any) -> None:
    """As the process that leads does when it begins to, and every hour."""
    settings = load_settings(database_url=url, groups=groups, **given)
    app = make_app(settings)
    try:
        await Scheduler(settings, app.database, app.job_writer, costs=COSTS)._maintain()
    finally:
        await app.database.close()


async def wanted(office: Office) -> list[tuple[str, str]]:
    asked = "SELECT handle, COALESCE(outcome, 'open') FROM suggestions ORDER BY id"
    return [tuple(row) for row in await office.rows(asked)]


async def test_naming_an_account_in_a_group_tracks_it(url: str) -> None:
    groups = {"news": {"accounts": ["ann", "@Bea", "https://x.com/cy"], "every_seconds": 1}}
    async with opened(url) as office:
        await office.account(ANN, "ann")
        await looked_after(url, groups, scheduler_enabled=False)
        assert await wanted(office) == []
        for _ in range(2):
            await looked_after(url, groups)
            assert await wanted(office) == [("bea", "open"), ("cy", "open")]
            jobs = await office.rows("SELECT key FROM jobs WHERE kind = 'suggestion' ORDER BY key")
            assert [row.key for row in jobs] == ["bea", "cy"]
        ((labels,),) = await office.rows("SELECT CAST(labels AS text) FROM suggestions WHERE handle = 'bea'")
        assert msgspec.json.decode(labels) == {"group": "news"}


async def test_a_group_does_not_track_again_what_was_refused_or_untracked(url: str, lines: list[str]) -> None:
    groups = {"news": {"accounts": ["ann", "bea", "cy"], "every_seconds": 1}}
    async with opened(url) as office:
        await office.account(ANN, "ann")
        tracking_store, now = TrackingStore(office.app.database, office.app.job_writer), office.clock.now()
        await looked_after(url, groups)
        await office.write(SuggestionClosed(platform=X, handle="bea", accepted=False, reason="nobody"))
        for handle in ("ann", "cy"):
            await tracking_store.untrack(handle, "not wanted", now=now)
        await looked_after(url, groups)
        assert await wanted(office) == [("bea", "refused"), ("cy", "refused")]
        warned = [line for line in lines if "is not tracked" in line]
        assert len(warned) == 3
        assert any("@bea" in line and "it was refused, nobody" in line for line in warned)
        await tracking_store.suggest([NewSuggestion(handle="ann")], job=args.suggestion, now=now)
        assert ("ann", "open") in await wanted(office)


async def test_a_group_that_names_a_stranger_says_so_once_and_shows_it(url: str, lines: list[str]) -> None:
    groups = {"news": {"accounts": ["ann", "stranger"], "every_seconds": 1}}
    async with opened(url) as office:
        await office.account(ANN, "ann")
        tracking_store, now = TrackingStore(office.app.database, office.app.job_writer), office.clock.now()
        await tracking_store.suggest([NewSuggestion(handle="stranger")], job=args.suggestion, now=now)
        await office.write(SuggestionClosed(platform=X, handle="stranger", accepted=False, reason="nobody"))
        async with scheduling(url, groups=groups) as (scheduler, _):
            async with asyncio.timeout(50):
                while len(await office.store.ticks("news", limit=9)) < 2:
                    await asyncio.sleep(0.05)
            await scheduler._maintain()
            shown = await schedule_status(load_settings(groups=groups), office.app.database, office.app.job_writer)
        news, default = shown.groups
        assert news.unknown == ["stranger"]
        assert news.last_tick
        assert news.last_tick.accounts == 1
        assert news.next_at
        assert default.unknown == []
        assert default.rhythm == "every 900 s"
        assert shown.leader
    assert len([line for line in lines if "@stranger" in line]) == 1


async def test_a_budget_is_spent_where_posts_are_and_never_exceeded(url: str) -> None:
    """An hour of looks, minute by minute: each look is paid at once, as the ledger would show it."""
    async with opened(url) as office:
        await office.account(ANN, "ann", newest=first_id_at(START - timedelta(days=60)))
        await office.account(BEA, "bea", newest=first_id_at(START - timedelta(days=60)))
        busy = [post(ANN, START - timedelta(hours=3 * n), serial=n) for n in range(1, 200)]
        quiet = [post(BEA, START - timedelta(days=9 * n), serial=n) for n in range(1, 4)]
        await office.write(*busy, *quiet)
        (group,) = groups_of(load_settings(groups={"default": {"day_credits": 1500}}))
        term = await office.leaders.take("schedule", "ann", lease=timedelta(days=1), now=START)
        assert term
        ticks = BudgetTicks(
            group=group,
            term=term,
            store=office.store,
            rates=PostingRateStore(office.app.database),
            clock=office.clock,
            day_credits=1500,
            look=30,
            post=15,
        )
        looks = dict.fromkeys((ANN, BEA), 0)
        for _ in range(180):
            await ticks.make_due()
            for key in await office.keys():
                looks[type(ANN)(int(key))] += 1
                await _looked(office, int(key))
            office.clock.turn(minutes=1)
        assert looks[ANN] > 2 * looks[BEA]
        assert 30 * sum(looks.values()) <= 1500
        assert looks[ANN] >= 5
        stored = await StoreSchedule(office.app.database, office.app.job_writer).ticks("default", limit=1000)
        assert sum(tick.jobs for tick in stored) == sum(looks.values())


async def _looked(office: Office, user_id: int) -> None:
    """As if a worker had caught up with an account and found nothing."""
    async with office.app.database.transaction() as connection:
        await connection.execute(text("DELETE FROM jobs"))
        looked = update(accounts).where(accounts.c.user_id == user_id)
        await connection.execute(looked.values(last_fetched_at=office.clock.now()))


async def test_leadership_is_on_record(url: str) -> None:
    async with opened(url) as office, scheduling(url) as (scheduler, _):
        await until(lambda: scheduler.leads)
        (leader,) = await StoreLeaders(office.app.database).all()
        assert (leader.name, leader.holder) == ("schedule", scheduler.holder)


def test_timers_follow_our_clock_whatever_the_machines_shows() -> None:
    ours = TurnedClock(START + timedelta(seconds=4))
    machine = datetime(2031, 7, 1, 3, 0, 0, tzinfo=UTC)
    fire = SlotTrigger(Interval(timedelta(seconds=10)), ours).get_next_fire_time(None, machine)
    assert fire is not None
    assert timedelta(seconds=6) <= fire - machine < timedelta(seconds=6.1)


def test_no_action_takes_the_place_of_another() -> None:
    async def nothing() -> None:
        """Done already."""

    ticker = Ticker(TurnedClock())
    ticker.add("something", Interval(timedelta(seconds=1)), nothing)
    with pytest.raises(ValueError, match="two actions are called 'something'"):
        ticker.add("something", Interval(timedelta(seconds=1)), nothing)
