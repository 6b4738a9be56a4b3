"""One question to the Threads API: governed, without its token in anything that is kept, its errors named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from mistnet.governor.errors import BrokenAnswer, SourceDown, SourcePaused
from mistnet.governor.model import THREADS_SOURCE, CallPurpose, Gate
from mistnet.kit.clock import Clock
from mistnet.kit.exchange import Exchange
from mistnet.kit.redaction import redact
from mistnet.kit.transport import HttpAnswer, HttpRequest, Transport, Unanswered
from mistnet.queue.errors import NotNow, WorkError
from mistnet.social.ingests.model import BODY_LIMIT, exchange_of
from mistnet.sources.threads.errors import SOURCE, named, problem_of, read_envelope, scrubbed
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
    """The highest of the percentages we were told, and how long to stay away if that was said."""

    percent: float = 0.0
    regain: timedelta | None = None


class UsageGuard:
    """What this process knows of how close to its limit the app is. Every process is told so by each answer."""

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
    """Between calls: nothing at first, then ever longer, then long enough for the window to move on."""
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
    """The object, or those in the lists of it. What cannot be read says nothing."""
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

QUICK_TRIES: Final = 2
QUICK_PAUSE_SECONDS: Final = 0.5
_NO_TOKEN_WAIT: Final = timedelta(minutes=5)


class ThreadsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, and what the ledger calls it. An answer that bears a token is read by nobody but its reader."""

    path: str
    endpoint: str
    query: Mapping[str, str | None] = {}
    hidden: Mapping[str, str] = {}
    bears_token: bool = False

    def request(self, token: str) -> HttpRequest:
        given = {name: value for name, value in self.query.items() if value}
        return HttpRequest(path=self.path, query=given, headers={}, hidden={**self.hidden, "access_token": token})


class ThreadsAnswer(msgspec.Struct, Generic[T], frozen=True):
    """An answer that was understood, and how many things it holds."""

    value: T
    items: int


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without any token in it, and upstream's time if it told."""

    body: bytes
    envelope: ThreadsEnvelope
    at: datetime | None


class Asker:
    """Sends questions with the token of the day. The real API takes it in the query: it is hidden in every record."""

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
        """Asked once more at once if the connection failed."""
        for tries in range(1, QUICK_TRIES + 1):
            try:
                return await self._ask_once(question, read, purpose)
            except SourceDown as error:
                if error.status is not None or tries == QUICK_TRIES:
                    raise
                await self._sleep(QUICK_PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")

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
                raise _unanswered(question.endpoint, problem) from None  # its cause may show the address
            self._pace.note(answer.headers, self._clock.now())
            if not (question.bears_token and answer.status == 200):
                answer = msgspec.structs.replace(answer, body=scrubbed(answer.body, secrets))
            with _kept(answer, question, secrets):
                told = read(self._heard(answer, question.endpoint))
            call.settle(items=told.items, credits_due=0)
        return told.value

    def _heard(self, answer: HttpAnswer, endpoint: str) -> Heard:
        """The answer, if it is one. 200 is not success: the body may say otherwise."""
        found = read_envelope(answer.body)
        if answer.status == 200 and found is None:
            raise BrokenAnswer(SOURCE, endpoint, "it is no JSON object")
        told = found or ThreadsEnvelope()
        if answer.status != 200 or told.error or told.error_message:
            problem = problem_of(told, answer.body)
            now = self._clock.now()
            raise named(told, status=answer.status, endpoint=endpoint, problem=problem, headers=answer.headers, now=now)
        return Heard(body=answer.body, envelope=told, at=_time_of(answer.headers))


def _time_of(headers: Mapping[str, str]) -> datetime | None:
    """Upstream's own clock, as HTTP tells it."""
    said = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        return parsedate_to_datetime(said).astimezone(UTC) if said else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


@contextmanager
def _kept(answer: HttpAnswer, question: ThreadsRequest, secrets: list[str]) -> Iterator[None]:
    """An error that an answer causes carries it along, without what must not be kept."""
    try:
        yield
    except WorkError as error:
        body = b"" if question.bears_token and answer.status == 200 else answer.body
        error.exchange = exchange_of(
            question.endpoint, status=answer.status, headers=answer.headers, body=body, secrets=secrets
        )
        raise


def _unanswered(endpoint: str, problem: str) -> SourceDown:
    error = SourceDown(SOURCE, problem)
    error.exchange = Exchange(endpoint=endpoint, status=None, body=problem[:BODY_LIMIT])
    return error
