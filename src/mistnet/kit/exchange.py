"""What was sent to a server and what it answered, kept with a failure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream answer, without secrets and with only the beginning of the body.

    If `status` is None, there was no answer, and `body` says why.
    """

    endpoint: str
    status: int | None
    headers: Mapping[str, str] = {}
    body: str = ""
