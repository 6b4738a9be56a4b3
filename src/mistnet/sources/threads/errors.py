"""Translate the error codes of the Graph API into typed errors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

from mistnet.governor.errors import BadRequest, NotPermitted, RateLimited, SourceDown, SourceRefused
from mistnet.governor.model import THREADS_SOURCE
from mistnet.kit.redaction import shorten
from mistnet.kit.transport import retry_after
from mistnet.queue.errors import WorkError
from mistnet.social.errors import NotShown
from mistnet.sources.threads.payloads import ErrorPayload, ThreadsEnvelope

SOURCE: Final = THREADS_SOURCE
REFUSED_WAIT: Final = timedelta(hours=1)
LIMIT_WAIT: Final = timedelta(minutes=5)
BLOCKED_WAIT: Final = timedelta(hours=1)
_LONGEST_WAIT: Final = timedelta(days=1)
_FAULTS: Final = frozenset({1, 2})
_LIMITS: Final = frozenset({4, 17, 32, 341, 613})
_BLOCKED: Final = 368
_REAUTHORISE: Final = frozenset({102, 190})
_PERMISSIONS: Final = frozenset({3, 10, *range(200, 300)})
_PARAMETER: Final = 100
_NOTHING_THERE: Final = frozenset({33})
_UNKNOWN: Final = frozenset({24, 803})
_BY_NAME: Final = frozenset({"profile_lookup"})
"""Endpoints where only the name can be wrong."""


def problem_of(found: ThreadsEnvelope, body: bytes) -> str:
    """The error's message and code, from either of its two shapes."""
    told = found.error
    if told is None:
        return shorten(found.error_message or body[:300].decode("utf-8", "replace"), 300)
    said = told.message or told.error_user_msg or "an error without a reason"
    number = f"code {told.code}" + (f"/{told.error_subcode}" if told.error_subcode else "")
    return shorten(f"{said} ({number})" if told.code is not None else said, 300)


def error_of(
    found: ThreadsEnvelope, *, status: int, endpoint: str, problem: str, headers: Mapping[str, str], now: datetime
) -> WorkError:
    """The typed error for an answer that is not a success."""
    told = found.error or ErrorPayload(code=found.error_code)
    code = told.code
    if code in _REAUTHORISE or (status == 401 and code is None):
        reauthorise = f"the token is refused ({problem}); get a new one and set MISTNET_THREADS_TOKEN"
        return SourceRefused(SOURCE, now + REFUSED_WAIT, reauthorise, status=status)
    if status == 429 or code in _LIMITS:
        return RateLimited(SOURCE, now + _wait(headers, now, LIMIT_WAIT))
    if code == _BLOCKED:
        return RateLimited(SOURCE, now + _wait(headers, now, BLOCKED_WAIT))
    if told.is_transient or code in _FAULTS or status >= 500 or status in (408, 425):
        return SourceDown(SOURCE, f"{status} {problem}", status=status)
    return _permanent_error(told, status=status, endpoint=endpoint, problem=problem)


def _permanent_error(told: ErrorPayload, *, status: int, endpoint: str, problem: str) -> WorkError:
    """An error that repeating the call would not change."""
    if told.code in _PERMISSIONS:
        return NotPermitted(SOURCE, endpoint, problem, status=status)
    about_a_name = told.code == _PARAMETER and (told.error_subcode in _NOTHING_THERE or endpoint in _BY_NAME)
    if about_a_name or told.code in _UNKNOWN or status == 404:
        return NotShown(SOURCE, endpoint, problem, status=status)
    return BadRequest(SOURCE, endpoint, status, problem)


def _wait(headers: Mapping[str, str], now: datetime, otherwise: timedelta) -> timedelta:
    asked = retry_after(headers, now, longest=_LONGEST_WAIT)
    return otherwise if asked is None else asked


def read_envelope(body: bytes) -> ThreadsEnvelope | None:
    """None if it is not JSON, or not an envelope."""
    try:
        return _envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_envelope = msgspec.json.Decoder(ThreadsEnvelope, strict=False).decode

MASK: Final = b"***"
_SHORTEST: Final = 4
_IN_URL: Final = re.compile(rb"((?:access|input)_tokens?(?:=|%3[Dd]|\\u003[Dd]))(?:[^&\"'\\\s%<>]|%(?!26)){1,4096}")


def scrubbed(body: bytes, secrets: Iterable[str]) -> bytes:
    """Mask every secret, plain and as URLs and JSON encode it, and every token parameter of a URL."""
    forms = {form for each in secrets if len(each) >= _SHORTEST for form in _forms(each)}
    for secret in sorted(forms, key=len, reverse=True):
        body = body.replace(secret, MASK)
    return _IN_URL.sub(rb"\1" + MASK, body)


def _forms(secret: str) -> set[bytes]:
    plain = secret.encode()
    in_json = msgspec.json.encode(secret)[1:-1]
    in_ascii = secret.encode("ascii", "backslashreplace")
    slashed = in_json.replace(b"/", b"\\/")
    return {plain, in_json, in_ascii, slashed, quote(secret, safe="").encode(), quote_plus(secret).encode()} - {b""}
