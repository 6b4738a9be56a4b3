"""Errors of sources: refused, rate limited, over budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import msgspec

from mistnet.kit.errors import Nonexistent, UsageError, did_you_mean
from mistnet.kit.text import LARGEST_ID
from mistnet.queue.errors import NotNow, Permanent, Temporary


def _resuming(source: str) -> str:
    return f"a new key is used at once, `mistnet sources resume {source}` ends the pause"


class NoKey(UsageError):
    """A call to X needs a key, and none is configured."""

    def __init__(self) -> None:
        super().__init__(
            "no key for X is configured: store a TwitterAPI.io key with `mistnet init --key KEY` or set "
            "MISTNET_X_API_KEY, or try `mistnet demo`, which needs none"
        )


class SourceNotFound(Nonexistent, UsageError):
    """There is no source of this name."""

    def __init__(self, given: str, known: Sequence[str]) -> None:
        hint = did_you_mean(given.lower(), known)
        super().__init__(f"there is no source {given[:50]!r}.{hint} Known sources: {', '.join(known)}")
        self.given, self.known = given, tuple(known)


class DuplicateSource(UsageError):
    """Two sources have one name: their jobs, limits and pauses could not be told apart."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There are two sources named {name!r}. Give one of them another name.")
        self.name = name


_SERVER_AT_FAULT = 500


class SourceDown(Temporary):
    """A source does not answer, or reports a fault of its own. `host` is given if it has many."""

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
    """A shop shows a CAPTCHA, a log-in or a decoy instead of the page."""

    def __init__(self, source: str, problem: str, *, status: int | None = None) -> None:
        super().__init__(source, problem, status=status)
        self.args = (f"{source} blocks us: {problem}; `crawl_rates` makes visits rarer",)
        self.block = problem


class BrokenAnswer(Temporary):
    """A source answered with something that cannot be decoded or cannot be true."""

    def __init__(self, source: str, endpoint: str, problem: str) -> None:
        super().__init__(f"{source} answered {endpoint} with something unreadable: {problem}")
        self.source, self.endpoint, self.problem = source, endpoint, problem
        self.status = 200


class IllegiblePayload(ValueError):
    """A part of a payload lacks a required field, or the field is invalid."""


UNREADABLE: Final = (msgspec.DecodeError, IllegiblePayload, UnicodeDecodeError, RecursionError)
"""What decoding an invalid payload can raise; RecursionError if it is nested too deeply."""


@contextmanager
def reading_answer(source: str, endpoint: str) -> Iterator[None]:
    """Raise BrokenAnswer where what is inside cannot decode the answer."""
    try:
        yield
    except UNREADABLE as error:
        raise BrokenAnswer(source, endpoint, str(error)) from error


def read_payload_id(value: str | int, field: str = "id") -> int:
    """An id: sources send it as text, the database stores a 64-bit integer."""
    try:
        found = int(value)
    except ValueError:
        raise IllegiblePayload(f"{field} is not a number: {value!r}") from None
    if not 0 < found <= LARGEST_ID:
        raise IllegiblePayload(f"{field} is out of range: {value!r}")
    return found


class NotPermitted(Permanent):
    """The token lacks a permission, or the app lacks approval, for this request."""

    def __init__(self, source: str, endpoint: str, problem: str, *, status: int) -> None:
        super().__init__(
            f"{source} does not let this token call {endpoint}: {problem}; grant the permission, then try again"
        )
        self.source, self.endpoint, self.problem, self.status = source, endpoint, problem, status


class BadRequest(Permanent):
    """A source says that the request itself is wrong; a retry would not help."""

    def __init__(self, source: str, endpoint: str, status: int, problem: str) -> None:
        super().__init__(f"{source} refuses the request {endpoint} ({status}): {problem}")
        self.source, self.endpoint, self.status, self.problem = source, endpoint, status, problem


class RateLimited(NotNow):
    """429: the source asks us to wait. With `key_unseen`, a 403 that means the same."""

    def __init__(self, source: str, until: datetime, *, free_tier: bool = False, key_unseen: bool = False) -> None:
        super().__init__(until, f"{source} asks us to wait")
        self.source, self.free_tier, self.key_unseen = source, free_tier, key_unseen
        self.status = 403 if key_unseen else 429


class SourceRefused(NotNow):
    """The source does not serve this key: it is wrong, or its credits are spent. An operator has to act."""

    def __init__(self, source: str, until: datetime, problem: str, *, status: int) -> None:
        super().__init__(until, f"{source} is paused: {problem}; {_resuming(source)}")
        self.source, self.problem, self.status = source, problem, status


class SourcePaused(NotNow):
    """The source is paused: `mistnet sources` shows why, `mistnet sources resume` ends the pause."""

    def __init__(self, source: str, until: datetime, problem: str, *, resumable: bool = True) -> None:
        super().__init__(until, f"{source} is paused: {problem}{f'; {_resuming(source)}' if resumable else ''}")
        self.source, self.problem = source, problem


class BudgetSpent(NotNow):
    """The cap of the day or the month is spent or reserved."""

    def __init__(self, source: str, until: datetime, span: str, spent: int, cap: int) -> None:
        super().__init__(until, f"{source}: the {span}'s budget of {cap:,} credits is spent ({spent:,})")
        self.source, self.span, self.spent, self.cap = source, span, spent, cap
