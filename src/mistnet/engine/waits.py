"""What a worker that is to stop when nothing is left still waits for, told in one line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from loguru import logger

from mistnet.domain.jobs import WorkerName
from mistnet.domain.ports import HeldLeases, RemainingWork

WORTH_TELLING: Final = timedelta(seconds=2)
"""Who waits for less is not kept in the dark."""

TOLD_AGAIN: Final = timedelta(minutes=1)


class WaitTeller:
    """Tells it when it begins or changes, and once a minute."""

    def __init__(self, worker: WorkerName) -> None:
        self._worker = worker
        self._told: str | None = None
        self._again_at: datetime | None = None
        self._looked_at: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether to look at what is awaited: not at every turn, for that look counts jobs."""
        if self._looked_at is not None and now - self._looked_at < WORTH_TELLING:
            return False
        self._looked_at = now
        return True

    def tell(self, awaited: RemainingWork, now: datetime) -> None:
        line = waiting_for(awaited, now)
        repeated = line == self._told and self._again_at is not None and now < self._again_at
        if line is None or repeated:
            return
        self._told, self._again_at = line, now + TOLD_AGAIN
        logger.info("waiting for {what}", what=line, worker=self._worker)


def waiting_for(awaited: RemainingWork, now: datetime) -> str | None:
    return "; ".join(_parts(awaited, now)) or None


def _parts(awaited: RemainingWork, now: datetime) -> Iterator[str]:
    for held in awaited.leases:
        if held.lease_until - now > WORTH_TELLING:
            yield _leased(held)
    if awaited.jobs and awaited.next_due_at and awaited.next_due_at - now > WORTH_TELLING:
        why = f" ({awaited.reason})" if awaited.reason else ""
        later = f"{_jobs(awaited.jobs)} that {'is' if awaited.jobs == 1 else 'are'} not due yet"
        yield f"{later}, the next at {_time(awaited.next_due_at)}{why}"


def _leased(held: HeldLeases) -> str:
    seen = f"last seen at {_time(held.seen_at)}" if held.seen_at else "which has signed out"
    until = _time(held.lease_until)
    return f"{_jobs(held.jobs)} of worker {held.worker}, {seen}: if it is gone, its lease runs out at {until}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _time(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"
