"""Takes in a follower that a service pushes: both users are hydrated first, then the edge is written."""

import asyncio
from typing import Final

import msgspec

from mistnet.app import App
from mistnet.domain.errors import DatabaseBusy, NoKey
from mistnet.domain.follows import Cause, FollowsSeen, Side
from mistnet.domain.ingests import IngestId, IngestKind, IngestStatus
from mistnet.domain.social import Platform, UserId

ASKED_BY: Final = "webhook ifttt"
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.1


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a push: its ingest, and whom of the two nobody knew before."""

    ingest_id: IngestId
    target_id: UserId
    follower_id: UserId
    fetched: list[UserId]


async def take_in_follower(app: App, target_id: UserId, follower_id: UserId) -> Followed:
    """The push is on record whatever becomes of it. The same push twice leaves one edge and one event of following."""
    both = [target_id, follower_id]
    ingest_id = await app.ingests.begin(
        IngestKind.WEBHOOK, asked_by=ASKED_BY, subject_id=target_id, mode="new-x-follower", ids=both
    )
    async with app.ingests.ending(ingest_id, secrets=app.secrets) as tab:
        if not app.settings.x_api_key and len(await app.hydration.present("users", both)) < len(both):
            raise NoKey
        async with app.harvest.opened():
            hydrated = await app.hydration.hydrate("users", both, asked_by=ASKED_BY)
        tab.calls = hydrated.calls
        await _written(app, ingest_id, target_id, follower_id, calls=hydrated.calls)
    fetched = [UserId(each) for each in hydrated.fetched]
    return Followed(ingest_id=ingest_id, target_id=target_id, follower_id=follower_id, fetched=fetched)


async def _written(app: App, ingest_id: IngestId, target_id: UserId, follower_id: UserId, *, calls: int) -> None:
    """The edge and the end of its ingest, or neither."""
    edge = FollowsSeen(
        platform=Platform.X,
        side=Side.FOLLOWERS,
        subject_id=target_id,
        ids=[follower_id],
        ingest_id=ingest_id,
        cause=Cause.PUSHED,
    )
    prepared = app.writers.prepare([edge])
    for tries_left in reversed(range(_TRIES)):
        try:
            async with app.database.write() as connection:
                await app.writers.write(connection, prepared, app.database.clock.now())
                await app.ingests.end(ingest_id, IngestStatus.SUCCESS, calls=calls, items=1, connection=connection)
        except DatabaseBusy:
            if not tries_left:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
