"""How sources and their keys stand, as all workers share it."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from mistnet import crawling, feeding, harvest
from mistnet.app import App
from mistnet.domain.links import CRAWL_LANES
from mistnet.domain.sources import THREADS_SOURCE, X_SOURCE, KeyLabel, KeyState, PausedBy, SourceName, SourceState
from mistnet.engine.grants import Limits

KNOWN: Final = (X_SOURCE, THREADS_SOURCE, *map(SourceName, CRAWL_LANES))


class KeyStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One key: what is set, what it has left, and whether this machine has it."""

    label: KeyLabel
    configured_here: bool
    rate_per_minute: float
    rate_is: str
    paused_at: datetime | None
    pause_reason: str | None
    balance: int | None
    balance_at: datetime | None


class SourceStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How one source stands, for all machines, with this machine's settings where nobody has set a limit."""

    name: SourceName
    state: str
    why: str | None
    until: datetime | None
    failure_streak: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_failure: str | None
    day_credits: int
    day_cap: int | None
    month_credits: int
    month_cap: int | None
    keys: Sequence[KeyStanding]


async def state_of(app: App, source: SourceName) -> SourceState:
    """The shared row; where nobody has written one yet, what it would be."""
    states = {state.name: state for state in await app.harvest.book.states()}
    return states.get(source) or SourceState(name=source)


async def standings(app: App) -> Sequence[SourceStanding]:
    """X, and every other source that is configured here or was asked before."""
    now = app.database.clock.now()
    asked = {state.name for state in await app.harvest.book.states()}
    stored = await app.harvest.book.keys()
    found = []
    for name in KNOWN:
        here, limits = configured(app, name)
        if name == X_SOURCE or here or name in asked:
            keys = _keys([key for key in stored if key.source == name], here, name, limits)
            found.append(standing(await state_of(app, name), keys, limits, now))
    return found


def configured(app: App, name: SourceName) -> tuple[Collection[KeyLabel], Limits]:
    """The labels of the keys this machine has, and what its settings allow."""
    if name == THREADS_SOURCE:
        return ([feeding.TOKEN] if app.feeds.keeper.token else []), feeding.limits_of(app.settings)
    if name in CRAWL_LANES:
        return ([crawling.DIRECT] if name in app.crawling.lanes else []), crawling.limits_of(app.settings, name)
    return harvest.keys_of(app.settings), harvest.limits_of(app.settings)


def standing(source: SourceState, keys: Sequence[KeyStanding], limits: Limits, now: datetime) -> SourceStanding:
    state, why, until = _state(source, limits, now)
    today = now.astimezone(UTC).date().isoformat()
    day = source.day or ""
    return SourceStanding(
        name=source.name,
        state=state,
        why=why,
        until=until,
        failure_streak=source.failure_streak,
        last_success_at=source.last_success_at,
        last_failure_at=source.last_failure_at,
        last_failure=source.last_failure,
        day_credits=source.day_credits if day == today else 0,
        day_cap=source.day_cap if source.day_cap is not None else limits.day_credits,
        month_credits=source.month_credits if day[:7] == today[:7] else 0,
        month_cap=source.month_cap if source.month_cap is not None else limits.month_credits,
        keys=keys,
    )


def _state(source: SourceState, limits: Limits, now: datetime) -> tuple[str, str | None, datetime | None]:
    if source.paused_at:
        by = "by hand" if source.paused_by == PausedBy.OPERATOR else "because it refuses us"
        since = f"{source.paused_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        return "paused", f"{by}, since {since} UTC: {source.pause_reason or 'no reason given'}", None
    if source.opened_until and source.opened_until > now:
        return "breaker open", f"{source.failure_streak} failures in a row", source.opened_until
    if source.failure_streak >= limits.breaker_failures:
        return "half-open", "one call tries whether it is well again", source.probe_until
    return "serving", None, None


def _keys(
    stored: Sequence[KeyState], here: Collection[KeyLabel], name: SourceName, limits: Limits
) -> Sequence[KeyStanding]:
    unseen = [KeyState(source=name, label=label) for label in here if label not in {key.label for key in stored}]
    return [
        KeyStanding(
            label=key.label,
            configured_here=key.label in here,
            rate_per_minute=key.rate_per_minute or limits.rate_per_minute,
            rate_is=_rate_is(key),
            paused_at=key.paused_at,
            pause_reason=key.pause_reason,
            balance=key.balance,
            balance_at=key.balance_at,
        )
        for key in [*stored, *unseen]
    ]


def _rate_is(key: KeyState) -> str:
    if key.rate_per_minute is None:
        return "from the settings"
    return "lowered for a while" if key.slowed_at else "set"
