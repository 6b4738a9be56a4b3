"""How segments and follows are drawn: counts over time for the script that plots them, rhythms in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from mistnet.domain.follows import Side
from mistnet.segments.rules import in_words
from mistnet.store.follow_pages import Counted
from mistnet.store.segment_pages import Count, SegmentLine

RHYTHMS: Final[Mapping[str, tuple[str, float | None]]] = {
    "": ("only when asked", None),
    "hour": ("every hour", 3_600.0),
    "day": ("every day", 86_400.0),
    "week": ("every week", 604_800.0),
}
_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def segment_row(line: SegmentLine) -> Mapping[str, Any]:
    return {"line": line, "rule": rule_of(line), "rhythm": rhythm_of(line.every_seconds)}


def rule_of(line: SegmentLine) -> str:
    return in_words(line.rule, f"@{line.subject}" if line.subject else None)


def rhythm_of(seconds: float | None) -> str:
    if seconds is None:
        return "when asked"
    size, unit = next((each for each in _UNITS if seconds >= each[0]), (1, "second"))
    amount = seconds / size
    return f"every {unit}" if amount == 1 else f"every {amount:g} {unit}s"


def members_chart(counts: Sequence[Count]) -> str | None:
    """For the script that plots it; one count alone makes no line."""
    drawn = {"members": [count.members for count in counts]}
    return _chart([count.at for count in counts], drawn)


def follows_chart(counts: Mapping[Side, Sequence[Counted]]) -> str | None:
    """Both sides over one axis of time; where only one was counted, the other has nothing."""
    moments = sorted({each.at for side in counts.values() for each in side})
    known = {side: {each.at: each.users for each in some} for side, some in counts.items()}
    return _chart(moments, {str(side): [known[side].get(at) for at in moments] for side in Side})


def _chart(moments: Sequence[datetime], series: Mapping[str, Sequence[int | None]]) -> str | None:
    if len(moments) < 2:
        return None
    lines = [{"name": name, "values": values} for name, values in series.items()]
    return msgspec.json.encode({"at": [int(at.timestamp()) for at in moments], "lines": lines}).decode()
