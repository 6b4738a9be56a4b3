"""Events: what others may be told of, kept until they were."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from mistnet.domain.jobs import Write


class Channel(StrEnum):
    """Events about what was collected, and about what needs an operator, never go the same way."""

    DATA = "data"
    ALERTS = "alerts"


class EventKind(StrEnum):
    POSTS_COLLECTED = "posts.collected"
    ACCOUNT_BACKFILLED = "account.backfilled"
    ACCOUNT_STATE_CHANGED = "account.state_changed"
    RUN_FINISHED = "run.finished"
    SUMMARIZE_REQUESTED = "summarize.requested"
    SOURCE_PAUSED = "source.paused"
    ALERT_OPENED = "alert.opened"
    ALERT_CLOSED = "alert.closed"


class NewEvent(Write, frozen=True, kw_only=True):
    """Something others may want to know. It lands with what it tells of, or not at all. Ids in it are strings."""

    kind: EventKind
    subject: str
    payload: Mapping[str, Any]
    channel: Channel = Channel.DATA
