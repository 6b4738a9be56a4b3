"""Request follow syncs, and find the user whom an operator names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE, CallPurpose
from mistnet.graph.follows.model import Cause, FollowsSeen, Side, SyncMode, follow_sync
from mistnet.kit.outage import retry_while_busy
from mistnet.kit.text import read_id
from mistnet.social.errors import BadHandle, UserNotFound
from mistnet.social.ingests import IngestId, IngestKind, IngestStatus
from mistnet.social.model import UserId, X, read_handle
from mistnet.social.store.account_pages import People
from mistnet.sources.x.quotes import quote_follows

if TYPE_CHECKING:
    from mistnet.app import App


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The user whose follows are meant. The handle may not be known yet."""

    user_id: UserId
    handle: str | None = None

    def __str__(self) -> str:
        return f"@{self.handle}" if self.handle else f"user {self.user_id}"


class RequestedSync(msgspec.Struct, frozen=True, kw_only=True):
    """A sync that will run. `created`: its job is new; otherwise an existing job is joined."""

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
    """The same, also for users not stored: a handle is looked up at X, an id is taken as it is."""
    user_id = _id_of(who)
    try:
        return await known_subject(app, who)
    except UserNotFound:
        if user_id is not None:
            return Subject(user_id=user_id)
    handle = read_handle(who)
    if not app.settings.x_api_key:
        raise NoKey
    async with app.sources[X_SOURCE].opened():
        user = await app.x.user(handle, purpose=CallPurpose())
    if user is None:
        raise BadHandle(f"@{handle}", "X has no user with this handle")
    await app.writers.store(app.database, [user])
    return Subject(user_id=user.id, handle=user.handle)


async def ask_for_syncs(
    app: App,
    user_id: UserId,
    sides: Sequence[Side],
    mode: SyncMode,
    *,
    asked_by: str,
    confirmed: bool = False,
    max_credits: int | None = None,
) -> Sequence[RequestedSync]:
    """Enqueue the syncs for the workers; a sync that is queued or running already is joined.

    Raises NeedsConfirmation for lists that are likely to cost more than `confirm_credits`. Where the length of a
    list is not known, that amount is its cap.
    """
    bill = await quote_follows(app, user_id, sides, mode)
    bill.require_confirmed(confirmed or max_credits is not None)
    if bill.credits is None and not confirmed and max_credits is None:
        max_credits = bill.confirm_credits
    asked: list[RequestedSync] = []
    for side, share in zip(sides, bill.shares(max_credits), strict=True):
        wanted = follow_sync(user_id, side, mode=mode, asked_by=asked_by, max_credits=share)
        made = await app.enqueue([wanted])
        asked.append(RequestedSync(side=side, created=bool(made.created)))
    return asked


async def look_up_counts(app: App, user_id: UserId) -> None:
    """Fetch a profile (18 credits) unless it is stored with both counts: the price of its lists depends on them."""
    known = await People(app.database).by_id(user_id)
    if (known and None not in (known.followers_count, known.following_count)) or not app.settings.x_api_key:
        return
    async with app.sources[X_SOURCE].opened():
        gathered = await app.x.users([user_id], purpose=CallPurpose())
    await app.writers.store(app.database, gathered.users.values())


def _id_of(who: str) -> UserId | None:
    """A number is an id; a handle of digits alone is written with an @."""
    given = who.strip()
    if not (given.isascii() and given.isdecimal()):
        return None
    user_id = read_id(given)
    if user_id is None:
        raise UserNotFound(given[:80])
    return UserId(user_id)


ASKED_BY: Final = "webhook ifttt"


class PushedFollow(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a push: its ingest, and which of the two users were not stored before."""

    ingest_id: IngestId
    target_id: UserId
    follower_id: UserId
    fetched: list[UserId]


async def take_in_follower(app: App, target_id: UserId, follower_id: UserId) -> PushedFollow:
    """The push is recorded whatever its outcome. A repeated push adds neither an edge nor an event."""
    both = [target_id, follower_id]
    ingest_id = await app.ingests.begin(
        IngestKind.WEBHOOK, asked_by=ASKED_BY, subject_id=target_id, mode="new-x-follower", ids=both
    )
    async with app.ingests.ending(ingest_id, secrets=app.secrets) as made:
        if not app.settings.x_api_key and len(await app.hydration.present("users", both)) < len(both):
            raise NoKey
        async with app.sources[X_SOURCE].opened():
            hydrated = await app.hydration.hydrate("users", both, asked_by=ASKED_BY)
        made.calls = hydrated.calls
        edge = FollowsSeen(
            platform=X,
            side=Side.FOLLOWERS,
            subject_id=target_id,
            ids=[follower_id],
            ingest_id=ingest_id,
            cause=Cause.PUSHED,
        )
        prepared = app.writers.prepare([edge])

        async def write() -> None:
            """The edge and the end of its ingest, or neither."""
            async with app.database.transaction() as connection:
                await app.writers.write(connection, prepared, app.database.clock.now())
                await app.ingests.end(
                    ingest_id, IngestStatus.SUCCESS, calls=hydrated.calls, items=1, connection=connection
                )

        await retry_while_busy(write)
    fetched = [UserId(each) for each in hydrated.fetched]
    return PushedFollow(ingest_id=ingest_id, target_id=target_id, follower_id=follower_id, fetched=fetched)
