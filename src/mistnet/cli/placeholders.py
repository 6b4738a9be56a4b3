"""Hydrates users of an old database that stand there by their id alone, so that it can be migrated."""

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation
from mistnet.cli.errors import complain
from mistnet.cli.output import document
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE
from mistnet.kit.migrate import require_current
from mistnet.queue.errors import WorkError
from mistnet.social.ingests.model import IngestId, NotReturned
from mistnet.social.model import UserId
from mistnet.social.store.placeholders import Placeholders, SettledPlaceholders

INCOMPLETE = 3
_NAMED = 20
_NEXT = "run `mistnet db migrate` now"


async def hydrate_placeholders(invocation: Invocation, *, settle: bool) -> int:
    """Asks for all of them by force, a batch at a time; what came stays, whatever becomes of the rest."""
    async with open_app(invocation.settings, checked=False) as app:
        await require_current(app.database)
        await app.database.correct_clock()
        placeholders = Placeholders(app.database)
        if await placeholders.count() and not app.settings.x_api_key:
            raise NoKey
        fetched = 0
        lacking: dict[UserId, IngestId] = {}
        try:
            async with app.sources[X_SOURCE].opened():
                async for some in _batches(placeholders, app.settings.batch_users_by_ids_max):
                    done = await _hydrate(app, some)
                    fetched += done.fetched
                    lacking |= done.lacking
        except WorkError as error:
            complain(f"{error}; {fetched} were hydrated and stay so, run this again for the rest", app.secrets)
            return 1
        settled = await placeholders.settle(lacking, app.database.clock.now()) if settle else SettledPlaceholders()
        left = await placeholders.count()
    _show(invocation, fetched, sorted(lacking), settled, left)
    return INCOMPLETE if left else 0


async def _batches(placeholders: Placeholders, size: int) -> AsyncIterator[Sequence[UserId]]:
    last = 0
    while some := await placeholders.some(after=last, limit=size):
        yield some
        last = some[-1]


class PlaceholderBatch(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a batch were hydrated, and whom upstream's answer lacked, with the ingest that says so."""

    fetched: int
    lacking: Mapping[UserId, IngestId] = {}


async def _hydrate(app: App, ids: Sequence[UserId]) -> PlaceholderBatch:
    """All of a batch that upstream returns, or none."""
    try:
        await app.hydration.hydrate("users", ids, force=True, asked_by="placeholders")
    except NotReturned as error:
        rest = [each for each in ids if each not in set(error.missing)]
        await app.hydration.hydrate("users", rest, force=True, asked_by="placeholders")
        if error.problem or error.ingest_id is None:
            return PlaceholderBatch(fetched=len(rest))  # they may be in the part of the answer that could not be read
        return PlaceholderBatch(
            fetched=len(rest), lacking={UserId(each): IngestId(error.ingest_id) for each in error.missing}
        )
    return PlaceholderBatch(fetched=len(ids))


def _show(
    invocation: Invocation, fetched: int, missing: Sequence[UserId], settled: SettledPlaceholders, left: int
) -> None:
    said = "1 placeholder hydrated" if fetched == 1 else f"{fetched} placeholders hydrated"
    if settled.removed or settled.unavailable:
        said += f"; of those upstream does not return, {len(settled.removed)} were removed, because nothing refers "
        said += f"to them, and {len(settled.unavailable)} are recorded as unavailable"
    elif missing:
        named = ", ".join(map(str, missing[:_NAMED])) + (" …" if len(missing) > _NAMED else "")
        said += f"; upstream does not return {len(missing)}: {named}; add --settle to remove those nothing refers to "
        said += "and to record the others as unavailable"
    said += f"; {left} {'is' if left == 1 else 'are'} left" if left else f"; none are left: {_NEXT}"
    texts = {
        "missing": [str(each) for each in missing],
        "removed": [str(each) for each in settled.removed],
        "unavailable": [str(each) for each in settled.unavailable],
    }
    invocation.out.show(document(what="users", fetched=fetched, left=left, **texts), said)
