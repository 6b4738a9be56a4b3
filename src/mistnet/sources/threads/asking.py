"""Send one governed call to the Threads API: remove its token from everything stored, and raise typed errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

from mistnet.governor.errors import (
    UNREADABLE,
    BadRequest,
    BrokenAnswer,
    NotPermitted,
    RateLimited,
    SourceDown,
    SourcePaused,
    SourceRefused,
)
from mistnet.governor.grants import repeat_if_unanswered
from mistnet.governor.model import THREADS_SOURCE, CallPurpose, Gate
from mistnet.kit.clock import Clock
from mistnet.kit.text import redact, shorten
from mistnet.kit.transport import Exchange, HttpAnswer, HttpRequest, Transport, Unanswered, retry_after
from mistnet.queue.errors import NotNow, WorkError
from mistnet.social.errors import NotShown
from mistnet.social.ingests import BODY_LIMIT, exchange_of
from mistnet.sources.threads.decode import ErrorPayload, ThreadsEnvelope
from mistnet.sources.threads.tokens import TokenKeeper

SOURCE: Final = THREADS_SOURCE
REFUSED_WAIT: Final = timedelta(hours=1)
LIMIT_WAIT: Final = timedelta(minutes=5)
BLOCKED_WAIT: Final = timedelta(hours=1)
_LONGEST_LIMIT: Final = timedelta(days=1)
# Codes of the Graph API. 1 and 2: a fault on its side, worth a retry.
_FAULTS: Final = frozenset({1, 2})
# Limits of the app, the user, the page, and limits of single features.
_LIMITS: Final = frozenset({4, 17, 32, 341, 613})
_BLOCKED: Final = 368
# The session or the token is over: only a person can get a new one, so no retry helps.
_REAUTHORISE: Final = frozenset({102, 190})
_PERMISSIONS: Final = frozenset({3, 10, *range(200, 300)})
_PARAMETER: Final = 100
_NOTHING_THERE: Final = frozenset({33})
_UNKNOWN: Final = frozenset({24, 803})
_BY_NAME: Final = frozenset({"profile_lookup"})
"""Endpoints where only the name can be wrong."""


def problem_of(found: ThreadsEnvelope, body: bytes) -> str:
    """The error's message and code, from either of its two shapes."""
    payload = found.error
    if payload is None:
        return shorten(found.error_message or body[:300].decode("utf-8", "replace"), 300)
    said = payload.message or payload.error_user_msg or "an error without a reason"
    number = f"code {payload.code}" + (f"/{payload.error_subcode}" if payload.error_subcode else "")
    return shorten(f"{said} ({number})" if payload.code is not None else said, 300)


def error_of(
    found: ThreadsEnvelope, *, status: int, endpoint: str, problem: str, headers: Mapping[str, str], now: datetime
) -> WorkError:
    """The typed error for an answer that is not a success."""
    payload = found.error or ErrorPayload(code=found.error_code)
    code = payload.code
    if code in _REAUTHORISE or (status == 401 and code is None):
        reauthorise = f"the token is refused ({problem}); get a new one and set MISTNET_THREADS_TOKEN"
        return SourceRefused(SOURCE, now + REFUSED_WAIT, reauthorise, status=status)
    if status == 429 or code in _LIMITS or code == _BLOCKED:
        wait = retry_after(headers, now, longest=_LONGEST_LIMIT)
        usual = LIMIT_WAIT if status == 429 or code in _LIMITS else BLOCKED_WAIT
        return RateLimited(SOURCE, now + (usual if wait is None else wait))
    if payload.is_transient or code in _FAULTS or status >= 500 or status in (408, 425):
        return SourceDown(SOURCE, f"{status} {problem}", status=status)
    # From here on, repeating the call would not change the answer.
    if code in _PERMISSIONS:
        return NotPermitted(SOURCE, endpoint, problem, status=status)
    about_a_name = code == _PARAMETER and (payload.error_subcode in _NOTHING_THERE or endpoint in _BY_NAME)
    if about_a_name or code in _UNKNOWN or status == 404:
        return NotShown(SOURCE, endpoint, problem, status=status)
    return BadRequest(SOURCE, endpoint, status, problem)


def read_envelope(body: bytes) -> ThreadsEnvelope | None:
    """None if it is not JSON, or not an envelope."""
    try:
        return _envelope(body)
    except UNREADABLE:
        return None


_envelope = msgspec.json.Decoder(ThreadsEnvelope, strict=False).decode

MASK: Final = b"***"
_SHORTEST_SECRET: Final = 4
# In URLs, also percent-encoded and as JSON escapes it: messages of errors quote URLs inside JSON.
_IN_URL: Final = re.compile(rb"((?:access|input)_tokens?(?:=|%3[Dd]|\\u003[Dd]))(?:[^&\"'\\\s%<>]|%(?!26)){1,4096}")


def scrub(body: bytes, secrets: Iterable[str]) -> bytes:
    """Mask every secret, plain and as URLs and JSON encode it, and every token parameter of a URL."""
    forms: set[bytes] = set()
    for each in secrets:
        if len(each) >= _SHORTEST_SECRET:  # a shorter one would mask parts of ordinary words
            in_json = msgspec.json.encode(each)[1:-1]
            in_ascii = each.encode("ascii", "backslashreplace")
            in_urls = (quote(each, safe="").encode(), quote_plus(each).encode())
            forms |= {each.encode(), in_json, in_ascii, in_json.replace(b"/", b"\\/"), *in_urls}
    # Longest first: replacing a shorter one that it contains would leave the rest readable.
    for secret in sorted(forms, key=len, reverse=True):
        body = body.replace(secret, MASK)
    return _IN_URL.sub(rb"\1" + MASK, body)


# Meta refuses calls at 100 %, and counts those of all processes with this token.
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
    lowered = {name.lower(): value for name, value in headers.items()}
    found = [*_objects(lowered.get("x-app-usage")), *_objects(lowered.get("x-business-use-case-usage"))]
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
        # Before the gate: a call that has to wait must not use up a slot of the rate.
        self._pace.require_free(self._clock.now())
        request = question.request(self.require_token())
        secrets = [*self._keeper.secrets, *request.hidden.values()]
        # Calls are free, so nothing is reserved; rate, breaker and pause apply all the same.
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
                answer = msgspec.structs.replace(answer, body=scrub(answer.body, secrets))
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
        date, at = next((value for name, value in answer.headers.items() if name.lower() == "date"), ""), None
        with suppress(ValueError, TypeError, IndexError, OverflowError):  # an unreadable time counts as none
            at = parsedate_to_datetime(date).astimezone(UTC)
        return Heard(body=answer.body, envelope=envelope, at=at)
