"""The state of sources and their keys, as all workers share it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from mistnet.governor import breaker
from mistnet.governor.errors import SourceNotFound
from mistnet.governor.grants import GovernorLimits, tokens
from mistnet.governor.model import THREADS_SOURCE, X_SOURCE, KeyLabel, KeyState, PausedBy, SourceName, SourceState
from mistnet.kit.text import counted
from mistnet.operations.source_state import state_of
from mistnet.prices.model import EBAY_API
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.store.http_cache import KeptAnswers, StoreAnswers
from mistnet.sources.market import source as valuing
from mistnet.sources.threads import source as feeding
from mistnet.sources.web import source as crawling
from mistnet.sources.x import source as collector

if TYPE_CHECKING:
    from mistnet.app import App


class KeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One key: what is set, what it has left, and whether this machine has it.

    `bucket` is how many calls may start at once now, of `burst` after a rest; `free_at` when the next may.
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
    """Closed, open or half-open; so many failures in a row open it for so long."""

    state: str
    failure_streak: int
    opens_after: int
    stays_open: timedelta
    opened_until: datetime | None
    probe_until: datetime | None


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one source stands, for all machines, with this machine's settings where nobody has set a limit.

    `cache` is None where its answers are not kept.
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

    @property
    def costs_credits(self) -> bool:
        """Shops and Threads cost nothing."""
        capped = self.day_cap is not None or self.month_cap is not None
        return self.name == X_SOURCE or capped or bool(self.day_credits or self.month_credits)


def known_here(app: App) -> Sequence[SourceName]:
    """Every source this machine knows how to ask, were it configured."""
    asked_for_prices = [name for name in app.valuing.governors if name != EBAY_API]
    return [X_SOURCE, THREADS_SOURCE, *map(SourceName, CRAWL_LANES), EBAY_API, *asked_for_prices]


async def known_sources(app: App) -> Sequence[SourceName]:
    """Those, and the ones that other machines have asked."""
    here = known_here(app)
    return [*here, *(state.name for state in await app.collector.book.states() if state.name not in here)]


async def known_source(app: App, given: str) -> SourceName:
    known = await known_sources(app)
    if given not in known:
        raise SourceNotFound(given, known)
    return SourceName(given)


async def source_statuses(app: App) -> Sequence[SourceStatus]:
    """X, and every other source that is configured here or was asked before."""
    now = app.database.clock.now()
    states = {state.name: state for state in await app.collector.book.states()}
    stored, caches = await app.collector.book.keys(), await StoreAnswers(app.database).kept(now=now)
    found = []
    for name in await known_sources(app):
        here, limits = configured(app, name)
        if name == X_SOURCE or here or name in states or name in caches:
            keys = _keys([key for key in stored if key.source == name], here, name, limits, now)
            state = states.get(name) or SourceState(name=name)
            found.append(standing(state, keys, limits, now, cache=_cache(app, name, caches)))
    return found


async def status_of_source(app: App, source: SourceName) -> SourceStatus:
    """One of them, be it configured here or not."""
    found = {each.name: each for each in await source_statuses(app)}
    if source in found:
        return found[source]
    here, limits = configured(app, source)
    now = app.database.clock.now()
    return standing(await state_of(app, source), _keys((), here, source, limits, now), limits, now)


def configured(app: App, name: SourceName) -> tuple[Collection[KeyLabel], GovernorLimits]:
    """The labels of the keys this machine has, and what its settings allow."""
    if name == X_SOURCE:
        return collector.keys_of(app.settings), collector.limits_of(app.settings)
    if name == THREADS_SOURCE:
        return ([feeding.TOKEN] if app.feeds.keeper.token else []), feeding.limits_of(app.settings)
    if name in CRAWL_LANES:
        return ([crawling.DIRECT] if name in app.crawling.lanes else []), crawling.limits_of(app.settings, name)
    here = [valuing.KEY] if name in app.valuing.governors else []
    return here, valuing.limits_of(app.settings, app.valuing.shops.get(name))


def standing(
    source: SourceState,
    keys: Sequence[KeyStatus],
    limits: GovernorLimits,
    now: datetime,
    *,
    cache: KeptAnswers | None = None,
) -> SourceStatus:
    state, why, until = _state(source, now)
    today = now.astimezone(UTC).date().isoformat()
    day = source.day or ""
    return SourceStatus(
        name=source.name,
        state=state,
        why=why,
        until=until,
        failure_streak=source.failure_streak,
        breaker=_breaker(source, limits, now),
        last_success_at=source.last_success_at,
        last_failure_at=source.last_failure_at,
        last_failure=source.last_failure,
        day_credits=source.day_credits if day == today else 0,
        day_cap=source.day_cap if source.day_cap is not None else limits.day_credits,
        month_credits=source.month_credits if day[:7] == today[:7] else 0,
        month_cap=source.month_cap if source.month_cap is not None else limits.month_credits,
        cache=cache,
        keys=keys,
    )


def _cache(app: App, name: SourceName, caches: Mapping[SourceName, KeptAnswers]) -> KeptAnswers | None:
    remembers = app.settings.crawl_cache if name in CRAWL_LANES else app.settings.price_cache
    remembers = remembers and name not in (X_SOURCE, THREADS_SOURCE)
    return caches.get(name) or (KeptAnswers(answers=0, fresh=0) if remembers else None)


def _breaker(source: SourceState, limits: GovernorLimits, now: datetime) -> BreakerStatus:
    half = "half-open" if breaker.is_half_open(source, now) else "closed"
    return BreakerStatus(
        state="open" if breaker.is_open(source, now) else half,
        failure_streak=source.failure_streak,
        opens_after=limits.breaker_failures,
        stays_open=limits.breaker_cooldown,
        opened_until=source.opened_until,
        probe_until=source.probe_until if breaker.is_probed(source, now) else None,
    )


def _state(source: SourceState, now: datetime) -> tuple[str, str | None, datetime | None]:
    if source.paused_at:
        by = "by hand" if source.paused_by == PausedBy.OPERATOR else "because it refuses us"
        since = f"{source.paused_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        return "paused", f"{by}, since {since} UTC: {source.pause_reason or 'no reason given'}", None
    if breaker.is_open(source, now):
        return (
            "breaker open",
            source.pause_reason or f"{counted(source.failure_streak, 'failure')} in a row",
            source.opened_until,
        )
    if breaker.is_half_open(source, now):
        return "half-open", "one call tries whether it is well again", source.probe_until
    return "serving", None, None


def _keys(
    stored: Sequence[KeyState], here: Collection[KeyLabel], name: SourceName, limits: GovernorLimits, now: datetime
) -> Sequence[KeyStatus]:
    unseen = [KeyState(source=name, label=label) for label in here if label not in {key.label for key in stored}]
    return [_key(key, limits, now, configured_here=key.label in here) for key in [*stored, *unseen]]


def _key(key: KeyState, limits: GovernorLimits, now: datetime, *, configured_here: bool) -> KeyStatus:
    rate = (key.rate_per_minute or limits.rate_per_minute) * key.slowdown / 60
    return KeyStatus(
        label=key.label,
        configured_here=configured_here,
        rate_per_minute=key.rate_per_minute or limits.rate_per_minute,
        rate_is=_rate_is(key),
        slowdown=key.slowdown,
        bucket=tokens(key.next_at, now, rate=rate, burst=limits.burst),
        burst=limits.burst,
        free_at=key.next_at if key.next_at and key.next_at > now else None,
        paused_at=key.paused_at,
        pause_reason=key.pause_reason,
        balance=key.balance,
        balance_at=key.balance_at,
    )


def _rate_is(key: KeyState) -> str:
    if key.rate_per_minute is None:
        return "from the settings"
    return "lowered for a while" if key.slowed_at else "set"
