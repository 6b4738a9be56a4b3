"""What an operator does to a source: pause, resume, change limits. Each change is logged with who made it and why."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from loguru import logger

from mistnet.governor.model import SourceName
from mistnet.kit.text import counted
from mistnet.operations.source_state import state_of
from mistnet.shops.store.http_cache import StoreAnswers
from mistnet.sources.status import configured

if TYPE_CHECKING:
    from mistnet.app import App


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """`changed`: whether it was otherwise before. `woken`: how many jobs that waited for it are due now."""

    source: SourceName
    changed: bool
    woken: int = 0


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """New caps on credits, and those that are taken off so that each machine's settings count again."""

    day: int | None = None
    month: int | None = None
    lifted: Collection[str] = ()

    def __bool__(self) -> bool:
        return self.day is not None or self.month is not None or bool(self.lifted)


async def pause(app: App, source: SourceName, reason: str, *, by: str) -> Switched:
    before = await state_of(app, source)
    await app.collector.book.pause(source, reason, now=app.database.clock.now())
    _told(source, "paused", by, reason)
    return Switched(source=source, changed=before.paused_at is None)


async def resume(app: App, source: SourceName, *, by: str) -> Switched:
    before = await state_of(app, source)
    woken = await app.collector.book.resume(source, now=app.database.clock.now())
    await app.watch.check_pauses()
    _told(source, "resumed", by)
    return Switched(source=source, changed=before.paused_at is not None, woken=woken)


async def open_breaker(app: App, source: SourceName, span: timedelta, reason: str, *, by: str) -> Switched:
    """Nobody calls for so long; then one call tries whether it is well."""
    now = app.database.clock.now()
    before = await state_of(app, source)
    await app.collector.book.open_breaker(source, f"opened by {by}: {reason}", until=now + span)
    _told(source, f"breaker opened for {span}", by, reason)
    return Switched(source=source, changed=before.opened_until is None or before.opened_until <= now)


async def close_breaker(app: App, source: SourceName, *, by: str) -> Switched:
    """Calls go on at once, and failures are counted from nought. A pause stays."""
    before = await state_of(app, source)
    woken = await app.collector.book.close_breaker(source, now=app.database.clock.now())
    _told(source, f"breaker closed after {counted(before.failure_streak, 'failure')} in a row", by)
    changed = before.opened_until is not None or before.failure_streak > 0
    return Switched(source=source, changed=changed, woken=woken)


async def set_limits(app: App, source: SourceName, *, rate: float | None, caps: Caps, by: str) -> None:
    book = app.collector.book
    if rate is not None:
        await book.set_rate(source, rate, configured(app, source)[0])
        _told(source, f"rate set to {rate:g} calls a minute", by)
    if caps:
        await book.set_caps(source, day=caps.day, month=caps.month)
        await book.lift_caps(source, day="day" in caps.lifted, month="month" in caps.lifted)
        await book.wake_for_budget(source, now=app.database.clock.now())
        _told(source, f"caps set to {caps.day} a day, {caps.month} a month; lifted: {list(caps.lifted)}", by)


async def forget_answers(app: App, source: SourceName, *, by: str) -> int:
    """What it has told is asked for anew; returns how many answers were kept."""
    forgotten = await StoreAnswers(app.database).forget(source)
    _told(source, f"{forgotten} kept answers forgotten", by)
    return forgotten


def _told(source: SourceName, what: str, by: str, reason: str | None = None) -> None:
    logger.info("{source}: {what}, by {by}{why}", source=source, what=what, by=by, why=f": {reason}" if reason else "")
