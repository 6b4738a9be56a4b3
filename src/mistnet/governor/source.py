"""Sources: each outside service that mistnet reads, declared once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mistnet import __version__
from mistnet.governor.errors import DuplicateSource
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import CallRecord, Costs, Halt, KeyLabel, SourceName, SourceState
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.kit.transport import LateTransport, SharedResource
from mistnet.queue.kinds import Kind
from mistnet.queue.leader import Duty
from mistnet.queue.metrics import SourceMetrics
from mistnet.queue.store.writes import Writer

if TYPE_CHECKING:
    from mistnet.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Source:
    """One outside service. Its name is also the lane of the jobs that call it.

    Status, pauses, limits, caps, alerts and health checks derive from these fields.
    """

    governor: Governor
    """Knows the name, the limits and the keys found in the settings. Every call goes through it."""

    platform: str | None = None
    """The platform whose users and posts it returns, if it is a social source."""

    client: Any = None
    """What features call: `SocialSource` for a platform."""

    parts: Sequence[Callable[[], AbstractAsyncContextManager[Any]]] = ()
    """What the client needs open while it calls, such as a connection pool. `opened` opens them in this order."""

    needs_key: bool = True
    enabled: bool = True
    """Whether this machine uses it. A source that needs a key is also off without one."""

    setup: str = "another machine calls it"
    """How to configure a key; shown where there is none."""

    costs: Costs | None = None
    """What its answers cost in credits. None: they are free."""

    keeps_answers: bool = False
    """Whether its answers are cached."""

    check_balances: Callable[[], Awaitable[Mapping[KeyLabel, str]]] | None = None
    """Asks what each key has left and stores it; returns what went wrong, by key. None: there are no balances."""

    secrets: Callable[[], Collection[str]] = tuple
    """What no log line may show, besides the settings' own secrets."""

    kinds: Sequence[Kind] = ()
    writers: Sequence[Writer[Any]] = ()
    duties: Sequence[Duty] = ()
    """What the leading process does for it periodically."""

    upkeep_tasks: Sequence[Callable[[], Awaitable[int]]] = ()
    """What every worker does for it between jobs."""

    @property
    def name(self) -> SourceName:
        return self.governor.source

    @property
    def limits(self) -> GovernorLimits:
        return self.governor.limits

    @property
    def keys(self) -> Collection[KeyLabel]:
        """The labels of the keys that this machine uses."""
        return self.governor.labels if self.enabled else ()

    @cached_property
    def opened(self) -> Callable[[], AbstractAsyncContextManager[None]]:
        """Make calls possible. A worker and requests may hold it open at once; the last one closes it."""
        return SharedResource([*self.parts, self.governor.opened]).opened


@dataclass(frozen=True, kw_only=True)
class SourceContext:
    """What a source is built from: the settings, the database, and the parts that all sources share."""

    settings: Settings
    database: Database
    store: DatabaseSourceStore
    metrics: SourceMetrics | None = None
    on_call: Callable[[CallRecord], None] | None = None
    transports: Mapping[str, Any] = field(default_factory=dict)
    """Used in place of the network, by the source's name. Simulations put their platforms here."""

    def governor(
        self,
        name: str,
        keys: Mapping[KeyLabel, str],
        *,
        rate_per_minute: float,
        burst: int,
        day_credits: int | None = None,
        month_credits: int | None = None,
        failure_credits: Callable[[int | None, int], int] = lambda _status, _most: 0,
        fingerprint_of: Callable[[], str] | None = None,
    ) -> Governor:
        """The governor of one source; `keys` are secrets by a label that does not give them away."""
        limits = GovernorLimits(
            rate_per_minute=rate_per_minute,
            burst=burst,
            day_credits=day_credits,
            month_credits=month_credits,
            breaker_failures=self.settings.breaker_failures,
            breaker_cooldown=timedelta(seconds=self.settings.breaker_seconds),
            failure_credits=failure_credits,
        )
        return Governor(
            SourceName(name),
            keys,
            store=self.store,
            clock=self.database.clock,
            limits=limits,
            metrics=self.metrics,
            on_call=self.on_call,
            fingerprint_of=fingerprint_of,
        )

    def http(self, name: str, base_url: str, *, total_seconds: float = 60.0) -> LateTransport:
        """A connection pool to one server. List its `opened` among the source's parts."""
        return LateTransport(
            base_url,
            user_agent=f"mistnet/{__version__}",
            total_seconds=total_seconds,
            given=self.transports.get(name),
        )


class SourceRegistry(Mapping[SourceName, Source]):
    """All sources of this process, by name, with the state that all processes share."""

    def __init__(self, declared: Sequence[Source], store: DatabaseSourceStore) -> None:
        self.store = store
        self._by_name: dict[SourceName, Source] = {}
        for source in declared:
            if source.name in self._by_name:
                raise DuplicateSource(source.name)
            self._by_name[source.name] = source

    def __getitem__(self, name: SourceName) -> Source:
        return self._by_name[name]

    def __iter__(self) -> Iterator[SourceName]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Make calls to every source possible."""
        async with AsyncExitStack() as opened:
            for source in self.values():
                await opened.enter_async_context(source.opened())
            yield

    async def state(self, name: SourceName) -> SourceState:
        """The shared row; before the first call or change there is none, and the defaults apply."""
        return (await self.states()).get(name) or SourceState(name=name)

    async def states(self) -> Mapping[SourceName, SourceState]:
        """The shared rows, also those of sources that only other machines declare."""
        return {state.name: state for state in await self.store.states()}

    async def halts(self) -> Mapping[SourceName, Halt]:
        """The sources that need a key and will not serve us until an operator acts or the day is over, and why."""
        states = await self.states()
        halts = {
            name: source.governor.halted(
                states.get(name) or SourceState(name=name), a_page=source.costs.page if source.costs else 0
            )
            for name, source in self.items()
            if source.needs_key
        }
        return {name: halt for name, halt in halts.items() if halt}

    async def paused_lanes(self) -> set[SourceName]:
        """The sources without keys that are paused: nothing is wrong with them, but their work does not go on."""
        states = await self.states()
        return {
            name
            for name, source in self.items()
            if not source.needs_key and name in states and states[name].paused_at is not None
        }

    async def is_capped(self, name: SourceName) -> bool:
        """Whether anything limits what it may cost in a day or a month."""
        return any(cap is not None for cap, _ in self[name].limits.caps(await self.state(name)))

    async def look_at_keys(self) -> None:
        """Learn which keys are refused. A new key ends the pause that a refused one caused."""
        states, keys = await self.store.states(), await self.store.keys()
        for source in self.values():
            if source.needs_key:
                await source.governor.look_at_keys(states, keys)

    async def wake_for_budget(self) -> None:
        """Make work due that waits for the next day or month, where a cap was raised meanwhile."""
        halts = await self.halts()
        for name, source in self.items():
            if source.costs and halts.get(name) is not Halt.BUDGET:
                await self.store.wake_for_budget(name, now=self.store.clock.now())
