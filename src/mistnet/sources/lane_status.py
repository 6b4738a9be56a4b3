"""The status of lanes: the waiting jobs, the recent throughput, and whether the source may be called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.governor.model import SourceName, SourceState
from mistnet.operations.monitoring import LaneCount, LaneStore
from mistnet.queue.model import JobState, Lane
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.sources.status import SourceStatus, describe

if TYPE_CHECKING:
    from mistnet.app import App


LATELY: Final = timedelta(hours=1)
JUST_NOW: Final = timedelta(minutes=1)


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One lane. Throughput is that of the last hour; `source` is the state of the source that its jobs call, if any."""

    lane: Lane
    states: Mapping[JobState, int]
    parked: int
    due: int
    oldest_due_at: datetime | None
    jobs_per_second: float
    succeeded: int
    retried: int
    failed: int
    dead: int
    crawled: int
    wait_p50: timedelta | None
    wait_p95: timedelta | None
    source: str | None
    why: str | None
    until: datetime | None

    @property
    def dead_letters(self) -> int:
        return self.states.get(JobState.DEAD, 0)

    @property
    def total(self) -> int:
        return sum(self.states.values())


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """The recent throughput of all lanes."""

    finished: Mapping[Lane, int]
    just_now: Mapping[Lane, int]
    failures: Mapping[Lane, int]
    ended: Mapping[tuple[Lane, JobState], int]
    waits: Mapping[Lane, Sequence[timedelta]]


async def lane_statuses(app: App) -> Sequence[LaneStatus]:
    """Every lane of a job kind or a job: crawl lanes first, then by name. Reads all jobs."""
    now, pages = app.database.clock.now(), LaneStore(app.database)
    counts = await pages.counts(now=now)
    since = now - LATELY
    lately = Lately(
        finished=await pages.finished(since=since),
        just_now=await pages.finished(since=now - JUST_NOW),
        failures=await pages.failures(since=since),
        ended=await pages.ended(since=since),
        waits=await pages.waits(since=since),
    )
    sources = await app.sources.states()
    names = {Lane(each) for each in (*CRAWL_LANES, *app.kinds.lanes, *(count.lane for count in counts))}
    ordered = sorted(names, key=lambda lane: (lane not in CRAWL_LANES, lane))
    return [_status(app, lane, counts, lately, sources, now) for lane in ordered]


def _status(
    app: App,
    lane: Lane,
    counts: Sequence[LaneCount],
    lately: Lately,
    sources: Mapping[SourceName, SourceState],
    now: datetime,
) -> LaneStatus:
    own = [count for count in counts if count.lane == lane]
    dead, failed = (lately.ended.get((lane, state), 0) for state in (JobState.DEAD, JobState.FAILED))
    waits = lately.waits.get(lane, ())
    source = _source(app, lane, sources, now)
    return LaneStatus(
        lane=lane,
        states={count.state: count.jobs for count in own},
        parked=sum(count.parked for count in own),
        due=sum(count.due for count in own),
        oldest_due_at=min((count.oldest_due_at for count in own if count.oldest_due_at), default=None),
        jobs_per_second=lately.just_now.get(lane, 0) / JUST_NOW.total_seconds(),
        succeeded=lately.finished.get(lane, 0),
        retried=max(lately.failures.get(lane, 0) - dead - failed, 0),
        failed=failed,
        dead=dead,
        crawled=len(waits),
        wait_p50=percentile(waits, 0.50),
        wait_p95=percentile(waits, 0.95),
        source=source.state if source else None,
        why=source.why if source else None,
        until=source.until if source else None,
    )


def _source(app: App, lane: Lane, states: Mapping[SourceName, SourceState], now: datetime) -> SourceStatus | None:
    """The source that jobs on this lane call, if they call one: segments and deliveries do not."""
    name = SourceName(lane)
    source, state = app.sources.get(name), states.get(name)
    if source is None and state is None:
        return None
    status = describe(state or SourceState(name=name), source, now)
    if state is None and source and source.needs_key and not source.keys:
        return msgspec.structs.replace(status, state="no key", why="it was never called, and no key is configured here")
    return status


def percentile(ordered: Sequence[timedelta], share: float) -> timedelta | None:
    """The value that so large a share of them does not exceed."""
    if not ordered:
        return None
    return ordered[math.ceil(round(len(ordered) * share, 6)) - 1]
