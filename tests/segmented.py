"""Segments on a test's database: define them, record syncs, and materialize them step by step."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert

from mistnet.app import App
from mistnet.graph.follows.model import Side
from mistnet.graph.segments.model import Member, Segment, Snapshot
from mistnet.graph.segments.rules import read_rule
from mistnet.queue.kinds import Policy
from mistnet.queue.model import Lease, Outcome, WorkerName
from mistnet.queue.settler import settlement
from mistnet.social.model import UserId
from tests import schema as tables
from tests.graphs import follow, people, person
from tests.harvests import open_harvest, rows
from tests.support import TurnedClock

SUBJECT = 1


def members_after(events: Iterable[tuple[str, int]]) -> set[int]:
    """The members after these (`entered` or `left`, member) events. None may enter twice or leave without being in."""
    members: set[int] = set()
    for kind, member in events:
        assert (kind == "entered") != (member in members), f"{member} {kind} out of turn"
        (members.add if kind == "entered" else members.remove)(member)
    return members


class Workshop:
    """An app on a real database with a clock to turn. Jobs run only when a test asks for it."""

    def __init__(self, app: App, clock: TurnedClock) -> None:
        self.app, self.clock = app, clock
        self.segments, self.store = app.segments, app.segments.store

    async def define(self, name: str, every_seconds: float | None = None, **rule: Any) -> Segment:
        fresh = rule.pop("fresh_seconds", None)
        given = read_rule(name, {**rule, "kind": rule["kind"]})
        done = await self.segments.define(name, given, every_seconds=every_seconds, fresh_seconds=fresh)
        return done.segment

    async def people(self, *ids: int) -> None:
        await people(self.app.database, [person(each) for each in ids])

    async def follow(self, *pairs: tuple[int, int]) -> None:
        await follow(self.app.database, *pairs)

    async def unfollow(self, follower: int, followed: int) -> None:
        gone = tables.follows.c
        async with self.app.database.transaction() as connection:
            own = (gone.follower_id == follower) & (gone.followed_id == followed)
            await connection.execute(tables.follows.update().where(own).values(ended_at=self.clock.now()))

    async def synced(
        self,
        side: Side,
        subject: int = SUBJECT,
        *,
        status: str = "success",
        mode: str = "full",
        plausible: bool | None = True,
        ago: float = 0,
        problem: str | None = None,
    ) -> int:
        """Record a sync that began and ended this many seconds ago."""
        at = self.clock.now() - timedelta(seconds=ago)
        row = {
            "platform": "x",
            "kind": side.ingest_kind,
            "status": status,
            "subject_id": subject,
            "mode": mode,
            "asked_by": "a test",
            "started_at": at,
            "finished_at": at,
            "plausible": plausible,
            "problem": problem,
        }
        adding = insert(tables.ingest_events).values(row).returning(tables.ingest_events.c.id)
        async with self.app.database.transaction() as connection:
            return int((await connection.execute(adding)).scalar_one())

    async def synced_both(self, subject: int = SUBJECT) -> None:
        for side in Side:
            await self.synced(side, subject)

    async def ask(self, name: str) -> bool:
        asked = await self.segments.materialize(name, asked_by="a test", job_writer=self.app.job_writer)
        return asked.created

    async def claim(self, *lanes: str) -> Lease | None:
        leases = await self.app.queue.claim(
            worker=WorkerName("ann"),
            targets=self.app.kinds.targets(slots=1, lanes=lanes or ["segments"], lane_caps={}),
            room=1,
            lease=timedelta(seconds=60),
            now=self.clock.now(),
            aged_before=None,
        )
        return leases[0] if leases else None

    async def step(self, *lanes: str) -> Outcome | None:
        """Run one step of a due job on these lanes (default: a materialization). None if none is due."""
        lease = await self.claim(*lanes)
        if lease is None:
            return None
        kind = self.app.kinds[lease.kind]
        (outcome,) = await kind.handle([kind.job(lease)])
        settled = settlement(lease, outcome, now=self.clock.now(), policy=Policy(), chance=0.5)
        assert lease.claim in await self.app.queue.settle([settled], now=self.clock.now())
        return outcome

    async def materialize(self, name: str) -> Snapshot:
        """Request and run it."""
        self.clock.turn(seconds=1)
        await self.ask(name)
        await self.step()
        snapshot = ((await self.store.snapshots(name, limit=1)).items)[0]
        assert snapshot.at == self.clock.now()
        return snapshot

    async def members(self, name: str, as_of: datetime | None = None, *, page: int = 1_000) -> set[int]:
        found: list[Member] = []
        place: int | None = 0
        while place is not None:
            some = await self.store.members(name, as_of_=as_of, after=place, limit=page)
            found += some.items
            place = some.next
        ids = [each.user_id or each.post_id for each in found]
        assert len(set(ids)) == len(ids)
        return {int(each or 0) for each in ids}

    async def events(self, kind: str) -> list[Any]:
        asked = "SELECT CAST(payload AS text) FROM events WHERE kind = :kind ORDER BY id"
        return [json.loads(each[0]) for each in await rows(self.app, asked, kind=kind)]

    async def jobs(self, kind: str) -> list[tuple[Any, ...]]:
        return await rows(
            self.app,
            "SELECT key, lane, state, wait_reason, last_error FROM jobs WHERE kind = :kind ORDER BY key",
            kind=kind,
        )


@asynccontextmanager
async def workshop(url: str, **settings: Any) -> AsyncIterator[Workshop]:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock, **settings) as app:
        yield Workshop(app, clock)


def ids(*given: int) -> list[UserId]:
    return [UserId(each) for each in given]
