"""Hydrates users of an old database that stand there by their id alone, so that it can be migrated."""

from collections.abc import AsyncIterator, Sequence

from mistnet.app import App, open_app
from mistnet.cli.faults import complain
from mistnet.cli.output import document
from mistnet.cli.shared import Invocation
from mistnet.domain.errors import NoKey, NotReturned, WorkError
from mistnet.domain.social import UserId
from mistnet.store.placeholders import Placeholders, Settled
from mistnet.store.schema import require_hydratable

INCOMPLETE = 3
_NAMED = 20
_NEXT = "run `mistnet db migrate` now"


async def hydrate_placeholders(invocation: Invocation, *, settle: bool) -> int:
    """Asks for all of them by force, a batch at a time; what came stays, whatever becomes of the rest."""
    async with open_app(invocation.settings, checked=False) as app:
        await require_hydratable(app.database)
        await app.database.correct_clock()
        placeholders = Placeholders(app.database)
        if await placeholders.count() and not app.settings.x_api_key:
            raise NoKey
        fetched = 0
        missing: list[UserId] = []
        try:
            async with app.harvest.opened():
                async for some in _batches(placeholders, app.settings.batch_users_by_ids_max):
                    gone = await _hydrate(app, some)
                    fetched += len(some) - len(gone)
                    missing += gone
        except WorkError as error:
            complain(f"{error}; {fetched} were hydrated and stay so, run this again for the rest", app.secrets)
            return 1
        settled = await placeholders.settle(missing, app.database.clock.now()) if settle else Settled()
        left = await placeholders.count()
    _show(invocation, fetched, missing, settled, left)
    return INCOMPLETE if left else 0


async def _batches(placeholders: Placeholders, size: int) -> AsyncIterator[Sequence[UserId]]:
    last = 0
    while some := await placeholders.some(after=last, limit=size):
        yield some
        last = some[-1]


async def _hydrate(app: App, ids: Sequence[UserId]) -> Sequence[UserId]:
    """Those that upstream does not return. The others are hydrated, all of a batch or none."""
    try:
        await app.hydration.hydrate("users", ids, force=True, asked_by="placeholders")
    except NotReturned as error:
        gone = [UserId(each) for each in error.missing]
        rest = [each for each in ids if each not in set(gone)]
        await app.hydration.hydrate("users", rest, force=True, asked_by="placeholders")
        return gone
    return []


def _show(invocation: Invocation, fetched: int, missing: Sequence[UserId], settled: Settled, left: int) -> None:
    said = f"{fetched} placeholders hydrated"
    if settled.forgotten or settled.marked:
        said += f"; of those upstream does not return, {len(settled.forgotten)} were forgotten, because nothing refers "
        said += f"to them, and {len(settled.marked)} are marked as unavailable"
    elif missing:
        named = ", ".join(map(str, missing[:_NAMED])) + (" …" if len(missing) > _NAMED else "")
        said += f"; upstream does not return {len(missing)}: {named}; add --settle to forget those nothing refers to "
        said += "and to mark the others as unavailable"
    said += f"; {left} are left" if left else f"; none are left: {_NEXT}"
    texts = {
        "missing": [str(each) for each in missing],
        "forgotten": [str(each) for each in settled.forgotten],
        "marked": [str(each) for each in settled.marked],
    }
    invocation.out.show(document(what="users", fetched=fetched, left=left, **texts), said)
