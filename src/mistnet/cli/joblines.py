"""Reads many new jobs from a file: one JSON object per line, all of them good or none taken."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import typer

from mistnet.domain.errors import BadArgs
from mistnet.domain.jobs import Lane, NewJob
from mistnet.engine.kinds import Kinds


class JobLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one line may say. Where it is silent, the command's options speak."""

    args: msgspec.Raw = msgspec.Raw(b"{}")
    key: str | None = None
    lane: str | None = None
    run_at: datetime | None = None


def read_jobs(
    kinds: Kinds, kind: str, source: Path, *, lane: str | None = None, run_at: datetime | None = None
) -> list[NewJob]:
    """Every line as a job, or a fault that names the line."""
    try:
        content = sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror}") from None
    found: list[NewJob] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                found.append(_job(kinds, kind, line, lane=lane, run_at=run_at))
            except (BadArgs, msgspec.DecodeError, UnicodeDecodeError, typer.BadParameter) as error:
                raise typer.BadParameter(f"{source} line {number}: {error}; nothing was stored") from None
    if not found:
        raise typer.BadParameter(f"{source} has no lines; nothing was stored")
    return found


def _job(kinds: Kinds, kind: str, line: bytes, *, lane: str | None, run_at: datetime | None) -> NewJob:
    said = msgspec.json.decode(line, type=JobLine)
    storable("key", said.key)
    own_lane = said.lane or lane
    given = said.run_at or run_at
    return kinds.new_job(
        kind,
        bytes(said.args),
        key=said.key,
        lane=Lane(own_lane) if own_lane else None,
        run_at=given if given is None or given.tzinfo else given.replace(tzinfo=UTC),
    )


def storable(name: str, text: str | None) -> None:
    """Databases refuse NUL and broken characters; better said here, by name."""
    if text is None:
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{name} is not valid Unicode text") from None
    if "\x00" in text:
        raise typer.BadParameter(f"{name} contains a NUL character, which databases refuse")
