"""Who may do what: scopes, tokens and log-ins as values."""

from __future__ import annotations

import hashlib
import math
import secrets
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

TOKEN_PREFIX: Final = "mn_"  # noqa: S105 (what every token begins with, so that one is known for what it is)
_TOKEN_BYTES: Final = 32
_GUESSABLE_BITS: Final = 64


class Scope(IntEnum):
    """Each may do what those before it may."""

    READ = 1
    OPERATE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Scope:
        return cls[word.upper()]


class Entry(StrEnum):
    """Why a visitor is let in."""

    TOKEN = "token"  # noqa: S105 (no secret)
    LOOPBACK = "loopback"
    SOCKET = "socket"


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. A visitor with a cookie must send `csrf` back with every change."""

    name: str
    scope: Scope
    csrf: str | None = None
    entry: Entry = Entry.TOKEN


class KeptToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept: everything but the token itself."""

    id: int
    name: str
    scope: Scope
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


def new_secret(prefix: str = "") -> str:
    """256 random bits, fit for headers and cookies."""
    return f"{prefix}{secrets.token_urlsafe(_TOKEN_BYTES)}"


def is_guessable(secret: str) -> bool:
    """Whether it can be found by trying many: a rough measure, by its length and its different characters."""
    return len(secret) * math.log2(len(set(secret)) or 1) < _GUESSABLE_BITS


def digest(secret: str) -> str:
    """What is kept of a secret. It has too many bits to be guessed, so that no salt is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
