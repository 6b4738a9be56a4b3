"""The circuit breaker of a source: what calls do to its shared row. Pure.

Closed, calls go through and failures in a row are counted. Open (`opened_until` is ahead), none goes through.
Half-open (it has passed), one call at a time tries: the probe, known by its own `probe_until`. Only the probe closes
the breaker or opens it anew; calls let through before it opened may end at any time and decide nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from mistnet.governor.model import SourceState

PROBE: Final = timedelta(seconds=60)
"""How long a probe counts as alive that nobody has heard of since."""

_ERROR_CHARACTERS: Final = 500


class BreakerRules(msgspec.Struct, frozen=True):
    """How many failures in a row open it, and for how long."""

    failures: int
    cooldown: timedelta


def is_open(source: SourceState, now: datetime) -> bool:
    return source.opened_until is not None and source.opened_until > now


def is_half_open(source: SourceState, now: datetime) -> bool:
    return source.opened_until is not None and source.opened_until <= now


def is_probed(source: SourceState, now: datetime) -> bool:
    return source.probe_until is not None and source.probe_until > now


def failed(
    source: SourceState, *, probe: datetime | None, problem: str, now: datetime, rules: BreakerRules
) -> SourceState:
    """A call that failed: the probe's failure opens the breaker anew, another's only if it is closed."""
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


def succeeded(source: SourceState, *, probe: datetime | None) -> SourceState:
    """A call that went well: the probe closes the breaker; another ends the row of failures of a closed one."""
    if _is_own(source, probe) or source.opened_until is None:
        return closed(source)
    return source


def closed(source: SourceState) -> SourceState:
    """The breaker as it is when all is well."""
    return msgspec.structs.replace(
        source, failure_streak=0, opened_until=None, probe_until=None, pause_reason=_of_pause(source)
    )


def let_go(source: SourceState, *, probe: datetime | None) -> SourceState:
    """A probe that told nothing, such as one that was cut off: the next call may try."""
    return msgspec.structs.replace(source, probe_until=None) if _is_own(source, probe) else source


def kept(source: SourceState, *, probe: datetime, now: datetime) -> tuple[SourceState, datetime]:
    """A probe that takes its time is still the only one. Returns what it is known by from now on."""
    if not _is_own(source, probe):
        return source, probe
    return msgspec.structs.replace(source, probe_until=now + PROBE), now + PROBE


def _of_pause(source: SourceState) -> str | None:
    """Why it is paused, if it is; what was said when somebody opened the breaker is over."""
    return source.pause_reason if source.paused_at else None


def _is_own(source: SourceState, probe: datetime | None) -> bool:
    return probe is not None and source.probe_until == probe
