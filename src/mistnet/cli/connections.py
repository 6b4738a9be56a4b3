"""Deadlines and limits for connections to the web server, which uvicorn leaves open for as long as a client likes."""

import asyncio
import resource
import time
from typing import Any, ClassVar, Final

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from mistnet.settings import Settings

_LEAST_CONNECTIONS: Final = 16
_LONGEST_WINDOW_SECONDS: Final = 5.0
_LENGTHS: Final = {b"content-length", b"transfer-encoding"}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a connection may keep us waiting, and how many there may be."""

    header_seconds: float = 10.0
    body_seconds: float = 120.0
    idle_seconds: float = 15.0
    body_bytes_per_second: int = 500
    connections: int = 512

    @property
    def window_seconds(self) -> float:
        """How long a body's rate is measured for."""
        return min(_LONGEST_WINDOW_SECONDS, self.body_seconds / 4)


def usable_connections(wanted: int, descriptors: int | None = None) -> int:
    """At most half of the files this process may open: the database and other servers need theirs too."""
    if descriptors is None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if descriptors < 0 else min(wanted, max(descriptors // 2, _LEAST_CONNECTIONS))


def limits_of(settings: Settings) -> Limits:
    return Limits(
        header_seconds=settings.http_header_seconds,
        body_seconds=settings.http_body_seconds,
        idle_seconds=settings.http_idle_seconds,
        body_bytes_per_second=settings.http_body_bytes_per_second,
        connections=usable_connections(settings.http_connections),
    )


def limited(limits: Limits) -> type[H11Protocol]:
    """The protocol that holds every connection of one server to its limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


class StrictConnection(h11.Connection):
    """Refuses a request with two lengths: a proxy in front may go by the other one, and see other requests in it."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _LENGTHS:
            raise h11.RemoteProtocolError("a request has either Content-Length or Transfer-Encoding")
        return event


class LimitedProtocol(H11Protocol):
    """Closes connections whose request does not come in time, and makes room when there are too many."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = StrictConnection(h11.SERVER, self.config.h11_max_incomplete_event_size or 16 * 1024)
        self.waiting_since: float | None = None
        """Since when this connection waits for its client; None while the client waits for us."""
        self._phase: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.idle_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled:
            self._stalled.cancel()

    def _watch(self) -> None:
        """Set the deadline of what the client has to send next. Parts of it do not prolong the deadline."""
        if self.transport.is_closing():
            self._see_closed()
            return
        state = self.conn.their_state
        if state is h11.IDLE and self._has_begun:
            self._unset_keepalive_if_required()  # a second request has begun, and gets the deadline of its head
        is_idle = state is h11.IDLE and self.timeout_keep_alive_task is not None  # uvicorn closes it
        phase = (state, is_idle, self.cycle)
        if phase == self._phase:
            return
        self._phase = phase
        if self._deadline:
            self._deadline.cancel()
        self.waiting_since = time.monotonic() if state in (h11.IDLE, h11.SEND_BODY) else None
        if state is h11.SEND_BODY:
            self._received = 0
            self._deadline = self.loop.call_later(self.limits.window_seconds, self._check_body)
        elif state is h11.IDLE and not is_idle:
            self._deadline = self.loop.call_later(self.limits.header_seconds, self._give_up)

    def _check_body(self) -> None:
        window, begun = self.limits.window_seconds, self.waiting_since or 0.0
        # While reading is paused it is we who are slow.
        slow = not self.flow.read_paused and self._received < self.limits.body_bytes_per_second * window
        if slow or time.monotonic() + window > begun + self.limits.body_seconds:
            self._give_up()
            return
        self._received = 0
        self._deadline = self.loop.call_later(window, self._check_body)

    def _give_up(self) -> None:
        # Whoever sent nothing at all, as browsers do that connect in advance, expects no answer.
        self._refuse(408, b"Request Timeout" if self._has_begun else b"")

    @property
    def _has_begun(self) -> bool:
        """Whether any of the request that is waited for has come."""
        return self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])

    def _make_room(self) -> None:
        """Above the limit the client that keeps us waiting longest has to go; without such a one, the newest."""
        held = [each for each in self.connections if isinstance(each, LimitedProtocol) and each.is_open]
        if len(held) <= self.limits.connections:
            return
        waiting = [each for each in held if each is not self and each.waiting_since is not None]
        if waiting:
            min(waiting, key=lambda each: each.waiting_since or 0.0).transport.abort()
        else:
            self._refuse(503, b"Service Unavailable")

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    def _refuse(self, status: int, reason: bytes) -> None:
        """Close the connection, with an answer if none has begun."""
        if self._deadline:
            self._deadline.cancel()
        if reason and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(reason))), ("Connection", "close")]
            events = (h11.Response(status_code=status, headers=headers, reason=reason), h11.Data(data=reason))
            for event in (*events, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle:
            # The application must not answer into a connection that has its answer already.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._see_closed()

    def _see_closed(self) -> None:
        """A transport that closes waits until all is sent, which a client that reads nothing can put off for ever."""
        if not self._closing:
            self._closing = self.loop.call_later(self.limits.idle_seconds, self.transport.abort)

    def _stop_timers(self) -> None:
        for timer in (self._deadline, self._stalled, self._closing):
            if timer:
                timer.cancel()
