"""Faults of RabbitMQ: it is killed and restarted, its connections are closed, its queues emptied and deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote

from tests.chaos.faults import HOLD_SECONDS, Fault, Target
from tests.services.rabbitmq import RabbitNode


@dataclass(frozen=True, kw_only=True)
class Broker:
    """One virtual host of a node. The node itself is only given where it may be stopped."""

    url: str
    ask: Callable[..., Any]
    node: RabbitNode | None = None

    @property
    def vhost(self) -> str:
        return self.url.rpartition("/")[2]

    def delete(self, kind: str, suffix: str = "") -> int:
        """Delete all connections, or queues, of the virtual host; return how many there were."""
        scope = f"vhosts/{self.vhost}/connections" if kind == "connections" else f"{kind}/{self.vhost}"
        found = [each["name"] for each in self.ask("GET", f"/api/{scope}")]
        place = kind if kind == "connections" else f"{kind}/{self.vhost}"
        return sum(self._try("DELETE", f"/api/{place}/{quote(name, safe='')}{suffix}") for name in found)

    def _try(self, method: str, path: str) -> bool:
        try:
            self.ask(method, path)
        except HTTPError as error:
            if error.code != 404:  # it has gone by itself
                raise
            return False
        return True


@contextmanager
def own_broker() -> Iterator[Broker]:
    """A RabbitMQ of the play's own, which may be killed."""
    with RabbitNode() as node:
        yield Broker(url=node.vhost(), ask=node.ask, node=node)


def _broker(target: Target) -> Broker:
    assert target.broker is not None
    return target.broker


def close_connections(target: Target) -> int:
    return _for_a_while(lambda: _broker(target).delete("connections"))


def purge_queues(target: Target) -> int:
    return _for_a_while(lambda: _broker(target).delete("queues", "/contents"))


def delete_queues(target: Target) -> int:
    return _broker(target).delete("queues")


def _for_a_while(do: Callable[[], int]) -> int:
    until, done = time.monotonic() + HOLD_SECONDS, 0
    while time.monotonic() < until:
        done += do()
        time.sleep(0.2)
    return done


def restart(target: Target) -> None:
    node = _broker(target).node
    assert node is not None
    node.stop()
    time.sleep(HOLD_SECONDS)
    node.start()


def kill(target: Target) -> None:
    node = _broker(target).node
    assert node is not None
    node.kill()
    time.sleep(HOLD_SECONDS)
    node.start()


OF_QUEUES: Final = (
    Fault("broker connections closed", close_connections, "connection"),
    Fault("broker queues purged", purge_queues),
    Fault("broker queues deleted", delete_queues, "queue"),
)
"""What can be done to a broker that others use too."""
OF_BROKERS: Final = (*OF_QUEUES, Fault("broker restarted", restart), Fault("broker killed", kill))
