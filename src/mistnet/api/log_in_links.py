"""Links that log one person in, once: for the person who started the service and sits at its terminal."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from mistnet.domain.ports import Clock
from mistnet.domain.visitors import digest, new_secret

LINK_LASTS: Final = timedelta(minutes=10)


class LogInLinks:
    """The links that are still good. They live in this process alone and end with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiries: dict[str, datetime] = {}

    def make(self) -> str:
        """The secret part of a new link."""
        secret = new_secret()
        self._expiries[digest(secret)] = self._clock.now() + LINK_LASTS
        return secret

    def redeem(self, secret: str) -> bool:
        """Whether this is a link that is still good; it is not from now on."""
        expires_at = self._expiries.pop(digest(secret), None)
        return expires_at is not None and self._clock.now() < expires_at
