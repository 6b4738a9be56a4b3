"""Errors of jobs, plugins and the broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from mistnet.kit.errors import Conflict, MistnetError, Nonexistent, UsageError, did_you_mean
from mistnet.kit.transport import Exchange
from mistnet.queue.model import JobId, JobState


class UnknownKind(UsageError):
    """No handler is known for this kind of job."""

    def __init__(self, kind: str, known: Sequence[str]) -> None:
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"there is no job kind {kind!r}.{did_you_mean(kind, known)} Known kinds: {listed}. "
            f"A kind of your own comes from a plugin: see the setting 'plugins'."
        )
        self.kind, self.known = kind, tuple(known)


class BadArgs(UsageError):
    """A job's args do not fit its kind."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"the args do not fit the kind {kind!r}: {problem}")
        self.kind, self.problem = kind, problem


class JobNotFound(Nonexistent, UsageError):
    """No live or finished job has this id."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"there is no job {job_id}; `mistnet jobs list` shows the live ones")
        self.job_id = JobId(job_id)


class JobNotAllowed(Conflict, UsageError):
    """The job's state does not allow this change."""

    def __init__(self, job_id: int, state: JobState, wanted: str, why: str) -> None:
        super().__init__(f"job {job_id} is {state} and cannot be {wanted}: {why}")
        self.job_id, self.state, self.wanted, self.why = JobId(job_id), state, wanted, why


class BadPlugin(UsageError):
    """A plugin named in the settings cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"plugin {name!r} cannot be used: {problem}")
        self.name, self.problem = name, problem


class NoBroker(UsageError):
    """Jobs are to go over RabbitMQ, and nothing says where it is or which lanes it serves."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; see docs/rabbitmq.md")
        self.problem = problem


class BrokerMismatch(UsageError):
    """A queue or exchange of that name is there already, made in another way."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"RabbitMQ has a queue or exchange of another make: {problem}. Set amqp_queue_type as it was when the "
            f"queue was made, or delete the queue: no job is lost by that, the database has them all"
        )
        self.problem = problem


class BrokerError(MistnetError):
    """The broker or the connection to it failed. Jobs stay in the database."""


class BrokerUnreachable(BrokerError):
    """RabbitMQ does not answer, or the connection to it broke."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(
            f"RabbitMQ at {url} does not answer: {problem}. Check MISTNET_BROKER_URL and that the server is up; "
            f"no job is lost, and `mistnet work --via db` works without it"
        )
        self.url, self.problem = url, problem


class BrokerRefused(BrokerError, UsageError):
    """RabbitMQ answers, and will not let us in: a wrong password, virtual host, permission or certificate."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(
            f"RabbitMQ at {url} refuses us: {problem}. Check user, password and virtual host in MISTNET_BROKER_URL, "
            f"and the certificates broker_ca_file, broker_cert_file and broker_key_file"
        )
        self.url, self.problem = url, problem


class WorkError(MistnetError):
    """Raised by a handler; the executor turns it into an outcome. A faulty answer of a source is kept with it."""

    exchange: Exchange | None = None


class Temporary(WorkError):
    """A fault that may be gone at the next attempt."""


class TookTooLong(Temporary):
    """The handler did not finish within its time limit."""

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"the handler did not finish within {limit.total_seconds():g} s")
        self.limit = limit


class Permanent(WorkError):
    """Something no retry will mend."""


class Undelivered(Temporary):
    """A subscriber did not take an event; it is sent again, and later ones wait for it."""

    def __init__(self, subscriber: str, event_id: int, problem: str) -> None:
        super().__init__(
            f"{subscriber} did not take event {event_id}: {problem}; it is sent again later, "
            f"or at once with `mistnet jobs retry ID`"
        )
        self.subscriber, self.event_id, self.problem = subscriber, event_id, problem


class NotNow(WorkError):
    """The job has to wait until a known time. It is not at fault."""

    def __init__(self, until: datetime, reason: str) -> None:
        super().__init__(f"wait until {until:%Y-%m-%d %H:%M:%S} UTC: {reason}")
        self.until, self.reason = until, reason
