"""What a message says: a job's id, and for a dead letter what went wrong."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aio_pika import DeliveryMode, Message

from mistnet.kit.redaction import shorten
from mistnet.queue.model import DeadLetter, DueMessage, JobId

_JSON: Final = "application/json"
_LARGEST: Final = 2**63 - 1
_ERROR_CHARACTERS: Final = 2_000


class Named(msgspec.Struct, frozen=True):
    """The one thing a message must say. Others may say more; it is not looked at."""

    job_id: int


def job_message(letter: DueMessage) -> Message:
    return Message(
        msgspec.json.encode(Named(letter.job_id)),
        content_type=_JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=f"{letter.job_id}.{letter.fence}",
    )


def dead_message(letter: DeadLetter) -> Message:
    """For people who look into the queue: the database has the whole story."""
    told: dict[str, Any] = {
        "job_id": letter.job_id,
        "kind": letter.kind,
        "key": letter.key,
        "lane": letter.lane,
        "state": letter.state,
        "attempts": letter.attempts,
        "error": shorten(letter.error or "", _ERROR_CHARACTERS),
    }
    return Message(
        msgspec.json.encode(told),
        content_type=_JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=f"{letter.job_id}.{letter.fence}",
    )


def named_job(body: bytes) -> JobId | None:
    """The id a message names, or None if nobody can read it."""
    try:
        job_id = msgspec.json.decode(body, type=Named, strict=False).job_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return JobId(job_id) if 0 < job_id <= _LARGEST else None
