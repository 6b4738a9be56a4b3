"""Track accounts, and create the jobs that tracked ones need next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from mistnet.kit.text import counted
from mistnet.queue.model import NewJob
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import AccountProgress, SweepKind
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.tracking import NewSuggestion, SuggestionResult, TrackingStore

if TYPE_CHECKING:
    from mistnet.app import App


class TrackResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of tracking one account."""

    handle: str | None
    user_id: UserId | None
    result: str
    note: str

    def __str__(self) -> str:
        return f"{shown_name(self.handle, self.user_id)}: {self.note}"


async def track_handles(app: App, wanted: Sequence[NewSuggestion]) -> list[TrackResult]:
    """Suggest unknown handles; create the next job of tracked accounts."""
    tracking_store, now = TrackingStore(app.database, app.job_writer), app.database.clock.now()
    suggested = await tracking_store.suggest(wanted, job=args.suggestion, now=now)
    known = await go_on(app, tracking_store, [each.user_id for each in suggested if each.user_id])
    notes = {
        SuggestionResult.ADDED: "its profile is looked up, then its posts are collected",
        SuggestionResult.SUGGESTED: "is suggested already and will be looked up",
    }
    return [
        TrackResult(
            handle=each.handle,
            user_id=each.user_id,
            result=each.result,
            note=known[each.user_id] if each.user_id else notes[each.result],
        )
        for each in suggested
    ]


async def track_ids(app: App, ids: Sequence[UserId]) -> list[TrackResult]:
    tracking_store, now = TrackingStore(app.database, app.job_writer), app.database.clock.now()
    entries = {each.user_id: each for each in await Coverage(app.database, tracking_store.platform).accounts(ids)}
    known = [each for each in entries if entries[each].state is not AccountState.UNTRACKED]
    fill = app.collecting.rules.batch_fill
    await tracking_store.track_by_id(
        set(ids) - set(known),
        job=lambda user_id: args.hydrate_user(user_id, now=now, fill=fill, tracked=True),
        now=now,
    )
    notes = await go_on(app, tracking_store, known)
    return [
        TrackResult(
            handle=entries[each].handle if each in entries else None,
            user_id=each,
            result=SuggestionResult.TRACKED if each in notes else SuggestionResult.ADDED,
            note=notes.get(each, "its profile is fetched, then its posts are collected"),
        )
        for each in dict.fromkeys(ids)
    ]


async def go_on(app: App, tracking_store: TrackingStore, user_ids: Sequence[UserId]) -> Mapping[UserId, str]:
    """Create the next jobs of tracked accounts; return a note for each."""
    if not user_ids:
        return {}
    progress = await Coverage(app.database, tracking_store.platform).accounts(user_ids)
    steps = {each.user_id: next_step(each) for each in progress}
    await tracking_store.begin([job for job, _ in steps.values() if job], now=app.database.clock.now())
    return {user_id: note for user_id, (_, note) in steps.items()}


def next_step(progress: AccountProgress) -> tuple[NewJob | None, str]:
    """The job an account needs next, if it is not live already, and a note about it."""
    user_id, platform = progress.user_id, progress.platform
    if progress.state is not AccountState.ACTIVE:
        why = f"is tracked, and {progress.state}" + (f" ({progress.state_reason})" if progress.state_reason else "")
        return args.relook(user_id, platform), f"{why}; it is looked at again now"
    live = {each.kind for each in progress.sweeps if each.alive}
    if SweepKind.BACKFILL in live:
        return None, f"is tracked; its past is being collected ({counted(progress.stored, 'post')} so far)"
    if progress.backfilled_at is None:
        return args.backfill(user_id, platform), "is tracked; collecting its past goes on"
    if SweepKind.CATCH_UP in live:
        return None, "is tracked; a catch-up is under way"
    catch_up = args.catch_up(user_id, progress.newest_post_id, platform=platform)
    return catch_up, "is tracked; what is new will be collected"


def shown_name(handle: str | None, user_id: UserId | None) -> str:
    return f"@{handle}" if handle else f"user {user_id}"


async def repair_sweeps(app: App, progress: AccountProgress) -> list[str]:
    """Retry an account's failed sweeps and start missing ones; return what was done."""
    name = f"@{progress.handle or progress.user_id}"
    if progress.state is not AccountState.ACTIVE:
        return [f"{name} is {progress.state}: left alone until it can be collected"] if progress.gaps else []
    said: list[str] = []
    kinds = {gap.job_id: gap.kind for gap in progress.gaps}
    if kinds:
        changes = await app.operations.retry(list(kinds), now=app.database.clock.now(), gaps_only=True)
        said += [
            f"{name}: {kinds[each.id]} job {each.id} {'is retried' if each.changed else f'stays: {each.why}'}"
            for each in changes
        ]
        # Retried sweeps are alive now: without this the missing ones would be started beside them.
        sweeps = await Coverage(app.database, progress.platform).sweeps(progress.user_id)
        progress = msgspec.structs.replace(progress, sweeps=sweeps)
    user_id, platform, with_reposts = progress.user_id, progress.platform, app.settings.x_reposts
    if progress.suspect_since:
        # From the newest post to the first: which part of the history lacks posts is unknown.
        again = [args.resweep(user_id, reposts=each, platform=platform) for each in (False, *([True] * with_reposts))]
        created = (await app.enqueue(again)).created
        done = "its history is suspect and is swept again" if created else "its history is being swept again already"
        said.append(f"{name}: {done}")
    lacking = None
    if progress.backfilled_at is None:
        lacking = None if progress.alive(SweepKind.BACKFILL) else args.backfill(user_id, platform)
    elif with_reposts and progress.reposts_backfilled_at is None and not progress.alive(SweepKind.REPOSTS):
        lacking = args.reposts(user_id, PostId(0), platform)
    if lacking and (await app.enqueue([lacking])).created:
        said.append(f"{name}: a {lacking.kind} sweep is started")
    return said
