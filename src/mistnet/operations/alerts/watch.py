"""The duties of the leading process besides scheduling: hand out events, check for alerts, delete what is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from loguru import logger

from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import KeyState, SourceState, on_day
from mistnet.governor.source import SourceRegistry
from mistnet.kit.database import Database
from mistnet.operations.alerts.model import (
    ACCOUNT_RULES,
    SERVICE_RULES,
    AlertRule,
    AlertThresholds,
    Readings,
    Severity,
    SourceReading,
    paused_alerts,
    service_alerts,
    silent_alerts,
    suspect_alert,
)
from mistnet.operations.alerts.store import AlertReader, AlertRow, AlertStore, Changes
from mistnet.operations.pruning import kept_since
from mistnet.operations.webhooks import DELIVER
from mistnet.queue.events import Subscriber
from mistnet.queue.leader import Duty
from mistnet.queue.model import KindName, Lane
from mistnet.queue.outbox import FanOut, StoreOutbox
from mistnet.settings import Settings

_FAN_OUT_EVERY: Final = timedelta(seconds=2)
CHECK_EVERY: Final = timedelta(seconds=30)
CHECK_ACCOUNTS_EVERY: Final = timedelta(minutes=10)
_PRUNE_EVERY: Final = timedelta(hours=1)
_SLICE: Final = 500
_LEVELS: Final = {Severity.WARNING: "WARNING", Severity.CRITICAL: "ERROR"}


class AlertWatcher:
    """Two processes may do the same duty at once without harm: for a moment, an old and a new leader both act."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        fan_out: FanOut,
        subscribers: Sequence[Subscriber],
        targets: Collection[tuple[KindName, Lane]],
        sources: SourceRegistry,
    ) -> None:
        self._settings = settings
        self._database = database
        self._subscribers = subscribers
        self._targets = targets
        self._fan_out = fan_out
        self._sources = sources
        self._reader = AlertReader(database)
        self.outbox = StoreOutbox(database)
        self.alerts = AlertStore(database)
        self._thresholds = AlertThresholds(
            due=timedelta(minutes=settings.alert_due_minutes),
            breaker=timedelta(minutes=settings.alert_breaker_minutes),
            breaker_failures=settings.breaker_failures,
        )

    @property
    def duties(self) -> Sequence[Duty]:
        return [
            Duty(name="fan out events", every=_FAN_OUT_EVERY, run=self.fan_out_events),
            Duty(name="check alerts", every=CHECK_EVERY, run=self.check),
            Duty(name="check silent and suspect accounts", every=CHECK_ACCOUNTS_EVERY, run=self.check_accounts),
            Duty(name="delete old events and alerts", every=_PRUNE_EVERY, run=self.prune),
        ]

    async def fan_out_events(self) -> int:
        """Hand every new event to its subscribers. Return how many there were."""
        total = 0
        while taken := await self._fan_out.fan_out(self._subscribers, now=self._database.clock.now(), limit=_SLICE):
            total += taken
            if taken < _SLICE:
                break
        return total

    async def check(self) -> Changes:
        """Check the service rules."""
        now, keys = self._database.clock.now(), await self._sources.store.keys()
        states = await self._sources.store.states()
        readings = Readings(
            at=now,
            sources=[await self._read_source(on_day(state, now), keys, now) for state in states],
            dead=await self._reader.dead(),
            due=await self._reader.due(self._targets, now=now),
            workers=await self._reader.workers(seen_after=now - silence_of(self._settings)),
            undelivered=await self._reader.undelivered([each.name for each in self._subscribers], kind=DELIVER),
        )
        alerts = service_alerts(readings, self._thresholds)
        return _log_changes(await self.alerts.settle(alerts, SERVICE_RULES, now=now))

    async def check_pauses(self) -> Changes:
        """The one rule that workers and `sources resume` check as well: its alert must not outlive its cause."""
        now = self._database.clock.now()
        keys = await self._sources.store.keys()
        sources = [
            SourceReading(state=state, keys=[key for key in keys if key.source == state.name])
            for state in await self._sources.store.states()
        ]
        return _log_changes(await self.alerts.settle(paused_alerts(sources), [AlertRule.SOURCE_PAUSED], now=now))

    async def close_no_workers(self) -> int:
        """Close the alert about missing workers, as a worker runs this. Return how many that closed."""
        changes = await self.alerts.settle([], [AlertRule.NO_WORKERS], now=self._database.clock.now())
        return len(_log_changes(changes).closed)

    async def check_accounts(self) -> Changes:
        """Check the rules about single accounts."""
        now = self._database.clock.now()
        alerts = silent_alerts(await self._reader.quiet_accounts(now=now))
        alerts += [suspect_alert(each) for each in await self._reader.suspect_accounts()]
        return _log_changes(await self.alerts.settle(alerts, ACCOUNT_RULES, now=now))

    async def prune(self) -> None:
        """Delete old events and alerts."""
        before = kept_since(self._database.clock.now(), self._settings.history_days)
        if before is None:
            return
        known = [subscriber.name for subscriber in self._subscribers]
        for name, events in (await self.outbox.prune(known, before=before)).items():
            logger.warning(
                "{events} events for {subscriber} are deleted: the settings do not name it, and they are too old",
                events=events,
                subscriber=name,
            )
        await self.alerts.prune(before=before)

    async def _read_source(self, state: SourceState, keys: Sequence[KeyState], now: datetime) -> SourceReading:
        source = self._sources.get(state.name)
        (day_cap, _), (month_cap, _) = (source.limits if source else GovernorLimits()).caps(state)
        failing = state.failure_streak >= self._thresholds.breaker_failures
        return SourceReading(
            state=state,
            keys=[key for key in keys if key.source == state.name],
            failing_since=await self._reader.failing_since(state.name, state.last_success_at) if failing else None,
            limited_since=await self._reader.limited_since(state.name, state.last_success_at, now=now),
            day_cap=day_cap,
            month_cap=month_cap,
            page_credits=source.costs.page if source and source.costs else 0,
        )


def silence_of(settings: Settings) -> timedelta:
    """A worker that was not seen for this long is gone."""
    return max(3 * settings.heartbeat, timedelta(minutes=1))


def _log_changes(changes: Changes) -> Changes:
    """One line when an alert opens, one when it closes, none in between."""
    for alert in changes.opened:
        _log(_LEVELS[alert.severity], "{rule}: {what}", alert)
    for alert in changes.closed:
        _log("INFO", "{rule} is over ({subject})", alert)
    return changes


def _log(level: str, line: str, alert: AlertRow) -> None:
    logger.log(
        level, line, rule=str(alert.rule), subject=alert.subject, what=alert.message, severity=str(alert.severity)
    )
