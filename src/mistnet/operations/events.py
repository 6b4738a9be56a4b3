"""The subscribers of events, and the service that delivers events to them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from mistnet import __version__
from mistnet.kit.database import Database
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
from mistnet.queue.model import JobClass, Lane
from mistnet.queue.outbox import FanOut, StoreOutbox, write_delivered
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings

_TEST_MESSAGE: Final = "This is a test of mistnet's alerts. Nothing is wrong."
_ALERT_EVENTS: Final = (EventKind.ALERT_OPENED, EventKind.ALERT_CLOSED)


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
