"""Work out a segment: see that what it rests on is there, ask for what is not, wait, then write it all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from mistnet.graph.follows.model import SyncMode, follow_sync
from mistnet.graph.segments.model import (
    AnyRule,
    MaterializeArgs,
    Materialized,
    Need,
    Segment,
    SegmentLook,
    SegmentName,
    SpecifiedUsers,
    SyncStatus,
    awaits,
)
from mistnet.graph.segments.rules import needs_of, order_of
from mistnet.kit.clock import Clock
from mistnet.queue.model import Continue, Done, Fail, Job, NewJob, Outcome, Snooze
from mistnet.social.ingests.model import IngestId

LOOK_AGAIN: Final = timedelta(seconds=15)
"""A sync that ends may wake whoever waits for it; this is for when it could not."""

UNTOLD: Final = "it was cancelled, or ended without a complete list"


class Materializer(msgspec.Struct, frozen=True, kw_only=True):
    """Calls nobody upstream: what is lacking is left to sync jobs, which all who need them share."""

    look: SegmentLook
    clock: Clock

    async def materialize(self, job: Job[MaterializeArgs]) -> Outcome:
        known = await self.look.all()
        segment = next((each for each in known.values() if each.id == job.args.segment_id), None)
        if segment is None:
            return Fail(f"there is no segment {job.args.segment_id}")
        if not segment.enabled:
            return Fail(
                f"the segment {segment.name} is disabled; `mistnet segments enable {segment.name}` changes that"
            )
        family = Family.of(segment, known)
        if family.lacking:
            return Fail(f"{segment.name} builds on {family.lacking}, which is disabled and was never materialized")
        return await self._with_needs(job, segment, family)

    async def _with_needs(self, job: Job[MaterializeArgs], segment: Segment, family: Family) -> Outcome:
        """First how the syncs stand, then what they have brought: one that ends in between counts as met."""
        needs = family.needs(job.created_at)
        syncs = {need: _sync(need, segment) for need in needs}
        standings = await self.look.standings(syncs, since=job.created_at)
        found = {need: await self.look.complete_ingest(need, since=since) for need, since in needs.items()}
        ingests = {need: ingest_id for need, ingest_id in found.items() if ingest_id is not None}
        unmet = {need: syncs[need] for need in needs if need not in ingests}
        if unmet:
            return self._wait(job.args, segment, unmet, standings)
        return Done(family.materialized(ingests))

    def _wait(
        self,
        at: MaterializeArgs,
        segment: Segment,
        unmet: Mapping[Need, NewJob],
        standings: Mapping[Need, SyncStatus],
    ) -> Outcome:
        """The reason names the first that is lacking; all are asked for at once."""
        lacking = {need: job for need, job in unmet.items() if not standings[need].alive}
        for need, job in lacking.items():
            if problem := _problem(standings[need], asked=job.key in at.asked):
                again = f"once that is mended, `mistnet segments materialize {segment.name}` tries again"
                return Fail(f"{need} could not be synced: {problem}; {again}")
        reason, later = awaits(next(iter(unmet))), self.clock.now() + LOOK_AGAIN
        if not lacking:
            return Snooze(later, reason)
        asked = sorted({*at.asked, *(job.key for job in lacking.values() if job.key)})
        return Continue(
            list(lacking.values()), args=msgspec.structs.replace(at, asked=asked), run_at=later, reason=reason
        )


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A segment with all it builds on, each after what it builds on itself. Disabled ones are taken as they are."""

    members: Mapping[SegmentName, Segment]
    rules: Mapping[SegmentName, AnyRule]

    @classmethod
    def of(cls, segment: Segment, known: Mapping[SegmentName, Segment]) -> Family:
        frozen = SpecifiedUsers()  # stands for a rule that is not looked at
        rules = {each.name: each.rule if each.enabled else frozen for each in known.values()}
        return cls(members={name: known[name] for name in order_of(segment.name, rules)}, rules=rules)

    @property
    def lacking(self) -> SegmentName | None:
        """One that is to be taken as it is, and never was anything."""
        never = (each.name for each in self.members.values() if not each.enabled and each.materialized_at is None)
        return next(never, None)

    def needs(self, asked_at: datetime) -> Mapping[Need, datetime | None]:
        """What all of them need, and since when it must be: as fresh as the strictest of them demands.

        Counted back from when it was asked for: a sync that begins then is fresh, however long it takes.
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
        """With those of all it builds on."""
        return [need for each in order_of(name, self.rules) for need in needs_of(self.rules[each])]


def _problem(standing: SyncStatus, *, asked: bool) -> str | None:
    """Why a sync that is not alive will not come: it failed for somebody, or ended when it was asked for by us.

    One that only looked for what is new may have stood in the way of ours; then ours is asked for once more.
    """
    return standing.problem or (UNTOLD if asked and not standing.lesser else None)


def _sync(need: Need, segment: Segment) -> NewJob:
    return follow_sync(need.subject_id, need.side, mode=SyncMode.FULL, asked_by=f"segment {segment.name}")
