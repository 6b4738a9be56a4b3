"""The port to the network: a request goes out, an answer comes back. Simulations put a world behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call, ready to be sent. Secrets travel in the headers, or in the hidden part of the query: never shown.

    A form makes it a POST.
    """

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    hidden: Mapping[str, str] = {}
    form: Mapping[str, str] | None = None

    @property
    def method(self) -> str:
        return "GET" if self.form is None else "POST"

    def __repr__(self) -> str:
        shown = "&".join(f"{name}={value}" for name, value in self.query.items())
        return f"{self.method} {self.path}?{shown}"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unanswered(Exception):
    """The connection failed, or the answer did not come in time or not whole."""


class Unreached(Unanswered):
    """No connection came about, so the request was never sent."""


class Transport(Protocol):
    """Sends a request. Raises Unanswered and nothing else."""

    async def send(self, request: Request) -> Answer: ...
