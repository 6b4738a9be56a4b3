"""The content of messages: a job's id, and for a dead letter its error."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aio_pika import DeliveryMode, Message

from mistnet.kit.text import shorten
from mistnet.queue.model import DeadLetter, DueMessage, JobId

_JSON: Final = "application/json"
_LARGEST: Final = 2**63 - 1
_ERROR_CHARACTERS: Final = 2_000


class Named(msgspec.Struct, frozen=True):
    """The only required field of a message. Other fields are ignored."""

    job_id: int


def job_message(message: DueMessage) -> Message:
    return Message(
        msgspec.json.encode(Named(message.job_id)),
        content_type=_JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=f"{message.job_id}.{message.fence}",
    )


def dead_message(message: DeadLetter) -> Message:
    """For people who inspect the queue. The database has the complete job."""
    content: dict[str, Any] = {
        "job_id": message.job_id,
        "kind": message.kind,
        "key": message.key,
        "lane": message.lane,
        "state": message.state,
        "attempts": message.attempts,
        "error": shorten(message.error or "", _ERROR_CHARACTERS),
    }
    return Message(
        msgspec.json.encode(content),
        content_type=_JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=f"{message.job_id}.{message.fence}",
    )


def named_job(body: bytes) -> JobId | None:
    """The job id in a message, or None if it cannot be read."""
    try:
        job_id = msgspec.json.decode(body, type=Named, strict=False).job_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return JobId(job_id) if 0 < job_id <= _LARGEST else None
