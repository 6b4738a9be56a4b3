"""Materialize a segment: request the syncs that it needs, wait for them, then write everything at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.graph.follows.model import SyncMode, follow_sync
from mistnet.graph.segments.model import (
    AnyRule,
    MaterializeArgs,
    Materialized,
    Need,
    Segment,
    SegmentDisabled,
    SegmentName,
    SpecifiedUsers,
    SyncStatus,
    awaits,
)
from mistnet.graph.segments.rules import needs_of, order_of
from mistnet.kit.clock import Clock
from mistnet.queue.model import Continue, Done, Fail, Job, NewJob, Outcome, Snooze
from mistnet.social.ingests import IngestId

if TYPE_CHECKING:
    from mistnet.graph.segments.materialize import MaterializationReads

CHECK_AGAIN: Final = timedelta(seconds=15)
"""A sync that ends wakes the materializations that wait for it; this is the fallback."""


class Materializer(msgspec.Struct, frozen=True, kw_only=True):
    """The handler. It makes no calls: missing lists are left to sync jobs, which several segments can share."""

    reads: MaterializationReads
    clock: Clock

    async def materialize(self, job: Job[MaterializeArgs]) -> Outcome:
        known = await self.reads.all()
        segment = next((each for each in known.values() if each.id == job.args.segment_id), None)
        if segment is None:
            return Fail(f"there is no segment {job.args.segment_id}")
        if not segment.enabled:
            return Fail(str(SegmentDisabled(segment.name)))
        family = Family.of(segment, known)
        if family.lacking:
            return Fail(f"{segment.name} builds on {family.lacking}, which is disabled and was never materialized")
        needs = family.needs(job.created_at)
        syncs = {
            need: follow_sync(need.subject_id, need.side, mode=SyncMode.FULL, asked_by=f"segment {segment.name}")
            for need in needs
        }
        # States first, results second: a sync that ends in between then counts as met, not as failed.
        statuses = await self.reads.sync_statuses(syncs, since=job.created_at)
        found = {need: await self.reads.complete_ingest(need, since=since) for need, since in needs.items()}
        ingests = {need: ingest_id for need, ingest_id in found.items() if ingest_id is not None}
        unmet = {need: syncs[need] for need in needs if need not in ingests}
        if unmet:
            return self._wait(job.args, segment, unmet, statuses)
        return Done(family.materialized(ingests))

    def _wait(
        self,
        at: MaterializeArgs,
        segment: Segment,
        unmet: Mapping[Need, NewJob],
        statuses: Mapping[Need, SyncStatus],
    ) -> Outcome:
        """Request all missing syncs at once. The reason names the first."""
        # All at once: lists are read side by side, and segments that need the same one share its job.
        lacking = {need: job for need, job in unmet.items() if not statuses[need].alive}
        for need, job in lacking.items():
            # An incremental sync that ended may have taken the place of the full one: then that is requested again.
            status, problem = statuses[need], "it was cancelled, or ended without a complete list"
            if status.problem or (job.key in at.asked and not status.lesser):
                again = f"Then run `mistnet segments materialize {segment.name}`"
                return Fail(f"{need} could not be synced: {status.problem or problem}. Fix this first. {again}")
        reason, later = awaits(next(iter(unmet))), self.clock.now() + CHECK_AGAIN
        if not lacking:
            return Snooze(later, reason)
        asked = sorted({*at.asked, *(job.key for job in lacking.values() if job.key)})
        return Continue(
            list(lacking.values()), args=msgspec.structs.replace(at, asked=asked), run_at=later, reason=reason
        )


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A segment with everything it builds on, dependencies first. Disabled segments are used as they are."""

    members: Mapping[SegmentName, Segment]
    rules: Mapping[SegmentName, AnyRule]

    @classmethod
    def of(cls, segment: Segment, known: Mapping[SegmentName, Segment]) -> Family:
        # Disabled segments are used as they are: this stands for their rule, which is not evaluated.
        frozen = SpecifiedUsers()
        rules = {each.name: each.rule if each.enabled else frozen for each in known.values()}
        return cls(members={name: known[name] for name in order_of(segment.name, rules)}, rules=rules)

    @property
    def lacking(self) -> SegmentName | None:
        """A disabled segment that was never materialized."""
        never = (each.name for each in self.members.values() if not each.enabled and each.materialized_at is None)
        return next(never, None)

    def needs(self, asked_at: datetime) -> Mapping[Need, datetime | None]:
        """What all of them need, and how recent it must be: the strictest one decides.

        Counted back from the time of the request, so that a sync requested then is fresh enough however long it takes.
        """
        found: dict[Need, datetime | None] = {}
        for each in self.members.values():
            since = asked_at - timedelta(seconds=each.fresh_seconds) if each.fresh_seconds else None
            for need in self._needs_of(each.name):
                found[need] = max(filter(None, (found.get(need), since)), default=None)
        return found

    def materialized(self, ingests: Mapping[Need, IngestId]) -> Sequence[Materialized]:
        return [
            Materialized(
                segment_id=each.id,
                changed_at=each.changed_at,
                ingests=sorted({ingests[need] for need in self._needs_of(each.name)}),
            )
            for each in self.members.values()
            if each.enabled
        ]

    def _needs_of(self, name: SegmentName) -> Sequence[Need]:
        """Including those of everything it builds on."""
        return [need for each in order_of(name, self.rules) for need in needs_of(self.rules[each])]
