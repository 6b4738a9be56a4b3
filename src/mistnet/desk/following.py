"""Asks for follow syncs, and finds the user somebody names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mistnet.app import App
from mistnet.desk.follow_quotes import quote_follows
from mistnet.domain.errors import BadHandle, NoKey, UserNotFound
from mistnet.domain.follows import Side, SyncMode
from mistnet.domain.handles import read_handle
from mistnet.domain.numbers import read_id
from mistnet.domain.social import User, UserId
from mistnet.domain.sources import Errand
from mistnet.jobs.follow_sync import follow_sync
from mistnet.store.people import People


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whose follows are meant. The handle may not be known yet."""

    user_id: UserId
    handle: str | None = None

    def __str__(self) -> str:
        return f"@{self.handle}" if self.handle else f"user {self.user_id}"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A sync that will be done. `created`: nobody had asked for it before."""

    side: Side
    created: bool


async def known_subject(app: App, who: str) -> Subject:
    """The stored user of that id or handle; raises UserNotFound."""
    people, user_id = People(app.database), _id_of(who)
    found = await (people.called(read_handle(who)) if user_id is None else people.by_id(user_id))
    if found is None:
        raise UserNotFound(who)
    return Subject(user_id=found.id, handle=found.handle)


async def subject_of(app: App, who: str) -> Subject:
    """The same; a handle nobody is stored by is asked for, and an id needs nobody to be stored."""
    user_id = _id_of(who)
    try:
        return await known_subject(app, who)
    except UserNotFound:
        return Subject(user_id=user_id) if user_id is not None else await _looked_up(app, read_handle(who))


async def ask_for_syncs(
    app: App,
    user_id: UserId,
    sides: Sequence[Side],
    mode: SyncMode,
    *,
    asked_by: str,
    confirmed: bool = False,
    max_credits: int | None = None,
) -> Sequence[Asked]:
    """Leaves it to the workers; a sync that is alive already is joined.

    Raises NeedsConfirmation for lists that are likely to cost more than `confirm_credits`. Where the length of a
    list is not known, that amount is its cap.
    """
    bill = await quote_follows(app, user_id, sides, mode)
    bill.require_confirmed(confirmed or max_credits is not None)
    if bill.credits is None and not confirmed and max_credits is None:
        max_credits = bill.confirm_credits
    asked: list[Asked] = []
    for side, share in zip(sides, bill.shares(max_credits), strict=True):
        wanted = follow_sync(user_id, side, mode=mode, asked_by=asked_by, max_credits=share)
        made = await app.enqueue([wanted])
        asked.append(Asked(side=side, created=bool(made.created)))
    return asked


async def look_up_counts(app: App, user_id: UserId) -> None:
    """Asks for a profile (18 credits) unless it is stored with both counts, so that its lists can be priced."""
    known = await People(app.database).by_id(user_id)
    if (known and None not in (known.followers_count, known.following_count)) or not app.settings.x_api_key:
        return
    async with app.harvest.opened():
        gathered = await app.harvest.x.users([user_id], errand=Errand())
    await _write(app, [*gathered.users.values()])


async def _looked_up(app: App, handle: str) -> Subject:
    if not app.settings.x_api_key:
        raise NoKey
    async with app.harvest.opened():
        user = await app.harvest.x.user(handle, errand=Errand())
    if user is None:
        raise BadHandle(f"@{handle}", "X knows nobody of that name")
    await _write(app, [user])
    return Subject(user_id=user.id, handle=user.handle)


async def _write(app: App, users: Sequence[User]) -> None:
    prepared = app.writers.prepare(users)
    async with app.database.write() as connection:
        await app.writers.write(connection, prepared, app.database.clock.now())


def _id_of(who: str) -> UserId | None:
    """A number is an id; a handle of digits alone is written with an @."""
    given = who.strip()
    if not (given.isascii() and given.isdecimal()):
        return None
    user_id = read_id(given)
    if user_id is None:
        raise UserNotFound(given[:80])
    return UserId(user_id)
