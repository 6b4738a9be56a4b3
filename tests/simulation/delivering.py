"""A fleet that writes, hands on and delivers events while its machines crash and freeze, decided by one seed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from mistnet.kit.database import Database
from mistnet.kit.errors import DatabaseError
from mistnet.operations.webhooks import DELIVER, DeliverArgs, Deliverer, deliver_job
from mistnet.queue.errors import Undelivered
from mistnet.queue.events import Channel, Delivered, Event, EventKind, NewEvent, Subscriber, SubscriberName
from mistnet.queue.kinds import KindRegistry, single
from mistnet.queue.model import Done, Job, JobClass, NewJob, Outcome
from mistnet.queue.outbox import FanOut, StoreOutbox, write_delivered, write_events
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer, Writers
from tests.simulation.virtual import run_virtually
from tests.simulation.world import Chaos, Fleet, Machine, _with_attempts, open_database, worker_on
from tests.support import Number, new

EVENTS = 24
SUBSCRIBERS = [Subscriber(name=SubscriberName(name), channel=Channel.DATA) for name in ("ann", "ben")]
MakeFanOut = Callable[[Database, JobWriter], FanOut]


def plain_fan_out(database: Database, job_writer: JobWriter) -> FanOut:
    return FanOut(database, job_writer, deliver_job)


@dataclass
class Arrivals:
    """What each subscriber was sent, in the order it came, also what it then did not take."""

    sent: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))

    def first_order(self, subscriber: str) -> list[str]:
        return list(dict.fromkeys(event.subject for event in self.sent[subscriber]))


@dataclass
class MortalPostman:
    """Dies before, between and after; and a receiver may take an event and yet say that it did not."""

    machine: Machine
    arrivals: Arrivals

    async def bring(self, subscriber: SubscriberName, event: Event) -> None:
        await self.machine.point("before the post")
        if self.machine.chaos.random.random() < 0.1:
            raise Undelivered(subscriber, event.id, "it answered 503")
        self.arrivals.sent[subscriber].append(event)
        await self.machine.point("the receiver has it, we do not know")
        if self.machine.chaos.random.random() < 0.1:
            raise Undelivered(subscriber, event.id, "no answer in time")


@dataclass
class DeliveryFleet(Fleet):
    arrivals: Arrivals = field(default_factory=Arrivals)
    make_fan_out: MakeFanOut = plain_fan_out

    async def _live(self, machine: Machine) -> None:
        database = machine.database()
        kinds = _kinds(database, MortalPostman(machine, self.arrivals), machine)
        job_writer = JobWriter(kinds.rules)
        writers: list[Writer[Any]] = [
            Writer(NewEvent, write_events),
            Writer(Delivered, write_delivered),
            Writer(NewJob, job_writer.write),
        ]
        worker = worker_on(machine, JobQueue(database, job_writer, Writers(writers)), database, kinds)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(worker.run())
            parts.create_task(_lead(database, self.make_fan_out(database, job_writer)))


async def _lead(database: Database, fan_out: FanOut) -> None:
    """Every machine believes that it leads: the worst that leadership can do."""
    while True:
        with contextlib.suppress(DatabaseError):
            await fan_out.fan_out(SUBSCRIBERS, now=database.clock.now(), limit=3)
        await asyncio.sleep(2)


def _kinds(database: Database, postman: MortalPostman, machine: Machine) -> KindRegistry:
    async def happen(job: Job[Number]) -> Outcome:
        await machine.point("in a handler")
        return Done([NewEvent(kind=EventKind.RUN_FINISHED, subject=str(job.args.n), payload={"n": job.args.n})])

    deliverer = Deliverer(outbox=StoreOutbox(database), sender=postman)
    lanes = [subscriber.lane for subscriber in SUBSCRIBERS]
    deliver = single(DELIVER, deliverer.deliver, DeliverArgs, job_class=JobClass.SWEEP, lanes=lanes)
    happening = single("happen", happen, Number, job_class=JobClass.SWEEP, lanes=["x"])
    return KindRegistry([_with_attempts(each, 30_000) for each in (deliver, happening)])


@dataclass(frozen=True)
class Told:
    faults: list[str]
    crashes: int
    repeats: int


def deliver_all(url: str, seed: int, *, make_fan_out: MakeFanOut = plain_fan_out) -> Told:
    return run_virtually(_deliver_all(url, seed, make_fan_out))


async def _deliver_all(url: str, seed: int, make_fan_out: MakeFanOut) -> Told:
    database = open_database(url)
    fleet = DeliveryFleet(url, Chaos(seed, crash=0.02), make_fan_out=make_fan_out)
    machine = Machine("oracle", url, fleet.chaos, [])
    kinds = _kinds(database, MortalPostman(machine, fleet.arrivals), machine)
    queue = JobQueue(database, JobWriter(kinds.rules), Writers([]))
    faults: list[str] = []
    try:
        await queue.enqueue([new("happen", key=str(n), n=n) for n in range(EVENTS)], now=database.clock.now())

        async def done() -> bool:
            async with database.read() as connection:
                left = (await connection.execute(text(_LEFT))).scalar_one()
            return int(left) == 0

        try:
            await fleet.run(until=done, deadline=6 * 3600)
        except AssertionError as error:
            faults.append(str(error))
    finally:
        await database.close()
    faults += _faults(fleet.arrivals)
    repeats = sum(len(sent) - EVENTS for sent in fleet.arrivals.sent.values())
    return Told(faults, sum("CRASHES" in line for line in fleet.trace), repeats)


def _faults(arrivals: Arrivals) -> list[str]:
    """All came; the order was the same for everybody; what came again was the same, word for word."""
    faults = []
    orders = [arrivals.first_order(subscriber.name) for subscriber in SUBSCRIBERS]
    for subscriber, order in zip(SUBSCRIBERS, orders, strict=True):
        if sorted(order, key=int) != [str(n) for n in range(EVENTS)]:
            faults.append(f"{subscriber.name} was told of {len(order)} of {EVENTS}")
        by_subject: dict[str, set[bytes]] = defaultdict(set)
        for event in arrivals.sent[subscriber.name]:
            by_subject[event.subject].add(f"{event.id} {event.created_at} {bytes(event.payload)!r}".encode())
        faults += [f"{subject} came in two ways" for subject, ways in by_subject.items() if len(ways) > 1]
    if orders[0] != orders[1]:
        faults.append("two subscribers were told in different orders")
    return faults


_LEFT = """
    SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM deliveries)
        + (SELECT count(*) FROM events WHERE fanned_out_at IS NULL)
"""
