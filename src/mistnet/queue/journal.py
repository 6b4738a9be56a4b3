"""Logs and metrics of a worker: jobs claimed, settled, lost and reclaimed, and what it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from loguru import logger

from mistnet.kit.text import are, counted, last_line
from mistnet.queue.metrics import EngineMetrics
from mistnet.queue.model import JobState, Lease, LostLease, RemainingWork, Settlement, WorkerName
from mistnet.queue.ports import Observer

_LEVELS: Final = {JobState.RETRYABLE: "WARNING", JobState.FAILED: "ERROR", JobState.DEAD: "ERROR"}
_OUTCOMES: Final = {
    JobState.SUCCEEDED: "success",
    JobState.RETRYABLE: "retry",
    JobState.DEAD: "dead",
    JobState.FAILED: "failed",
}
_ENDS: Final = (JobState.SUCCEEDED, JobState.FAILED)
_OVER: Final = (JobState.SUCCEEDED, JobState.FAILED, JobState.DEAD)
_DEAD_ENDS: Final = (JobState.FAILED, JobState.DEAD)


class Journal:
    """Logs one line per settled job, at DEBUG unless it failed, and updates the metrics."""

    def __init__(
        self,
        *,
        worker: WorkerName,
        metrics: EngineMetrics,
        on_end: Callable[[Lease], None],
        observer: Observer | None = None,
    ) -> None:
        self._worker = worker
        self._metrics = metrics
        self._on_end = on_end
        self._observer = observer
        self.settled_count = 0
        self.ended_count = 0

    def claimed(self, leases: Sequence[Lease], now: datetime) -> None:
        for kind in {lease.kind for lease in leases}:
            waited = self._metrics.wait_seconds.labels(kind)
            for lease in leases:
                if lease.kind == kind:
                    waited.observe(max((now - lease.run_at).total_seconds(), 0))
        for lease in leases:
            if lease.lost_by:
                self._metrics.reclaimed.labels(lease.kind).inc()
                logger.warning(
                    "job {job_id} {kind} taken over from {lost_by}, whose lease ran out (attempt {attempt})",
                    job_id=lease.id,
                    kind=lease.kind,
                    worker=self._worker,
                    lost_by=lease.lost_by,
                    attempt=lease.attempts + 1,
                    lane=lease.lane,
                )

    def settled(self, settled: Sequence[tuple[Settlement, float]], now: datetime) -> None:
        self.settled_count += len(settled)
        self.ended_count += sum(settlement.state in _OVER for settlement, _ in settled)
        tally = Counter((settlement.lease.kind, settlement.state) for settlement, _ in settled)
        for (kind, state), number in tally.items():
            self._metrics.settled.labels(kind, state).inc(number)
            if state is JobState.RETRYABLE:
                self._metrics.retries.labels(kind).inc(number)
            elif state is JobState.DEAD:
                self._metrics.dead.labels(kind).inc(number)
        for settlement, seconds in settled:
            lease = settlement.lease
            # Steps and snoozes are no end and no failure: they have no outcome.
            if outcome := _OUTCOMES.get(settlement.state):
                self._metrics.lanes.jobs.labels(lease.lane, outcome).inc()
            if settlement.state in _ENDS:
                took = max((now - lease.created_at).total_seconds(), 0)
                self._metrics.lanes.finish_seconds.labels(lease.lane).observe(took)
            self._on_end(lease)
            self._write(settlement, seconds)
            if self._observer:
                self._observer.settled(settlement)

    def _write(self, settlement: Settlement, seconds: float) -> None:
        lease, state = settlement.lease, settlement.state
        why = last_line(settlement.error or settlement.reason)[:_NOTE_CHARACTERS]
        account = self._observer.account_of(lease) if self._observer else None
        about = f"job {lease.id} {lease.kind}" + (f" of {account}" if account else "")
        attempt = lease.attempts + 1
        if state in _DEAD_ENDS:
            line = f"{about} {'is dead' if state is JobState.DEAD else 'failed'} after attempt {attempt}"
        else:
            line = f"{about} {state} in {seconds * 1000:.1f} ms (attempt {attempt}, lane {lease.lane})"
        facts = {
            "job_id": lease.id,
            "kind": lease.kind,
            "key": lease.key,
            "account": account,
            "worker": self._worker,
            "attempt": attempt,
            "lane": lease.lane,
            "state": str(state),
            "latency_ms": seconds * 1000,
            "note": why,
            "stack": settlement.error if state in _DEAD_ENDS and "\n" in (settlement.error or "") else None,
        }
        known = {name: value for name, value in facts.items() if value is not None}
        # Bound, not formatted: an error may have braces of its own.
        logger.bind(**known).log(_LEVELS.get(state, "DEBUG"), f"{line}: {why}" if why else line)

    def lost(self, lease: Lease) -> None:
        self._on_end(lease)
        self._metrics.lease_losses.labels(lease.kind).inc()
        logger.warning(
            "job {job_id} {kind} lost its lease (fence {fence}): its writes are discarded; its new holder continues",
            job_id=lease.id,
            kind=lease.kind,
            worker=self._worker,
            fence=lease.fence,
            lane=lease.lane,
        )

    def reclaimed(self, jobs: Sequence[LostLease]) -> None:
        for job in jobs:
            self._metrics.reclaimed.labels(job.kind).inc()
            self._metrics.lanes.jobs.labels(job.lane, "dead" if job.state is JobState.DEAD else "retry").inc()
            if job.state is JobState.DEAD:
                self._metrics.dead.labels(job.kind).inc()
            logger.warning(
                "job {job_id} {kind} reclaimed from {lost_by}, whose lease ran out: now {state} (attempt {attempt})",
                job_id=job.id,
                kind=job.kind,
                worker=self._worker,
                lost_by=job.lost_by,
                attempt=job.attempts,
                lane=job.lane,
                state=str(job.state),
            )

    def clock_corrected(self, drift_seconds: float) -> None:
        self._metrics.clock_drift.set(drift_seconds)


_NOTE_CHARACTERS: Final = 300
# Shorter waits are not logged.
_LOGGED_WAIT: Final = timedelta(seconds=2)
_REPEAT_AFTER: Final = timedelta(minutes=1)


class WaitReporter:
    """Logs what an idle worker waits for: when that begins or changes, and once a minute."""

    def __init__(self, worker: WorkerName) -> None:
        self._worker = worker
        self._logged: str | None = None
        self._repeat_at: datetime | None = None
        self._queried_at: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether to query what is awaited. Not at every turn, because the query counts jobs."""
        if self._queried_at is not None and now - self._queried_at < _LOGGED_WAIT:
            return False
        self._queried_at = now
        return True

    def log(self, awaited: RemainingWork, now: datetime) -> None:
        line = waiting_for(awaited, now)
        repeated = line == self._logged and self._repeat_at is not None and now < self._repeat_at
        if line is None or repeated:
            return
        self._logged, self._repeat_at = line, now + _REPEAT_AFTER
        logger.info("waiting for {what}", what=line, worker=self._worker)


def waiting_for(awaited: RemainingWork, now: datetime) -> str | None:
    parts = []
    for held in awaited.leases:
        if held.lease_until - now > _LOGGED_WAIT:
            seen = f"last seen at {_time(held.seen_at)}" if held.seen_at else "which is not listed any more"
            until = _time(held.lease_until)
            jobs = counted(held.jobs, "job")
            parts.append(f"{jobs} of worker {held.worker}, {seen}: if it is gone, its lease expires at {until}")
    if awaited.jobs and awaited.next_due_at and awaited.next_due_at - now > _LOGGED_WAIT:
        why = f" ({awaited.reason})" if awaited.reason else ""
        later = f"{counted(awaited.jobs, 'job')} that {are(awaited.jobs)} not due yet"
        parts.append(f"{later}, the next at {_time(awaited.next_due_at)}{why}")
    return "; ".join(parts) or None


def _time(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"
