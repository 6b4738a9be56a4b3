"""Tokens for programs and log-ins for people. Only digests of them are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import RowMapping, Select, delete, func, insert, or_, select, update

from mistnet.domain.visitors import TOKEN_PREFIX, KeptToken, Scope, Visitor, digest, new_secret
from mistnet.store.database import Database
from mistnet.store.tables import api_tokens, sessions

_NOTED_EVERY: Final = timedelta(minutes=1)
_SHOWN: Final = [api_tokens.c[name] for name in KeptToken.__struct_fields__]


class Tokens:
    """Made, found and revoked. A revoked token's log-ins end with it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make(self, name: str, scope: Scope, *, now: datetime) -> tuple[KeptToken, str]:
        """The second value is the token itself, told this once."""
        token = new_secret(TOKEN_PREFIX)
        row = {"name": name, "scope": scope.word, "digest": digest(token), "created_at": now}
        async with self._database.write() as connection:
            made = await connection.execute(insert(api_tokens).values(**row).returning(*_SHOWN))
            return _kept(made.mappings().one()), token

    async def listed(self) -> Sequence[KeptToken]:
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

    async def revoke(self, token_id: int, *, now: datetime) -> KeptToken | None:
        """None: there is no such token, or it is revoked already."""
        revoked = (
            update(api_tokens)
            .where(api_tokens.c.id == token_id, api_tokens.c.revoked_at.is_(None))
            .values(revoked_at=now)
            .returning(*_SHOWN)
        )
        async with self._database.write() as connection:
            row = (await connection.execute(revoked)).mappings().one_or_none()
            await connection.execute(delete(sessions).where(sessions.c.token_id == token_id))
        return _kept(row) if row else None

    async def find(self, token: str) -> KeptToken | None:
        """The valid token that this is."""
        asked = select(*_SHOWN).where(api_tokens.c.digest == digest(token), api_tokens.c.revoked_at.is_(None))
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).mappings().one_or_none()
        return _kept(row) if row else None

    async def note_use(self, token: KeptToken, *, now: datetime) -> None:
        """At most once a minute."""
        before = now - _NOTED_EVERY
        if token.last_used_at is not None and token.last_used_at > before:
            return
        own = api_tokens.c
        stale = or_(own.last_used_at.is_(None), own.last_used_at <= before)
        noted = update(api_tokens).where(own.id == token.id, stale).values(last_used_at=now)
        async with self._database.write() as connection:
            await connection.execute(noted)


class Sessions:
    """Log-ins that last for some hours. One made without a token of the table ends when the admin token changes."""

    def __init__(self, database: Database, admin_token: str | None = None) -> None:
        self._database = database
        self._admin_token = admin_token or ""

    async def begin(
        self, visitor: Visitor, *, token_id: int | None, now: datetime, lasts: timedelta
    ) -> tuple[str, Visitor]:
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
        async with self._database.write() as connection:
            await connection.execute(delete(sessions).where(sessions.c.expires_at <= now))
            await connection.execute(insert(sessions).values(**row))
        return secret, Visitor(name=visitor.name, scope=visitor.scope, csrf=csrf)

    async def find(self, secret: str, *, now: datetime) -> Visitor | None:
        asked = _SESSION.where(sessions.c.digest.in_(self._digests(secret)), sessions.c.expires_at > now)
        async with self._database.read() as connection:
            row = (await connection.execute(asked)).one_or_none()
        return Visitor(name=row.name, scope=Scope.of(row.scope), csrf=row.csrf) if row else None

    async def end(self, secret: str) -> None:
        async with self._database.write() as connection:
            await connection.execute(delete(sessions).where(sessions.c.digest.in_(self._digests(secret))))

    def _digests(self, secret: str) -> list[str]:
        return [digest(secret), self._bound(secret)]

    def _bound(self, secret: str) -> str:
        return digest(f"{secret}.{self._admin_token}")


_SESSION: Final[Select[Any]] = select(sessions.c.name, sessions.c.scope, sessions.c.csrf)


def _kept(row: RowMapping) -> KeptToken:
    return KeptToken(**{**row, "scope": Scope.of(row["scope"])})
