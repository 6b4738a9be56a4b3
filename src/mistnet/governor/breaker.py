"""The circuit breaker of a source: what calls do to its shared row. Pure.

Closed, calls go through and failures in a row are counted. Open (`opened_until` is ahead), none goes through.
Half-open (it has passed), one call at a time tests the source: the probe, identified by its `probe_until`. Only the
probe closes the breaker or opens it again; calls admitted before it opened may end at any time and decide nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from mistnet.governor.model import SourceState

PROBE: Final = timedelta(seconds=60)
"""How long a probe counts as alive without an extension."""

_ERROR_CHARACTERS: Final = 500


class BreakerRules(msgspec.Struct, frozen=True):
    """How many failures in a row open the breaker, and for how long."""

    failures: int
    cooldown: timedelta


def is_open(source: SourceState, now: datetime) -> bool:
    return source.opened_until is not None and source.opened_until > now


def is_half_open(source: SourceState, now: datetime) -> bool:
    return source.opened_until is not None and source.opened_until <= now


def is_probed(source: SourceState, now: datetime) -> bool:
    return source.probe_until is not None and source.probe_until > now


def record_failure(
    source: SourceState, *, probe: datetime | None, problem: str, now: datetime, rules: BreakerRules
) -> SourceState:
    """A failed call. A probe opens the breaker again; another call opens it only if it is closed."""
    streak = source.failure_streak + 1
    noted = msgspec.structs.replace(
        source, failure_streak=streak, last_failure_at=now, last_failure=problem[:_ERROR_CHARACTERS]
    )
    own = _is_own(source, probe)
    if own or (source.opened_until is None and streak >= rules.failures):
        return msgspec.structs.replace(
            noted, opened_until=now + rules.cooldown, probe_until=None, pause_reason=_of_pause(source)
        )
    return noted


def record_success(source: SourceState, *, probe: datetime | None) -> SourceState:
    """A successful call. A probe closes the breaker; another call resets the count of a closed one."""
    if _is_own(source, probe) or source.opened_until is None:
        return close(source)
    return source


def close(source: SourceState) -> SourceState:
    """Close the breaker and reset its count of failures."""
    return msgspec.structs.replace(
        source, failure_streak=0, opened_until=None, probe_until=None, pause_reason=_of_pause(source)
    )


def release_probe(source: SourceState, *, probe: datetime | None) -> SourceState:
    """A probe without a result, such as a cancelled one: the next call may be the probe."""
    return msgspec.structs.replace(source, probe_until=None) if _is_own(source, probe) else source


def extend_probe(source: SourceState, *, probe: datetime, now: datetime) -> tuple[SourceState, datetime]:
    """Extend a slow probe, so that no second one starts. Return its new `probe_until`."""
    if not _is_own(source, probe):
        return source, probe
    return msgspec.structs.replace(source, probe_until=now + PROBE), now + PROBE


def _of_pause(source: SourceState) -> str | None:
    """The reason of the pause, if there is one. The reason of an opened breaker is dropped."""
    return source.pause_reason if source.paused_at else None


def _is_own(source: SourceState, probe: datetime | None) -> bool:
    return probe is not None and source.probe_until == probe
