"""Scopes, tokens and sessions: values and their store."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import RowMapping, Select, delete, func, insert, or_, select, update

from mistnet.kit.database import Database
from mistnet.operations.tables import api_tokens, sessions

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


class LoginMethod(StrEnum):
    """Why a visitor is let in."""

    TOKEN = "token"  # noqa: S105 (no secret)
    LOOPBACK = "loopback"
    SOCKET = "socket"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. A visitor with a cookie must send `csrf` back with every change."""

    name: str
    scope: Scope
    csrf: str | None = None
    entry: LoginMethod = LoginMethod.TOKEN


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
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


_NOTED_EVERY: Final = timedelta(minutes=1)
_SHOWN: Final = [api_tokens.c[name] for name in ApiToken.__struct_fields__]


class Tokens:
    """Made, found and revoked. A revoked token's log-ins end with it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make(self, name: str, scope: Scope, *, now: datetime) -> tuple[ApiToken, str]:
        """The second value is the token itself, told this once."""
        token = new_secret(TOKEN_PREFIX)
        row = {"name": name, "scope": scope.word, "digest": digest(token), "created_at": now}
        async with self._database.transaction() as connection:
            made = await connection.execute(insert(api_tokens).values(**row).returning(*_SHOWN))
            return _kept(made.mappings().one()), token

    async def listed(self) -> Sequence[ApiToken]:
        """All of them, the revoked ones too."""
        async with self._database.read() as connection:
            rows = await connection.execute(select(*_SHOWN).order_by(api_tokens.c.id))
            return [_kept(row) for row in rows.mappings()]

    async def any_made(self) -> bool:
        """Also true of tokens that are revoked: who revokes the last one does not mean to let everybody in."""
        asked = select(api_tokens.c.id).limit(1)
        async with self._database.read() as connection:
            return (await connection.execute(asked)).first() is not None

    async def any_valid(self) -> bool:
        asked = select(func.count()).select_from(api_tokens).where(api_tokens.c.revoked_at.is_(None))
        async with self._database.read() as connection:
            return bool((await connection.execute(asked)).scalar_one())

    async def revoke(self, token_id: int, *, now: datetime) -> ApiToken | None:
        """None: there is no such token, or it is revoked already."""
        revoked = (
            update(api_tokens)
            .where(api_tokens.c.id == token_id, api_tokens.c.revoked_at.is_(None))
            .values(revoked_at=now)
            .returning(*_SHOWN)
        )
        async with self._database.transaction() as connection:
            row = (await connection.execute(revoked)).mappings().one_or_none()
            await connection.execute(delete(sessions).where(sessions.c.token_id == token_id))
        return _kept(row) if row else None

    async def find(self, token: str) -> ApiToken | None:
        """The valid token that this is."""
        asked = select(*_SHOWN).where(api_tokens.c.digest == digest(token), api_tokens.c.revoked_at.is_(None))
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).mappings().one_or_none()
        return _kept(row) if row else None

    async def note_use(self, token: ApiToken, *, now: datetime) -> None:
        """At most once a minute."""
        before = now - _NOTED_EVERY
        if token.last_used_at is not None and token.last_used_at > before:
            return
        own = api_tokens.c
        stale = or_(own.last_used_at.is_(None), own.last_used_at <= before)
        noted = update(api_tokens).where(own.id == token.id, stale).values(last_used_at=now)
        async with self._database.transaction() as connection:
            await connection.execute(noted)


class Sessions:
    """Log-ins that last for some hours. One made without a token of the table ends when the admin token changes."""

    def __init__(self, database: Database, admin_token: str | None = None) -> None:
        self._database = database
        self._admin_token = admin_token or ""

    async def begin(
        self, visitor: Caller, *, token_id: int | None, now: datetime, lasts: timedelta
    ) -> tuple[str, Caller]:
        """The first value is what the visitor's cookie holds."""
        secret, csrf = new_secret(), new_secret()
        row = {
            "digest": digest(secret) if token_id is not None else self._bound(secret),
            "name": visitor.name,
            "scope": visitor.scope.word,
            "token_id": token_id,
            "csrf": csrf,
            "created_at": now,
            "expires_at": now + lasts,
        }
        async with self._database.transaction() as connection:
            await connection.execute(delete(sessions).where(sessions.c.expires_at <= now))
            await connection.execute(insert(sessions).values(**row))
        return secret, Caller(name=visitor.name, scope=visitor.scope, csrf=csrf)

    async def find(self, secret: str, *, now: datetime) -> Caller | None:
        asked = _SESSION.where(sessions.c.digest.in_(self._digests(secret)), sessions.c.expires_at > now)
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).one_or_none()
        return Caller(name=row.name, scope=Scope.of(row.scope), csrf=row.csrf) if row else None

    async def end(self, secret: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(delete(sessions).where(sessions.c.digest.in_(self._digests(secret))))

    def _digests(self, secret: str) -> list[str]:
        return [digest(secret), self._bound(secret)]

    def _bound(self, secret: str) -> str:
        return digest(f"{secret}.{self._admin_token}")


_SESSION: Final[Select[Any]] = select(sessions.c.name, sessions.c.scope, sessions.c.csrf)


def _kept(row: RowMapping) -> ApiToken:
    return ApiToken(**{**row, "scope": Scope.of(row["scope"])})
