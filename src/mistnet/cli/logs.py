"""Sets up the log, in UTC: short lines for people, or one JSON object per line. Secrets are removed."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TextIO

import msgspec
from loguru import logger

from mistnet.kit.text import printable, redact

if TYPE_CHECKING:
    from loguru import Message, Record

_TEXT = "<dim>{time:YYYY-MM-DD HH:mm:ss.SSS!UTC}</dim> <level>{level: <7}</level> {message}\n{exception}"
_STACK = "{extra[stack]}\n"
_encode = msgspec.json.Encoder(enc_hook=str).encode


def set_up(
    *, style: Literal["text", "json"], level: str, secrets: Sequence[str] = (), stream: TextIO | None = None
) -> None:
    """Replace all sinks by one on stderr."""
    out = stream or sys.stderr

    def write_text(message: "Message") -> None:
        out.write(redact(message, secrets))

    def write_json(message: "Message") -> None:
        out.write(json_line(message.record, secrets) + "\n")

    logger.remove()
    logger.add(
        write_json if style == "json" else write_text,
        level=level,
        format="{message}" if style == "json" else _text_format,
        colorize=style == "text" and out.isatty(),
        backtrace=False,
        diagnose=False,
    )


def json_line(record: "Record", secrets: Sequence[str]) -> str:
    """Time, level, message, and all facts of a log line."""
    facts = {
        name: redact(value, secrets) if isinstance(value, str) else value for name, value in record["extra"].items()
    }
    if isinstance(facts.get("job_id"), int):
        facts["job_id"] = str(facts["job_id"])
    entry = {
        **facts,
        "time": datetime.fromtimestamp(record["time"].timestamp(), UTC),
        "level": record["level"].name,
        "message": redact(record["message"], secrets),
    }
    if record["exception"] and record["exception"].value:
        entry["exception"] = redact(repr(record["exception"].value), secrets)
    return _encode(entry).decode()


def _text_format(record: "Record") -> str:
    record["message"] = printable(record["message"], one_line=True)
    stack = record["extra"].get("stack")
    if not isinstance(stack, str):
        return _TEXT
    record["extra"]["stack"] = "\n".join(f"  {printable(line)}" for line in stack.splitlines())
    return _TEXT + _STACK
