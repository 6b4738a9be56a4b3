"""Job kinds (a name, the rules its jobs follow, the handler that does the work) and the engine's policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from mistnet.queue.errors import BadArgs, UnknownKind
from mistnet.queue.model import Args, Job, JobClass, KindName, KindRules, Lane, Lease, NewJob, Outcome, Target

A = TypeVar("A", bound=Args)

BatchHandler: TypeAlias = Callable[[Sequence[Job[Any]]], Awaitable[Sequence[Outcome]]]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of job. A handler of single jobs is a batch handler of one.

    `tries` is for a kind that must be more patient than the settings say of all kinds.
    """

    rules: KindRules
    args: type[Args]
    handle: BatchHandler
    timeout: timedelta | None = None
    tries: int | None = None

    @property
    def name(self) -> KindName:
        return self.rules.name

    def decode(self, raw: bytes | str) -> Args:
        """The args as their own type, or BadArgs saying which field is wrong."""
        try:
            return msgspec.json.decode(raw, type=self.args)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadArgs(self.name, str(error)) from None

    def job(self, lease: Lease) -> Job[Any]:
        return Job(
            id=lease.id,
            kind=lease.kind,
            key=lease.key,
            lane=lease.lane,
            args=self.decode(lease.args),
            attempt=lease.attempts + 1,
            run_at=lease.run_at,
            created_at=lease.created_at,
        )


def single(
    name: str,
    handler: Callable[[Job[A]], Awaitable[Outcome]],
    args: type[A],
    *,
    job_class: JobClass,
    lanes: Sequence[str],
    timeout: timedelta | None = None,
    tries: int | None = None,
    running_cap: int | None = None,
    live_cap: int | None = None,
) -> Kind:
    """A kind whose handler gets one job at a time."""

    async def handle(jobs: Sequence[Job[A]]) -> Sequence[Outcome]:
        return [await handler(job) for job in jobs]

    kind = batched(
        name,
        handle,
        args,
        batch=1,
        job_class=job_class,
        lanes=lanes,
        timeout=timeout,
        running_cap=running_cap,
        live_cap=live_cap,
    )
    return msgspec.structs.replace(kind, tries=tries)


def batched(
    name: str,
    handler: Callable[[Sequence[Job[A]]], Awaitable[Sequence[Outcome]]],
    args: type[A],
    *,
    batch: int,
    job_class: JobClass,
    lanes: Sequence[str],
    timeout: timedelta | None = None,
    running_cap: int | None = None,
    live_cap: int | None = None,
) -> Kind:
    """A kind whose handler gets up to `batch` jobs and answers with an outcome for each, in order."""
    rules = KindRules(
        name=KindName(name),
        job_class=job_class,
        lanes=tuple(map(Lane, lanes)),
        batch=batch,
        running_cap=running_cap,
        live_cap=live_cap,
    )
    return Kind(rules=rules, args=args, handle=handler, timeout=timeout)


class KindRegistry(Mapping[KindName, Kind]):
    """All kinds this program knows."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        if len(self._kinds) != len(kinds):
            names = sorted(kind.name for kind in kinds)
            twice = next(name for name, after in pairwise(names) if name == after)
            raise ValueError(f"two kinds are called {twice!r}")

    def __getitem__(self, name: KindName) -> Kind:
        try:
            return self._kinds[name]
        except KeyError:
            raise UnknownKind(name, sorted(self._kinds)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._kinds

    def __iter__(self) -> Iterator[KindName]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def rules(self) -> dict[KindName, KindRules]:
        return {name: kind.rules for name, kind in self._kinds.items()}

    @property
    def lanes(self) -> list[Lane]:
        return sorted({lane for kind in self._kinds.values() for lane in kind.rules.lanes})

    @property
    def live_caps(self) -> dict[KindName, int]:
        return {name: rules.live_cap for name, rules in self.rules.items() if rules.live_cap is not None}

    def new_job(self, kind: str, raw_args: bytes | str, **about: Any) -> NewJob:
        """A new job from args given as JSON, checked before anything is stored."""
        found = self[KindName(kind)]
        return NewJob(kind=found.name, args=found.decode(raw_args), **about)

    def targets(self, *, slots: int, lanes: Sequence[str] | None, lane_caps: Mapping[str, int]) -> list[Target]:
        """What a worker with so many free slots may claim."""
        return [
            Target(
                kind=kind.name,
                lane=lane,
                job_class=kind.rules.job_class,
                take=slots * kind.rules.batch,
                kind_cap=kind.rules.running_cap,
                lane_cap=lane_caps.get(lane),
            )
            for kind in self._kinds.values()
            for lane in kind.rules.lanes
            if lanes is None or lane in lanes
        ]


RENEW_AGAIN: Final = timedelta(seconds=1)
"""The pause after a failed renewal: short, so that the lease is renewed before others take it for lost."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The queue's settings. Without a retention, history is kept for ever."""

    lease: timedelta = timedelta(seconds=300)
    heartbeat: timedelta = timedelta(seconds=20)
    reclaim: timedelta = timedelta(seconds=60)
    idle_poll: timedelta = timedelta(seconds=60)
    backoff_base: timedelta = timedelta(seconds=60)
    backoff_cap: timedelta = timedelta(hours=24)
    job_timeout: timedelta = timedelta(seconds=600)
    grace: timedelta = timedelta(seconds=30)
    retention: timedelta | None = timedelta(days=30)
    aging: timedelta | None = None
    lane_caps: Mapping[str, int] = {}
    settle_group: int = 500
    settle_writes: int = 2_000
    error_limit: int = 8_000

    @property
    def renewal_grace(self) -> timedelta:
        """How long workers have, after the database failed, to renew leases that expired meanwhile."""
        # Shorter, and a worker that lives may not get to try.
        return max(2 * self.heartbeat, 5 * RENEW_AGAIN)
