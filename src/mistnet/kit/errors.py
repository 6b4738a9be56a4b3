"""Every error mistnet raises on purpose.

MistnetError
├── UsageError                 a request that cannot be fulfilled; exit code 2
│   ├── SettingsError
│   ├── MissingExtra
│   ├── UnknownKind
│   ├── NoKey
│   ├── NoToken
│   ├── NoThreadsToken
│   ├── BadFeed
│   ├── FeedNotFound
│   ├── SourceNotFound
│   ├── DuplicateSource
│   ├── TokenNotFound
│   ├── BadHandle
│   ├── BadHandles
│   ├── BadRun
│   │   └── CapTooLow
│   ├── RunInProgress
│   ├── NeedsConfirmation
│   ├── RunNotFound
│   ├── NotTracked
│   ├── UserNotFound
│   ├── BadArgs
│   ├── JobNotFound
│   ├── AlertNotFound
│   ├── IngestNotFound
│   ├── JobNotAllowed
│   ├── BadPlugin
│   ├── BadSearch
│   ├── AmbiguousPost
│   ├── BadSegment
│   │   └── SegmentCycle
│   ├── SegmentNotFound
│   ├── SegmentDisabled
│   ├── NoBroker
│   ├── BrokerMismatch
│   ├── LinkNotFound
│   ├── ProductNotFound
│   ├── OfferNotFound
│   ├── BadWatch
│   ├── WatchNotFound
│   ├── BadItem
│   ├── ItemNotFound
│   ├── PointNotFound
│   ├── BadShop
│   ├── BadRates
│   ├── UnreadableFile
│   ├── AmountTooLarge
│   ├── NotAFile
│   ├── DatabaseInUse
│   ├── BadSelection
│   ├── MissingLibrary
│   ├── DataClosed
│   └── BadExport
├── NotReturned                a strict request could not be met in full; exit code 3
├── DatabaseError              exit code 1
│   ├── DatabaseUnreachable
│   ├── DatabaseBusy
│   │   └── DatabaseFails
│   ├── DatabaseMissing
│   ├── DatabaseNotMigrated
│   ├── DatabaseTooNew
│   ├── DatabaseTooOld
│   ├── DatabaseForeign
│   └── WriteRefused
├── BrokerError                exit code 1
│   ├── BrokerUnreachable
│   └── BrokerRefused          a UsageError as well; exit code 2
└── WorkError                  raised by handlers; the executor turns each into an outcome
    ├── Temporary              -> Retry
    │   ├── TookTooLong
    │   ├── SourceDown
    │   │   └── SourceBlocked
    │   ├── BrokenAnswer
    │   └── Undelivered
    ├── Permanent              -> Fail
    │   ├── NotPermitted
    │   ├── NotShown
    │   ├── NoSource
    │   ├── PageUnreadable
    │   ├── CrawlRefused
    │   │   └── UnsafeAddress
    │   └── BadRequest
    └── NotNow                 -> Snooze
        ├── RateLimited
        ├── SourceRefused
        ├── SourcePaused
        └── BudgetSpent
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MOST_LISTED = 10


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def list_problems(problems: Sequence[object]) -> str:
    """The first problems of a list, and how many more there are."""
    more = f"; and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
    return "; ".join(map(str, problems[:MOST_LISTED])) + more


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the only error inside a task group as itself, so that callers can catch it by its class."""
    try:
        yield
    except ExceptionGroup as group:
        first, *others = leaves_of(group)
        if others:
            raise
        raise first from None


def leaves_of(error: Exception) -> list[Exception]:
    """The errors inside a group and the groups in it. Any other error is the only item of its list."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in leaves_of(each)]


class MistnetError(Exception):
    """The root of all expected errors. `ingest_id` is the ingest that the error ended, if any."""

    ingest_id: int | None = None


class Nonexistent:
    """Mixed into errors about something that does not exist. The API answers 404."""


class Conflict:
    """Mixed into errors about something whose present state does not allow the request. The API answers 409."""


class UsageError(MistnetError):
    """A request that cannot be fulfilled."""


class SettingsError(UsageError):
    """A setting is unknown or has a value that cannot be used."""

    def __init__(self, setting: str, where: str, problem: str) -> None:
        super().__init__(f"{where}: {setting}: {problem}")
        self.setting, self.where, self.problem = setting, where, problem


class MissingExtra(UsageError):
    """Something needs packages that a plain installation leaves out."""

    def __init__(self, extra: str, what: str, package: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'mistnet[{extra}]'")
        self.extra, self.what, self.package = extra, what, package


class AlertNotFound(Nonexistent, UsageError):
    """No open alert has this id."""

    def __init__(self, alert_id: int) -> None:
        super().__init__(f"there is no open alert {alert_id}; `mistnet alerts` shows those that are open")
        self.alert_id = alert_id


class UnreadableFile(UsageError):
    """A file that was named cannot be read."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"cannot read {file}: {problem}; name a file, or - for standard input")
        self.file, self.problem = file, problem


class DatabaseError(MistnetError):
    """The database, or a statement that it was given, is at fault."""


class DatabaseUnreachable(DatabaseError):
    """The database does not answer."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(
            f"the database {url} does not answer: {problem}. "
            f"Check MISTNET_DATABASE_URL and that the server is up; nothing was lost."
        )
        self.url, self.problem = url, problem


class DatabaseBusy(DatabaseError):
    """Another connection holds a lock that we need. Retrying is safe and likely to succeed."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the database is busy: {problem}")
        self.problem = problem


class DatabaseFails(DatabaseBusy):
    """The database cannot do this at the moment: it is read-only or out of space, or cancelled the statement.

    The job that used it is not at fault.
    """

    def __init__(self, problem: str) -> None:
        DatabaseError.__init__(self, f"the database cannot do this now: {problem}")
        self.problem = problem


class DatabaseMissing(DatabaseError):
    """There is no file where the SQLite database should be."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"there is no database at {file}. Run `mistnet init` to make one there, "
            f"or name yours with --database-url or MISTNET_DATABASE_URL."
        )
        self.file = file


class DatabaseNotMigrated(DatabaseError):
    """The database lacks tables that this version needs."""

    def __init__(self, url: str, found: str | None, wanted: str) -> None:
        at = f"is at revision {found}" if found else "has no mistnet tables yet"
        super().__init__(f"the database {url} {at}, this version needs {wanted}: run `mistnet db migrate`")
        self.url, self.found, self.wanted = url, found, wanted


class DatabaseTooNew(DatabaseError):
    """A newer mistnet has migrated this database."""

    def __init__(self, url: str, found: str) -> None:
        super().__init__(
            f"the database {url} is at revision {found}, which this version does not know: "
            f"upgrade mistnet on this machine"
        )
        self.url, self.found = url, found


class DatabaseTooOld(DatabaseError):
    """The database was made by a development version whose migrations are no longer included."""

    def __init__(self, url: str, found: str, oldest: str) -> None:
        super().__init__(
            f"the database {url} is at revision {found}, and this version can only migrate from {oldest} on: run "
            f"`mistnet db migrate` with an earlier mistnet that includes migrations {found} to {oldest} first"
        )
        self.url, self.found, self.oldest = url, found, oldest


class NotAFile(UsageError):
    """A command for SQLite files was given another database."""

    def __init__(self, url: str, instead: str) -> None:
        super().__init__(f"{url} is not a SQLite file. Use {instead} of its server")
        self.url, self.instead = url, instead


class DatabaseInUse(UsageError):
    """Processes work on a database that is to be replaced."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{', '.join(names)} works on this database. Stop all mistnet processes, then try again.")
        self.names = names


class DatabaseForeign(DatabaseError):
    """The file or URL names something that is not a mistnet database."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url} is not a database mistnet can use: {problem}")
        self.url, self.problem = url, problem


class WriteRefused(DatabaseError):
    """The database refused what a job wanted to write."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the database refused the write: {problem}")
        self.problem = problem


EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    "amqp": ("aio_pika", "aio-pika"),
    "apprise": ("apprise", "Apprise"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "OpenTelemetry"),
    "parquet": ("pyarrow", "PyArrow"),
    "postgresql": ("asyncpg", "asyncpg"),
}
"""Each extra of pyproject.toml, the module that shows that it is installed, and what people call it."""


def require_extra(extra: str, what: str) -> None:
    """Refuse something that needs an extra before it begins, so that no ImportError stops it half-way."""
    module, name = EXTRAS[extra]
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # a package above it is missing
        found = None
    if found is None:
        raise MissingExtra(extra, what, name)
