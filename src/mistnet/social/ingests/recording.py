"""Ingest events of jobs: each outcome is written together with an event that records it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from mistnet.queue.errors import Permanent, Temporary
from mistnet.queue.model import Args, Done, Fail, Job, Outcome, Retry, Snooze, Write
from mistnet.social.ingests.model import IngestAdvanced, IngestBegun, IngestEnded, IngestKind, IngestStatus, traced
from mistnet.social.model import Platform

A = TypeVar("A", bound=Args)
JOB = "job"


def recorded(
    handle: Callable[[Job[A]], Awaitable[Outcome]], begun: Callable[[Job[A]], IngestBegun]
) -> Callable[[Job[A]], Awaitable[Outcome]]:
    """Wrap a handler of several steps: its ingest stays open during retries and keeps the source's response."""

    async def run(job: Job[A]) -> Outcome:
        try:
            return _with_writes(await handle(job), lambda own: traced(own, job_id=job.id))
        except Temporary as error:
            advanced = IngestAdvanced(
                job_id=job.id, calls=int(error.exchange is not None), problem=str(error), exchange=error.exchange
            )
            return Retry(str(error), writes=[begun(job), advanced])
        except Permanent as error:
            return Fail(str(error), [begun(job), _ended_badly(job, error)])

    return run


def one_call(
    platform: Platform, kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int], came: Collection[int]
) -> list[Write]:
    """One event for one call that serves a batch. Missing items are settled by their own jobs."""
    found = [each for each in asked if each in came]
    lacking = len(asked) - len(found)
    problem = f"upstream does not return {lacking} of {len(asked)}" if lacking else None
    ended = IngestEnded(job_id=jobs[0].id, status=IngestStatus.SUCCESS, calls=1, items=len(found), problem=problem)
    return [_begun(platform, kind, jobs, asked), ended]


def failed_call(
    platform: Platform, kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int], error: Temporary | Permanent
) -> list[Outcome]:
    """A fault of the whole batch. Its event is written with the first job."""
    writes = [_begun(platform, kind, jobs, asked), _ended_badly(jobs[0], error)]
    if isinstance(error, Permanent):
        return [Fail(str(error), writes), *(Fail(str(error)) for _ in jobs[1:])]
    return [Retry(str(error), writes=writes), *(Retry(str(error)) for _ in jobs[1:])]


def with_event(outcomes: Sequence[Outcome], writes: Sequence[Write]) -> list[Outcome]:
    """Add the event to the first outcome that can write. Users and posts of all outcomes refer to it."""
    job_id = next((each.job_id for each in writes if isinstance(each, IngestBegun)), None)
    changed = [_with_writes(each, lambda own: traced(own, job_id=job_id)) for each in outcomes]
    for place, outcome in enumerate(changed):
        if isinstance(outcome, (Done, Fail, Retry)):
            changed[place] = _with_writes(outcome, lambda own: [*writes, *own])
            break
    return changed


def _with_writes(outcome: Outcome, change: Callable[[Sequence[Write]], Sequence[Write]]) -> Outcome:
    if isinstance(outcome, Snooze):
        return outcome
    return msgspec.structs.replace(outcome, writes=change(outcome.writes))


def _begun(platform: Platform, kind: IngestKind, jobs: Sequence[Job[A]], asked: Sequence[int]) -> IngestBegun:
    return IngestBegun(platform=platform, kind=kind, job_id=jobs[0].id, asked_by=JOB, mode="background", ids=asked)


def _ended_badly(job: Job[A], error: Temporary | Permanent) -> IngestEnded:
    return IngestEnded(
        job_id=job.id,
        status=IngestStatus.ERROR,
        calls=int(error.exchange is not None),
        problem=str(error),
        exchange=error.exchange,
    )
