"""Turns an outcome into a job's next state. Pure: time and chance come in as values."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from mistnet.domain.jobs import Continue, Done, Fail, JobState, Lease, Outcome, Retry, Settlement, Snooze
from mistnet.engine.policy import Policy

JITTER = 0.2


def settlement(lease: Lease, outcome: Outcome, *, now: datetime, policy: Policy, chance: float) -> Settlement:
    """What becomes of a leased job. `chance` is a number from 0 to 1 that spreads retries out."""
    match outcome:
        case Done(writes):
            return Settlement(
                lease=lease,
                state=JobState.SUCCEEDED,
                run_at=lease.run_at,
                attempts=lease.attempts,
                writes=writes,
            )
        case Continue(writes, args, run_at, reason):
            return Settlement(
                lease=lease,
                state=JobState.PENDING,
                run_at=run_at or now,
                attempts=0,
                args=msgspec.json.encode(args).decode() if args is not None else None,
                reason=reason or "takes turns with the other jobs of its class",
                writes=writes,
            )
        case Snooze(until, reason, awaits):
            return Settlement(
                lease=lease,
                state=JobState.PENDING,
                run_at=until,
                attempts=lease.attempts,
                reason=reason,
                awaits=awaits,
            )
        case Retry(error, alone, within, writes):
            wait = backoff(lease.attempts, policy, chance)
            retried = _retried(lease, error, alone=alone, now=now, wait=min(wait, within or wait))
            return msgspec.structs.replace(retried, writes=writes) if writes else retried
        case Fail(error, writes):
            return Settlement(
                lease=lease,
                state=JobState.FAILED,
                run_at=now,
                attempts=lease.attempts + 1,
                error=error,
                writes=writes,
            )
        case _:
            assert_never(outcome)


def _retried(lease: Lease, error: str, *, alone: bool, now: datetime, wait: timedelta) -> Settlement:
    attempts = lease.attempts + 1
    last = attempts >= lease.max_attempts
    return Settlement(
        lease=lease,
        state=JobState.DEAD if last else JobState.RETRYABLE,
        run_at=now if last else now + wait,
        attempts=attempts,
        error=error,
        reason=None if last else f"waits after attempt {attempts} of {lease.max_attempts} failed",
        alone=alone,
    )


def backoff(attempts: int, policy: Policy, chance: float) -> timedelta:
    """base * 2^attempts, spread by a fifth either way, never above the cap."""
    spread = 1 + JITTER * (2 * chance - 1)
    doublings = min(attempts, 40)
    seconds = policy.backoff_base.total_seconds() * 2.0**doublings * spread
    return min(timedelta(seconds=min(seconds, policy.backoff_cap.total_seconds())), policy.backoff_cap)
