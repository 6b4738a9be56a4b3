"""Events for subscribers, kept until they are delivered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NewType, Protocol

import msgspec

from mistnet.queue.model import Lane, Write

EventId = NewType("EventId", int)
DeliveryId = NewType("DeliveryId", int)
SubscriberName = NewType("SubscriberName", str)

MOST_POST_IDS: Final = 5_000


class Channel(StrEnum):
    """Events about collected data and events for operators are delivered separately."""

    DATA = "data"
    ALERTS = "alerts"


class EventKind(StrEnum):
    POSTS_COLLECTED = "posts.collected"
    ACCOUNT_BACKFILLED = "account.backfilled"
    ACCOUNT_STATE_CHANGED = "account.state_changed"
    RUN_FINISHED = "run.finished"
    SUMMARIZE_REQUESTED = "summarize.requested"
    SEGMENT_ENTERED = "segment.entered"
    SEGMENT_LEFT = "segment.left"
    PRICE_CHANGED = "price.changed"
    PRICE_BELOW_TARGET = "price.below_target"
    PRICE_BACK_IN_STOCK = "price.back_in_stock"
    SOURCE_PAUSED = "source.paused"
    ALERT_OPENED = "alert.opened"
    ALERT_CLOSED = "alert.closed"


class NewEvent(Write, frozen=True, kw_only=True):
    """An event to write, in the transaction of what it reports. Ids in it are strings."""

    kind: EventKind
    subject: str
    payload: Mapping[str, Any]
    channel: Channel = Channel.DATA


def summaries(subject: str, about: Mapping[str, Any], post_ids: Sequence[int]) -> list[NewEvent]:
    """Events that request a summary of new posts, several if there are very many."""
    parts = [post_ids[start : start + MOST_POST_IDS] for start in range(0, len(post_ids), MOST_POST_IDS)]
    return [
        NewEvent(
            kind=EventKind.SUMMARIZE_REQUESTED,
            subject=subject,
            payload={**about, "post_ids": [str(each) for each in part], "part": number, "parts": len(parts)},
        )
        for number, part in enumerate(parts, start=1)
    ]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it was written. The payload stays JSON, so that every attempt sends the same bytes."""

    id: EventId
    kind: str
    subject: str
    channel: Channel
    created_at: datetime
    payload: msgspec.Raw


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver of events: all of one channel, or only some kinds."""

    name: SubscriberName
    channel: Channel
    kinds: Collection[str] = ()

    def wants(self, channel: str, kind: str) -> bool:
        return channel == self.channel and (not self.kinds or kind in self.kinds)

    @property
    def lane(self) -> Lane:
        """The lane of its deliveries: only workers that know the subscriber's address claim them."""
        return lane_of(self.name)


def lane_of(subscriber: str) -> Lane:
    return Lane(f"webhook:{subscriber}")


class EventDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way to one subscriber."""

    id: DeliveryId
    event: Event


class Delivered(Write, frozen=True, kw_only=True):
    """The subscriber accepted the event, so it is not sent again."""

    id: DeliveryId


class Outbox(Protocol):
    """Undelivered events, in the order of their delivery."""

    async def next_for(self, subscriber: SubscriberName) -> EventDelivery | None: ...


class EventSender(Protocol):
    """Brings an event to a subscriber, or raises Undelivered."""

    async def bring(self, subscriber: SubscriberName, event: Event) -> None: ...
