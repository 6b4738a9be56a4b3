"""A scripted source of follow lists, and follow syncs of them on a real database, step by step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from mistnet.governor.errors import BrokenAnswer
from mistnet.governor.model import CallPurpose
from mistnet.graph.follows.jobs import FollowSyncer
from mistnet.graph.follows.listing import Follows
from mistnet.graph.follows.model import FOLLOW_SYNC, FollowSyncArgs, Relation, Side, SyncMode, follow_sync
from mistnet.graph.follows.store import SyncReads
from mistnet.kit.database import Database
from mistnet.queue.executor import Executor
from mistnet.queue.kinds import KindRegistry, Policy, single
from mistnet.queue.model import JobClass, NewJob, Wake, WorkerName, Write
from mistnet.queue.settler import settlement
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.enqueue import JobWriter, write_wakes
from mistnet.queue.store.writes import Writer, Writers
from mistnet.social.jobs.args import CollectRules
from mistnet.social.model import Detail, Gathered, User, UserId, UserPage, X
from mistnet.social.store.ingests import Ingests, end_with_jobs
from mistnet.sources.collecting import WRITERS
from tests.databases import open_database
from tests.support import TurnedClock

ANN = UserId(1)


@dataclass
class ScriptedSource:
    """The lists of Ann. They come newest first.

    `left_out` follow, but are on no list; `suspended` and `gone` are shown nowhere; `broken` names the faults of the
    next pages; `extra` is added to the profile's counts; each page takes `page_seconds`.
    """

    followers_of: list[int] = field(default_factory=list)
    followings_of: list[int] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)
    suspended: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    extra: int = 0
    protected: bool = False
    handle: str = "ann"
    asked: Counter[str] = field(default_factory=Counter)
    page_seconds: float = 0
    clock: TurnedClock = field(default_factory=TurnedClock)

    async def users(self, ids: Sequence[UserId], *, purpose: CallPurpose) -> Gathered:
        self.asked["users"] += 1
        _pay(purpose, 18 * len(ids))
        found = {each: self._profile(each) for each in ids if each not in self.gone and each < 10_000}
        return Gathered({}, found, [])

    async def followers(self, handle: str, *, size: int, cursor: str | None, purpose: CallPurpose) -> UserPage:
        _pay(purpose, 200)
        return self._page(Side.FOLLOWERS, handle, size, cursor)

    async def followings(self, handle: str, *, size: int, cursor: str | None, purpose: CallPurpose) -> UserPage:
        _pay(purpose, 200)
        return self._page(Side.FOLLOWINGS, handle, size, cursor)

    async def relation(self, source: str, target: str, *, purpose: CallPurpose) -> Relation | None:
        self.asked["relation"] += 1
        assert target == self.handle
        other = int(source.removeprefix("u"))
        return Relation(following=other in self.followers_of, followed_by=other in self.followings_of)

    def _page(self, side: Side, handle: str, size: int, cursor: str | None) -> UserPage:
        self.asked[side] += 1
        self.clock.turn(seconds=self.page_seconds)
        if handle != self.handle:
            raise BrokenAnswer("x", f"user/{side}", "user not found")
        listed = self.followers_of if side is Side.FOLLOWERS else self.followings_of
        start = int(cursor or 0)
        hidden = self.left_out | self.suspended | self.gone
        shown = [UserId(each) for each in listed[start : start + size] if each not in hidden]
        more = start + size < len(listed)
        following = str(start + size) if more else None
        match self.broken.pop(0) if self.broken else "":
            case "loop":
                more, following = True, cursor or "0"
            case "no cursor":
                more, following = True, None
            case "missing":
                raise BrokenAnswer("x", f"user/{side}", f"no '{side}' in it")
        gathered = Gathered({}, {each: _member(each) for each in shown}, [])
        return UserPage(own=shown, gathered=gathered, has_more=more, cursor=following)

    def _profile(self, user_id: UserId) -> User:
        if user_id in self.suspended:
            raw = json.dumps({"id": str(user_id), "unavailable": True}).encode()
            return User(platform=X, id=user_id, detail=Detail.PROFILE, unavailable_reason="Suspended", raw=raw)
        counts: dict[str, Any] = {}
        if user_id == ANN:
            counts = {"followers_count": len(self.followers_of) + self.extra, "protected": self.protected}
            counts["following_count"] = len(self.followings_of) + self.extra
        handle = self.handle if user_id == ANN else f"u{user_id}"
        raw = json.dumps({"id": str(user_id), "userName": handle}).encode()
        return User(platform=X, id=user_id, detail=Detail.PROFILE, handle=handle, raw=raw, **counts)


def _pay(purpose: CallPurpose, price: int) -> None:
    if purpose.meter:
        purpose.meter.credits += price


def _member(user_id: UserId) -> User:
    raw = json.dumps({"id": str(user_id), "screen_name": f"u{user_id}"}).encode()
    return User(platform=X, id=user_id, detail=Detail.LISTED, handle=f"u{user_id}", raw=raw)


@dataclass
class Harness:
    """A queue of follow syncs only, worked on by hand with a clock that tests turn."""

    database: Database
    clock: TurnedClock
    source: ScriptedSource

    def __post_init__(self) -> None:
        self.syncer = FollowSyncer(
            reads=SyncReads(self.database), x=self.source, clock=self.clock, rules=CollectRules()
        )
        self.kinds = KindRegistry(
            [single(FOLLOW_SYNC, self.syncer.sync, FollowSyncArgs, job_class=JobClass.SWEEP, lanes=["x"])]
        )
        self.job_writer = JobWriter(self.kinds.rules)
        writers: list[Writer[Any]] = [
            *WRITERS,
            Writer(NewJob, self.job_writer.write),
            Writer(Wake, write_wakes),
        ]
        self.writers = Writers(writers)
        self.queue = JobQueue(self.database, self.job_writer, self.writers, given_up=end_with_jobs)
        self.policy = Policy()
        self.follows = Follows(self.database)
        self.ingests = Ingests(self.database)
        self.executor = Executor(clock=self.clock, timeout=self.policy.job_timeout, error_limit=1000)

    async def ask(
        self, mode: SyncMode = SyncMode.FULL, side: Side = Side.FOLLOWERS, *, max_credits: int | None = None
    ) -> int:
        wanted = follow_sync(ANN, side, mode=mode, asked_by="a test", max_credits=max_credits)
        return (await self.queue.enqueue([wanted], now=self.clock.now())).created

    async def step(self, *, lost: bool = False) -> bool:
        """Run one due step. A lost one is never settled, as if its worker had died."""
        leases = await self.queue.claim(
            worker=WorkerName("ann"),
            targets=self.kinds.targets(slots=1, lanes=None, lane_caps={}),
            room=1,
            lease=self.policy.lease,
            now=self.clock.now(),
            aged_before=None,
        )
        if not leases:
            return False
        outcomes = await self.executor.run(self.kinds[FOLLOW_SYNC], leases)
        self.clock.turn(seconds=1)
        if not lost:
            settled = settlement(leases[0], outcomes[0], now=self.clock.now(), policy=self.policy, chance=0.5)
            await self.queue.settle([settled], now=self.clock.now())
        return True

    async def settle_all(self) -> None:
        """Run until no live job is left."""
        for _ in range(200):
            if not await self.step():
                live = "SELECT count(*) FROM jobs WHERE state NOT IN ('failed', 'dead')"
                if await self.one(live) == 0:
                    return
                self.clock.turn(seconds=60)
        raise AssertionError("it never ends")

    async def sync(self, mode: SyncMode = SyncMode.FULL, side: Side = Side.FOLLOWERS) -> None:
        self.clock.turn(days=1)
        await self.ask(mode, side)
        await self.settle_all()

    async def tell(self, *writes: Write) -> None:
        """Writes values as a settled job would."""
        async with self.database.transaction() as connection:
            await self.writers.write(connection, self.writers.prepare(writes), self.clock.now())

    async def forget_jobs(self) -> None:
        """As if all jobs had been cancelled."""
        async with self.database.transaction() as connection:
            await connection.execute(text("DELETE FROM jobs"))

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        async with self.database.read() as connection:
            return [tuple(row) for row in await connection.execute(text(sql))]

    async def one(self, sql: str) -> Any:
        ((found,),) = await self.rows(sql)
        return found

    async def live(self, side: Side = Side.FOLLOWERS) -> list[int]:
        return [each.user_id for each in (await self.follows.page(ANN, side, limit=10_000)).items]

    async def doubted(self, side: Side = Side.FOLLOWERS) -> list[int]:
        return [each.user_id for each in (await self.follows.page(ANN, side, limit=10_000)).items if each.doubted]

    async def changes(self, skip: int = 0) -> list[tuple[str, str, int]]:
        """The changes of the followers, the oldest first."""
        found = await self.follows.events(ANN, limit=10_000)
        changes = [(str(each.kind), str(each.cause), int(each.follower_id)) for each in reversed(found.items)]
        return changes[skip:]


@asynccontextmanager
async def open_harness(url: str, source: ScriptedSource) -> AsyncIterator[Harness]:
    database = open_database(url, clock=source.clock)
    try:
        yield Harness(database, source.clock, source)
    finally:
        await database.close()
