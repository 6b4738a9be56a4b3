"""Tell one subscriber of events, one per step, in order, until it has taken each."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from mistnet.queue.errors import Undelivered
from mistnet.queue.events import Delivered, EventSender, Outbox, Subscriber, SubscriberName
from mistnet.queue.model import Args, Continue, Done, Job, KindName, NewJob, Outcome, Retry

DELIVER: Final = KindName("deliver")
TRIES: Final = 1_000
"""A receiver may be away for long; what it missed is never given up by itself."""

MORE: Final = "keeps its place among the due jobs until all is told"
LONGEST_WAIT: Final = timedelta(hours=1)
"""A receiver that is there again should not have to wait for a day."""

LONGEST: Final = timedelta(seconds=60)


class DeliverArgs(Args, frozen=True):
    subscriber: SubscriberName


class Deliverer(msgspec.Struct, frozen=True, kw_only=True):
    """A step that fails is tried again before any later event is sent: order is kept, nothing is left out.

    Where others take turns after each step, this job keeps its place: an hour's news must not take an hour.
    """

    outbox: Outbox
    postman: EventSender

    async def deliver(self, job: Job[DeliverArgs]) -> Outcome:
        waiting = await self.outbox.next_for(job.args.subscriber)
        if waiting is None:
            return Done()
        try:
            await self.postman.bring(job.args.subscriber, waiting.event)
        except Undelivered as error:
            return Retry(str(error), within=LONGEST_WAIT)
        return Continue([Delivered(id=waiting.id)], run_at=job.run_at, reason=MORE)


def delivering(subscriber: Subscriber) -> NewJob:
    """One live job per subscriber, so that no two workers send to it at once."""
    return NewJob(kind=DELIVER, key=subscriber.name, lane=subscriber.lane, args=DeliverArgs(subscriber=subscriber.name))
