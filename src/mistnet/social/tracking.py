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
from mistnet.social.model import Platform, PostId, UserId, X
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.tracking import NewSuggestion, SuggestionResult, TrackedEntry, TrackingStore

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
    entries = {entry.user_id: entry for entry in await tracking_store.accounts(ids)}
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
    steps = {
        entry.user_id: next_step(entry, tracking_store.platform) for entry in await tracking_store.accounts(user_ids)
    }
    await tracking_store.begin([job for job, _ in steps.values() if job], now=app.database.clock.now())
    return {user_id: note for user_id, (_, note) in steps.items()}


def next_step(entry: TrackedEntry, platform: Platform = X) -> tuple[NewJob | None, str]:
    """The job an account needs next, if it is not live already, and a note about it."""
    if entry.state is not AccountState.ACTIVE:
        why = f"is tracked, and {entry.state}" + (f" ({entry.state_reason})" if entry.state_reason else "")
        return args.relook(entry.user_id, platform), f"{why}; it is looked at again now"
    if args.BACKFILL in entry.live_jobs:
        return None, f"is tracked; its past is being collected ({counted(entry.stored_posts, 'post')} so far)"
    if entry.backfilled_at is None:
        return args.backfill(entry.user_id, platform), "is tracked; collecting its past goes on"
    if args.CATCH_UP in entry.live_jobs:
        return None, "is tracked; a catch-up is under way"
    return args.catch_up(
        entry.user_id, entry.newest_post_id, platform=platform
    ), "is tracked; what is new will be collected"


def shown_name(handle: str | None, user_id: UserId | None) -> str:
    return f"@{handle}" if handle else f"user {user_id}"


async def repaired(app: App, progress: AccountProgress) -> list[str]:
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
        sweeps = await Coverage(app.database, progress.platform).sweeps(progress.user_id)
        progress = msgspec.structs.replace(progress, sweeps=sweeps)
    if progress.suspect_since:
        said += await _sweep_again(app, progress, name)
    lacking = _lacking(progress, with_reposts=app.settings.x_reposts)
    if lacking and (await app.enqueue([lacking])).created:
        said.append(f"{name}: a {lacking.kind} sweep is started")
    return said


async def _sweep_again(app: App, progress: AccountProgress, name: str) -> list[str]:
    """Sweep a suspect history again, from its newest post to its first."""
    wanted = [args.resweep(progress.user_id, platform=progress.platform)]
    if app.settings.x_reposts:
        wanted.append(args.resweep(progress.user_id, reposts=True, platform=progress.platform))
    created = (await app.enqueue(wanted)).created
    done = "its history is suspect and is swept again" if created else "its history is being swept again already"
    return [f"{name}: {done}"]


def _lacking(progress: AccountProgress, *, with_reposts: bool) -> NewJob | None:
    """The sweep that should be live and is not."""
    if progress.backfilled_at is None:
        return None if progress.alive(SweepKind.BACKFILL) else args.backfill(progress.user_id, progress.platform)
    if with_reposts and progress.reposts_backfilled_at is None and not progress.alive(SweepKind.REPOSTS):
        return args.reposts(progress.user_id, PostId(0), progress.platform)
    return None
