"""The access token: the configured one, or the refreshed one that replaces it, stored in its own file."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from mistnet.governor.model import fingerprint
from mistnet.kit.errors import SettingsError

_MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SETTING: Final = "threads_token_file"


class ThreadsToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as stored in its file. It is void unless `origin` is the fingerprint of the configured token."""

    access_token: str
    origin: str
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"KeptToken(***, issued_at={self.issued_at}, expires_at={self.expires_at})"


class TokenState(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown about a token: everything but the token."""

    configured: bool
    refreshed: bool
    issued_at: datetime | None
    expires_at: datetime | None
    scopes: tuple[str, ...]


class TokenKeeper:
    """Returns the token to use now. Another process may change the file at any time."""

    def __init__(self, configured: str | None, file: Path | None) -> None:
        self._configured = configured or None
        self._file = file
        self._kept: ThreadsToken | None = None
        self._read_at: tuple[int, int] | None = None

    @property
    def file(self) -> Path | None:
        return self._file

    @property
    def token(self) -> str | None:
        kept = self.kept
        return kept.access_token if kept else self._configured

    @property
    def secrets(self) -> list[str]:
        """What must never be shown."""
        return [each for each in {self._configured, self.token} if each]

    @property
    def kept(self) -> ThreadsToken | None:
        """The token in the file, if it replaces the one that is configured now. A changed file is read again."""
        if self._file is not None and (seen := _seen(self._file)) != self._read_at:
            try:
                if seen and self._file.stat().st_mode & _OTHERS:
                    problem = f"others may read it: run `chmod 600 {self._file}`"
                    raise SettingsError(_SETTING, str(self._file), problem)
                self._kept = msgspec.json.decode(self._file.read_bytes(), type=ThreadsToken) if seen else None
            except OSError as error:
                raise SettingsError(_SETTING, str(self._file), f"cannot be read: {error.strerror}") from None
            except (msgspec.DecodeError, UnicodeDecodeError):
                problem = "does not hold a token mistnet has kept; name another file, or remove this one"
                raise SettingsError(_SETTING, str(self._file), problem) from None
            # Last: a file that cannot be read is tried again.
            self._read_at = seen
        if self._kept and self._configured and self._kept.origin != fingerprint(self._configured):
            return None
        return self._kept

    @property
    def state(self) -> TokenState:
        kept = self.kept
        return TokenState(
            configured=self.token is not None,
            refreshed=kept is not None and kept.access_token != self._configured,
            issued_at=kept.issued_at if kept else None,
            expires_at=kept.expires_at if kept else None,
            scopes=kept.scopes if kept else (),
        )

    def keep(
        self, token: str, *, issued_at: datetime | None, expires_at: datetime | None, scopes: tuple[str, ...] = ()
    ) -> None:
        """Use this token from now on, here and in every process that shares the file."""
        before = self.kept
        # A refreshed token is valid in place of the configured one until another is configured.
        origin = fingerprint(self._configured) if self._configured else before.origin if before else fingerprint(token)
        known = scopes or (before.scopes if before else ())
        self._kept = ThreadsToken(
            access_token=token, origin=origin, issued_at=issued_at, expires_at=expires_at, scopes=known
        )
        if self._file is not None:
            _write(self._file, msgspec.json.encode(self._kept))
            self._read_at = _seen(self._file)


def _seen(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(_SETTING, str(file), f"cannot be read: {error.strerror}") from None
    # The inode too: a file may be replaced twice within one tick of the clock.
    return found.st_mtime_ns, found.st_ino


def _write(file: Path, content: bytes) -> None:
    """Write atomically, to a file that other users cannot read at any moment."""
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(handle, "wb") as written:
            written.write(content)
            written.flush()
            # On disk before it replaces the old file: after a power failure an empty file would have lost the token.
            os.fsync(written.fileno())
        fresh.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise SettingsError(_SETTING, str(file), f"cannot be written: {error.strerror}") from None
