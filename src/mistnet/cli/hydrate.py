"""The hydrate commands: users or posts by their ids, all of them or none."""

from collections.abc import Sequence
from typing import Annotated

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import FileOption, read_ids
from mistnet.cli.output import document
from mistnet.cli.placeholders import hydrate_placeholders
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE
from mistnet.kit.errors import MistnetError
from mistnet.queue.errors import WorkError
from mistnet.queue.model import NewJob
from mistnet.social.ingests.model import Hydrated, IngestId, NotReturned, What
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId

INCOMPLETE = 3
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Their ids; commas may join them.")]
Force = Annotated[bool, typer.Option("--force", help="Ask for those that are stored already, too.")]
Background = Annotated[bool, typer.Option("--background", help="Leave it to the workers, who settle each id alone.")]
OldOnes = Annotated[
    bool,
    typer.Option("--placeholders", help="All users of an old database who were never fetched; give no ids then."),
]
Settle = Annotated[
    bool,
    typer.Option(
        "--settle",
        help="Of placeholders upstream does not return: remove those nothing refers to, record others as unavailable.",
    ),
]


@shared_options
async def users(
    invocation: Invocation,
    ids: Ids = None,
    *,
    force: Force = False,
    background: Background = False,
    source: FileOption = None,
    placeholders: OldOnes = False,
    settle: Settle = False,
) -> int:
    """Fetch users by id, a hundred per call. All of them are written, or none.

    Exit code 3 if one is not to be had: nothing is written then, and the missing ids are named.
    With --placeholders, a batch at a time: what came stays.
    """
    if placeholders:
        if ids or source or background:
            raise typer.BadParameter("--placeholders finds its users by itself: give no ids, --file or --background")
        return await hydrate_placeholders(invocation, settle=settle)
    if settle:
        raise typer.BadParameter("--settle goes with --placeholders")
    wanted = read_ids(ids, source, spoilt="nothing was asked for")
    return await _hydrate(invocation, "users", wanted, force=force, background=background)


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

    Exit code 3 if one is not to be had: nothing is written then, and the missing ids are named.
    """
    wanted = read_ids(ids, source, spoilt="nothing was asked for")
    return await _hydrate(invocation, "posts", wanted, force=force, background=background)


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
        except NotReturned as error:
            if invocation.out.as_json:
                event = await app.ingests.get(error.ingest_id) if error.ingest_id else None
                invocation.out.show(_failed(what, error, calls=event.calls if event else 0))
            complain(f"{error}{_told_by(error)}", app.secrets)
            return INCOMPLETE
        except WorkError as error:
            complain(f"{error}{_told_by(error)}; nothing was written", app.secrets)
            return 1
    invocation.out.show(_document(done), _said(done))
    return 0


def _failed(what: What, error: NotReturned, *, calls: int) -> object:
    facts = {"present": [], "fetched": [], "calls": calls, "missing": _texts(error.missing)}
    return document(what=what, ingest_id=None if error.ingest_id is None else str(error.ingest_id), **facts)


def _told_by(error: MistnetError) -> str:
    return f" (`mistnet hydrate event {error.ingest_id}` tells more)" if error.ingest_id else ""


async def _enqueue(invocation: Invocation, app: App, what: What, ids: Sequence[int]) -> int:
    present = await app.hydration.present(what, ids)
    wanted = [each for each in ids if each not in present]
    now, fill = app.database.clock.now(), app.collecting.rules.batch_fill
    jobs: list[NewJob] = (
        [args.hydrate_user(UserId(each), now=now, fill=fill) for each in wanted]
        if what == "users"
        else [args.hydrate_post(PostId(each)) for each in wanted]
    )
    added = await app.enqueue(jobs)
    said = f"{added.created} {what} are left to the workers"
    said += f", {added.duplicates} were already" if added.duplicates else ""
    said += f", {len(present)} are stored already" if present else ""
    said += "" if app.settings.x_api_key else "; workers will need a key for X: set MISTNET_X_API_KEY"
    invocation.out.show(document(what=what, jobs=added, present=_texts(sorted(present))), said)
    return 0


def _document(done: Hydrated) -> object:
    ids = {"present": _texts(done.present), "fetched": _texts(done.fetched), "missing": []}
    return document(what=done.what, ingest_id=_text(done.ingest_id), calls=done.calls, **ids)


def _said(done: Hydrated) -> str:
    if not done.fetched:
        return f"all {len(done.present)} {done.what} are stored already: nothing was asked for"
    calls = "1 call" if done.calls == 1 else f"{done.calls} calls"
    already = f"; {len(done.present)} were stored already" if done.present else ""
    return f"{len(done.fetched)} {done.what} fetched and written in {calls}{already}"


def _text(ingest_id: IngestId | None) -> str | None:
    return None if ingest_id is None else str(ingest_id)


def _texts(ids: Sequence[int]) -> list[str]:
    return [str(each) for each in ids]
