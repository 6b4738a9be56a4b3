"""A fleet that collects a simulated world while its machines crash and freeze, all decided by one seed number."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.model import X_SOURCE, Halt
from mistnet.kit.database import Database
from mistnet.operations.overview import CallLedger
from mistnet.operations.schedule.store import Members, NewTick, StoreSchedule, Tick
from mistnet.operations.schedule.ticks import catch_up
from mistnet.queue.leader import StoreLeaders
from mistnet.queue.model import NewJob, WorkerCard, WorkerName
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.worker import Worker
from mistnet.settings import Settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.faults import Faults, SimFault
from mistnet.sim.people import WorldSize
from mistnet.sim.service import XService
from mistnet.sim.truth import Truth, least_credits
from mistnet.sim.world import World
from mistnet.social.coverage import Stretch, StretchState, is_suspect, own_posts, reposts
from mistnet.social.jobs import args
from mistnet.social.store.coverage import Coverage
from tests.simulation.virtual import run_virtually
from tests.simulation.world import POLICY, Chaos, Fleet, Machine, open_database
from tests.worlds import KEY, Oracle, WorldTransport, service_of

SETTINGS: dict[str, Any] = {
    "x_api_key": KEY,
    "x_rate_per_minute": 60_000,
    "second_look_seconds": 30,
    "batch_fill_seconds": 20,
    "max_attempts": 1000,
    "breaker_seconds": 60,
}


def settings_for(url: str, **others: Any) -> Settings:
    return Settings.model_validate({"database_url": url, **SETTINGS, **others})


@dataclass
class HarvestFleet(Fleet):
    """Machines that run the whole collecting app against one world."""

    service: XService | None = None
    concurrency: int = 4
    day_credits: int | None = None

    async def _live(self, machine: Machine) -> None:
        async def point() -> None:
            await machine.point("on the wire")

        assert self.service is not None
        app = App(
            settings_for(self.url, x_day_credits=self.day_credits),
            database=machine.database(),
            transports={"x": WorldTransport(self.service, point)},
        )
        tools = app.tools(LocalWakeups(), policy=POLICY, chance=random.Random(f"{self.chaos.seed} {machine.name}"))
        card = WorkerCard(
            name=WorkerName(machine.name), host="box", pid=1, concurrency=self.concurrency, lanes=["x"], version="sim"
        )
        async with app.sources[X_SOURCE].opened():
            await Worker(tools, card).run()


SWEPT_IN_A_STORM = 3
CALLS_END_IN = 300
"""Virtual seconds after which every call that a cap still allowed has ended, those of a frozen machine too."""


class FewerAccounts(Oracle):
    """Some of the accounts that can be swept, others with each seed, and all that cannot.

    A storm strikes a given number of times: with few accounts, most of their collecting is done in it.
    """

    @property
    def handles(self) -> Sequence[str]:
        every = super().handles
        first = self.world.seed % len(every)
        return [*every[first:], *every[:first]][:SWEPT_IN_A_STORM]

    @property
    def suggested(self) -> Sequence[str]:
        left_out = {*super().handles} - {*self.handles}
        return [handle for handle in super().suggested if handle not in left_out]


@dataclass(frozen=True)
class Collected:
    """What a collection ended with. `spent` is what upstream billed, `counted` what the caps are compared with."""

    faults: list[str]
    crashes: int
    spent: int
    ledger: int
    counted: int
    trace: list[str] = field(default_factory=list)


class OnlySwept(Oracle):
    """The accounts that can be swept, and no others."""

    @property
    def suggested(self) -> Sequence[str]:
        return self.handles


def paid_and_least(
    url: str, seed: int, *, size: WorldSize | str, faults: Mapping[SimFault, float]
) -> tuple[int, int, list[str]]:
    """What a collection cost, the least that it could, and what the oracle finds wrong with it."""
    world = World(seed, size)
    oracle = OnlySwept(world)
    service = service_of(world, rates=faults)
    problems = run_virtually(_collected(url, seed, oracle, service))
    least = least_credits(oracle.truth, oracle.handles, oracle.at, retweets=True)
    return sum(service.stats.credits.values()), least.credits, problems


async def _collected(url: str, seed: int, oracle: Oracle, service: XService) -> list[str]:
    database = open_database(url)
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    try:
        await _collect_all(url, seed, service, app, [args.suggestion(handle) for handle in oracle.suggested])
        return await oracle.compare(database)
    finally:
        await database.close()


def collect_world(
    url: str,
    seed: int,
    *,
    size: WorldSize | str,
    faults: str,
    chaos: Chaos | None = None,
    day_credits: int | None = None,
) -> Collected:
    """Collects one world from nothing, or in a storm some of its accounts, and compares.

    With a cap it ends where the cap stops it, and only the money is compared.
    """
    return run_virtually(_collector(url, seed, size, faults, chaos, day_credits))


async def _collector(
    url: str, seed: int, size: WorldSize | str, faults: str, chaos: Chaos | None, day_credits: int | None
) -> Collected:
    database = open_database(url)
    world = World(seed, size)
    service, oracle = service_of(world, faults=faults), FewerAccounts(world) if chaos else Oracle(world)
    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    fleet = HarvestFleet(
        url,
        chaos or calm,
        size=3 if chaos else 1,
        service=service,
        concurrency=4 if chaos else 8,
        day_credits=day_credits,
    )
    app = App(
        settings_for(url, x_day_credits=day_credits), database=database, transports={"x": WorldTransport(service)}
    )
    problems: list[str] = []
    try:
        await app.enqueue([args.suggestion(handle) for handle in oracle.suggested])

        async def done() -> bool:
            if day_credits is not None and (await app.sources.halts()).get(X_SOURCE) is Halt.BUDGET:
                await asyncio.sleep(CALLS_END_IN)
                return True
            return not await app.upkeep.work_left(list(app.kinds), ["x"], now=database.clock.now())

        try:
            await fleet.run(until=done, deadline=12 * 3600)
        except AssertionError as error:
            problems.append(str(error))
        if day_credits is None:
            problems += await oracle.compare(database)
        async with database.read() as connection:
            ledger = (await connection.execute(text("SELECT COALESCE(SUM(credits), 0) FROM calls"))).scalar_one()
            counted = (await connection.execute(text("SELECT SUM(month_credits) FROM sources"))).scalar_one()
        summed = sum(each.credits for each in await CallLedger(database).spent())
        if summed != ledger:
            problems.append(f"the ledger has {ledger} credits, its sums {summed}")
        problems += [
            f"{each.stored} posts of {each.user_id} are counted, {stored} are stored"
            for each in await Coverage(database).accounts()
            if each.stored != (stored := len(await _stored_by(database, each.user_id)))
        ]
    finally:
        await database.close()
    crashes = sum("CRASHES" in line for line in fleet.trace)
    spent = sum(service.stats.credits.values())
    problems += money_problems(spent, int(ledger), int(counted), crashes=crashes, cap=day_credits)
    return Collected(problems, crashes, spent, int(ledger), int(counted), fleet.trace)


def money_problems(spent: int, ledger: int, counted: int, *, crashes: int, cap: int | None) -> list[str]:
    """What upstream billed is never more than what is known here, nor than a cap.

    A worker that is killed loses the last rows of its ledger, but not the credits that it had set aside.
    """
    problems = []
    if not crashes and spent > ledger:
        problems.append(f"upstream billed {spent} credits, the ledger has {ledger}")
    if spent > counted:
        problems.append(f"upstream billed {spent} credits, the caps are compared with {counted}")
    if cap is not None and spent > cap:
        problems.append(f"upstream billed {spent} credits, the cap is {cap}")
    return problems


@dataclass(frozen=True)
class Later:
    """What a database holds after time has passed in the world and catch-ups have looked."""

    missing: dict[str, set[int]]
    too_low: list[str]
    handles: dict[str, str]
    earlier: dict[str, set[str]]
    states: dict[str, str]
    jobs: list[str]


def catch_up_later(url: str, seed: int, *, days: int, faults: str, limit: int | None = None) -> Later:
    """Collects a world, lets days pass, and catches up with every account."""
    return run_virtually(_catch_up_later(url, seed, days, faults, limit))


async def _catch_up_later(url: str, seed: int, days: int, faults: str, limit: int | None) -> Later:
    database = open_database(url)
    world, at = World(seed, "tiny"), [WORLD_START_AT]
    service = service_of(world, faults=faults, now=lambda: at[0])
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    try:
        first = Oracle(world)
        tracked = {handle: user_of(first, handle) for handle in first.handles}
        await _collect_all(url, seed, service, app, [args.suggestion(handle) for handle in first.handles])
        await asyncio.sleep(days * 86_400)
        at[0] += timedelta(days=days)
        async with database.read() as connection:
            rows = (await connection.execute(text("SELECT user_id, newest_post_id FROM accounts"))).all()
        wanted = [args.catch_up(row.user_id, row.newest_post_id, limit) for row in rows]
        await _collect_all(url, seed, service, app, wanted)
        return await _later(database, Oracle(world, at=at[0]), tracked)
    finally:
        await database.close()


@dataclass(frozen=True)
class FirstPosts:
    """What came of an account that had no posts when it was tracked and wrote its first ones later."""

    posts_at_first: int
    looked_at: int
    wanted: set[int]
    stored: set[int]
    boundaries: tuple[int | None, int | None]
    newest_at: datetime
    stretches: Sequence[Stretch]


def first_posts_later(url: str, seed: int, *, faults: str) -> FirstPosts:
    """Tracks the quiet star of a world, lets days pass, and lets the schedule look."""
    return run_virtually(_first_posts_later(url, seed, faults))


async def _first_posts_later(url: str, seed: int, faults: str) -> FirstPosts:
    database = open_database(url)
    world, at = World(seed, "tiny", quiet=True), [WORLD_START_AT]
    service = service_of(world, faults=faults, now=lambda: at[0])
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    handle = world.stars[-1].handles[-1][1]
    try:
        await _collect_all(url, seed, service, app, [args.suggestion(handle)])
        at_first = await _stored_by(database, world.stars[-1].id)
        await asyncio.sleep(5 * 86_400)
        at[0] += timedelta(days=5)
        now = database.clock.now()
        term = await StoreLeaders(database).take("schedule", "one", lease=timedelta(minutes=1), now=now)
        assert term
        wanted = NewTick(group="default", at=now, missed=0, members=Members(all_others=True))
        made = await StoreSchedule(database, app.job_writer).tick(wanted, term, job=catch_up, now=now)
        assert isinstance(made, Tick)
        await _collect_all(url, seed, service, app, [])
        truth = Truth(world).account(handle, at[0])
        progress = await Coverage(database).account(handle)
        assert truth
        assert progress
        return FirstPosts(
            posts_at_first=len(at_first),
            looked_at=made.accounts,
            wanted={*truth.search},
            stored=await _stored_by(database, truth.user_id),
            boundaries=(progress.oldest_post_id, progress.newest_post_id),
            newest_at=progress.newest_post_at or at[0],
            stretches=own_posts(progress, at[0]),
        )
    finally:
        await database.close()


@dataclass(frozen=True)
class HiddenAtFirst:
    """An account whose posts upstream did not show while tracking began: how it stood then and after a look.

    `at_first` and `later` are how many posts are stored and whether the account is suspect.
    """

    wanted: int
    at_first: tuple[int, bool]
    later: tuple[int, bool]
    shown_at_first: Sequence[StretchState]
    shown_later: Sequence[StretchState]
    alerts: Sequence[str]
    alerts_later: Sequence[str]


def hidden_at_first(url: str, seed: int) -> HiddenAtFirst:
    return run_virtually(_hidden_at_first(url, seed))


async def _hidden_at_first(url: str, seed: int) -> HiddenAtFirst:
    database = open_database(url)
    world, at = World(seed, "tiny"), [WORLD_START_AT]
    service = service_of(world, now=lambda: at[0])
    service.faults = Faults(seed, {SimFault.EMPTY_AT_FIRST: 1.0})
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    handle = world.stars[0].handles[-1][1]

    async def standing() -> tuple[tuple[int, bool], Sequence[StretchState], Sequence[str]]:
        progress = await Coverage(database).account(handle)
        assert progress
        await app.watch.check_accounts()
        alerts = [row.rule for row in await app.watch.alerts.list_open()]
        stretches = [*own_posts(progress, at[0]), *reposts(progress, at[0])]
        return (progress.stored, is_suspect(progress)), [each.standing for each in stretches], alerts

    try:
        await _collect_all(url, seed, service, app, [args.suggestion(handle)])
        at_first, shown_at_first, alerts = await standing()
        await asyncio.sleep(3_601)
        at[0] += timedelta(hours=1)
        assert await app.collecting.recheck_accounts(app.job_writer) == 1
        await _collect_all(url, seed, service, app, [])
        later, shown_later, alerts_later = await standing()
        truth = Truth(world).account(handle, at[0])
        assert truth
        return HiddenAtFirst(
            wanted=len({*truth.search, *truth.retweets}),
            at_first=at_first,
            later=later,
            shown_at_first=shown_at_first,
            shown_later=shown_later,
            alerts=alerts,
            alerts_later=alerts_later,
        )
    finally:
        await database.close()


async def _stored_by(database: Database, user_id: int) -> set[int]:
    async with database.read() as connection:
        rows = await connection.execute(text("SELECT id FROM posts WHERE author_id = :author"), {"author": user_id})
        return {row.id for row in rows}


def user_of(oracle: Oracle, handle: str) -> int:
    found = oracle.truth.account(handle, oracle.at)
    assert found is not None
    return found.user_id


async def _collect_all(url: str, seed: int, service: XService, app: App, jobs: Sequence[NewJob]) -> None:
    await app.enqueue(jobs)

    async def done() -> bool:
        return not await app.upkeep.work_left(list(app.kinds), ["x"], now=app.database.clock.now())

    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    fleet = HarvestFleet(url, calm, size=1, service=service, concurrency=8)
    await fleet.run(until=done, deadline=asyncio.get_running_loop().time() + 12 * 3600)


async def _later(database: Database, oracle: Oracle, tracked: Mapping[str, int]) -> Later:
    async with database.read() as connection:

        async def rows(sql: str) -> Sequence[Any]:
            return (await connection.execute(text(sql))).all()

        stored = {row.id for row in await rows("SELECT id FROM posts")}
        users = {row.id: row.handle for row in await rows("SELECT id, handle FROM users")}
        versions = await rows("SELECT user_id, handle FROM user_versions")
        accounts = {row.user_id: row for row in await rows("SELECT user_id, state, newest_post_id FROM accounts")}
        jobs = await rows("SELECT kind, key, state, last_error FROM jobs WHERE kind <> 'hydrate_user'")
    missing, too_low = {}, []
    for handle, user_id in tracked.items():
        now = oracle.truth.account(oracle.truth.handle_history(user_id)[-1][1], oracle.at)
        search = now.search if now and now.user_id == user_id else ()
        retweets = now.retweets if now and now.user_id == user_id else ()
        if lost := {*search, *retweets} - stored:
            missing[handle] = lost
        if search and (accounts[user_id].newest_post_id or 0) < max(search):
            too_low.append(handle)
    return Later(
        missing=missing,
        too_low=too_low,
        handles={handle: users[user_id] for handle, user_id in tracked.items()},
        earlier={
            handle: {row.handle for row in versions if row.user_id == user_id} for handle, user_id in tracked.items()
        },
        states={handle: accounts[user_id].state for handle, user_id in tracked.items()},
        jobs=[f"{row.kind} {row.key} {row.state}: {row.last_error}" for row in jobs],
    )
