"""Toy job kinds for the tests of the command line; what they did is left in the table `effects`."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.queue.errors import Permanent, Temporary
from mistnet.queue.kinds import batched, single
from mistnet.queue.model import Args, Done, Job, JobClass, JobId, Outcome, Write
from mistnet.queue.plugins import Plugin
from mistnet.queue.store.writes import Writer

EFFECTS = "CREATE TABLE IF NOT EXISTS effects (job_id bigint NOT NULL, n int NOT NULL)"
LANE = "toy"


class Number(Args, frozen=True):
    n: int


class Nap(Args, frozen=True):
    seconds: float


class Gate(Args, frozen=True):
    path: str


class Words(Args, frozen=True):
    words: str


class Effect(Write, frozen=True, kw_only=True):
    job_id: JobId
    n: int


async def quick(job: Job[Number]) -> Outcome:
    return Done([Effect(job_id=job.id, n=job.args.n)])


async def sleepy(job: Job[Nap]) -> Outcome:
    await asyncio.sleep(job.args.seconds)
    return Done([Effect(job_id=job.id, n=0)])


async def gated(job: Job[Gate]) -> Outcome:
    """Runs until the file exists."""
    while not Path(job.args.path).exists():
        await asyncio.sleep(0.02)
    return Done([Effect(job_id=job.id, n=0)])


async def mendable(job: Job[Gate]) -> Outcome:
    """Fails until the file exists."""
    if not Path(job.args.path).exists():
        raise Permanent("somebody has to mend it first")
    return Done([Effect(job_id=job.id, n=0)])


async def failing(job: Job[Number]) -> Outcome:
    raise Permanent(f"number {job.args.n} will never do")


async def shaky(job: Job[Number]) -> Outcome:
    raise Temporary(f"number {job.args.n} did not work this time")


async def tell(job: Job[Words]) -> Outcome:
    return Done([Effect(job_id=job.id, n=len(job.args.words))])


async def batch(jobs: Sequence[Job[Number]]) -> Sequence[Outcome]:
    return [Done([Effect(job_id=job.id, n=job.args.n)]) for job in jobs]


async def write_effects(connection: AsyncConnection, effects: Sequence[Effect], _now: datetime) -> None:
    rows = [{"job_id": effect.job_id, "n": effect.n} for effect in effects]
    await connection.execute(text("INSERT INTO effects (job_id, n) VALUES (:job_id, :n)"), rows)


def plugin() -> Plugin:
    return Plugin(
        kinds=[
            single("quick", quick, Number, job_class=JobClass.SWEEP, lanes=[LANE, "side"]),
            single("sleepy", sleepy, Nap, job_class=JobClass.SWEEP, lanes=[LANE]),
            single("gated", gated, Gate, job_class=JobClass.SWEEP, lanes=[LANE]),
            single("mendable", mendable, Gate, job_class=JobClass.SWEEP, lanes=[LANE]),
            single("failing", failing, Number, job_class=JobClass.WALK, lanes=[LANE]),
            single("shaky", shaky, Number, job_class=JobClass.WALK, lanes=[LANE]),
            single("tell", tell, Words, job_class=JobClass.WALK, lanes=[LANE]),
            batched("batch", batch, Number, batch=5, job_class=JobClass.HYDRATION, lanes=[LANE], live_cap=50),
        ],
        writers=[Writer(Effect, write_effects)],
    )


def nothing() -> Plugin:
    return Plugin()
