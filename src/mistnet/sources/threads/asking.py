"""Send one governed call to the Threads API: remove its token from everything stored, and raise typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from mistnet.governor.errors import BrokenAnswer, SourceDown, SourcePaused
from mistnet.governor.governed_call import repeat_if_unanswered
from mistnet.governor.model import THREADS_SOURCE, CallPurpose, Gate
from mistnet.kit.clock import Clock
from mistnet.kit.exchange import Exchange
from mistnet.kit.redaction import redact
from mistnet.kit.transport import HttpAnswer, HttpRequest, Transport, Unanswered
from mistnet.queue.errors import NotNow, WorkError
from mistnet.social.ingests.model import BODY_LIMIT, exchange_of
from mistnet.sources.threads.errors import SOURCE, error_of, problem_of, read_envelope, scrubbed
from mistnet.sources.threads.payloads import ThreadsEnvelope
from mistnet.sources.threads.tokens import TokenKeeper

SLOW_FROM: Final = 75.0
STOP_FROM: Final = 95.0
_PERCENTAGES: Final = ("call_count", "total_time", "total_cputime")
_REGAIN: Final = "estimated_time_to_regain_access"
_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(seconds=30)
_STOP: Final = timedelta(minutes=5)
_MOST_MINUTES: Final = 1_440.0


class Usage(msgspec.Struct, frozen=True):
    """The highest reported percentage, and how long to make no calls if Threads says so."""

    percent: float = 0.0
    regain: timedelta | None = None


class UsageGuard:
    """How close the app is to its limit, as far as this process knows. Each answer reports it to its own process."""

    def __init__(self) -> None:
        self._free_at: datetime | None = None
        self._percent = 0.0

    def require_free(self, now: datetime) -> None:
        if self._free_at is not None and now < self._free_at:
            reason = f"{THREADS_SOURCE}: {self._percent:.0f} % of what it allows is used, calls are spread out"
            raise NotNow(self._free_at, reason)

    def note(self, headers: Mapping[str, str], now: datetime) -> None:
        usage = usage_of(headers)
        wait = pause_after(usage)
        self._percent = usage.percent
        self._free_at = now + wait if wait else None


def pause_after(usage: Usage) -> timedelta | None:
    """The pause between calls: none at first, then growing, then long enough for the usage window to move on."""
    if usage.percent >= STOP_FROM:
        return max(usage.regain or _STOP, _STOP)
    if usage.percent < SLOW_FROM:
        return None
    part = (usage.percent - SLOW_FROM) / (STOP_FROM - SLOW_FROM)
    return _SHORTEST + (_LONGEST - _SHORTEST) * part


def usage_of(headers: Mapping[str, str]) -> Usage:
    """From `X-App-Usage`, and from `X-Business-Use-Case-Usage`, which lists the same by id."""
    shown = {name.lower(): value for name, value in headers.items()}
    found = [*_objects(shown.get("x-app-usage")), *_objects(shown.get("x-business-use-case-usage"))]
    percents = [_number(each.get(name)) for each in found for name in _PERCENTAGES]
    minutes = max((_number(each.get(_REGAIN)) for each in found), default=0.0)
    regain = timedelta(minutes=min(minutes, _MOST_MINUTES)) if minutes > 0 else None
    return Usage(max(percents, default=0.0), regain)


def _objects(written: str | None) -> Iterator[Mapping[str, Any]]:
    """The object, and those in its lists. A value that cannot be read counts as empty."""
    try:
        found = msgspec.json.decode(written or "null")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    yield found
    for listed in found.values():
        if isinstance(listed, list):
            yield from (each for each in listed if isinstance(each, dict))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e6 else 0.0


T = TypeVar("T")

_NO_TOKEN_WAIT: Final = timedelta(minutes=5)


class ThreadsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call, and its name in the ledger. An answer that bears a token is passed to its reader only, never stored."""

    path: str
    endpoint: str
    query: Mapping[str, str | None] = {}
    hidden: Mapping[str, str] = {}
    bears_token: bool = False

    def request(self, token: str) -> HttpRequest:
        given = {name: value for name, value in self.query.items() if value}
        return HttpRequest(path=self.path, query=given, headers={}, hidden={**self.hidden, "access_token": token})


class ThreadsAnswer(msgspec.Struct, Generic[T], frozen=True):
    """A decoded answer, and how many items it holds."""

    value: T
    items: int


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without tokens, and the server's time if it was sent."""

    body: bytes
    envelope: ThreadsEnvelope
    at: datetime | None


class Asker:
    """Sends calls with the current token. The API takes it in the query, so it is hidden in every record."""

    def __init__(
        self,
        transport: Transport,
        *,
        gate: Gate,
        clock: Clock,
        keeper: TokenKeeper,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._gate = gate
        self._clock = clock
        self._keeper = keeper
        self._sleep = sleep
        self._pace = UsageGuard()

    def require_token(self) -> str:
        token = self._keeper.token
        if not token:
            raise SourcePaused(SOURCE, self._clock.now() + _NO_TOKEN_WAIT, "no token is configured")
        return token

    async def ask(self, question: ThreadsRequest, read: Callable[[Heard], ThreadsAnswer[T]], purpose: CallPurpose) -> T:
        return await repeat_if_unanswered(lambda: self._ask_once(question, read, purpose), self._sleep)

    async def _ask_once(
        self, question: ThreadsRequest, read: Callable[[Heard], ThreadsAnswer[T]], purpose: CallPurpose
    ) -> T:
        self._pace.require_free(self._clock.now())
        request = question.request(self.require_token())
        secrets = [*self._keeper.secrets, *request.hidden.values()]
        async with self._gate.call(question.endpoint, most=0, purpose=purpose) as call:
            try:
                answer = await self._transport.send(request)
            except Unanswered as error:
                problem = redact(str(error), secrets)
                down = SourceDown(SOURCE, problem)
                down.exchange = Exchange(endpoint=question.endpoint, status=None, body=problem[:BODY_LIMIT])
                raise down from None  # the cause may show the address, which contains the token
            self._pace.note(answer.headers, self._clock.now())
            if not (question.bears_token and answer.status == 200):
                answer = msgspec.structs.replace(answer, body=scrubbed(answer.body, secrets))
            try:
                decoded = read(self._heard(answer, question.endpoint))
            except WorkError as error:
                # The error carries the answer that caused it, but never one that bears a token.
                body = b"" if question.bears_token and answer.status == 200 else answer.body
                error.exchange = exchange_of(
                    question.endpoint, status=answer.status, headers=answer.headers, body=body, secrets=secrets
                )
                raise
            call.settle(items=decoded.items, credits_due=0)
        return decoded.value

    def _heard(self, answer: HttpAnswer, endpoint: str) -> Heard:
        """Return a successful answer, or raise its typed error. With status 200 too, the body may contain an error."""
        found = read_envelope(answer.body)
        if answer.status == 200 and found is None:
            raise BrokenAnswer(SOURCE, endpoint, "it is no JSON object")
        envelope = found or ThreadsEnvelope()
        if answer.status != 200 or envelope.error or envelope.error_message:
            problem = problem_of(envelope, answer.body)
            now = self._clock.now()
            raise error_of(
                envelope, status=answer.status, endpoint=endpoint, problem=problem, headers=answer.headers, now=now
            )
        return Heard(body=answer.body, envelope=envelope, at=_time_of(answer.headers))


def _time_of(headers: Mapping[str, str]) -> datetime | None:
    """The server's time, from the Date header."""
    said = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        return parsedate_to_datetime(said).astimezone(UTC) if said else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
