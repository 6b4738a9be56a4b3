"""One step of a delivery, with an outbox and a postman in the hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from mistnet.operations.webhooks import DELIVER, DeliverArgs, Deliverer, deliver_job
from mistnet.queue.errors import Undelivered
from mistnet.queue.events import (
    Channel,
    Delivered,
    DeliveryId,
    Event,
    EventDelivery,
    EventId,
    Subscriber,
    SubscriberName,
)
from mistnet.queue.model import Continue, Done, Job, JobId, Lane, Retry
from tests.support import START

ANN = SubscriberName("ann")


def event(number: int) -> Event:
    return Event(
        id=EventId(number),
        kind="run.finished",
        subject="s",
        channel=Channel.DATA,
        created_at=START,
        payload=msgspec.Raw(b"{}"),
    )


@dataclass
class Basket:
    """Both ends in one: what waits, and what was brought."""

    waiting: list[EventDelivery] = field(default_factory=list)
    brought: list[tuple[str, int]] = field(default_factory=list)
    away: bool = False

    async def next_for(self, subscriber: SubscriberName) -> EventDelivery | None:
        return self.waiting[0] if self.waiting else None

    async def bring(self, subscriber: SubscriberName, event: Event) -> None:
        if self.away:
            raise Undelivered(subscriber, event.id, "it answered 503")
        self.brought.append((subscriber, event.id))


def job() -> Job[DeliverArgs]:
    return Job(
        id=JobId(1),
        kind=DELIVER,
        key=ANN,
        lane=Lane("webhook:ann"),
        args=DeliverArgs(subscriber=ANN),
        attempt=1,
        run_at=START - timedelta(minutes=5),
        created_at=START - timedelta(hours=1),
    )


async def test_a_step_brings_the_first_event_and_keeps_its_place() -> None:
    basket = Basket([EventDelivery(id=DeliveryId(4), event=event(9)), EventDelivery(id=DeliveryId(5), event=event(3))])
    outcome = await Deliverer(outbox=basket, sender=basket).deliver(job())
    assert basket.brought == [("ann", 9)]
    assert isinstance(outcome, Continue)
    assert outcome.writes == [Delivered(id=DeliveryId(4))]
    assert outcome.run_at == job().run_at


async def test_nothing_more_to_tell_is_the_end() -> None:
    assert await Deliverer(outbox=Basket(), sender=Basket()).deliver(job()) == Done()


async def test_a_receiver_that_is_away_is_tried_again_within_the_hour() -> None:
    basket = Basket([EventDelivery(id=DeliveryId(4), event=event(9))], away=True)
    outcome = await Deliverer(outbox=basket, sender=basket).deliver(job())
    assert isinstance(outcome, Retry)
    assert "ann did not take event 9: it answered 503" in outcome.error
    assert outcome.within == timedelta(hours=1)


def test_each_subscriber_has_one_job_on_a_lane_of_its_own() -> None:
    made = deliver_job(Subscriber(name=ANN, channel=Channel.DATA))
    assert (made.kind, made.key, made.lane) == ("deliver", "ann", "webhook:ann")


def test_a_subscriber_wants_its_channel_and_kinds_alone() -> None:
    everything = Subscriber(name=ANN, channel=Channel.DATA)
    some = Subscriber(name=ANN, channel=Channel.ALERTS, kinds=("alert.opened",))
    assert everything.wants("data", "run.finished")
    assert not everything.wants("alerts", "alert.opened")
    assert some.wants("alerts", "alert.opened")
    assert not some.wants("alerts", "alert.closed")
    assert not some.wants("data", "alert.opened")
