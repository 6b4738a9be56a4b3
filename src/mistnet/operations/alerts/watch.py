"""Keeps watch: hands events on, looks whether something needs an operator, and clears away what is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from loguru import logger

from mistnet.governor.grants import on_day
from mistnet.governor.model import Costs, SourceState
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.operations.alerts.model import (
    ACCOUNT_RULES,
    STANDING_RULES,
    AlertRule,
    AlertThresholds,
    Readings,
    Severity,
    SourceReading,
    paused_alerts,
    silent_alerts,
    standing_alerts,
    suspect_alerts,
)
from mistnet.operations.alerts.readings import StoreReadings
from mistnet.operations.alerts.store import AlertRow, AlertStore, Changes
from mistnet.operations.events.jobs import DELIVER
from mistnet.operations.retention import kept_since
from mistnet.queue.events import Subscriber
from mistnet.queue.leader import Duty
from mistnet.queue.model import KindName, Lane
from mistnet.queue.outbox import FanOut, StoreOutbox
from mistnet.settings import Settings

FAN_OUT_EVERY: Final = timedelta(seconds=2)
LOOK_EVERY: Final = timedelta(seconds=30)
QUIET_EVERY: Final = timedelta(minutes=10)
PRUNE_EVERY: Final = timedelta(hours=1)
_SLICE: Final = 500
_LEVELS: Final = {Severity.WARNING: "WARNING", Severity.CRITICAL: "ERROR"}


class AlertWatcher:
    """What the leading process does for all besides scheduling. Doing it twice at once does no harm."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        fan_out: FanOut,
        subscribers: Sequence[Subscriber],
        targets: Collection[tuple[KindName, Lane]],
        costs: Costs,
    ) -> None:
        self._settings = settings
        self._database = database
        self._subscribers = subscribers
        self._targets = targets
        self._fan_out = fan_out
        self._book = DatabaseSourceStore(database)
        self._readings = StoreReadings(database)
        self.outbox = StoreOutbox(database)
        self.alerts = AlertStore(database)
        self.patience = patience_of(settings, costs)

    @property
    def duties(self) -> Sequence[Duty]:
        return [
            Duty(name="hand events on", every=FAN_OUT_EVERY, run=self.hand_on),
            Duty(name="look for trouble", every=LOOK_EVERY, run=self.look),
            Duty(name="look for silent and suspect accounts", every=QUIET_EVERY, run=self.look_at_accounts),
            Duty(name="forget old events and alerts", every=PRUNE_EVERY, run=self.prune),
        ]

    async def hand_on(self) -> int:
        """All events that were written since the last time; returns how many."""
        handed = 0
        while taken := await self._fan_out.fan_out(self._subscribers, now=self._database.clock.now(), limit=_SLICE):
            handed += taken
            if taken < _SLICE:
                break
        return handed

    async def look(self) -> Changes:
        readings = await self.readings()
        found = standing_alerts(readings, self.patience)
        return _noted(await self.alerts.settle(found, STANDING_RULES, now=readings.at))

    async def look_at_pauses(self) -> Changes:
        """The one rule that workers and `sources resume` look at too: it must not outlive its cause."""
        now = self._database.clock.now()
        keys = await self._book.keys()
        sources = [
            SourceReading(state=state, keys=[key for key in keys if key.source == state.name])
            for state in await self._book.states()
        ]
        return _noted(await self.alerts.settle(paused_alerts(sources), [AlertRule.SOURCE_PAUSED], now=now))

    async def see_a_worker(self) -> int:
        """For workers: that none is there is not true any more. Returns how many alerts that closed."""
        return len(_noted(await self.alerts.settle([], [AlertRule.NO_WORKERS], now=self._database.clock.now())).closed)

    async def look_at_accounts(self) -> Changes:
        now = self._database.clock.now()
        found = silent_alerts(await self._readings.quiet_accounts(now=now))
        found += suspect_alerts(await self._readings.suspect_accounts())
        return _noted(await self.alerts.settle(found, ACCOUNT_RULES, now=now))

    async def prune(self) -> None:
        before = kept_since(self._database.clock.now(), self._settings.history_days)
        if before is None:
            return
        known = [subscriber.name for subscriber in self._subscribers]
        for name, events in (await self.outbox.prune(known, before=before)).items():
            logger.warning(
                "{events} events for {subscriber} are forgotten: the settings do not name it, and they are too old",
                events=events,
                subscriber=name,
            )
        await self.alerts.prune(before=before)

    async def readings(self) -> Readings:
        now = self._database.clock.now()
        names = [subscriber.name for subscriber in self._subscribers]
        return Readings(
            at=now,
            sources=[await self._source(on_day(state, now)) for state in await self._book.states()],
            dead=await self._readings.dead(),
            due=await self._readings.due(self._targets, now=now),
            workers=await self._readings.workers(seen_after=now - silence_of(self._settings)),
            undelivered=await self._readings.undelivered(names, kind=DELIVER),
        )

    async def _source(self, state: SourceState) -> SourceReading:
        now = self._database.clock.now()
        failing = state.failure_streak >= self.patience.breaker_failures
        return SourceReading(
            state=state,
            keys=[key for key in await self._book.keys() if key.source == state.name],
            failing_since=await self._readings.failing_since(state.name, state.last_success_at) if failing else None,
            limited_since=await self._readings.limited_since(state.name, state.last_success_at, now=now),
            day_cap=_or_else(state.day_cap, self._settings.x_day_credits),
            month_cap=_or_else(state.month_cap, self._settings.x_month_credits),
        )


def patience_of(settings: Settings, costs: Costs) -> AlertThresholds:
    return AlertThresholds(
        due=timedelta(minutes=settings.alert_due_minutes),
        breaker=timedelta(minutes=settings.alert_breaker_minutes),
        breaker_failures=settings.breaker_failures,
        a_page=costs.page,
    )


def silence_of(settings: Settings) -> timedelta:
    """A worker that has not been seen for so long is not there."""
    return max(3 * settings.heartbeat, timedelta(minutes=1))


def _or_else(cap: int | None, otherwise: int | None) -> int | None:
    return cap if cap is not None else otherwise


def _noted(changes: Changes) -> Changes:
    """One line when an alert opens, one when it is over, none in between."""
    for alert in changes.opened:
        _log(_LEVELS[alert.severity], "{rule}: {what}", alert)
    for alert in changes.closed:
        _log("INFO", "{rule} is over ({subject})", alert)
    return changes


def _log(level: str, line: str, alert: AlertRow) -> None:
    logger.log(
        level, line, rule=str(alert.rule), subject=alert.subject, what=alert.message, severity=str(alert.severity)
    )
