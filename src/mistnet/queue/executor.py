"""Run handlers and turn their results and errors into outcomes. The only broad `except` of the system is here."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseError, MistnetError, WriteRefused
from mistnet.kit.text import redact, shorten
from mistnet.queue.errors import BadArgs, NotNow, Permanent, Temporary, TookTooLong, WorkError
from mistnet.queue.kinds import Kind
from mistnet.queue.model import Fail, Job, Lease, Outcome, Retry, Snooze

DATABASE_WAIT: Final = timedelta(seconds=2)
"""A handler that could not read the database is not at fault: the job spends no attempt and runs again soon."""


class Executor(msgspec.Struct, frozen=True, kw_only=True):
    """Runs one batch of one kind. Removes secrets from what is stored."""

    clock: Clock
    timeout: timedelta
    error_limit: int
    secrets: Sequence[str] = ()

    async def run(self, kind: Kind, leases: Sequence[Lease]) -> list[Outcome]:
        """One outcome per lease, in order. Never raises but for cancellation."""
        outcomes: dict[int, Outcome] = {}
        jobs: list[Job[Any]] = []
        for lease in leases:
            try:
                jobs.append(kind.job(lease))
            except BadArgs as error:
                outcomes[lease.id] = Fail(self._clean(str(error)))
        if jobs:
            handled = await self._handle(kind, jobs)
            outcomes |= {job.id: outcome for job, outcome in zip(jobs, handled, strict=True)}
        return [outcomes[lease.id] for lease in leases]

    async def _handle(self, kind: Kind, jobs: Sequence[Job[Any]]) -> Sequence[Outcome]:
        try:
            async with asyncio.timeout((kind.timeout or self.timeout).total_seconds()) as limit:
                outcomes = await kind.handle(jobs)
        except TimeoutError as error:
            if limit.expired():
                return self._same(jobs, TookTooLong(kind.timeout or self.timeout))
            return await self._unknown(kind, jobs, error)
        except Exception as error:  # noqa: BLE001 (a handler may raise anything; its job is retried, others go on)
            if isinstance(error, WorkError | DatabaseError) and not isinstance(error, WriteRefused):
                return self._same(jobs, error)
            return await self._unknown(kind, jobs, error)
        if len(outcomes) != len(jobs):
            wrong = f"the handler of {kind.name} returned {len(outcomes)} outcomes for {len(jobs)} jobs"
            return [Retry(wrong, alone=True) for _ in jobs]
        cleaned: list[Outcome] = []
        for outcome in outcomes:
            match outcome:
                case Retry(error=text) | Fail(error=text):
                    cleaned.append(msgspec.structs.replace(outcome, error=self._clean(text)))
                case Snooze(reason=reason):
                    cleaned.append(msgspec.structs.replace(outcome, reason=self._clean(reason)))
                case _:
                    cleaned.append(outcome)
        return cleaned

    def _same(self, jobs: Sequence[Job[Any]], error: MistnetError) -> list[Outcome]:
        """An error that the handler raised itself concerns every job of the batch."""
        outcome: Outcome
        match error:
            case NotNow():
                outcome = Snooze(error.until, self._clean(error.reason))
            case DatabaseError():
                outcome = Snooze(self.clock.now() + DATABASE_WAIT, self._clean(str(error)))
            case Permanent():
                outcome = Fail(self._clean(str(error)))
            case Temporary():
                outcome = Retry(self._clean(str(error)))
            case _:
                outcome = Retry(self._clean(repr(error)))
        return [outcome for _ in jobs]

    async def _unknown(self, kind: Kind, jobs: Sequence[Job[Any]], error: Exception) -> Sequence[Outcome]:
        """It is not known which job of the batch caused this error: halve the batch until the bad jobs are alone."""
        if len(jobs) == 1:
            trace = "".join(traceback.format_exception(error))
            return [Retry(self._clean(trace), alone=kind.rules.batch > 1)]
        middle = len(jobs) // 2
        first = await self._handle(kind, jobs[:middle])
        return [*first, *await self._handle(kind, jobs[middle:])]

    def _clean(self, text: str) -> str:
        """Remove secrets, limit the size, and replace what databases refuse: NUL and broken surrogates."""
        plain = text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
        return shorten(redact(plain, self.secrets), self.error_limit)
