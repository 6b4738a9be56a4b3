"""A fleet of workers that crash, freeze and come back, all decided by one seed number."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import event
from sqlalchemy.util import await_only

from mistnet.kit.database import Database
from mistnet.queue.kinds import Kind, KindRegistry, Policy, batched, single
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import Continue, Done, Job, JobClass, NewJob, Outcome, Retry, Snooze, WorkerCard, WorkerName
from mistnet.queue.ports import Tools
from mistnet.queue.store.claims import JobQueue
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.upkeep import StoreUpkeep
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.store.writes import Writer, Writers
from mistnet.queue.worker import Worker
from tests.simulation.virtual import inline_sqlite, share_compiled, simulated_asyncpg
from tests.support import START, Effect, Number, effects_at_once, new, write_effects

POLICY = Policy(
    lease=timedelta(seconds=30),
    heartbeat=timedelta(seconds=10),
    reclaim=timedelta(seconds=45),
    idle_poll=timedelta(seconds=30),
    backoff_base=timedelta(seconds=5),
    backoff_cap=timedelta(minutes=5),
    job_timeout=timedelta(hours=2),
    grace=timedelta(seconds=20),
    settle_group=7,
)
WALKS, STEPS, NOTES = ("a", "b", "c"), 4, 5
SLOW, SLEEPY, KILLERS = ("s", "t"), ("u", "v"), ("k",)
LAST_ATTEMPT = 4
"""Attempts of the kinds that are meant to die. The others may be tried forever: crashes must not end them."""


class Crashed(BaseException):
    """kill -9: nothing the worker's own code does from here on reaches the database."""


class VirtualClock:
    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


def open_database(url: str, connections: list[Callable[[], None]] | None = None) -> Database:
    """A database in virtual time; each connection that is opened adds the way to break it off."""
    opened = [] if connections is None else connections
    creator = inline_sqlite(opened) if url.startswith("sqlite") else simulated_asyncpg(opened)
    database = Database(url, clock=VirtualClock(), connect_args={"async_creator_fn": creator})
    for engine in (database.engine, database._autocommit, database._reading):
        share_compiled(engine.sync_engine)
    return database


@dataclass
class Chaos:
    """What may go wrong, how often, and for how long."""

    seed: int
    crash: float = 0.01
    freeze: float = 0.02
    crashes_left: int = 10
    freezes_left: int = 12
    calm: bool = False
    spells: Sequence[tuple[float, float]] = ()
    """From when to when the database refuses every statement: read-only, full, or cancelling what it is asked."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def database_is_ill(self) -> bool:
        now = asyncio.get_running_loop().time()
        return any(start <= now < end for start, end in self.spells)

    def strikes(self) -> str | None:
        roll = self.random.random()
        if self.calm:
            return None
        if roll < self.crash and self.crashes_left > 0:
            self.crashes_left -= 1
            return "crash"
        if roll < self.crash + self.freeze and self.freezes_left > 0:
            self.freezes_left -= 1
            return "freeze"
        return None


@dataclass
class Machine:
    """One worker process in a box. Every statement and every await of a handler is a point where it may die."""

    name: str
    url: str
    chaos: Chaos
    trace: list[str]
    dead: bool = False
    frozen_until: float = 0.0
    connections: list[Callable[[], None]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    async def point(self, what: str) -> None:
        loop = asyncio.get_running_loop()
        self._die_if_dead()
        match self.chaos.strikes():
            case "crash":
                self.crash(what)
            case "freeze":
                self.frozen_until = loop.time() + self.chaos.random.uniform(20, 80)
                self.trace.append(f"{loop.time():.3f} {self.name} freezes at {what}")
            case _:
                self.trace.append(f"{loop.time():.3f} {self.name} {what}")
        await asyncio.sleep(self.chaos.random.expovariate(200))
        while loop.time() < self.frozen_until:
            await asyncio.sleep(self.frozen_until - loop.time())
        self._die_if_dead()

    def crash(self, what: str) -> None:
        loop = asyncio.get_running_loop()
        self.trace.append(f"{loop.time():.3f} {self.name} CRASHES at {what}")
        self.dead = True
        for abandon in self.connections:
            abandon()
        if self.task:
            self.task.cancel()
        raise Crashed(what)

    def _die_if_dead(self) -> None:
        if self.dead:
            raise Crashed("already dead")

    def database(self) -> Database:
        sqlite = self.url.startswith("sqlite")
        database = open_database(self.url, self.connections)
        if not sqlite:
            # A claim in a transaction of its own can be interrupted between its statement and its commit.
            database.autocommit = database.transaction  # type: ignore[method-assign]
        for engine in (database.engine.sync_engine, database._reading.sync_engine):
            self._make_mortal(engine)
        self._make_questions_mortal(database)
        return database

    def illness(self) -> Exception:
        if self.url.startswith("sqlite"):
            return sqlite3.OperationalError("database or disk is full")
        ills: list[Exception] = [
            asyncpg.QueryCanceledError("canceling statement due to user request"),
            asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE in a read-only transaction"),
            asyncpg.DiskFullError("could not extend file"),
            asyncpg.LockNotAvailableError("canceling statement due to lock timeout"),
        ]
        return self.chaos.random.choice(ills)

    def _make_questions_mortal(self, database: Database) -> None:
        """They go straight to the driver, so that no engine sees them."""
        ask = database.fetch_prepared

        async def mortal_ask(statement: Any, binds: Any) -> list[Any]:
            await self.point("before a question")
            found = await ask(statement, binds)
            await self.point("after it")
            return found

        database.fetch_prepared = mortal_ask  # type: ignore[method-assign]

    def _make_mortal(self, engine: Any) -> None:
        """Points before and after every statement, and on both sides of every commit."""

        def before(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            await_only(self.point(f"before {statement.split(None, 2)[:2]}"))
            if self.chaos.database_is_ill:
                self.trace.append(f"{self.name} is refused by the database")
                raise self.illness()

        def after(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            await_only(self.point("after it"))

        event.listen(engine, "before_cursor_execute", before)
        event.listen(engine, "after_cursor_execute", after)
        commit = engine.dialect.do_commit

        def mortal_commit(connection: Any) -> None:
            await_only(self.point("before commit"))
            commit(connection)
            await_only(self.point("after commit"))

        engine.dialect.do_commit = mortal_commit


@dataclass
class Fleet:
    """Machines that are replaced when they die, until all work is done."""

    url: str
    chaos: Chaos
    size: int = 3
    trace: list[str] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)

    async def run(self, *, until: Callable[[], Any], deadline: float = 2 * 3600) -> None:
        loop = asyncio.get_running_loop()
        slots = [asyncio.create_task(self._keep_alive(slot)) for slot in range(self.size)]
        try:
            while not await until():
                if loop.time() > deadline:
                    raise AssertionError(f"not done after {deadline:g} virtual seconds")
                if loop.time() > 1200 or not (self.chaos.crashes_left or self.chaos.freezes_left):
                    self.chaos.calm = True
                for slot in slots:
                    if slot.done():
                        slot.result()
                await asyncio.sleep(20)
        finally:
            self.chaos.calm = True
            for machine in self.machines:
                machine.dead = True
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)
            for machine in self.machines:
                for abandon in machine.connections:
                    abandon()

    async def _keep_alive(self, slot: int) -> None:
        life = 0
        while True:
            machine = Machine(f"w{slot}.{life}", self.url, self.chaos, self.trace)
            self.machines.append(machine)
            machine.task = asyncio.create_task(self._live(machine))
            try:
                await machine.task
            except (Crashed, asyncio.CancelledError):
                if not machine.dead or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
            except BaseExceptionGroup as group:
                if group.split(Crashed)[1] is not None:
                    raise
            life += 1
            await asyncio.sleep(self.chaos.random.uniform(0.5, 40))

    async def _live(self, machine: Machine) -> None:
        database = machine.database()
        kinds = kinds_of(machine)
        job_writer = JobWriter(kinds.rules)
        writers: list[Writer[Any]] = [
            Writer(Effect, write_effects, parts=effects_at_once),
            Writer(NewJob, job_writer.write, parts=job_writer.parts),
        ]
        await worker_on(machine, JobQueue(database, job_writer, Writers(writers)), database, kinds).run()


def worker_on(machine: Machine, queue: JobQueue, database: Database, kinds: KindRegistry) -> Worker:
    tools = Tools(
        queue=queue,
        upkeep=StoreUpkeep(database),
        wakeup=LocalWakeups(),
        clock=database.clock,
        kinds=kinds,
        policy=POLICY,
        metrics=EngineMetrics(),
        chance=random.Random(f"{machine.chaos.seed} {machine.name}"),
    )
    card = WorkerCard(name=WorkerName(machine.name), host="box", pid=1, concurrency=4, lanes=["x"], version="sim")
    return Worker(tools, card)


def kinds_of(machine: Machine | None) -> KindRegistry:
    """The kinds of the simulated world; their handlers may die at every await."""

    async def breathe() -> None:
        assert machine is not None
        await machine.point("in a handler")

    async def walk(job: Job[Number]) -> Outcome:
        await breathe()
        step = Effect(job_id=job.id, note=f"walk {job.key} step {job.args.n}")
        if job.args.n < STEPS - 1:
            return Continue([step], args=Number(n=job.args.n + 1))
        await breathe()
        children = [new("note", key=f"{job.key}.{n}", n=n) for n in range(NOTES)]
        return Done([step, new("flaky", key=f"of {job.key}"), *children])

    async def note(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
        await breathe()
        if any(job.args.n == 3 and job.attempt <= 2 for job in jobs):
            raise ZeroDivisionError("note 3 is bad, twice")
        return [Done([Effect(job_id=job.id, note=f"note {job.key}")]) for job in jobs]

    async def flaky(job: Job[Number]) -> Outcome:
        await breathe()
        if job.attempt <= 2:
            return Retry("not yet")
        return Done([Effect(job_id=job.id, note=f"flaky {job.key}")])

    async def killer(job: Job[Number]) -> Outcome:
        await breathe()
        assert machine is not None
        machine.crash(f"killer {job.key}")
        raise AssertionError

    async def slow(job: Job[Number]) -> Outcome:
        for _ in range(3):
            await asyncio.sleep(25)
            await breathe()
        return Done([Effect(job_id=job.id, note=f"slow {job.key}")])

    async def sleepy(job: Job[Number]) -> Outcome:
        await breathe()
        opens = START + timedelta(seconds=90)
        if VirtualClock().now() < opens:
            return Snooze(opens, "not open yet")
        return Done([Effect(job_id=job.id, note=f"sleepy {job.key}")])

    def plain(name: str, handler: Any, job_class: JobClass, *, attempts: int = 30_000) -> Kind:
        return _with_attempts(single(name, handler, Number, job_class=job_class, lanes=["x"]), attempts)

    notes = batched("note", note, Number, batch=4, job_class=JobClass.HYDRATION, lanes=["x"])
    return KindRegistry(
        [
            plain("walk", walk, JobClass.SWEEP),
            plain("flaky", flaky, JobClass.WALK),
            plain("killer", killer, JobClass.WALK, attempts=LAST_ATTEMPT),
            plain("slow", slow, JobClass.WALK),
            plain("sleepy", sleepy, JobClass.SUGGESTION),
            _with_attempts(notes, 30_000),
        ]
    )


def _with_attempts(kind: Kind, attempts: int) -> Kind:
    return msgspec.structs.replace(kind, rules=msgspec.structs.replace(kind.rules, max_attempts=attempts))


def first_jobs() -> list[NewJob]:
    return [
        *(new("walk", key=key) for key in WALKS),
        *(new("slow", key=key) for key in SLOW),
        *(new("sleepy", key=key) for key in SLEEPY),
        *(new("killer", key=key) for key in KILLERS),
    ]


def expected_notes() -> list[str]:
    """Every effect of the whole world, each exactly once."""
    return sorted(
        [f"walk {key} step {n}" for key in WALKS for n in range(STEPS)]
        + [f"note {key}.{n}" for key in WALKS for n in range(NOTES)]
        + [f"flaky of {key}" for key in WALKS]
        + [f"slow {key}" for key in SLOW]
        + [f"sleepy {key}" for key in SLEEPY]
    )
