"""Refusals belong to keys: which of them bind a key, and which it leaves behind. Pure."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

import msgspec

from mistnet.domain.sources import KeyState, PausedBy, SourceState

LATELY: Final = timedelta(minutes=10)
"""A key that took moments for calls since then, and is not refused, works."""

OTHERS_WORK_WAIT: Final = timedelta(seconds=30)
"""How long a job waits whose key is refused while another process's key works: that one takes it."""


def fingerprint(secret: str) -> str:
    """Tells keys apart and gives none away."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def binds(key: KeyState, own: str) -> bool:
    """Whether the refusal on record is of this very key. One without a fingerprint binds every key of the label."""
    return key.paused_at is not None if key.fingerprint is None else key.fingerprint == own


def put_down(
    source: SourceState, key: KeyState, own: str, problem: str, now: datetime, *, last: bool
) -> tuple[SourceState, KeyState]:
    """The key is no good any more. With no key left the source itself is paused, until an operator acts."""
    key = msgspec.structs.replace(key, paused_at=now, pause_reason=problem, fingerprint=own)
    if last and not source.paused_at:
        source = msgspec.structs.replace(source, paused_at=now, paused_by=PausedBy.SOURCE, pause_reason=problem)
    return source, key


def left_behind(source: SourceState, key: KeyState) -> tuple[SourceState, KeyState]:
    """For a key that was not refused: ends the pauses that belonged to others. What an operator paused stays paused.

    The fingerprint stays: the key it names is still refused, should another process have it.
    """
    if key.paused_at:
        key = msgspec.structs.replace(key, paused_at=None, pause_reason=None)
    if source.paused_at and source.paused_by is PausedBy.SOURCE:
        source = msgspec.structs.replace(source, paused_at=None, paused_by=None, pause_reason=None)
    return source, key
