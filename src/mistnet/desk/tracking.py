"""Begins to track accounts, and goes on with those that are tracked already."""

from collections.abc import Mapping, Sequence

import msgspec

from mistnet.app import App
from mistnet.domain.accounts import AccountState
from mistnet.domain.jobs import NewJob
from mistnet.domain.plural import counted
from mistnet.domain.social import UserId
from mistnet.jobs import args
from mistnet.store.roster import NewSuggestion, Roster, RosterEntry, Standing


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one account somebody named."""

    handle: str | None
    user_id: UserId | None
    result: str
    note: str

    def __str__(self) -> str:
        return f"{shown_name(self.handle, self.user_id)}: {self.note}"


async def track_handles(app: App, wanted: Sequence[NewSuggestion]) -> list[Told]:
    """New ones are suggested; what is tracked already gets the job it needs next."""
    roster, now = Roster(app.database, app.job_writer), app.database.clock.now()
    suggested = await roster.suggest(wanted, job=args.suggestion, now=now)
    known = await go_on(app, roster, [each.user_id for each in suggested if each.user_id])
    notes = {
        Standing.ADDED: "its profile is looked up, then its posts are collected",
        Standing.SUGGESTED: "is suggested already and will be looked up",
    }
    return [
        Told(
            handle=each.handle,
            user_id=each.user_id,
            result=each.result,
            note=known[each.user_id] if each.user_id else notes[each.result],
        )
        for each in suggested
    ]


async def track_ids(app: App, ids: Sequence[UserId]) -> list[Told]:
    roster, now = Roster(app.database, app.job_writer), app.database.clock.now()
    entries = {entry.user_id: entry for entry in await roster.accounts(ids)}
    known = [each for each in entries if entries[each].state is not AccountState.UNTRACKED]
    fill = app.harvest.rules.batch_fill
    await roster.track_by_id(
        set(ids) - set(known),
        job=lambda user_id: args.hydrate_user(user_id, now=now, fill=fill, tracked=True),
        now=now,
    )
    notes = await go_on(app, roster, known)
    return [
        Told(
            handle=entries[each].handle if each in entries else None,
            user_id=each,
            result=Standing.TRACKED if each in notes else Standing.ADDED,
            note=notes.get(each, "its profile is fetched, then its posts are collected"),
        )
        for each in dict.fromkeys(ids)
    ]


async def go_on(app: App, roster: Roster, user_ids: Sequence[UserId]) -> Mapping[UserId, str]:
    """Creates what is next for accounts that are tracked, and says what that is."""
    if not user_ids:
        return {}
    steps = {entry.user_id: next_step(entry) for entry in await roster.accounts(user_ids)}
    await roster.begin([job for job, _ in steps.values() if job], now=app.database.clock.now())
    return {user_id: note for user_id, (_, note) in steps.items()}


def next_step(entry: RosterEntry) -> tuple[NewJob | None, str]:
    """The job an account needs next, if it is not there yet, and the words for it."""
    if entry.state is not AccountState.ACTIVE:
        why = f"is tracked, and {entry.state}" + (f" ({entry.state_reason})" if entry.state_reason else "")
        return args.relook(entry.user_id), f"{why}; it is looked at again now"
    if args.BACKFILL in entry.live_jobs:
        return None, f"is tracked; its past is being collected ({counted(entry.stored_posts, 'post')} so far)"
    if entry.backfilled_at is None:
        return args.backfill(entry.user_id), "is tracked; collecting its past goes on"
    if args.CATCH_UP in entry.live_jobs:
        return None, "is tracked; a catch-up is under way"
    return args.catch_up(entry.user_id, entry.newest_post_id), "is tracked; what is new will be collected"


def shown_name(handle: str | None, user_id: UserId | None) -> str:
    return f"@{handle}" if handle else f"user {user_id}"
