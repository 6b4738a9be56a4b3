"""Puts the telling of events together: who is told, how they are reached, the job that does it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from mistnet import __version__
from mistnet.kit.database import Database
from mistnet.operations.events.jobs import DELIVER, LONGEST, TRIES, DeliverArgs, Deliverer, delivering
from mistnet.operations.events.webhooks import Addresses, AppriseUrl, Messenger, Webhook
from mistnet.queue.events import Channel, Delivered, EventKind, Subscriber, SubscriberName
from mistnet.queue.kinds import Kind, single
from mistnet.queue.model import JobClass, Lane
from mistnet.queue.outbox import FanOut, StoreOutbox, write_delivered
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings

_TO_PEOPLE: Final = (EventKind.ALERT_OPENED, EventKind.ALERT_CLOSED)


class EventService(Feature):
    """Everybody whom this process may tell of events. Without any, the kind is known and has nothing to do."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.subscribers = subscribers_of(settings)
        self.outbox = StoreOutbox(database)
        self._database = database
        self._messenger = Messenger(addresses_of(settings), clock=database.clock, user_agent=f"mistnet/{__version__}")
        deliverer = Deliverer(outbox=self.outbox, postman=self._messenger)
        self.kinds: Sequence[Kind] = [
            single(
                DELIVER,
                deliverer.deliver,
                DeliverArgs,
                job_class=JobClass.SWEEP,  # with any later class, a long backfill would keep all alerts waiting
                lanes=[subscriber.lane for subscriber in self.subscribers],
                timeout=LONGEST,
                tries=TRIES,
            )
        ]

    def writers(self, _jobs: JobWriter) -> Sequence[Writer[Any]]:
        return [Writer(Delivered, write_delivered)]

    def fan_out(self, job_writer: JobWriter) -> FanOut:
        return FanOut(self._database, job_writer, delivering)

    async def away(self) -> set[Lane]:
        """Lanes whose receiver did not take the last event: whoever waits for the work to end does not wait for it."""
        return await self.outbox.stuck_lanes(DELIVER) if self.subscribers else set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Deliveries can be made while it is open."""
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
    people = [Subscriber(name=name, channel=Channel.ALERTS, kinds=_TO_PEOPLE) for name in sorted(_people(settings))]
    return [*hooks, *people]


def addresses_of(settings: Settings) -> Addresses:
    hooks = {
        SubscriberName(name): Webhook(hook.url.get_secret_value(), hook.secret.get_secret_value())
        for name, hook in settings.webhooks.items()
    }
    return {**hooks, **{name: AppriseUrl(url) for name, url in _people(settings).items()}}


def _people(settings: Settings) -> dict[SubscriberName, str]:
    """Apprise URLs by a name that gives nothing of them away."""
    urls = [each.get_secret_value() for each in settings.alert_urls]
    return {SubscriberName(f"apprise-{hashlib.sha256(url.encode()).hexdigest()[:8]}"): url for url in urls}
