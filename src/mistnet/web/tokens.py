"""API tokens and sessions: scopes, values, and their tables."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Final

import msgspec
from sqlalchemy import RowMapping, delete, insert, or_, select, update

from mistnet.kit.database import Database, Store
from mistnet.operations.tables import api_tokens, sessions

TOKEN_PREFIX: Final = "mn_"  # noqa: S105 (a recognizable prefix, not a secret)
_TOKEN_BYTES: Final = 32
_GUESSABLE_BITS: Final = 64


class Scope(IntEnum):
    """What a token may do. Each scope includes those before it."""

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
    """How a caller was authenticated."""

    TOKEN = "token"  # noqa: S105 (no secret)
    LOOPBACK = "loopback"
    SOCKET = "socket"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller. With a cookie, each state-changing request must also send `csrf`."""

    name: str
    scope: Scope
    csrf: str | None = None
    entry: LoginMethod = LoginMethod.TOKEN


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A stored token: everything but the token itself."""

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
    """Whether a secret could be guessed: a rough estimate from its length and its different characters."""
    return len(secret) * math.log2(len(set(secret)) or 1) < _GUESSABLE_BITS


def digest(secret: str) -> str:
    """The stored hash of a secret. Secrets are random, so neither a salt nor a slow hash is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


_USE_RECORDED_EVERY: Final = timedelta(minutes=1)
_COLUMNS: Final = [api_tokens.c[name] for name in ApiToken.__struct_fields__]


class Tokens(Store):
    """The table of tokens. Revoking a token ends its sessions."""

    async def make(self, name: str, scope: Scope, *, now: datetime) -> tuple[ApiToken, str]:
        """Make a token. The second value is the token itself, which is not stored."""
        token = new_secret(TOKEN_PREFIX)
        row = {"name": name, "scope": scope.word, "digest": digest(token), "created_at": now}
        async with self._database.transaction() as connection:
            made = await connection.execute(insert(api_tokens).values(**row).returning(*_COLUMNS))
            return _token(made.mappings().one()), token

    async def listed(self) -> Sequence[ApiToken]:
        """All tokens, including revoked ones."""
        return [_token(row) for row in await self._database.fetch_rows(select(*_COLUMNS).order_by(api_tokens.c.id))]

    async def any_made(self) -> bool:
        """Whether a token was ever made. Revoking the last one must not open the service to everyone."""
        return await self._database.fetch_value(select(api_tokens.c.id).limit(1)) is not None

    async def any_valid(self) -> bool:
        valid = select(api_tokens.c.id).where(api_tokens.c.revoked_at.is_(None)).limit(1)
        return await self._database.fetch_value(valid) is not None

    async def revoke(self, token_id: int, *, now: datetime) -> ApiToken | None:
        """Revoke a token. None: there is no such token, or it was revoked already."""
        revoked = (
            update(api_tokens)
            .where(api_tokens.c.id == token_id, api_tokens.c.revoked_at.is_(None))
            .values(revoked_at=now)
            .returning(*_COLUMNS)
        )
        async with self._database.transaction() as connection:
            # Both in one transaction: no session may outlive its token.
            row = (await connection.execute(revoked)).mappings().one_or_none()
            await connection.execute(delete(sessions).where(sessions.c.token_id == token_id))
        return _token(row) if row else None

    async def find(self, token: str) -> ApiToken | None:
        """The valid token with this text."""
        valid = select(*_COLUMNS).where(api_tokens.c.digest == digest(token), api_tokens.c.revoked_at.is_(None))
        row = await self._database.fetch_row(valid)
        return _token(row) if row else None

    async def note_use(self, token: ApiToken, *, now: datetime) -> None:
        """Record the time of use, at most once a minute: reads must not each cost a write."""
        before = now - _USE_RECORDED_EVERY
        if token.last_used_at is not None and token.last_used_at > before:
            return
        own = api_tokens.c
        # Checked again where it is written: another process may have recorded a use meanwhile.
        stale = or_(own.last_used_at.is_(None), own.last_used_at <= before)
        noted = update(api_tokens).where(own.id == token.id, stale).values(last_used_at=now)
        async with self._database.transaction() as connection:
            await connection.execute(noted)


class Sessions:
    """Sessions, which last for some hours. One without a stored token ends when the admin token changes."""

    def __init__(self, database: Database, admin_token: str | None = None) -> None:
        self._database = database
        self._admin_token = admin_token or ""

    async def begin(self, caller: Caller, *, token_id: int | None, now: datetime, lasts: timedelta) -> str:
        """Start a session. Return the content of its cookie."""
        secret = new_secret()
        row = {
            "digest": digest(secret) if token_id is not None else self._bound(secret),
            "name": caller.name,
            "scope": caller.scope.word,
            "token_id": token_id,
            "csrf": new_secret(),
            "created_at": now,
            "expires_at": now + lasts,
        }
        async with self._database.transaction() as connection:
            # Removed here and nowhere else: log-ins are rare, and keep the table small enough.
            await connection.execute(delete(sessions).where(sessions.c.expires_at <= now))
            await connection.execute(insert(sessions).values(**row))
        return secret

    async def find(self, secret: str, *, now: datetime) -> Caller | None:
        row = await self._database.fetch_row(
            select(sessions.c.name, sessions.c.scope, sessions.c.csrf).where(
                sessions.c.digest.in_(self._digests(secret)), sessions.c.expires_at > now
            )
        )
        return Caller(name=row["name"], scope=Scope.of(row["scope"]), csrf=row["csrf"]) if row else None

    async def end(self, secret: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(delete(sessions).where(sessions.c.digest.in_(self._digests(secret))))

    def _digests(self, secret: str) -> list[str]:
        # Bound to the admin token, a session that it began does not outlive a change of it.
        return [digest(secret), self._bound(secret)]

    def _bound(self, secret: str) -> str:
        return digest(f"{secret}.{self._admin_token}")


def _token(row: RowMapping) -> ApiToken:
    return ApiToken(**{**row, "scope": Scope.of(row["scope"])})
