"""Ingest events of jobs: whatever becomes of the job, the event that lands with it says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from mistnet.domain.errors import Permanent, Temporary
from mistnet.domain.ingests import IngestAdvanced, IngestBegun, IngestEnded, IngestKind, IngestStatus
from mistnet.domain.jobs import Args, Done, Fail, Job, Outcome, Retry, Write
from mistnet.domain.social import Platform

A = TypeVar("A", bound=Args)
JOB = "job"


def recorded(
    handle: Callable[[Job[A]], Awaitable[Outcome]], begun: Callable[[Job[A]], IngestBegun]
) -> Callable[[Job[A]], Awaitable[Outcome]]:
    """A handler of many steps whose ingest stays open while it is tried again, and keeps what upstream said."""

    async def run(job: Job[A]) -> Outcome:
        try:
            return await handle(job)
        except Temporary as error:
            told = IngestAdvanced(
                job_id=job.id, calls=int(error.exchange is not None), problem=str(error), exchange=error.exchange
            )
            return Retry(str(error), writes=[begun(job), told])
        except Permanent as error:
            return Fail(str(error), [begun(job), _ended_badly(job, error)])

    return run


def one_call(kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int], came: Collection[int]) -> list[Write]:
    """One call for a batch of jobs as one event. What did not come is settled by its own job."""
    found = [each for each in asked if each in came]
    lacking = len(asked) - len(found)
    problem = f"upstream does not return {lacking} of {len(asked)}" if lacking else None
    ended = IngestEnded(job_id=jobs[0].id, status=IngestStatus.SUCCESS, calls=1, items=len(found), problem=problem)
    return [_begun(kind, jobs, asked), ended]


def failed_call(
    kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int], error: Temporary | Permanent
) -> list[Outcome]:
    """The fault concerns every job of the batch; its event lands with the first."""
    writes = [_begun(kind, jobs, asked), _ended_badly(jobs[0], error)]
    if isinstance(error, Permanent):
        return [Fail(str(error), writes), *(Fail(str(error)) for _ in jobs[1:])]
    return [Retry(str(error), writes=writes), *(Retry(str(error)) for _ in jobs[1:])]


def with_event(outcomes: Sequence[Outcome], writes: Sequence[Write]) -> list[Outcome]:
    """Puts the event beside the first outcome that writes anything at all."""
    told = list(outcomes)
    for place, outcome in enumerate(told):
        match outcome:
            case Done(own):
                told[place] = Done([*writes, *own])
            case Fail(error, own):
                told[place] = Fail(error, [*writes, *own])
            case Retry(error, alone, within, own):
                told[place] = Retry(error, alone=alone, within=within, writes=[*writes, *own])
            case _:
                continue
        break
    return told


def _begun(kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int]) -> IngestBegun:
    return IngestBegun(platform=Platform.X, kind=kind, job_id=jobs[0].id, asked_by=JOB, mode="background", ids=asked)


def _ended_badly(job: Job[A], error: Temporary | Permanent) -> IngestEnded:
    return IngestEnded(
        job_id=job.id,
        status=IngestStatus.ERROR,
        calls=int(error.exchange is not None),
        problem=str(error),
        exchange=error.exchange,
    )
