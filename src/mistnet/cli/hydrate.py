"""The hydrate commands: users or posts by their ids, all of them or none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mistnet.app import App, open_app
from mistnet.cli.output import document
from mistnet.cli.rows import FileOption, read_id, sort_rows
from mistnet.cli.shared import Invocation, complain, shared_options
from mistnet.domain.errors import NoKey, NotReturned, WorkError
from mistnet.domain.jobs import NewJob
from mistnet.domain.social import PostId, UserId
from mistnet.hydration import Hydrated, Hydration, What
from mistnet.jobs import args

commands = typer.Typer(help="Fetch users or posts by their ids.")

INCOMPLETE = 3
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Their ids.")]
Force = Annotated[bool, typer.Option("--force", help="Ask for those that are stored already, too.")]
Background = Annotated[bool, typer.Option("--background", help="Leave it to the workers, who settle each id alone.")]


@commands.command("users")
@shared_options
async def users(
    invocation: Invocation,
    ids: Ids = None,
    *,
    force: Force = False,
    background: Background = False,
    source: FileOption = None,
) -> int:
    """Fetch users by id, a hundred per call. All of them are written, or none.

    Exit code 3 if one is not to be had: nothing is written then, and the missing ids are named.
    """
    return await _hydrate(invocation, "users", _ids(ids, source), force=force, background=background)


@commands.command("posts")
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
    return await _hydrate(invocation, "posts", _ids(ids, source), force=force, background=background)


def _ids(given: Sequence[str] | None, source: Path | None) -> list[int]:
    read = sort_rows(given, source, "id", read_id)
    if read.bad:
        more = f" (and {len(read.bad) - 1} more like it)" if len(read.bad) > 1 else ""
        raise typer.BadParameter(f"{read.bad[0]}{more}; nothing was asked for")
    return list(dict.fromkeys(read.good))


async def _hydrate(invocation: Invocation, what: What, ids: Sequence[int], *, force: bool, background: bool) -> int:
    if force and background:
        raise typer.BadParameter("--force is for hydration at once; leave out --background")
    async with open_app(invocation.settings) as app:
        hydration = Hydration(app.database, app.harvest.x)
        if background:
            return await _enqueue(invocation, app, hydration, what, ids)
        if not app.settings.x_api_key and (force or set(ids) - await hydration.present(what, ids)):
            raise NoKey
        try:
            async with app.harvest.opened():
                done = await hydration.hydrate(what, ids, force=force)
        except NotReturned as error:
            if invocation.out.as_json:
                invocation.out.show(document(what=what, present=[], fetched=[], calls=0, missing=_texts(error.missing)))
            complain(str(error), app.secrets)
            return INCOMPLETE
        except WorkError as error:
            complain(f"{error}; nothing was written", app.secrets)
            return 1
    invocation.out.show(_document(done), _said(done))
    return 0


async def _enqueue(invocation: Invocation, app: App, hydration: Hydration, what: What, ids: Sequence[int]) -> int:
    present = await hydration.present(what, ids)
    wanted = [each for each in ids if each not in present]
    now, fill = app.database.clock.now(), app.harvest.rules.batch_fill
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
    return document(what=done.what, calls=done.calls, **ids)


def _said(done: Hydrated) -> str:
    if not done.fetched:
        return f"all {len(done.present)} {done.what} are stored already: nothing was asked for"
    calls = "1 call" if done.calls == 1 else f"{done.calls} calls"
    already = f"; {len(done.present)} were stored already" if done.present else ""
    return f"{len(done.fetched)} {done.what} fetched and written in {calls}{already}"


def _texts(ids: Sequence[int]) -> list[str]:
    return [str(each) for each in ids]
