"""One question to the Threads API: governed, without its token in anything that is kept, its errors named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Generic, TypeVar

import msgspec

from mistnet.domain.errors import BrokenAnswer, SourceDown, SourcePaused, WorkError
from mistnet.domain.ingests import BODY_LIMIT, Exchange, exchange_of
from mistnet.domain.ports import Clock
from mistnet.domain.redaction import redact
from mistnet.domain.sources import Errand, Gate
from mistnet.upstream.threads.pace import Pace
from mistnet.upstream.threads.payloads import Envelope
from mistnet.upstream.threads.problems import SOURCE, named, problem_of, read_envelope
from mistnet.upstream.threads.scrubbing import scrubbed
from mistnet.upstream.threads.tokens import TokenKeeper
from mistnet.upstream.transport import Answer, Request, Transport, Unanswered

T = TypeVar("T")

QUICK_TRIES: Final = 2
QUICK_PAUSE_SECONDS: Final = 0.5
_NO_TOKEN_WAIT: Final = timedelta(minutes=5)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, and what the ledger calls it. An answer that bears a token is read by nobody but its reader."""

    path: str
    endpoint: str
    query: Mapping[str, str | None] = {}
    hidden: Mapping[str, str] = {}
    bears_token: bool = False

    def request(self, token: str) -> Request:
        given = {name: value for name, value in self.query.items() if value}
        return Request(path=self.path, query=given, headers={}, hidden={**self.hidden, "access_token": token})


class Told(msgspec.Struct, Generic[T], frozen=True):
    """An answer that was understood, and how many things it holds."""

    value: T
    items: int


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without any token in it, and upstream's time if it told."""

    body: bytes
    envelope: Envelope
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
        self._pace = Pace()

    def require_token(self) -> str:
        token = self._keeper.token
        if not token:
            raise SourcePaused(SOURCE, self._clock.now() + _NO_TOKEN_WAIT, "no token is configured")
        return token

    async def ask(self, question: Question, read: Callable[[Heard], Told[T]], errand: Errand) -> T:
        """Asked once more at once if the connection failed."""
        for tries in range(1, QUICK_TRIES + 1):
            try:
                return await self._ask_once(question, read, errand)
            except SourceDown as error:
                if error.status is not None or tries == QUICK_TRIES:
                    raise
                await self._sleep(QUICK_PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")

    async def _ask_once(self, question: Question, read: Callable[[Heard], Told[T]], errand: Errand) -> T:
        self._pace.require_free(self._clock.now())
        request = question.request(self.require_token())
        secrets = [*self._keeper.secrets, *request.hidden.values()]
        async with self._gate.call(question.endpoint, most=0, errand=errand) as call:
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

    def _heard(self, answer: Answer, endpoint: str) -> Heard:
        """The answer, if it is one. 200 is not success: the body may say otherwise."""
        found = read_envelope(answer.body)
        if answer.status == 200 and found is None:
            raise BrokenAnswer(SOURCE, endpoint, "it is no JSON object")
        told = found or Envelope()
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
def _kept(answer: Answer, question: Question, secrets: list[str]) -> Iterator[None]:
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
