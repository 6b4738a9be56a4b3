"""A fleet that follows who follows whom in a restless world, and the oracle that knows better."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from mistnet.app import App
from mistnet.governor.model import X_SOURCE
from mistnet.graph.follows.model import Cause, FollowKind, Side, SyncMode, follow_sync
from mistnet.graph.tables import follow_events, follows
from mistnet.kit.database import Database
from mistnet.queue.model import WorkerCard, WorkerName
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.tables import jobs
from mistnet.queue.worker import Worker
from mistnet.sim.clock import WORLD_START_AT, to_ms
from mistnet.sim.faults import ALL_FAULTS, LIST_FAULTS, NO_FAULTS, Faults, SimFault
from mistnet.sim.people import Person, WorldSize
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.world import World
from mistnet.social.model import UserId
from mistnet.social.tables import ingest_events, users
from tests.simulation.collecting import HarvestFleet, settings_for
from tests.simulation.virtual import run_virtually
from tests.simulation.world import POLICY, Chaos, VirtualClock, open_database
from tests.support import START
from tests.worlds import KEY, WorldTransport

SPEED = 60
"""The world moves on while a sync runs: a second of ours is a minute of theirs."""

CROWD = WorldSize(users=60, stars=8, posts=60)
MANY_PAGES = WorldSize(users=460, stars=8, posts=460)
CUTS: Mapping[SimFault, float] = {
    **ALL_FAULTS,
    SimFault.LIST_CUT_SHORT: 0.3,
    SimFault.LIST_CUT_OPEN: 0.3,
    SimFault.LIST_HIDES_SOME: 0.6,
}


@dataclass
class WorldTime:
    """The world's time is ours, faster, with leaps over weeks without a look."""

    leaps: list[tuple[datetime, timedelta]] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at(VirtualClock().now())

    def at(self, ours: datetime) -> datetime:
        leapt = sum((by for when, by in self.leaps if when <= ours), timedelta())
        return WORLD_START_AT + (ours - START) * SPEED + leapt

    async def leap(self, days: float) -> None:
        await asyncio.sleep(1)
        self.leaps.append((VirtualClock().now(), timedelta(days=days)))
        await asyncio.sleep(1)


@dataclass
class Followed:
    """What came of it: what is wrong, and enough to know that something was tested at all."""

    wrong: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    cut: int = 0
    crashes: int = 0
    doubted: int = 0
    implausible: int = 0


def follow(
    url: str, seed: int, *, size: WorldSize = CROWD, rates: Mapping[SimFault, float] = CUTS, storm: bool = False
) -> Followed:
    """Syncs, lets weeks pass, syncs again amid faults, second looks included, and then once more in peace."""
    return run_virtually(_follow(url, seed, size, rates, storm=storm))


async def _follow(url: str, seed: int, size: WorldSize, rates: Mapping[SimFault, float], *, storm: bool) -> Followed:
    database = open_database(url)
    world, time = World(seed, size, restless=True), WorldTime()
    key = Key(name=KEY, tier=Tier.UNLIMITED, recharge_credits=10**12)
    service = XService(world, time.now, keys=[key])
    app = App(settings_for(url), database=database, transports={"x": WorldTransport(service)})
    subjects = [world.people[(0, 1, 3)[seed % 3]]]
    result = Followed()
    try:
        await _sync_all(app, service, subjects, SyncMode.FULL)
        await _compare(database, world, time, subjects, result)
        told = await _rows(database, select(follow_events))
        result.wrong += [f"the first list is told as news: {row}" for row in told]
        await time.leap(days=28)
        service.faults = Faults(seed, rates)
        mode = SyncMode.INCREMENTAL if seed % 10 == 9 else SyncMode.FULL
        chaos = Chaos(seed, crash=0.02, freeze=0.02, crashes_left=2, freezes_left=1) if storm else None
        result.crashes += await _sync_all(app, service, subjects, mode, chaos)
        result.cut = sum(service.stats.faults[fault] for fault in LIST_FAULTS)
        service.faults = Faults(seed, NO_FAULTS)
        await _sync_all(app, service, subjects, SyncMode.FULL)
        await _compare(database, world, time, subjects, result)
        await _check_events(database, world, time, result)
    finally:
        await database.close()
    return result


async def _sync_all(
    app: App, service: XService, subjects: Sequence[Person], mode: SyncMode, chaos: Chaos | None = None
) -> int:
    """Both sides of everybody, and whatever that leads to; returns how often a machine died of it."""
    people = [UserId(person.id) for person in subjects]
    await app.enqueue([follow_sync(each, side, mode=mode, asked_by="a test") for each in people for side in Side])
    if chaos is None:
        card = WorkerCard(name=WorkerName("calm"), host="box", pid=1, concurrency=4, lanes=["x"], version="sim")
        async with app.sources[X_SOURCE].opened():
            await Worker(app.tools(LocalWakeups(), policy=POLICY, chance=random.Random(1)), card, until_idle=True).run()
        return 0

    async def done() -> bool:
        return not await app.upkeep.work_left(list(app.kinds), ["x"], now=app.database.clock.now())

    fleet = HarvestFleet(app.settings.database_url.get_secret_value(), chaos, size=1, service=service, concurrency=2)
    await fleet.run(until=done, deadline=asyncio.get_running_loop().time() + 12 * 3600)
    return sum("CRASHES" in line for line in fleet.trace)


async def _rows(database: Database, asked: Any) -> Sequence[Any]:
    async with database.read() as connection:
        return (await connection.execute(asked)).all()


async def _compare(
    database: Database, world: World, time: WorldTime, subjects: Sequence[Person], result: Followed
) -> None:
    """Who is on each list, against the truth when it was read last: the world moves on between reads."""
    rows = await _rows(database, select(follows))
    live = {(row.follower_id, row.followed_id) for row in rows if row.ended_at is None}
    result.doubted = sum(row.missed_in is not None for row in rows if row.ended_at is None)
    for person in subjects:
        for side in Side:
            followers = {one for one, two in live if two == person.id}
            found = followers if side is Side.FOLLOWERS else {two for one, two in live if one == person.id}
            before, after = [
                _truth(world, side, person, to_ms(at)) for at in await _read_at(database, time, side, person)
            ]
            if too_many := found - before - after:
                result.wrong.append(f"{side} of {person.id}: {too_many} too many")
            if missing := (before & after) - found:
                result.wrong.append(f"{side} of {person.id}: {missing} missing")
    stubs = await _rows(database, select(users.c.id).where(users.c.handle.is_(None)))
    left = await _rows(database, select(jobs.c.kind, jobs.c.key, jobs.c.state, jobs.c.last_error))
    result.wrong += [f"user {row.id} is a stub" for row in stubs] + [f"left: {row}" for row in left]


def _truth(world: World, side: Side, person: Person, at_ms: int) -> set[int]:
    listed = world.follows.followers if side is Side.FOLLOWERS else world.follows.followings
    shown = (world.people[each] for each in listed(person.index, at_ms))
    return {each.id for each in shown if each.shown_at(at_ms)}


async def _read_at(database: Database, time: WorldTime, side: Side, person: Person) -> tuple[datetime, datetime]:
    """From when to when the whole list was read last, in the world's time."""
    own = ingest_events.c
    read = select(own.started_at, own.finished_at).where(
        own.kind == f"{side}_sync", own.subject_id == person.id, own.mode == SyncMode.FULL, own.finished_at.is_not(None)
    )
    last = (await _rows(database, read.order_by(own.id.desc()).limit(1)))[0]
    return time.at(last.started_at), time.at(last.finished_at)


async def _check_events(database: Database, world: World, time: WorldTime, result: Followed) -> None:
    """Every event, against the truth at its time."""
    for row in await _rows(database, select(follow_events).order_by(follow_events.c.id)):
        at_ms = to_ms(time.at(row.at))
        who, whom = world.person(row.follower_id), world.person(row.followed_id)
        assert who is not None
        assert whom is not None
        follows_now = world.follows.follows(who.index, whom.index, at_ms)
        hidden = not who.shown_at(at_ms) or not whom.shown_at(at_ms)
        told = f"{row.kind} ({row.cause}) {who.id} -> {whom.id} at {time.at(row.at)}"
        if row.kind == FollowKind.UNFOLLOWED:
            result.ended.append(row.cause)
            true = not follows_now if row.cause == Cause.UNFOLLOWED else hidden
            result.wrong += [] if true else [f"false: {told}"]
        elif not any(world.follows.follows(who.index, whom.index, at_ms - back) for back in (0, 3_600_000, 86_400_000)):
            result.wrong.append(f"false: {told}")
    ended = await _rows(database, select(ingest_events))
    result.implausible = sum(row.plausible is False for row in ended)
    result.wrong += [f"an ingest is still open: {row.id}" for row in ended if row.status == "in_progress"]
