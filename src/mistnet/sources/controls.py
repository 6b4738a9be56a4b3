"""Pause, resume and limit sources. Each change is logged with who made it and why."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from loguru import logger

from mistnet.governor.model import SourceName
from mistnet.kit.text import counted
from mistnet.shops.store.http_cache import StoreAnswers

if TYPE_CHECKING:
    from mistnet.app import App


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """`changed`: whether it was different before. `woken`: how many jobs that waited for it are due now."""

    source: SourceName
    changed: bool
    woken: int = 0


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """New caps on credits. Those in `lifted` are removed, so that each machine's settings apply again."""

    day: int | None = None
    month: int | None = None
    lifted: Collection[str] = ()

    def __bool__(self) -> bool:
        return self.day is not None or self.month is not None or bool(self.lifted)


async def pause(app: App, source: SourceName, reason: str, *, by: str) -> Switched:
    before = await app.sources.state(source)
    await app.sources.store.pause(source, reason, now=app.database.clock.now())
    _log(source, "paused", by, reason)
    return Switched(source=source, changed=before.paused_at is None)


async def resume(app: App, source: SourceName, *, by: str) -> Switched:
    before = await app.sources.state(source)
    woken = await app.sources.store.resume(source, now=app.database.clock.now())
    # At once, so that the alert about the pause does not outlast it.
    await app.watch.check_pauses()
    _log(source, "resumed", by)
    return Switched(source=source, changed=before.paused_at is not None, woken=woken)


async def open_breaker(app: App, source: SourceName, span: timedelta, reason: str, *, by: str) -> Switched:
    """Stop all calls for this long; then one call tests the source."""
    now = app.database.clock.now()
    before = await app.sources.state(source)
    await app.sources.store.open_breaker(source, f"opened by {by}: {reason}", until=now + span)
    _log(source, f"breaker opened for {span}", by, reason)
    return Switched(source=source, changed=before.opened_until is None or before.opened_until <= now)


async def close_breaker(app: App, source: SourceName, *, by: str) -> Switched:
    """Let calls continue and reset the count of failures. A pause stays."""
    before = await app.sources.state(source)
    woken = await app.sources.store.close_breaker(source, now=app.database.clock.now())
    _log(source, f"breaker closed after {counted(before.failure_streak, 'failure')} in a row", by)
    changed = before.opened_until is not None or before.failure_streak > 0
    return Switched(source=source, changed=changed, woken=woken)


async def set_limits(app: App, source: SourceName, *, rate: float | None, caps: Caps, by: str) -> None:
    store = app.sources.store
    if rate is not None:
        declared = app.sources.get(source)
        await store.set_rate(source, rate, declared.keys if declared else ())
        _log(source, f"rate set to {rate:g} calls a minute", by)
    if caps:
        await store.set_caps(source, day=caps.day, month=caps.month)
        await store.lift_caps(source, day="day" in caps.lifted, month="month" in caps.lifted)
        await store.wake_for_budget(source, now=app.database.clock.now())
        _log(source, f"caps set to {caps.day} a day, {caps.month} a month; lifted: {list(caps.lifted)}", by)


async def forget_answers(app: App, source: SourceName, *, by: str) -> int:
    """Delete its cached answers; return how many there were."""
    forgotten = await StoreAnswers(app.database).forget(source)
    _log(source, f"{forgotten} kept answers forgotten", by)
    return forgotten


def _log(source: SourceName, what: str, by: str, reason: str | None = None) -> None:
    logger.info("{source}: {what}, by {by}{why}", source=source, what=what, by=by, why=f": {reason}" if reason else "")
