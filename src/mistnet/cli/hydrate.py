"""The hydrate commands: users or posts by their ids, a set of users' posts, and the ingest events of such requests."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from msgspec.structs import asdict

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import FileOption, LimitOption, read_ids, read_users
from mistnet.cli.jobs import LARGEST_ID
from mistnet.cli.output import Grid, at, document, last_line
from mistnet.cli.search import Since
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE
from mistnet.kit.migrate import require_current
from mistnet.kit.text import counted
from mistnet.operations.schedule.store import first_id_at
from mistnet.queue.errors import WorkError
from mistnet.social.ingests import Ingest, IngestId, IngestKind, IngestNotFound, IngestStatus, NotReturned, What
from mistnet.social.jobs import args
from mistnet.social.jobs.posts_sync import MOST_USERS, posts_sync
from mistnet.social.model import PostId, UserId
from mistnet.social.store.posts import Placeholders, SettledPlaceholders
from mistnet.sources.x.follows import subject_of

INCOMPLETE: Final = 3
_NAMED: Final = 20
_PROBLEM_WIDTH: Final = 60

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Their ids; commas may join them.")]
Force = Annotated[bool, typer.Option("--force", help="Fetch stored ones again, too.")]
Background = Annotated[bool, typer.Option("--background", help="Leave it to the workers, which handle each id alone.")]


@shared_options
async def users(
    invocation: Invocation,
    ids: Ids = None,
    *,
    force: Force = False,
    background: Background = False,
    source: FileOption = None,
    placeholders: Annotated[
        bool,
        typer.Option("--placeholders", help="All users of an old database that were never fetched; give no ids then."),
    ] = False,
    settle: Annotated[
        bool,
        typer.Option(
            "--settle",
            help="Placeholders that the source does not return: remove those without references, record others as "
            "unavailable.",
        ),
    ] = False,
) -> int:
    """Fetch users by id, a hundred per call. All of them are written, or none.

    Exit code 3 if one is missing: then nothing is written, and the missing ids are listed.
    With --placeholders, each batch is written by itself.
    """
    if placeholders:
        if ids or source or background:
            raise typer.BadParameter("--placeholders finds its users itself: give no ids, --file or --background")
        return await _hydrate_placeholders(invocation, settle=settle)
    if settle:
        raise typer.BadParameter("--settle goes with --placeholders")
    read = read_ids(ids, source, spoilt="nothing was fetched")
    return await _hydrate(invocation, "users", read, force=force, background=background)


@shared_options
async def posts(
    invocation: Invocation,
    ids: Ids = None,
    *,
    force: Force = False,
    background: Background = False,
    source: FileOption = None,
) -> int:
    """Fetch posts by id with their authors, fifty per call. All of them are written, or none.

    Exit code 3 if one is missing: then nothing is written, and the missing ids are listed.
    """
    read = read_ids(ids, source, spoilt="nothing was fetched")
    return await _hydrate(invocation, "posts", read, force=force, background=background)


async def _hydrate(invocation: Invocation, what: What, ids: Sequence[int], *, force: bool, background: bool) -> int:
    if force and background:
        raise typer.BadParameter("--force is for hydration at once; leave out --background")
    async with open_app(invocation.settings) as app:
        if background:
            return await _enqueue(invocation, app, what, ids)
        if not app.settings.x_api_key and (force or set(ids) - await app.hydration.present(what, ids)):
            raise NoKey
        try:
            async with app.sources[X_SOURCE].opened():
                done = await app.hydration.hydrate(what, ids, force=force, asked_by="cli")
        except (NotReturned, WorkError) as error:
            event_id = getattr(error, "ingest_id", None)
            hint = f" (`mistnet hydrate event {event_id}` shows more)" if event_id else ""
            if not isinstance(error, NotReturned):
                complain(f"{error}{hint}; nothing was written", app.secrets)
                return 1
            if invocation.out.as_json:
                event = await app.ingests.get(event_id) if event_id else None
                facts = {"present": [], "fetched": [], "calls": event.calls if event else 0}
                missing = _texts(error.missing)
                invocation.out.show(document(what=what, ingest_id=event_id and str(event_id), **facts, missing=missing))
            complain(f"{error}{hint}", app.secrets)
            return INCOMPLETE
    if done.fetched:
        said = f"{len(done.fetched)} {what} fetched and written in {counted(done.calls, 'call')}"
        said += f"; {len(done.present)} were stored already" if done.present else ""
    else:
        said = f"all {len(done.present)} {what} are stored already: nothing was fetched"
    invocation.out.show(
        document(
            what=what,
            ingest_id=None if done.ingest_id is None else str(done.ingest_id),
            calls=done.calls,
            present=_texts(done.present),
            fetched=_texts(done.fetched),
            missing=[],
        ),
        said,
    )
    return 0


async def _enqueue(invocation: Invocation, app: App, what: What, ids: Sequence[int]) -> int:
    present = await app.hydration.present(what, ids)
    missing = [each for each in ids if each not in present]
    now, fill = app.database.clock.now(), app.collecting.rules.batch_fill
    added = await app.enqueue(
        [args.hydrate_user(UserId(each), now=now, fill=fill) for each in missing]
        if what == "users"
        else [args.hydrate_post(PostId(each)) for each in missing]
    )
    said = f"{added.created} {what} are left to the workers"
    said += f", {added.duplicates} were already" if added.duplicates else ""
    said += f", {len(present)} are stored already" if present else ""
    said += _key_hint(invocation)
    invocation.out.show(document(what=what, jobs=added, present=_texts(sorted(present))), said)
    return 0


def _key_hint(invocation: Invocation) -> str:
    return "" if invocation.settings.x_api_key else "; workers will need a key for X: set MISTNET_X_API_KEY"


def _texts(ids: Sequence[int]) -> list[str]:
    return [str(each) for each in ids]


async def _hydrate_placeholders(invocation: Invocation, *, settle: bool) -> int:
    """Fetch all users that an old version stored by id alone."""
    async with open_app(invocation.settings, checked=False) as app:
        await require_current(app.database)
        await app.database.correct_clock()
        placeholders = Placeholders(app.database)
        if await placeholders.count() and not app.settings.x_api_key:
            raise NoKey
        fetched, last = 0, 0
        missing: dict[UserId, IngestId] = {}
        try:
            async with app.sources[X_SOURCE].opened():
                while batch := await placeholders.some(after=last, limit=app.settings.batch_users_by_ids_max):
                    last = batch[-1]
                    fetched += await _hydrate_batch(app, batch, missing)
        except WorkError as error:
            # Each batch is a transaction of its own, so a failure costs only the batches that are left.
            complain(f"{error}; {fetched} were hydrated, run this again for the rest", app.secrets)
            return 1
        settled = await placeholders.settle(missing, app.database.clock.now()) if settle else SettledPlaceholders()
        left = await placeholders.count()
    _show_placeholders(invocation, fetched, sorted(missing), settled, left)
    return INCOMPLETE if left else 0


async def _hydrate_batch(app: App, ids: Sequence[UserId], missing: dict[UserId, IngestId]) -> int:
    """Fetch those of a batch that the source returns. Add the others with the ingest that proves it to `missing`."""
    try:
        await app.hydration.hydrate("users", ids, force=True, asked_by="placeholders")
    except NotReturned as error:
        rest = [each for each in ids if each not in set(error.missing)]
        await app.hydration.hydrate("users", rest, force=True, asked_by="placeholders")
        # With a problem they may be in the part of the response that could not be decoded.
        if not error.problem and error.ingest_id is not None:
            missing |= {UserId(each): IngestId(error.ingest_id) for each in error.missing}
        return len(rest)
    return len(ids)


def _show_placeholders(
    invocation: Invocation, fetched: int, missing: Sequence[UserId], settled: SettledPlaceholders, left: int
) -> None:
    said = f"{counted(fetched, 'placeholder')} hydrated"
    if settled.removed or settled.unavailable:
        said += f"; of those the source does not return, {len(settled.removed)} were removed, because nothing refers "
        said += f"to them, and {len(settled.unavailable)} are recorded as unavailable"
    elif missing:
        named = ", ".join(map(str, missing[:_NAMED])) + (" …" if len(missing) > _NAMED else "")
        said += f"; the source does not return {len(missing)}: {named}; add --settle to remove those nothing refers to "
        said += "and to record the others as unavailable"
    said += f"; {left} {'is' if left == 1 else 'are'} left" if left else "; none are left"
    texts = {
        "missing": _texts(missing),
        "removed": _texts(settled.removed),
        "unavailable": _texts(settled.unavailable),
    }
    invocation.out.show(document(what="users", fetched=fetched, left=left, **texts), said)


@shared_options
async def posts_of(
    invocation: Invocation,
    who: Annotated[
        list[str] | None, typer.Argument(metavar="[WHO]...", help="Their ids or handles; commas may join them.")
    ] = None,
    *,
    since: Since = None,
    since_id: Annotated[
        int | None, typer.Option("--since-id", min=1, max=LARGEST_ID, metavar="ID", help="Or: after this post.")
    ] = None,
    source: FileOption = None,
) -> int:
    """Collect what a set of users wrote since a time or a post. Workers do it, in one job.

    Users who are not stored yet are hydrated first; if one of them is missing, the job fails and writes nothing.
    """
    if (since is None) == (since_id is None):
        raise typer.BadParameter("say since when: either --since TIME or --since-id ID")
    floor = PostId(since_id or (max(first_id_at(since) - 1, 0) if since else 0))
    named = read_users(who, source, spoilt="nothing was fetched")
    async with open_app(invocation.settings) as app:
        try:
            ids = sorted({(await subject_of(app, each)).user_id for each in named})
        except WorkError as error:
            complain(f"{error}; nothing was fetched", app.secrets)
            return 1
        if len(ids) > MOST_USERS:
            raise typer.BadParameter(f"{len(ids):,} users are more than the {MOST_USERS:,} one sync takes; split them")
        added = await app.enqueue([posts_sync(ids, floor, asked_by="cli")])
    said = f"the posts of {counted(len(ids), 'user')} since post {floor} are left to the workers"
    said += "" if added.created else "; they were already"
    said += _key_hint(invocation)
    invocation.out.show(document(users=_texts(ids), since_id=str(floor), jobs=added), said)
    return 0


@shared_options
async def events(
    invocation: Invocation,
    *,
    kind: Annotated[IngestKind | None, typer.Option("--kind", help="Only of this kind.")] = None,
    status: Annotated[IngestStatus | None, typer.Option("--status", help="Only with this status.")] = None,
    limit: LimitOption = 20,
    before_id: Annotated[
        int, typer.Option("--before-id", min=1, max=LARGEST_ID, metavar="ID", help="Only those before this one.")
    ] = LARGEST_ID,
) -> None:
    """List ingest events, the latest first: explicit requests to a source, and their results."""
    async with open_app(invocation.settings) as app:
        ingests = (await app.ingests.list(kind=kind, status=status, before=before_id, limit=limit)).items
    grid = Grid(
        columns=("id", "kind", "status", "about", "began", "calls", "items", "problem"),
        rows=[
            (
                *(str(each.id), each.kind, each.status, str(each.subject_id or "")),
                *(at(each.started_at), str(each.calls), str(each.items), last_line(each.problem, _PROBLEM_WIDTH)),
            )
            for each in ingests
        ],
        empty="no ingests: `mistnet hydrate users ID` makes one",
    )
    invocation.out.show(document(ingests=[_ingest_document(each) for each in ingests]), grid)


@shared_options
async def event(
    invocation: Invocation,
    ingest_id: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, metavar="ID", help="Its id.")],
) -> None:
    """Show one ingest event: the ids it requested and, if it failed, the response."""
    async with open_app(invocation.settings) as app:
        ingest = await app.ingests.get(ingest_id)
        if ingest is None:
            raise IngestNotFound(IngestId(ingest_id))
        ids = _texts(await app.ingests.ids(ingest_id))
    ended = f"ended {at(ingest.finished_at)}" if ingest.finished_at else "not ended yet"
    calls, items = counted(ingest.calls, "call"), counted(ingest.items, "item")
    blocks = [
        f"ingest {ingest.id}: {ingest.kind}, {ingest.status}, requested by {ingest.asked_by}"
        f"\nbegan {at(ingest.started_at)}, {ended}; {calls}, {items}"
        + (f"\nrequested: {', '.join(ids)}" if ids else "")
        + (f"\nproblem: {ingest.problem}" if ingest.problem else "")
    ]
    if exchange := ingest.exchange:
        headers = "\n".join(f"{name}: {value}" for name, value in exchange.headers.items())
        blocks.append(f"{exchange.endpoint} answered {exchange.status}\n{headers}\n\n{exchange.body}")
    invocation.out.show({**_ingest_document(ingest), "ids": ids}, *blocks)


def _ingest_document(ingest: Ingest) -> dict[str, Any]:
    return {**asdict(ingest), "subject_id": None if ingest.subject_id is None else str(ingest.subject_id)}
