"""Leading: one at a time, whatever becomes of the database, and the next one as soon as can be."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from loguru import logger

from mistnet.kit.errors import DatabaseUnreachable
from mistnet.queue.leader import Leader, Leadership, LeaderTerm
from tests.examples import count_examples
from tests.simulation.virtual import run_virtually
from tests.support import START

LEASE = timedelta(seconds=30)


class VirtualClock:
    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


@dataclass
class Row:
    """The leased row that all share, kept by the same rules as in the store."""

    holder: str = ""
    fence: int = 0
    lease_until: datetime = START


@dataclass
class Way:
    """One process's way to the row: it may be slow, refuse, or swallow what is asked."""

    row: Row
    trouble: Callable[[], Awaitable[None]]

    async def take(self, name: str, holder: str, *, lease: timedelta, now: datetime) -> LeaderTerm | None:
        await self.trouble()
        if self.row.holder != holder and self.row.lease_until > now:
            return None
        self.row.fence += self.row.holder != holder
        self.row.holder, self.row.lease_until = holder, now + lease
        return LeaderTerm(name=name, holder=holder, fence=self.row.fence)

    async def present(self, name: str) -> Leader | None:
        await self.trouble()
        row = self.row
        return Leader(name=name, holder=row.holder, fence=row.fence, since=START, lease_until=row.lease_until)

    async def renew(self, term: LeaderTerm, *, lease: timedelta, now: datetime) -> bool:
        await self.trouble()
        if (self.row.holder, self.row.fence) != (term.holder, term.fence):
            return False
        self.row.lease_until = now + lease
        return True

    async def resign(self, term: LeaderTerm, *, now: datetime) -> None:
        await self.trouble()
        if (self.row.holder, self.row.fence) == (term.holder, term.fence):
            self.row.lease_until = min(self.row.lease_until, now)


@dataclass
class Election:
    """Processes that want to lead, and a record of who acted from when to when."""

    row: Row = field(default_factory=Row)
    acting: set[str] = field(default_factory=set)
    acts: list[tuple[float, str, int]] = field(default_factory=list)
    most_at_once: int = 0

    def process(self, holder: str, trouble: Callable[[], Awaitable[None]] | None = None) -> Leadership:
        async def lead(term: LeaderTerm) -> None:
            self.acting.add(holder)
            self.most_at_once = max(self.most_at_once, len(self.acting))
            self.acts.append((asyncio.get_running_loop().time(), holder, term.fence))
            try:
                await asyncio.Event().wait()
            finally:
                self.acting.discard(holder)

        return Leadership(
            Way(self.row, trouble or no_trouble),
            name="schedule",
            holder=holder,
            lease=LEASE,
            clock=VirtualClock(),
            lead=lead,
            monotonic=asyncio.get_running_loop().time,
        )


async def no_trouble() -> None:
    """A database that answers at once."""


@asynccontextmanager
async def running(*processes: Leadership) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(process.run()) for process in processes]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_one_of_many_leads_and_goes_on_leading() -> None:
    async def story() -> Election:
        election = Election()
        async with running(*(election.process(f"p{n}") for n in range(5))):
            await asyncio.sleep(600)
            assert len(election.acting) == 1
        return election

    election = run_virtually(story())
    assert len(election.acts) == 1
    assert election.row.fence == 1


def test_a_leader_that_stops_in_order_is_replaced_at_the_next_try() -> None:
    async def story() -> list[tuple[float, str, int]]:
        election = Election()
        first, second = election.process("first"), election.process("second")
        async with running(first, second) as (leading, _):
            await asyncio.sleep(100)
            leading.cancel()
            await asyncio.sleep(3)
            assert election.acting == {"second"}
        return election.acts

    (_, _, before), (at, who, after) = run_virtually(story())
    assert who == "second"
    assert after == before + 1
    assert 100 <= at <= 103


def test_a_dead_leader_is_replaced_when_its_lease_has_run_out() -> None:
    async def story() -> float:
        election = Election()
        silent = asyncio.Event()

        async def deaf() -> None:
            if silent.is_set():
                await asyncio.Event().wait()

        async with running(election.process("first", deaf), election.process("second")):
            await asyncio.sleep(95)
            silent.set()
            await asyncio.sleep(60)
            assert election.acting == {"second"}
            assert election.most_at_once == 1
        return election.acts[-1][0]

    assert 95 < run_virtually(story()) <= 95 + 30


@pytest.mark.parametrize("fault", ["hangs", "fails"])
def test_a_leader_that_cannot_renew_stops_before_another_may_begin(fault: str) -> None:
    async def story() -> tuple[float, datetime]:
        election = Election()
        broken = asyncio.Event()

        async def trouble() -> None:
            if broken.is_set() and fault == "hangs":
                await asyncio.Event().wait()
            if broken.is_set():
                raise DatabaseUnreachable("postgresql://somewhere", "gone")

        process = election.process("only", trouble)
        async with running(process):
            await asyncio.sleep(100)
            assert process.term
            broken.set()
            while election.acting:
                await asyncio.sleep(0.1)
            assert process.term is None
            return asyncio.get_running_loop().time(), election.row.lease_until

    stopped, lease_until = run_virtually(story())
    assert START + timedelta(seconds=stopped) < lease_until - timedelta(seconds=2)


def test_a_leader_keeps_the_lead_through_a_short_outage() -> None:
    async def story() -> Election:
        election = Election()
        calls = iter(range(1000))

        async def every_third_fails() -> None:
            if next(calls) % 3 == 2:
                raise DatabaseUnreachable("postgresql://somewhere", "gone for a moment")

        async with running(election.process("only", every_third_fails)):
            await asyncio.sleep(600)
            assert election.acting == {"only"}
        return election

    assert len(run_virtually(story()).acts) == 1


def test_an_outage_is_one_line_however_often_the_lead_cannot_be_renewed() -> None:
    said: list[str] = []
    sink = logger.add(lambda message: said.append(str(message).strip()), format="{message}", level="WARNING")

    async def story() -> None:
        is_down = False

        async def trouble() -> None:
            if is_down:
                raise DatabaseUnreachable("postgresql://somewhere", "gone")

        async with running(Election().process("only", trouble)):
            await asyncio.sleep(60)
            is_down = True
            await asyncio.sleep(600)
            is_down = False
            await asyncio.sleep(60)

    try:
        run_virtually(story())
    finally:
        logger.remove(sink)
    begin, stood_down, end = said
    assert begin.startswith("renewing the lead: ")
    assert begin.endswith("; the scheduler tries again until it answers")
    assert stood_down.startswith("leads the schedule no more: ")
    assert end == "the database answers the scheduler again"


def test_what_breaks_the_acts_breaks_the_process() -> None:
    async def story() -> None:
        async def lead(_term: LeaderTerm) -> None:
            raise RuntimeError("a bug")

        process = Leadership(
            Way(Row(), no_trouble),
            name="schedule",
            holder="only",
            lease=LEASE,
            clock=VirtualClock(),
            lead=lead,
            monotonic=asyncio.get_running_loop().time,
        )
        with pytest.raises(RuntimeError, match="a bug"):
            await process.run()

    run_virtually(story())


@pytest.mark.parametrize("seed", range(count_examples(2)))
def test_through_any_outage_there_are_never_two(seed: int) -> None:
    """Calls hang, fail, and are late, at random, for hours; processes stop and come back."""

    async def story() -> Election:
        chance = random.Random(seed)
        election = Election()

        async def trouble() -> None:
            fate = chance.random()
            if fate < 0.1:
                await asyncio.sleep(chance.uniform(0, 90))
            elif fate < 0.2:
                raise DatabaseUnreachable("postgresql://somewhere", "gone")

        for round_ in range(10):
            async with running(*(election.process(f"p{n}.{round_}", trouble) for n in range(3))) as tasks:
                await asyncio.sleep(chance.uniform(60, 3600))
                tasks[0].cancel()
                await asyncio.sleep(chance.uniform(60, 600))
        return election

    election = run_virtually(story())
    assert election.most_at_once == 1
    assert len(election.acts) > 10
    fences = [fence for _, _, fence in election.acts]
    assert fences == sorted(fences)
