"""Sources as operators see and change them: status, keys, pauses, breakers, limits. The status of lanes of jobs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from loguru import logger

from mistnet.governor.errors import SourceNotFound
from mistnet.governor.grants import GovernorLimits, tokens
from mistnet.governor.model import (
    KeyLabel,
    KeyState,
    PausedBy,
    SourceName,
    SourceState,
    day_of,
    is_half_open,
    is_open,
    is_probed,
)
from mistnet.kit.text import counted
from mistnet.operations.monitoring import LaneStore
from mistnet.queue.model import JobState, Lane
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.store.http_cache import KeptAnswers, StoreAnswers

if TYPE_CHECKING:
    from mistnet.app import App
    from mistnet.governor.source import Source


class KeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One key: its limits, its balance, and whether this machine has it.

    `bucket` is how many calls may start at once now, of `burst` after a pause; `free_at` when the next may start.
    """

    label: KeyLabel
    configured_here: bool
    rate_per_minute: float
    rate_is: str
    slowdown: float = 1.0
    bucket: int
    burst: int
    free_at: datetime | None
    paused_at: datetime | None
    pause_reason: str | None
    balance: int | None
    balance_at: datetime | None


class BreakerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`opens_after` failures in a row open it for `stays_open`; then one call tests the source."""

    state: Literal["closed", "open", "half-open"]
    failure_streak: int
    opens_after: int
    stays_open: timedelta
    opened_until: datetime | None
    probe_until: datetime | None


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source, for all machines. Where no limit is set, this machine's settings apply.

    `cache` is None where its answers are not cached.
    """

    name: SourceName
    state: str
    why: str | None
    until: datetime | None
    failure_streak: int
    breaker: BreakerStatus
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_failure: str | None
    day_credits: int
    day_cap: int | None
    month_credits: int
    month_cap: int | None
    cache: KeptAnswers | None
    keys: Sequence[KeyStatus]


def costs_credits(app: App, status: SourceStatus) -> bool:
    """Whether to show its credits. For a source that only other machines declare, its numbers decide."""
    source = app.sources.get(status.name)
    if source is not None and source.costs is not None:
        return True
    return any((status.day_cap, status.month_cap, status.day_credits, status.month_credits))


async def known_source(app: App, given: str) -> SourceName:
    """The name of a source that this machine declares or any machine has used. Raises SourceNotFound."""
    if given in app.sources:
        return SourceName(given)
    known = [*app.sources, *(name for name in await app.sources.states() if name not in app.sources)]
    if given in known:
        return SourceName(given)
    raise SourceNotFound(given, known)


async def source_statuses(app: App) -> Sequence[SourceStatus]:
    """Every source that is configured here or was used anywhere, and those that cost credits. Declared ones first."""
    now = app.database.clock.now()
    states, keys = await app.sources.states(), await app.sources.store.keys()
    caches = await StoreAnswers(app.database).kept(now=now)
    statuses = []
    for name in [*app.sources, *(name for name in states if name not in app.sources)]:
        source = app.sources.get(name)
        is_used = name in states or name in caches
        if is_used or (source is not None and (source.keys or source.costs is not None)):
            own_keys = [key for key in keys if key.source == name]
            cache = caches.get(name) or (KeptAnswers(answers=0, fresh=0) if source and source.keeps_answers else None)
            state = states.get(name) or SourceState(name=name)
            statuses.append(describe(state, source, now, keys=own_keys, cache=cache))
    return statuses


async def status_of_source(app: App, name: SourceName) -> SourceStatus:
    """The status of one source, whether or not it is configured here."""
    for status in await source_statuses(app):
        if status.name == name:
            return status
    return describe(await app.sources.state(name), app.sources.get(name), app.database.clock.now())


def describe(
    state: SourceState,
    source: Source | None,
    now: datetime,
    *,
    keys: Sequence[KeyState] = (),
    cache: KeptAnswers | None = None,
) -> SourceStatus:
    """One status from the shared rows and this machine's declaration, if it has one."""
    limits, labels = (source.limits, source.keys) if source else (GovernorLimits(), ())
    unused = [KeyState(source=state.name, label=label) for label in labels if label not in {key.label for key in keys}]
    word, why, until = _describe_state(state, now)
    today, day = day_of(now), state.day or ""
    breaker = BreakerStatus(
        state="open" if is_open(state, now) else "half-open" if is_half_open(state, now) else "closed",
        failure_streak=state.failure_streak,
        opens_after=limits.breaker_failures,
        stays_open=limits.breaker_cooldown,
        opened_until=state.opened_until,
        probe_until=state.probe_until if is_probed(state, now) else None,
    )
    return SourceStatus(
        name=state.name,
        state=word,
        why=why,
        until=until,
        failure_streak=state.failure_streak,
        breaker=breaker,
        last_success_at=state.last_success_at,
        last_failure_at=state.last_failure_at,
        last_failure=state.last_failure,
        day_credits=state.day_credits if day == today else 0,
        day_cap=state.day_cap if state.day_cap is not None else limits.day_credits,
        month_credits=state.month_credits if day[:7] == today[:7] else 0,
        month_cap=state.month_cap if state.month_cap is not None else limits.month_credits,
        cache=cache,
        keys=[_key(key, limits, now, configured_here=key.label in labels) for key in [*keys, *unused]],
    )


def _describe_state(source: SourceState, now: datetime) -> tuple[str, str | None, datetime | None]:
    if source.paused_at:
        by = "by hand" if source.paused_by == PausedBy.OPERATOR else "because it refuses us"
        since = f"{source.paused_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        return "paused", f"{by}, since {since} UTC: {source.pause_reason or 'no reason given'}", None
    if is_open(source, now):
        why = source.pause_reason or f"{counted(source.failure_streak, 'failure')} in a row"
        return "breaker open", why, source.opened_until
    if is_half_open(source, now):
        return "half-open", "one call tests whether it works again", source.probe_until
    return "serving", None, None


def _key(key: KeyState, limits: GovernorLimits, now: datetime, *, configured_here: bool) -> KeyStatus:
    rate = (key.rate_per_minute or limits.rate_per_minute) * key.slowdown / 60
    origin = "lowered for a while" if key.slowed_at else "set"
    if key.rate_per_minute is None:
        origin = "from the settings"
    return KeyStatus(
        label=key.label,
        configured_here=configured_here,
        rate_per_minute=key.rate_per_minute or limits.rate_per_minute,
        rate_is=origin,
        slowdown=key.slowdown,
        bucket=tokens(key.next_at, now, rate=rate, burst=limits.burst),
        burst=limits.burst,
        free_at=key.next_at if key.next_at and key.next_at > now else None,
        paused_at=key.paused_at,
        pause_reason=key.pause_reason,
        balance=key.balance,
        balance_at=key.balance_at,
    )


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


async def lane_statuses(app: App) -> Sequence[LaneStatus]:
    """Every lane of a job kind or a job: crawl lanes first, then by name. Reads all jobs."""
    now, pages = app.database.clock.now(), LaneStore(app.database)
    counts = await pages.counts(now=now)
    since = now - LATELY
    finished, just_now = await pages.finished(since=since), await pages.finished(since=now - JUST_NOW)
    failures, ended, all_waits = (
        await pages.failures(since=since),
        await pages.ended(since=since),
        await pages.waits(since=since),
    )
    states = await app.sources.states()
    names = {Lane(each) for each in (*CRAWL_LANES, *app.kinds.lanes, *(count.lane for count in counts))}
    statuses = []
    for lane in sorted(names, key=lambda lane: (lane not in CRAWL_LANES, lane)):
        own = [count for count in counts if count.lane == lane]
        dead, failed = (ended.get((lane, state), 0) for state in (JobState.DEAD, JobState.FAILED))
        waits = all_waits.get(lane, ())
        source = _source_of(app, lane, states, now)
        status = LaneStatus(
            lane=lane,
            states={count.state: count.jobs for count in own},
            parked=sum(count.parked for count in own),
            due=sum(count.due for count in own),
            oldest_due_at=min((count.oldest_due_at for count in own if count.oldest_due_at), default=None),
            jobs_per_second=just_now.get(lane, 0) / JUST_NOW.total_seconds(),
            succeeded=finished.get(lane, 0),
            # A job that ended for good also had failures; they were not retries.
            retried=max(failures.get(lane, 0) - dead - failed, 0),
            failed=failed,
            dead=dead,
            crawled=len(waits),
            wait_p50=percentile(waits, 0.50),
            wait_p95=percentile(waits, 0.95),
            source=source.state if source else None,
            why=source.why if source else None,
            until=source.until if source else None,
        )
        statuses.append(status)
    return statuses


def _source_of(app: App, lane: Lane, states: Mapping[SourceName, SourceState], now: datetime) -> SourceStatus | None:
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


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """`changed`: whether it was different before. `woken`: how many jobs that waited for it are due now."""

    source: SourceName
    changed: bool
    woken: int = 0


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """New caps on credits. Those in `lifted` are removed, so that each machine's settings apply again."""

    day: int | None = None
    month: int | None = None
    lifted: Collection[str] = ()

    def __bool__(self) -> bool:
        return self.day is not None or self.month is not None or bool(self.lifted)


async def pause(app: App, source: SourceName, reason: str, *, by: str) -> Switched:
    before = await app.sources.state(source)
    await app.sources.store.pause(source, reason, now=app.database.clock.now())
    _log(source, "paused", by, reason)
    return Switched(source=source, changed=before.paused_at is None)


async def resume(app: App, source: SourceName, *, by: str) -> Switched:
    before = await app.sources.state(source)
    woken = await app.sources.store.resume(source, now=app.database.clock.now())
    # At once, so that the alert about the pause does not outlast it.
    await app.watch.check_pauses()
    _log(source, "resumed", by)
    return Switched(source=source, changed=before.paused_at is not None, woken=woken)


async def open_breaker(app: App, source: SourceName, span: timedelta, reason: str, *, by: str) -> Switched:
    """Stop all calls for this long; then one call tests the source."""
    now = app.database.clock.now()
    before = await app.sources.state(source)
    await app.sources.store.open_breaker(source, f"opened by {by}: {reason}", until=now + span)
    _log(source, f"breaker opened for {span}", by, reason)
    return Switched(source=source, changed=before.opened_until is None or before.opened_until <= now)


async def close_breaker(app: App, source: SourceName, *, by: str) -> Switched:
    """Let calls continue and reset the count of failures. A pause stays."""
    before = await app.sources.state(source)
    woken = await app.sources.store.close_breaker(source, now=app.database.clock.now())
    _log(source, f"breaker closed after {counted(before.failure_streak, 'failure')} in a row", by)
    changed = before.opened_until is not None or before.failure_streak > 0
    return Switched(source=source, changed=changed, woken=woken)


async def set_limits(app: App, source: SourceName, *, rate: float | None, caps: Caps, by: str) -> None:
    store = app.sources.store
    if rate is not None:
        declared = app.sources.get(source)
        await store.set_rate(source, rate, declared.keys if declared else ())
        _log(source, f"rate set to {rate:g} calls a minute", by)
    if caps:
        await store.set_caps(source, day=caps.day, month=caps.month)
        await store.lift_caps(source, day="day" in caps.lifted, month="month" in caps.lifted)
        await store.wake_for_budget(source, now=app.database.clock.now())
        _log(source, f"caps set to {caps.day} a day, {caps.month} a month; lifted: {list(caps.lifted)}", by)


async def forget_answers(app: App, source: SourceName, *, by: str) -> int:
    """Delete its cached answers; return how many there were."""
    forgotten = await StoreAnswers(app.database).forget(source)
    _log(source, f"{forgotten} kept answers forgotten", by)
    return forgotten


def _log(source: SourceName, what: str, by: str, reason: str | None = None) -> None:
    logger.info("{source}: {what}, by {by}{why}", source=source, what=what, by=by, why=f": {reason}" if reason else "")
