"""Runs the statements of a simulation on a real PostgreSQL server, one at a time and in an order the seed decides."""

from __future__ import annotations

import asyncio
import json
import random
import select
import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.08
"""Seconds between questions about a statement that has no answer yet. They decide nothing, they only save questions."""

_CANCEL_REQUEST = 80877102
_RESET = b"S\0\0\0\4" + b"".join(
    b"Q" + struct.pack("!i", len(query) + 5) + query + b"\0" for query in (b"ROLLBACK", b"DISCARD ALL")
)
_RESET_ANSWERS = 3  # one to the sync, which ends whatever was begun, and one to each query
_AUTHENTICATION_STEPS = {3, 5, 10, 11}  # the server waits for a message of ours before it goes on
_BLOCKED_BY = """
    SELECT coalesce(json_object_agg(pid, pg_blocking_pids(pid)), '{{}}')
    FROM pg_stat_activity WHERE pid IN ({pids})
"""


Address: TypeAlias = tuple[str, int] | str


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A server process whose client is gone, reset to what it was when it had just started."""

    socket: socket.socket
    greeting: bytes


class Exchange:
    """Everything that is under way between the loop and the server.

    The server is at rest when each statement is answered or waits for a lock that only a later statement can release.
    That is known from the server's own lock table, never from how long an answer takes.

    Machines die by the dozen, and a new server process reads its whole catalog first. So one that was left between two
    statements is reset, which also rolls back its transaction, and serves the next client that starts in the same way.
    """

    def __init__(self, order: str | None = None) -> None:
        self._chance = random.Random(order) if order else None
        self._open: dict[ServerConnection, None] = {}
        self._waiting: list[ServerConnection] = []
        self._sent: list[ServerConnection] = []
        self._leaving: set[int] = set()
        self._has_news = self._is_over = False
        self._spare: defaultdict[tuple[Address, bytes], list[Backend]] = defaultdict(list)
        self.monitor: Any = None  # a connection of the driver's that no worker uses

    @property
    def has_work(self) -> bool:
        return bool(self._waiting) or self._has_news

    @property
    def blocked(self) -> int:
        """How many statements wait for a lock."""
        return len(self._sent)

    def opened(self, connection: ServerConnection) -> None:
        self._open[connection] = None

    def request(self, connection: ServerConnection) -> None:
        if connection not in self._waiting:
            self._waiting.append(connection)

    def cancel(self, pid: int) -> None:
        """A statement that is being cancelled ends soon, even if the lock table still shows it waiting."""
        for connection in self._sent:
            connection.is_cancelled |= connection.pid == pid

    def leave(self, connection: ServerConnection) -> None:
        """Hang up. In the middle of a statement the server needs a moment to notice, and to release the locks."""
        is_idle = connection not in self._sent
        self._open.pop(connection, None)
        self._waiting = [each for each in self._waiting if each is not connection]
        self._sent = [each for each in self._sent if each is not connection]
        if not connection.pid or connection.has_ended or self._is_over:
            connection.hang_up()
            return
        self._has_news = True
        if is_idle and (backend := connection.reset()):
            self._spare[connection.origin].append(backend)
        else:
            connection.hang_up()
            self._leaving.add(connection.pid)

    def spare(self, origin: tuple[Address, bytes]) -> Backend | None:
        """A server process that was started in exactly this way and has no client."""
        return self._spare[origin].pop() if self._spare[origin] else None

    def take_turn(self) -> None:
        """Send one request, wait until the server is at rest, and deliver its answers in the order of the requests."""
        if self._waiting:
            place = self._chance.randrange(len(self._waiting)) if self._chance else 0
            connection = self._waiting.pop(place)
            if connection not in self._sent:
                self._sent.append(connection)
            connection.send()
        self._wait_for_rest()
        self._has_news = False  # gone, or blocked like any other
        answered = [each for each in self._sent if each.is_answered]
        self._sent = [each for each in self._sent if not each.is_answered]
        for connection in answered:
            connection.deliver()

    def close(self) -> None:
        self._is_over = True
        for connection in [*self._open]:
            connection.abort()
        for backend in chain.from_iterable(self._spare.values()):
            backend.socket.close()

    def _wait_for_rest(self) -> None:
        pause = FIRST_PAUSE
        while True:
            running = [each for each in self._sent if not each.is_answered]
            if not running and not self._leaving:
                return
            nothing_new = pause == FIRST_PAUSE and all(each.is_blocked for each in running)
            if not wait_for_data(running, 0 if nothing_new else pause):
                if self._is_at_rest(running):
                    return
                pause = min(2 * pause, LONGEST_PAUSE)

    def _is_at_rest(self, running: Sequence[ServerConnection]) -> bool:
        """A statement rests if all that block it do. Members of a deadlock never do: the server ends one of them."""
        if self.monitor is None or any(each.pid is None or each.is_cancelled for each in running):
            return False
        pids = {each.pid for each in running if each.pid}
        blocked_by = self._ask(pids | self._leaving)
        self._leaving &= blocked_by.keys()
        moving = pids | self._leaving
        resting = {each.pid for each in self._open if each.pid} - moving
        while found := {pid for pid in moving if blocked_by.get(pid) and resting.issuperset(blocked_by[pid])}:
            resting |= found
            moving -= found
        for each in running:
            each.is_blocked = each.pid in resting
        return not moving

    def _ask(self, pids: Collection[int]) -> Mapping[int, list[int]]:
        """The backends among these that still exist, each with those that block it."""
        found = json.loads(self.monitor._transport.ask(_BLOCKED_BY.format(pids=", ".join(map(str, sorted(pids))))))
        return {int(pid): by for pid, by in found.items()}


def wait_for_data(connections: Sequence[ServerConnection], pause: float = LONGEST_PAUSE) -> bool:
    """Read what has come; false if nothing has in this time."""
    by_socket = {each.socket: each for each in connections}
    unsent = [each.socket for each in connections if each.has_unsent]
    readable, writable, _ = select.select([*by_socket], unsent, [], pause)
    for ready in writable:
        by_socket[ready].send()
    for ready in readable:
        by_socket[ready].receive()
    return bool(readable or writable)


class ServerConnection(asyncio.Transport):
    """A transport that understands enough of PostgreSQL's protocol to know when a request is answered."""

    def __init__(self, exchange: Exchange, address: Address, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.socket: socket.socket  # opened with the first message, which tells whether a spare process can serve it
        self.origin: tuple[Address, bytes] = (address, b"")
        self.pid: int | None = None
        self.has_ended = self.is_cancelled = self.is_blocked = False
        self._exchange = exchange
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._outgoing, self._incoming = bytearray(), bytearray()
        self._greeting = b""
        self._read_to = 0
        self._has_started = self._is_closing = False
        self._ready_due = 0  # ReadyForQuery messages that have to come yet
        self._description_due = self._our_step = False
        self._can_be_greeted_again = True  # not if a password was asked for
        exchange.opened(self)
        protocol.connection_made(self)

    @property
    def is_answered(self) -> bool:
        return self.has_ended or self._our_step or not (self._ready_due or self._description_due or self.has_unsent)

    @property
    def has_unsent(self) -> bool:
        return bool(self._outgoing)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        if not self._has_started:
            self._start(bytes(data))
            self._exchange.request(self)
            return
        self._outgoing += data
        if self._wants_answer(bytes(data)):
            self._exchange.request(self)

    def _start(self, first_message: bytes) -> None:
        self._has_started, self._ready_due = True, 1
        self.origin = (self.origin[0], first_message)
        if backend := self._exchange.spare(self.origin):
            self.socket, self._greeting = backend.socket, backend.greeting
            self._read(backend.greeting)
        else:
            self.socket = _open_socket(self.origin[0])
            self._outgoing += first_message

    def _wants_answer(self, data: bytes) -> bool:
        place, before = 0, (self._ready_due, self._description_due, self._our_step)
        while place < len(data):
            match data[place : place + 1]:
                case b"Q" | b"S" | b"X":  # a query, a sync, or the end, after which the server hangs up
                    self._ready_due += 1
                case b"H":  # a flush follows a prepared statement that is to be described
                    self._description_due = True
                case b"p":
                    self._our_step = False
            place += 1 + int.from_bytes(data[place + 1 : place + 5])
        return before != (self._ready_due, self._description_due, self._our_step)

    def send(self) -> None:
        if self._outgoing[4:8] == struct.pack("!i", _CANCEL_REQUEST):
            self._exchange.cancel(int.from_bytes(self._outgoing[8:12]))
        try:
            del self._outgoing[: self.socket.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError:
            self._end()

    def receive(self) -> None:
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._end()
        self._read(data)

    def _read(self, data: bytes) -> None:
        self._incoming += data
        while len(self._incoming) >= (body := self._read_to + 5):
            end = self._read_to + 1 + int.from_bytes(self._incoming[self._read_to + 1 : body])
            if len(self._incoming) < end:
                return
            self._notice(chr(self._incoming[self._read_to]), self._incoming[body : body + 4])
            self._read_to = end

    def _end(self) -> None:
        self.has_ended = True
        self._outgoing.clear()

    def _notice(self, kind: str, value: bytearray) -> None:
        match kind:
            case "Z":
                self._ready_due -= 1
                self._description_due = self.is_cancelled = False
            case "T" | "n" | "E":
                self._description_due = False
            case "K":
                self.pid = int.from_bytes(value)
            case "R":
                self._our_step = int.from_bytes(value) in _AUTHENTICATION_STEPS
                self._can_be_greeted_again &= not self._our_step

    def deliver(self) -> None:
        self.is_blocked = False
        data, self._read_to = bytes(self._incoming), 0
        self._incoming.clear()
        if self.pid and not self._greeting and self._can_be_greeted_again:
            self._greeting = data
        if data:
            self._loop.call_soon(self._hand_over, data)
        if self.has_ended:
            self._loop.call_soon(self.abort)

    def _hand_over(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    def ask(self, query: str) -> str:
        """A query whose answer is one text, asked while the loop stands still."""
        self._outgoing += b"Q" + struct.pack("!i", len(query) + 5) + query.encode("ascii") + b"\0"
        self._ready_due = 1
        while not self.is_answered:
            wait_for_data([self])
        answer, self._read_to = bytes(self._incoming), 0
        self._incoming.clear()
        return _only_value(answer)

    def reset(self) -> Backend | None:
        """Roll back, and forget all that this client told the server; none if the server cannot be reused."""
        if not self._greeting:
            return None
        self._outgoing[:] = _RESET
        self._ready_due, self._description_due = _RESET_ANSWERS, False
        while not self.is_answered:
            wait_for_data([self])
        return None if self.has_ended else Backend(socket=self.socket, greeting=self._greeting)

    def hang_up(self) -> None:
        if self._has_started:
            self.socket.close()

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._exchange.leave(self)
        if not self._loop.is_closed():
            self._loop.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._is_closing


def _only_value(answer: bytes) -> str:
    place = 0
    while answer[place : place + 1] != b"D":
        assert place < len(answer), f"the server answered {answer!r}"
        place += 1 + int.from_bytes(answer[place + 1 : place + 5])
    size = int.from_bytes(answer[place + 7 : place + 11])
    return answer[place + 11 : place + 11 + size].decode()


def _open_socket(address: Address) -> socket.socket:
    if isinstance(address, str):
        opened = socket.socket(socket.AF_UNIX)
        opened.connect(address)
    else:
        opened = socket.create_connection(address)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setblocking(False)
    return opened


async def connect_to(exchange: Exchange, protocol_factory: Any, address: Address) -> Any:
    """Stands in for the loop's own way to open a connection."""
    connection = ServerConnection(exchange, address, protocol_factory())
    return connection, connection._protocol
