"""Delivers events: the job of a subscriber, signed webhooks over HTTP, and alerts through Apprise."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import warnings
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import msgspec

from mistnet.kit.clock import Clock
from mistnet.kit.errors import SettingsError
from mistnet.queue.errors import Undelivered
from mistnet.queue.events import Delivered, Event, EventKind, EventSender, Outbox, Subscriber, SubscriberName
from mistnet.queue.model import Args, Continue, Done, Job, KindName, NewJob, Outcome, Retry

if TYPE_CHECKING:
    import aiohttp


SIGNED_WITH: Final = "v1"
_TOTAL_SECONDS: Final = 10
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


class Webhook(msgspec.Struct, frozen=True):
    """The address of a subscriber, and the secret that signs its events."""

    url: str
    secret: str

    def __repr__(self) -> str:
        return "Webhook(***)"


class AppriseUrl(msgspec.Struct, frozen=True):
    """The address of a service that Apprise supports."""

    url: str

    def __repr__(self) -> str:
        return "AppriseUrl(***)"


Addresses = Mapping[SubscriberName, Webhook | AppriseUrl]


class Notifier(Protocol):
    """The part of Apprise that is used. It returns true if the message was accepted."""

    async def async_notify(self, *, title: str, body: str, notify_type: str) -> object: ...


class Messenger:
    """The EventSender. Open it with `async with`. It never reveals addresses or secrets, not even in errors."""

    def __init__(
        self, addresses: Addresses, *, clock: Clock, user_agent: str, total_seconds: float = _TOTAL_SECONDS
    ) -> None:
        self._addresses = addresses
        self._seconds = total_seconds
        self._clock = clock
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._notifiers: dict[SubscriberName, Notifier] = {}

    async def __aenter__(self) -> Self:
        import aiohttp  # noqa: PLC0415 (slow to load, and few have subscribers)

        for name, address in self._addresses.items():
            if isinstance(address, AppriseUrl):
                # Its log lines may contain a URL, so they are dropped.
                log = logging.getLogger("apprise")
                log.handlers, log.propagate = [logging.NullHandler()], False
                with warnings.catch_warnings():
                    # Raised by modules that it imports.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    import apprise  # noqa: PLC0415 (it takes half a second, and few need it)

                    self._notifiers[name] = notifier = apprise.Apprise()
                    supported = notifier.add(address.url)
                if not supported:
                    problem = f"{name} is not a URL that Apprise supports; see its list of services"
                    raise SettingsError("alert_urls", "settings", problem)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._seconds),
            headers={"User-Agent": self._user_agent},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    async def bring(self, subscriber: SubscriberName, event: Event) -> None:
        import aiohttp  # noqa: PLC0415

        address = self._addresses.get(subscriber)
        if address is None:
            raise Undelivered(subscriber, event.id, "the settings of this worker do not name it")
        if self._session is None:
            raise RuntimeError("the messenger is not open")
        if isinstance(address, AppriseUrl):
            title, text, level = message_of(event)
            try:
                async with asyncio.timeout(3 * self._seconds):
                    accepted = await self._notifiers[subscriber].async_notify(title=title, body=text, notify_type=level)
            except TimeoutError:
                raise Undelivered(subscriber, event.id, "no answer in time") from None
            if not accepted:
                raise Undelivered(subscriber, event.id, "the service behind its Apprise URL refused it")
            return
        body = body_of(event)
        headers = headers_of(event, body, address.secret, int(self._clock.now().timestamp()))
        try:
            async with self._session.post(address.url, data=body, headers=headers, allow_redirects=False) as answer:
                status = answer.status
        except TimeoutError:
            raise Undelivered(subscriber, event.id, f"no answer within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Without its address: for some services, a URL is as good as a password.
            number = getattr(getattr(error, "os_error", error), "errno", None)
            reason = f": {os.strerror(number)}" if isinstance(number, int) and number > 0 else ""
            raise Undelivered(subscriber, event.id, f"{type(error).__name__}{reason}") from None
        if not 200 <= status < 300:
            raise Undelivered(subscriber, event.id, f"it answered {status}")


def body_of(event: Event) -> bytes:
    """The same bytes at every attempt."""
    return msgspec.json.encode(
        {
            "id": str(event.id),
            "kind": event.kind,
            "subject": event.subject,
            "channel": event.channel,
            "created_at": event.created_at,
            "payload": event.payload,
        }
    )


def headers_of(event: Event, body: bytes, secret: str, timestamp: int) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Mistnet-Event-Id": str(event.id),
        "Mistnet-Timestamp": str(timestamp),
        "Mistnet-Signature": f"{SIGNED_WITH}={signature(secret, timestamp, body)}",
    }


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """The time is signed as well, so that an old message cannot be replayed as a new one."""
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def message_of(event: Event) -> tuple[str, str, str]:
    """An alert as a message for people: title, text, and the type of notification."""
    payload: dict[str, Any] = msgspec.json.decode(event.payload)
    rule, message = payload.get("rule", event.kind), str(payload.get("message", ""))
    if event.kind == EventKind.ALERT_CLOSED:
        return f"mistnet: {rule} is over ({event.subject})", message, "success"
    level = "failure" if payload.get("severity") == "critical" else "warning"
    return f"mistnet: {rule} ({event.subject})", message, level
