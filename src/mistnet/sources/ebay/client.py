"""Calls of the eBay API: its tokens, and its refusals as errors of the governor."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

import msgspec

from mistnet.governor.errors import (
    UNREADABLE,
    BadRequest,
    BrokenAnswer,
    NotPermitted,
    RateLimited,
    SourceDown,
    SourceRefused,
)
from mistnet.governor.grants import repeat_if_unanswered
from mistnet.governor.model import CallPurpose, Gate
from mistnet.kit.clock import Clock
from mistnet.kit.errors import SettingsError
from mistnet.kit.text import redact, shorten
from mistnet.kit.transport import HttpAnswer, HttpRequest, Transport, Unanswered, retry_after
from mistnet.prices.model import EBAY_API
from mistnet.settings import Settings

T = TypeVar("T")

TOKENS: Final = "/identity/v1/oauth2/token"
SCOPE: Final = "https://api.ebay.com/oauth/api_scope"
SOLD_SCOPE: Final = f"{SCOPE}/buy.marketplace.insights"
REFUSED_WAIT: Final = timedelta(hours=1)
_EARLY: Final = timedelta(minutes=5)
_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = 86_400
_OK: Final = 200
_TOO_EARLY: Final = (408, 425)
_SOLD_WORD: Final = "item_sales"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """An application's id and secret at eBay, and the scopes of its tokens."""

    client_id: str
    client_secret: str
    marketplace: str = "EBAY_US"
    sold: bool = False

    def __repr__(self) -> str:
        return f"Credentials(marketplace={self.marketplace!r})"

    @property
    def basic(self) -> str:
        return base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()

    @property
    def scopes(self) -> str:
        return f"{SCOPE} {SOLD_SCOPE}" if self.sold else SCOPE


def credentials_of(settings: Settings) -> Credentials:
    if settings.ebay_client_id is None or settings.ebay_client_secret is None:
        lacking = "ebay_client_secret" if settings.ebay_client_id else "ebay_client_id"
        raise SettingsError(lacking, "settings", "eBay gives out tokens for a name and its secret: set both, or none")
    return Credentials(
        client_id=settings.ebay_client_id.get_secret_value(),
        client_secret=settings.ebay_client_secret.get_secret_value(),
        marketplace=settings.ebay_marketplace,
        sold=settings.ebay_sold,
    )


class EbayToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token and when it expires. It is kept in memory only and sent only to eBay."""

    text: str
    until: datetime

    def __repr__(self) -> str:
        return f"Token(until={self.until.isoformat()})"


class GivenToken(msgspec.Struct, frozen=True, kw_only=True):
    access_token: str
    expires_in: float


class EbayErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error of eBay, in one of two shapes."""

    errors: Sequence[Mapping[str, object]] = ()
    error: str | None = None
    error_description: str | None = None


_given = msgspec.json.Decoder(GivenToken, strict=False).decode
_complaint = msgspec.json.Decoder(EbayErrorBody, strict=False).decode


class EbayAsker:
    """All calls of one process to eBay. Each passes the governor, including those for tokens."""

    def __init__(
        self,
        transport: Transport,
        *,
        gate: Gate,
        clock: Clock,
        credentials: Credentials,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._gate = gate
        self._clock = clock
        self._credentials = credentials
        self._sleep = sleep
        self._token: EbayToken | None = None
        self._fetching = asyncio.Lock()

    async def ask(
        self,
        path: str,
        query: Mapping[str, str],
        read: Callable[[bytes], tuple[T, int]],
        *,
        purpose: CallPurpose,
    ) -> T:
        """Return what `read` decodes from the answer. A token that eBay no longer accepts is replaced once."""
        for last in (False, True):
            token = await self._current_token(purpose)
            headers = {
                "Authorization": f"Bearer {token.text}",
                "X-EBAY-C-MARKETPLACE-ID": self._credentials.marketplace,
                "Accept": "application/json",
            }
            request = HttpRequest(path=path, query=query, headers=headers)
            call = partial(self._call, request, read, purpose, forgive=() if last else (401,))
            found = await repeat_if_unanswered(call, self._sleep)
            if found is not None:
                return found
            if self._token is token:  # another call may have replaced it already
                self._token = None
        raise AssertionError("the last try returns or raises")

    async def _current_token(self, purpose: CallPurpose) -> EbayToken:
        """One token for all calls of this process, replaced a while before it expires."""
        # The lock makes concurrent calls wait for one token instead of fetching one each.
        async with self._fetching:
            if self._token is not None and self._token.until > self._clock.now():
                return self._token
            # From before the call: a token must never be thought valid for too long.
            asked_at = self._clock.now()
            request = HttpRequest(
                path=TOKENS,
                query={},
                headers={"Authorization": f"Basic {self._credentials.basic}", "Accept": "application/json"},
                form={"grant_type": "client_credentials", "scope": self._credentials.scopes},
            )
            given = await repeat_if_unanswered(partial(self._call, request, _read_token, purpose), self._sleep)
            assert given is not None  # noqa: S101 (no status is forgiven here)
            # Bounded, because a date must not overflow.
            lasts = timedelta(seconds=min(max(given.expires_in, 0.0), _LONGEST_WAIT * 365))
            # A token that is valid for a few minutes only is used for half of them.
            self._token = EbayToken(text=given.access_token, until=asked_at + max(lasts - _EARLY, lasts / 2))
            return self._token

    async def _call(
        self,
        request: HttpRequest,
        read: Callable[[bytes], tuple[T, int]],
        purpose: CallPurpose,
        *,
        forgive: Sequence[int] = (),
    ) -> T | None:
        """Return what `read` decodes from the answer, or None if its status is in `forgive`."""
        endpoint = endpoint_of(request.path)
        async with self._gate.call(endpoint, most=0, purpose=purpose) as call:
            try:
                answer = await self._transport.send(request)
            except Unanswered as error:
                raise SourceDown(EBAY_API, self._clean(str(error), request)) from None  # its cause may show headers
            # Settled like a success: the breaker must not count a token that was revoked.
            if answer.status in forgive:
                call.settle(items=0, credits_due=0)
                return None
            if answer.status != _OK:
                raise self._refusal(answer, endpoint, request)
            found, items = read(answer.body)
            call.settle(items=items, credits_due=0)
            return found

    def _refusal(self, answer: HttpAnswer, endpoint: str, request: HttpRequest) -> Exception:
        """The typed error for a status other than 200."""
        now, status = self._clock.now(), answer.status
        words: list[object] = []
        with suppress(*UNREADABLE):
            found = _complaint(answer.body)
            first = found.errors[0] if found.errors else {}
            words = [first.get(name) for name in ("errorId", "message", "longMessage")]
            words += [found.error, found.error_description]
        said = ", ".join(str(each) for each in words if each) or answer.body[:300].decode("utf-8", "replace")
        problem = shorten(self._clean(said, request), 300)
        if status == 429:
            wait = retry_after(answer.headers, now, longest=timedelta(seconds=_LONGEST_WAIT))
            return RateLimited(EBAY_API, now + (_WAIT if wait is None else max(wait, timedelta(seconds=1))))
        if status == 403 and _SOLD_WORD in endpoint:
            advice = f"{problem}; eBay must grant Marketplace Insights, or turn `ebay_sold` off"
            return NotPermitted(EBAY_API, endpoint, advice, status=status)
        if status == 401 and request.path != TOKENS:
            # Not a refusal of the key: eBay refuses credentials at the token endpoint, and may revoke a token any time.
            return SourceDown(EBAY_API, f"it does not know a token that it gave out ({problem})", status=status)
        if status in (401, 403) or (request.path == TOKENS and status == 400):
            advice = "it refuses ebay_client_id and ebay_client_secret"
            if "scope" in problem.lower():
                advice = "it does not grant what `ebay_sold` needs: turn that off, or apply for Marketplace Insights"
            return SourceRefused(EBAY_API, now + REFUSED_WAIT, f"{advice} ({problem})", status=status)
        if status >= 500 or status in _TOO_EARLY:
            return SourceDown(EBAY_API, f"{status} {problem}", status=status)
        return BadRequest(EBAY_API, endpoint, status, problem)

    def _clean(self, text: str, request: HttpRequest) -> str:
        """Mask what we sent: an error may repeat it."""
        sent = [value.partition(" ")[2] for name, value in request.headers.items() if name == "Authorization"]
        return redact(text, [*sent, self._credentials.client_secret, *([self._token.text] if self._token else [])])


def endpoint_of(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[1:])


def _read_token(body: bytes) -> tuple[GivenToken, int]:
    try:
        given = _given(body)
    except UNREADABLE:
        raise BrokenAnswer(EBAY_API, "oauth2/token", "no token is in it") from None  # its cause may show the token
    if not given.access_token:
        raise BrokenAnswer(EBAY_API, "oauth2/token", "the token is empty")
    return given, 1
