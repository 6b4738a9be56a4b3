"""Every error mistnet raises on purpose.

MistnetError
├── UsageError                 somebody asked for something that cannot be; exit code 2
│   ├── SettingsError
│   ├── UnknownKind
│   ├── NoKey
│   ├── NoToken
│   ├── NoThreadsToken
│   ├── BadFeed
│   ├── FeedNotFound
│   ├── SourceNotFound
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
│   ├── BadWatch
│   ├── WatchNotFound
│   ├── BadItem
│   ├── ItemNotFound
│   ├── PointNotFound
│   ├── BadShop
│   ├── BadRates
│   ├── UnreadableFile
│   └── BadExport
├── NotReturned                a strict request could not be met in full; exit code 3
├── DatabaseError              exit code 1
│   ├── DatabaseUnreachable
│   ├── DatabaseBusy
│   │   └── DatabaseFails
│   ├── DatabaseMissing
│   ├── DatabaseNotMigrated
│   ├── DatabaseTooNew
│   ├── DatabaseForeign
│   ├── PlaceholdersLeft
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

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path

from mistnet.domain.ingests import Exchange, IngestId
from mistnet.domain.jobs import JobId, JobState

_LISTED = 100
_TOLD = 10


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def _and_more(count: int) -> str:
    return f"; and {count - _TOLD} more" if count > _TOLD else ""


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raises the one error inside a task group as itself, so that it can be caught by its name."""
    try:
        yield
    except ExceptionGroup as group:
        first, *others = leaves_of(group)
        if others:
            raise
        raise first from None


def leaves_of(error: Exception) -> list[Exception]:
    """The errors inside a group and its groups; an error that is no group is itself the only one."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in leaves_of(each)]


def _resuming(source: str) -> str:
    return f"a new key is used at once, `mistnet sources resume {source}` ends the pause"


class MistnetError(Exception):
    """The root: whatever mistnet says about a fault it foresaw. If it ended an ingest, it knows which."""

    ingest_id: IngestId | None = None


class UsageError(MistnetError):
    """Somebody asked for something that cannot be."""


class SettingsError(UsageError):
    """A setting is unknown or has a value that cannot be used."""

    def __init__(self, setting: str, where: str, problem: str) -> None:
        super().__init__(f"{where}: {setting}: {problem}")
        self.setting, self.where, self.problem = setting, where, problem


class UnknownKind(UsageError):
    """No handler is known for this kind of job."""

    def __init__(self, kind: str, known: Sequence[str]) -> None:
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"there is no job kind {kind!r}.{did_you_mean(kind, known)} Known kinds: {listed}. "
            f"A kind of your own comes from a plugin: see the setting 'plugins'."
        )
        self.kind, self.known = kind, tuple(known)


class NoKey(UsageError):
    """A source is to be asked and no key for it is configured."""

    def __init__(self) -> None:
        super().__init__(
            "no key for X is configured: set MISTNET_X_API_KEY to a TwitterAPI.io key, "
            "or try `mistnet demo`, which needs none"
        )


class NoToken(UsageError):
    """Others could reach the service, and nobody would have to show a token."""

    def __init__(self, host: str, *, proxied: bool = False) -> None:
        how = "through your trusted_proxies" if proxied else f"at {host}"
        instead = "" if proxied else ", or leave out --host to serve this machine alone"
        super().__init__(
            f"others can reach mistnet {how} and there is no token yet: make one with `mistnet serve --new-token NAME "
            f"--scope admin`, or set MISTNET_ADMIN_TOKEN{instead}"
        )
        self.host = host


class NoThreadsToken(UsageError):
    """Threads is to be asked and no access token for it is configured."""

    def __init__(self) -> None:
        super().__init__(
            "no token for Threads is configured: set MISTNET_THREADS_TOKEN to a long-lived access token, "
            "and MISTNET_THREADS_TOKEN_FILE to where its refreshed form is kept"
        )


class BadFeed(UsageError):
    """A feed that cannot be as somebody wants it."""

    def __init__(self, given: str, problem: str) -> None:
        super().__init__(f"{given[:80]!r}: {problem}; write @name, name or https://www.threads.com/@name")
        self.given, self.problem = given, problem


class FeedNotFound(UsageError):
    """Nobody asked for this account's feed, or it was removed."""

    def __init__(self, handle: str) -> None:
        super().__init__(f"there is no feed of @{handle[:80]}; `mistnet feeds add {handle[:80]}` begins one")
        self.handle = handle


class SourceNotFound(UsageError):
    """Nobody reads from a source of this name."""

    def __init__(self, given: str, known: Sequence[str]) -> None:
        hint = did_you_mean(given.lower(), known)
        super().__init__(f"there is no source {given[:50]!r}.{hint} Known sources: {', '.join(known)}")
        self.given, self.known = given, tuple(known)


class TokenNotFound(UsageError):
    """No token has this id, or it is void already."""

    def __init__(self, token_id: int) -> None:
        super().__init__(f"there is no valid token {token_id}; `mistnet serve --list-tokens` shows them all")
        self.token_id = token_id


class BadHandle(UsageError):
    """What was given names no account."""

    def __init__(self, given: str, problem: str) -> None:
        super().__init__(f"{given[:80]!r}: {problem}; write @name, name or https://x.com/name")
        self.given, self.problem = given, problem


class BadHandles(UsageError):
    """Several handles were given, and some of them name no account."""

    def __init__(self, problems: Sequence[BadHandle]) -> None:
        super().__init__("; ".join(map(str, problems[:_TOLD])) + _and_more(len(problems)))
        self.problems = tuple(problems)


class BadRun(UsageError):
    """A run was asked for that cannot be made; says which part of the request is at fault."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class CapTooLow(BadRun):
    """What a run may cost does not buy a page of each of its accounts."""

    def __init__(self, least: int, accounts: int) -> None:
        of_each = "the price of a page" if accounts == 1 else f"the price of a page of each of {accounts:,} accounts"
        super().__init__("max_credits", f"must be at least {least:,}, {of_each}")
        self.least, self.accounts = least, accounts


class RunInProgress(UsageError):
    """One run at a time, and one is under way."""

    def __init__(self, run_id: str, stands: str = "is still going") -> None:
        super().__init__(
            f"the run {run_id} {stands}; `mistnet runs show {run_id}` tells how far it is, "
            f"`mistnet runs cancel {run_id}` or `POST /api/runs/{run_id}/cancel` ends it"
        )
        self.run_id = run_id


class NeedsConfirmation(UsageError):
    """Something is likely to cost more than may be spent without a confirmation."""

    def __init__(self, credits_due: int, confirm_credits: int) -> None:
        super().__init__(
            f"this is likely to cost {credits_due:,} credits (US$ {credits_due / 100_000:,.2f}), more than the "
            f"{confirm_credits:,} of the setting `confirm_credits`. Confirm it: --yes on the command line, "
            f'"confirm": true in a request'
        )
        self.credits_due, self.confirm_credits = credits_due, confirm_credits


class RunNotFound(UsageError):
    """There is no such run, or not any more."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"there is no run {run_id[:80]!r}; finished ones are kept for `run_hours`, `mistnet runs list` shows them"
        )
        self.run_id = run_id


class NotTracked(UsageError):
    """Nobody tracks this account, and nobody suggested it."""

    def __init__(self, given: str) -> None:
        super().__init__(f"{given} is neither tracked nor suggested; `mistnet track` begins to")
        self.given = given


class UserNotFound(UsageError):
    """Nothing that was collected tells of this user."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"nothing that was collected tells of {given[:80]}; `mistnet follows sync {given[:80]}` asks for it"
        )
        self.given = given


class BadArgs(UsageError):
    """A job's args do not fit its kind."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"the args do not fit the kind {kind!r}: {problem}")
        self.kind, self.problem = kind, problem


class JobNotFound(UsageError):
    """No live or finished job has this id."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"there is no job {job_id}; `mistnet jobs list` shows the live ones")
        self.job_id = JobId(job_id)


class AlertNotFound(UsageError):
    """No open alert has this id."""

    def __init__(self, alert_id: int) -> None:
        super().__init__(f"there is no open alert {alert_id}; `mistnet alerts` shows those that are open")
        self.alert_id = alert_id


class IngestNotFound(UsageError):
    """No ingest event has this id."""

    def __init__(self, ingest_id: IngestId) -> None:
        super().__init__(f"there is no ingest {ingest_id}; `mistnet hydrate events` shows the latest")
        self.ingest_id = ingest_id


class JobNotAllowed(UsageError):
    """The job's state does not allow what was asked."""

    def __init__(self, job_id: int, state: JobState, wanted: str, why: str) -> None:
        super().__init__(f"job {job_id} is {state} and cannot be {wanted}: {why}")
        self.job_id, self.state, self.wanted, self.why = JobId(job_id), state, wanted, why


class BadPlugin(UsageError):
    """A plugin named in the settings cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"plugin {name!r} cannot be used: {problem}")
        self.name, self.problem = name, problem


class BadSearch(UsageError):
    """A search that asks for nothing that could be looked up."""

    def __init__(self, query: str, problem: str) -> None:
        super().__init__(f"cannot search for {query[:80]!r}: {problem}")
        self.query, self.problem = query, problem


class AmbiguousPost(UsageError):
    """An id that posts of several platforms have."""

    def __init__(self, post_id: int, platforms: Sequence[str]) -> None:
        where = " and ".join(f"on {each}" for each in platforms)
        choice = " or ".join(f"platform={each}" for each in platforms)
        super().__init__(f"Post {post_id} is stored {where}. Add {choice}.")
        self.post_id, self.platforms = post_id, platforms


class BadSegment(UsageError):
    """A segment that cannot be as somebody wants it."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"segment {name[:80]!r}: {problem}")
        self.name, self.problem = name, problem


class SegmentCycle(BadSegment):
    """Segments that build on each other in a circle, so that none of them could be worked out first."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(path[0], f"it would build on itself: {' -> '.join(path)}; leave one of these out")
        self.path = tuple(path)


class SegmentNotFound(UsageError):
    """There is no segment of that name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(
            f"there is no segment {name[:80]!r}.{did_you_mean(name[:80], known)} `mistnet segments list` shows them all"
        )
        self.name = name


class SegmentDisabled(UsageError):
    """The segment keeps the members it has until somebody enables it again."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the segment {name!r} is disabled; `mistnet segments enable {name}` changes that")
        self.name = name


class LinkNotFound(UsageError):
    """No link has this id or URL."""

    def __init__(self, given: str) -> None:
        super().__init__(f"there is no link {given[:200]!r}; `mistnet links list` shows those that were found")
        self.given = given


class ProductNotFound(UsageError):
    """No product has this id or URL."""

    def __init__(self, given: str) -> None:
        super().__init__(f"there is no product {given[:200]!r}; `mistnet products list` shows those that were found")
        self.given = given


class BadWatch(UsageError):
    """A price watch that cannot be as somebody wants it."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"this cannot be watched: {problem}")
        self.problem = problem


class WatchNotFound(UsageError):
    """No price watch has this id, or it was removed."""

    def __init__(self, watch_id: int) -> None:
        super().__init__(f"there is no price watch {watch_id}; `mistnet prices watches` shows them all")
        self.watch_id = watch_id


class BadItem(UsageError):
    """A thing somebody wants followed is not written as one can be: each problem names its field and its value."""

    def __init__(self, problems: Sequence[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(f"{field} {value[:200]!r}: {problem}" for field, value, problem in problems[:_TOLD]))
        self.problems = tuple(problems)


class ItemNotFound(UsageError):
    """No item has this id, or it was removed."""

    def __init__(self, item_id: int, *, removed: bool = False) -> None:
        why = f"item {item_id} was removed; add it again to follow it" if removed else f"there is no item {item_id}"
        super().__init__(f"{why}; `mistnet items list` shows those that are followed")
        self.item_id, self.removed = item_id, removed


class PointNotFound(UsageError):
    """No price point has this id."""

    def __init__(self, point_id: int) -> None:
        super().__init__(f"there is no point {point_id}; `mistnet items points ID` shows those of an item")
        self.point_id = point_id


class BadShop(UsageError):
    """The file that describes shops says something that cannot be."""

    def __init__(self, file: object, shop: str | None, key: str | None, problem: str) -> None:
        place = ": ".join(part for part in (str(file), f"shop {shop}" if shop else None, key) if part)
        super().__init__(f"{place}: {problem}")
        self.file, self.shop, self.key, self.problem = str(file), shop, key, problem


class BadRates(UsageError):
    """Rows of a file state no rates; none was written."""

    def __init__(self, file: str, rows: int, problems: Sequence[str]) -> None:
        told = "; ".join(problems[:_TOLD]) + _and_more(len(problems))
        super().__init__(
            f"{len(problems)} of {rows} rows of {file} cannot be taken, and nothing was written: {told}. "
            f"Mend them, or leave them out with --skip-bad"
        )
        self.file, self.rows, self.problems = file, rows, tuple(problems)


class UnreadableFile(UsageError):
    """A file somebody named cannot be read."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"cannot read {file}: {problem}; name a file, or - for standard input")
        self.file, self.problem = file, problem


class BadExport(UsageError):
    """An export that cannot be made, or not written where it was asked for."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"cannot export {what}: {problem}")
        self.what, self.problem = what, problem


class NotReturned(MistnetError):
    """All or nothing was asked for, and a source lacks some of it."""

    def __init__(
        self, source: str, what: str, missing: Sequence[int], *, asked: int, problem: str | None = None
    ) -> None:
        listed = ", ".join(map(str, missing[:_LISTED]))
        more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
        unread = f" (some of the answer could not be read: {problem})" if problem else ""
        super().__init__(
            f"{source} does not return {len(missing)} of {asked} {what}: {listed}{more}{unread}. Nothing was written; "
            f"leave these out, or use --background, which settles each id alone"
        )
        self.source, self.what, self.missing, self.asked, self.problem = source, what, tuple(missing), asked, problem


class DatabaseError(MistnetError):
    """The database, or what we asked of it, is at fault."""


class DatabaseUnreachable(DatabaseError):
    """The database does not answer."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(
            f"the database {url} does not answer: {problem}. "
            f"Check MISTNET_DATABASE_URL and that the server is up; nothing was lost."
        )
        self.url, self.problem = url, problem


class DatabaseBusy(DatabaseError):
    """Somebody else holds what we need; trying again is safe and likely to work."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the database is busy: {problem}")
        self.problem = problem


class DatabaseFails(DatabaseBusy):
    """The database cannot do now what it could before: read-only, out of room, a statement cancelled.

    The job that asked is not to blame.
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
    """The database lacks tables this version needs."""

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


class DatabaseForeign(DatabaseError):
    """The file or URL names something that is not a mistnet database."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url} is not a database mistnet can use: {problem}")
        self.url, self.problem = url, problem


class PlaceholdersLeft(DatabaseError):
    """Some users stand in an old database by their id alone: nobody ever asked upstream for them."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} users were never fetched (they have no last_updated_at), and this version keeps none of that "
            f"kind: run `mistnet hydrate users --placeholders`, then `mistnet db migrate` again; nothing was lost"
        )
        self.count = count


class WriteRefused(DatabaseError):
    """The database refused what a job wanted to write."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the database refused the write: {problem}")
        self.problem = problem


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
    """The broker, or the way to it, is at fault. Jobs stay where they are: in the database."""


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
    """Raised inside a handler; the executor turns it into an outcome. If a source's answer is at fault, it is kept."""

    exchange: Exchange | None = None


class Temporary(WorkError):
    """Something that may be over at the next try."""


class TookTooLong(Temporary):
    """The handler did not finish within its time limit."""

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"the handler did not finish within {limit.total_seconds():g} s")
        self.limit = limit


class Permanent(WorkError):
    """Something no retry will mend."""


_SERVER_AT_FAULT = 500


class SourceDown(Temporary):
    """A source does not answer, or says that it is the one at fault. `host` is given where it is one of many."""

    def __init__(self, source: str, problem: str, *, status: int | None = None, host: str | None = None) -> None:
        if host is not None:
            said = f"{host}: {problem}"
        elif status is None:
            said = f"{source} gave no whole answer: {problem}"
        else:
            said = f"{source} is down: {problem}" if status >= _SERVER_AT_FAULT else f"{source}: {problem}"
        super().__init__(said)
        self.source, self.problem, self.status = source, problem, status


class SourceBlocked(SourceDown):
    """A shop shows a riddle, a log-in or a decoy in the place of the page: it takes us for a robot."""

    def __init__(self, source: str, problem: str, *, status: int | None = None) -> None:
        super().__init__(source, problem, status=status)
        self.args = (f"{source} blocks us: {problem}; `crawl_rates` makes visits rarer",)
        self.block = problem


class BrokenAnswer(Temporary):
    """A source answered with something that cannot be read, or that cannot be true."""

    def __init__(self, source: str, endpoint: str, problem: str) -> None:
        super().__init__(f"{source} answered {endpoint} with something unreadable: {problem}")
        self.source, self.endpoint, self.problem = source, endpoint, problem
        self.status = 200


class Undelivered(Temporary):
    """A subscriber did not take an event; it is sent again, and later ones wait for it."""

    def __init__(self, subscriber: str, event_id: int, problem: str) -> None:
        super().__init__(
            f"{subscriber} did not take event {event_id}: {problem}; it is sent again later, "
            f"or at once with `mistnet jobs retry ID`"
        )
        self.subscriber, self.event_id, self.problem = subscriber, event_id, problem


class NotPermitted(Permanent):
    """A source does not let this token ask that: it lacks a permission, or the app lacks approval for it."""

    def __init__(self, source: str, endpoint: str, problem: str, *, status: int) -> None:
        super().__init__(f"{source} does not let this token ask {endpoint}: {problem}; grant it, then ask anew")
        self.source, self.endpoint, self.problem, self.status = source, endpoint, problem, status


class NotShown(Permanent):
    """A source has nothing by that name or id, or does not show it to us; it does not tell which."""

    def __init__(self, source: str, what: str, problem: str, *, status: int) -> None:
        super().__init__(f"{source} does not show {what}: {problem}")
        self.source, self.what, self.problem, self.status = source, what, problem, status


class CrawlRefused(Permanent):
    """A page that mistnet will not fetch, or not read to its end."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url[:200]} is not fetched: {reason}")
        self.url, self.reason = url, reason


class PageUnreadable(Permanent):
    """A page that takes too much to read, or breaks what reads it. Reading it again would end the same way."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the page cannot be read: {reason}")
        self.reason = reason


class UnsafeAddress(CrawlRefused):
    """A URL that leads, or could lead, to a machine that is nobody else's business."""


class BadRequest(Permanent):
    """A source says that the question itself is wrong; asking again would not help."""

    def __init__(self, source: str, endpoint: str, status: int, problem: str) -> None:
        super().__init__(f"{source} refuses the question {endpoint} ({status}): {problem}")
        self.source, self.endpoint, self.status, self.problem = source, endpoint, status, problem


class NotNow(WorkError):
    """The work has to wait until a known time, through no fault of its own."""

    def __init__(self, until: datetime, reason: str) -> None:
        super().__init__(f"wait until {until:%Y-%m-%d %H:%M:%S} UTC: {reason}")
        self.until, self.reason = until, reason


class RateLimited(NotNow):
    """429: the source asks us to wait. A free key says so itself; a 403 may be the same in disguise."""

    def __init__(self, source: str, until: datetime, *, free_tier: bool = False, key_unseen: bool = False) -> None:
        super().__init__(until, f"{source} asks us to wait")
        self.source, self.free_tier, self.key_unseen = source, free_tier, key_unseen
        self.status = 403 if key_unseen else 429


class SourceRefused(NotNow):
    """The source does not serve this key: it is wrong, or its credits are spent. Somebody has to act."""

    def __init__(self, source: str, until: datetime, problem: str, *, status: int) -> None:
        super().__init__(until, f"{source} is paused: {problem}; {_resuming(source)}")
        self.source, self.problem, self.status = source, problem, status


class SourcePaused(NotNow):
    """Nobody may ask this source now; `mistnet sources` tells why, `mistnet sources resume` ends it."""

    def __init__(self, source: str, until: datetime, problem: str, *, resumable: bool = True) -> None:
        super().__init__(until, f"{source} is paused: {problem}{f'; {_resuming(source)}' if resumable else ''}")
        self.source, self.problem = source, problem


class BudgetSpent(NotNow):
    """The credits somebody allowed for the day or the month are spent or set aside."""

    def __init__(self, source: str, until: datetime, span: str, spent: int, cap: int) -> None:
        super().__init__(until, f"{source}: the {span}'s budget of {cap:,} credits is spent ({spent:,})")
        self.source, self.span, self.spent, self.cap = source, span, spent, cap
