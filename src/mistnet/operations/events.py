"""Events and alerts: their subscribers, the service that delivers events, and the duties of the leading process.

These are: hand out events, check for alerts, delete what is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec
from loguru import logger

from mistnet import __version__
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import on_day
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
from mistnet.operations.webhooks import (
    DELIVER,
    LONGEST,
    TRIES,
    Addresses,
    AppriseUrl,
    DeliverArgs,
    Deliverer,
    Messenger,
    Webhook,
    deliver_job,
)
from mistnet.queue.errors import Undelivered
from mistnet.queue.events import Channel, Delivered, Event, EventId, EventKind, Subscriber, SubscriberName
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.model import JobClass, KindName, Lane
from mistnet.queue.outbox import FanOut, StoreOutbox, write_delivered
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings

_TEST_MESSAGE: Final = "This is a test of mistnet's alerts. Nothing is wrong."
_ALERT_EVENTS: Final = (EventKind.ALERT_OPENED, EventKind.ALERT_CLOSED)
_FAN_OUT_EVERY: Final = timedelta(seconds=2)
_SLICE: Final = 500
CHECK_EVERY: Final = timedelta(seconds=30)
CHECK_ACCOUNTS_EVERY: Final = timedelta(minutes=10)
_PRUNE_EVERY: Final = timedelta(hours=1)
_LEVELS: Final = {Severity.WARNING: "WARNING", Severity.CRITICAL: "ERROR"}


class EventService(Feature):
    """The subscribers in the settings of this process. The kind of the job is known without any subscriber, too."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.subscribers = subscribers_of(settings)
        self.outbox = StoreOutbox(database)
        self._database = database
        self._messenger = Messenger(addresses_of(settings), clock=database.clock, user_agent=f"mistnet/{__version__}")
        deliverer = Deliverer(outbox=self.outbox, sender=self._messenger)
        self.kinds: Sequence[Kind] = [
            single(
                DELIVER,
                deliverer.deliver,
                DeliverArgs,
                job_class=JobClass.SWEEP,  # in a later class, a long backfill would delay all alerts
                lanes=[subscriber.lane for subscriber in self.subscribers],
                timeout=LONGEST,
                tries=TRIES,
            )
        ]

    def writers(self, _jobs: JobWriter) -> Sequence[Writer[Any]]:
        return [Writer(Delivered, write_delivered)]

    def fan_out(self, job_writer: JobWriter) -> FanOut:
        return FanOut(self._database, job_writer, deliver_job)

    async def away(self) -> set[Lane]:
        """Lanes whose receiver refused the last event. `work --until-idle` does not wait for them."""
        return await self.outbox.stuck_lanes(DELIVER) if self.subscribers else set()

    async def send_test_alert(self) -> Mapping[SubscriberName, str | None]:
        """Send an alert that is none to each receiver of alerts. Return what went wrong, by receiver."""
        alert = {"rule": "test", "severity": "warning", "subject": "mistnet", "message": _TEST_MESSAGE}
        event = Event(
            id=EventId(0),
            kind=EventKind.ALERT_OPENED,
            subject="mistnet",
            channel=Channel.ALERTS,
            created_at=self._database.clock.now(),
            payload=msgspec.Raw(msgspec.json.encode(alert)),
        )
        problems: dict[SubscriberName, str | None] = {}
        async with self.opened():
            for each in self.subscribers:
                if each.channel is Channel.ALERTS:
                    try:
                        await self._messenger.bring(each.name, event)
                        problems[each.name] = None
                    except Undelivered as error:
                        problems[each.name] = error.problem
        return problems

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Events can be delivered while this is open."""
        if not self.subscribers:
            yield
            return
        async with self._messenger:
            yield


def subscribers_of(settings: Settings) -> Sequence[Subscriber]:
    hooks = [
        Subscriber(name=SubscriberName(name), channel=Channel(hook.channel), kinds=tuple(hook.events))
        for name, hook in sorted(settings.webhooks.items())
    ]
    people = [Subscriber(name=name, channel=Channel.ALERTS, kinds=_ALERT_EVENTS) for name in sorted(_people(settings))]
    return [*hooks, *people]


def addresses_of(settings: Settings) -> Addresses:
    hooks = {
        SubscriberName(name): Webhook(hook.url.get_secret_value(), hook.secret.get_secret_value())
        for name, hook in settings.webhooks.items()
    }
    return {**hooks, **{name: AppriseUrl(url) for name, url in _people(settings).items()}}


def _people(settings: Settings) -> dict[SubscriberName, str]:
    """Apprise URLs by a name that reveals nothing of them."""
    urls = [each.get_secret_value() for each in settings.alert_urls]
    return {SubscriberName(f"apprise-{hashlib.sha256(url.encode()).hexdigest()[:8]}"): url for url in urls}


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
        sources = []
        for state in [on_day(each, now) for each in await self._sources.store.states()]:
            source, last_success = self._sources.get(state.name), state.last_success_at
            (day_cap, _), (month_cap, _) = (source.limits if source else GovernorLimits()).caps(state)
            failing = state.failure_streak >= self._thresholds.breaker_failures
            reading = SourceReading(
                state=state,
                keys=[key for key in keys if key.source == state.name],
                failing_since=await self._reader.failing_since(state.name, last_success) if failing else None,
                limited_since=await self._reader.limited_since(state.name, last_success, now=now),
                day_cap=day_cap,
                month_cap=month_cap,
                page_credits=source.costs.page if source and source.costs else 0,
            )
            sources.append(reading)
        readings = Readings(
            at=now,
            sources=sources,
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
