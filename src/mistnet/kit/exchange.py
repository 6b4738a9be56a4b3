"""What was sent to a server and what it answered, kept with a failure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What an upstream answered: no secrets in it, and no more of the body than somebody would read.

    Without a status nothing came back, and the body says why.
    """

    endpoint: str
    status: int | None
    headers: Mapping[str, str] = {}
    body: str = ""
