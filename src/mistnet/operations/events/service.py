"""Delivery of events: the subscribers, the job that sends events to one of them, and the service around it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec

from mistnet import __version__
from mistnet.kit.database import Database
from mistnet.operations.events.webhooks import Addresses, AppriseUrl, Messenger, Webhook
from mistnet.queue.errors import Undelivered
from mistnet.queue.events import Channel, Delivered, EventKind, EventSender, Outbox, Subscriber, SubscriberName
from mistnet.queue.kinds import Kind, single
from mistnet.queue.model import Args, Continue, Done, Job, JobClass, KindName, Lane, NewJob, Outcome, Retry
from mistnet.queue.outbox import FanOut, StoreOutbox, write_delivered
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings

_ALERT_EVENTS: Final = (EventKind.ALERT_OPENED, EventKind.ALERT_CLOSED)
DELIVER: Final = KindName("deliver")
TRIES: Final = 1_000
"""A receiver may be down for long. Its events are never given up automatically."""

MORE: Final = "keeps its place among the due jobs until all events are delivered"
LONGEST_WAIT: Final = timedelta(hours=1)
"""The longest wait between attempts, so that a receiver that works again is served soon."""

LONGEST: Final = timedelta(seconds=60)


class DeliverArgs(Args, frozen=True):
    subscriber: SubscriberName


class Deliverer(msgspec.Struct, frozen=True, kw_only=True):
    """Delivers one event per step. A step that fails is retried before any later event, so the order is kept.

    The job keeps its place after each step, while others go to the back of their class: otherwise the events of an hour
    would take an hour to deliver.
    """

    outbox: Outbox
    sender: EventSender

    async def deliver(self, job: Job[DeliverArgs]) -> Outcome:
        waiting = await self.outbox.next_for(job.args.subscriber)
        if waiting is None:
            return Done()
        try:
            await self.sender.bring(job.args.subscriber, waiting.event)
        except Undelivered as error:
            return Retry(str(error), within=LONGEST_WAIT)
        return Continue([Delivered(id=waiting.id)], run_at=job.run_at, reason=MORE)


def deliver_job(subscriber: Subscriber) -> NewJob:
    """One live job per subscriber, so that two workers never send to it at once."""
    return NewJob(kind=DELIVER, key=subscriber.name, lane=subscriber.lane, args=DeliverArgs(subscriber=subscriber.name))


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
