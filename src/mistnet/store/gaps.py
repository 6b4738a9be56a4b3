"""Which gaps are meant: jobs that ended without their result, by kind, lane, state and what went wrong."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from sqlalchemy import ColumnElement, func, text

from mistnet.domain.jobs import GAP_STATES, JobState
from mistnet.store.tables import jobs
from mistnet.store.tables.engine import GAP


class GapFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What is None rules nothing out. `error` is a part of the last error, in capitals or not."""

    kind: str | None = None
    lanes: Collection[str] | None = None
    error: str | None = None
    states: Collection[JobState] = GAP_STATES

    def conditions(self) -> list[ColumnElement[bool]]:
        own: list[ColumnElement[bool]] = [text(GAP), jobs.c.state.in_(self.states)]  # type: ignore[list-item]
        if self.kind is not None:
            own.append(jobs.c.kind == self.kind)
        if self.lanes is not None:
            own.append(jobs.c.lane.in_(self.lanes))
        if self.error is not None:
            own.append(func.lower(jobs.c.last_error).contains(self.error.lower(), autoescape=True))
        return own
