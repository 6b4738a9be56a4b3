"""Commands that collect on request: users and posts by id, ingest events, and runs for the newest posts."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import FileOption, LimitOption, Since, argument, flag, option, read_ids, read_users, read_values
from mistnet.cli.output import (
    KEY_HINT,
    Grid,
    Output,
    at,
    complain,
    document,
    fields_of,
    last_line,
    next_page,
    progress_bar,
    worker_hints,
)
from mistnet.governor.errors import NoKey
from mistnet.governor.model import X_SOURCE
from mistnet.kit.errors import DatabaseBusy
from mistnet.kit.text import LARGEST_ID, counted
from mistnet.operations.runs.model import (
    COUNTS,
    DEFAULT_LIMIT,
    LARGEST_CREDITS,
    LARGEST_LIMIT,
    LEAST_LIMIT,
    UNFINISHED,
    Run,
    read_handles,
)
from mistnet.operations.schedule.store import first_id_at
from mistnet.queue.errors import WorkError
from mistnet.social.ingests import IngestId, IngestKind, IngestNotFound, IngestStatus, NotReturned, What
from mistnet.social.jobs import args
from mistnet.social.jobs.posts_sync import MOST_USERS, posts_sync
from mistnet.social.model import PostId, UserId
from mistnet.sources.x.follows import subject_of

INCOMPLETE: Final = 3
_PROBLEM_WIDTH: Final = 60


class HydrateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which users or posts to fetch, and how."""

    ids: Annotated[list[str] | None, argument("[ID]...", "Their ids; commas may join them.")] = None
    force: Annotated[bool, flag("--force", "Fetch stored ones again, too.")] = False
    background: Annotated[bool, flag("--background", "Leave it to the workers, which handle each id alone.")] = False
    source: FileOption = None


@shared_options
async def users(invocation: Invocation, *, wanted: HydrateOptions) -> int:
    """Fetch users by id, a hundred per call. All of them are written, or none.

    Exit code 3 if one is missing: then nothing is written, and the missing ids are listed.
    """
    return await _hydrate(invocation, "users", wanted)


@shared_options
async def posts(invocation: Invocation, *, wanted: HydrateOptions) -> int:
    """Fetch posts by id with their authors, fifty per call. All of them are written, or none.

    Exit code 3 if one is missing: then nothing is written, and the missing ids are listed.
    """
    return await _hydrate(invocation, "posts", wanted)


async def _hydrate(invocation: Invocation, what: What, wanted: HydrateOptions) -> int:
    ids, force = read_ids(wanted.ids, wanted.source, spoilt="nothing was fetched"), wanted.force
    if force and wanted.background:
        raise typer.BadParameter("--force is for hydration at once; leave out --background")
    async with open_app(invocation.settings) as app:
        if wanted.background:
            return await _enqueue(invocation, app, what, ids)
        # No key is needed where everything is stored already.
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
                facts = document(what=what, ingest_id=event_id, present=[], fetched=[])
                calls = event.calls if event else 0
                invocation.out.show({**facts, "calls": calls, "missing": _texts(error.missing)})
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
            ingest_id=done.ingest_id,
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
    return "" if invocation.settings.x_api_key else f"; {KEY_HINT}"


def _texts(ids: Sequence[int]) -> list[str]:
    return [str(each) for each in ids]


@shared_options
async def posts_of(
    invocation: Invocation,
    who: Annotated[list[str] | None, argument("[WHO]...", "Their ids or handles; commas may join them.")] = None,
    *,
    since: Since = None,
    since_id: Annotated[int | None, option("--since-id", "ID", "Or: after this post.", min=1, max=LARGEST_ID)] = None,
    source: FileOption = None,
) -> int:
    """Collect what a set of users wrote since a time or a post. Workers do it, in one job.

    Users who are not stored yet are hydrated first; if one of them is missing, the job fails and writes nothing.
    """
    if (since is None) == (since_id is None):
        raise typer.BadParameter("say since when: either --since TIME or --since-id ID")
    # A floor is exclusive, and a post written at that very time belongs to the answer.
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
    invocation.out.show(document(users=_texts(ids), since_id=floor, jobs=added), said + _key_hint(invocation))
    return 0


@app_command
async def events(
    app: App,
    out: Output,
    *,
    kind: Annotated[IngestKind | None, option("--kind", None, "Only of this kind.")] = None,
    status: Annotated[IngestStatus | None, option("--status", None, "Only with this status.")] = None,
    limit: LimitOption = 20,
    before_id: Annotated[
        int, option("--before-id", "ID", "Only those before this one.", min=1, max=LARGEST_ID)
    ] = LARGEST_ID,
) -> None:
    """List ingest events, the latest first: explicit requests to a source, and their results."""
    ingests = (await app.ingests.list(kind=kind, status=status, before=before_id, limit=limit)).items
    grid = Grid.of(
        ingests,
        "id, kind, status, about, began, calls, items, problem",
        about="subject_id",
        began="started_at",
        problem=lambda each: last_line(each.problem, _PROBLEM_WIDTH),
        empty="no ingests: `mistnet hydrate users ID` makes one",
    )
    out.show(document(ingests=ingests), grid)


@app_command
async def event(
    app: App,
    out: Output,
    ingest_id: Annotated[int, argument("ID", "Its id.", min=1, max=LARGEST_ID)],
) -> None:
    """Show one ingest event: the ids it requested and, if it failed, the response."""
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
    out.show({**fields_of(ingest), "ids": ids}, *blocks)


DONE_WITH_GAPS: Final = 3
_POLL_SECONDS: Final = 0.5
_COLUMNS: Final = ("account", "status", "posts", "new", "skipped", "unreadable", "why")


@shared_options
async def start_run(
    invocation: Invocation,
    handles: Annotated[list[str] | None, argument("[HANDLE]...", "@name, name or https://x.com/name.")] = None,
    *,
    source: FileOption = None,
    limit: Annotated[
        int | None,
        option(
            "--limit",
            "N",
            f"How many posts of each account at most; {DEFAULT_LIMIT}, or what earlier fetches suggest.",
            min=LEAST_LIMIT,
            max=LARGEST_LIMIT,
        ),
    ] = None,
    max_credits: Annotated[
        int | None,
        option(
            "--max-credits",
            "N",
            "What the run may cost; each account has an equal share of it.",
            min=1,
            max=LARGEST_CREDITS,
        ),
    ] = None,
    wait: Annotated[bool, flag("--wait", "Stay until it is finished, and show the report.")] = False,
) -> int:
    """Collect the newest posts of accounts, tracked or not. Workers do it; one run at a time.

    With --wait the exit code is 3 if an account failed; after Ctrl-C the run continues.
    """
    accounts = read_handles(",".join(read_values(handles, source, "handle")))
    async with open_app(invocation.settings) as app:
        run = await app.runs.start(
            accounts, limit, asked_by="command line", now=app.database.clock.now(), max_credits=max_credits
        )
        hints = await worker_hints(app) if app.settings.x_api_key else [KEY_HINT]
        if not wait:
            whom = f"@{accounts[0]}" if len(accounts) == 1 else counted(len(accounts), "account")
            invocation.out.show(
                document(run=run_fields(run)),
                f"run {run.id} has started: up to {counted(run.post_limit, 'post')} of {whom}",
                f"next: `mistnet runs show {run.id}` shows its progress",
                *hints,
            )
            return 0
        for hint in hints:
            sys.stderr.write(f"{hint}\n")
        ended = 0
        with progress_bar("accounts", len(run.accounts)) as on_done:
            while not run.finished:
                await asyncio.sleep(_POLL_SECONDS)
                # Only this look is lost: the run goes on, and the next look shows it.
                with suppress(DatabaseBusy):
                    run = await app.runs.show(run.id, app.database.clock.now())
                before, ended = ended, sum(each.status not in UNFINISHED for each in run.accounts)
                on_done(ended - before)
    _show_run(invocation.out, run)
    return DONE_WITH_GAPS if run.failed_accounts else 0


@app_command
async def list_runs(
    app: App,
    out: Output,
    *,
    limit: LimitOption = 20,
    before: Annotated[str | None, option("--before", "ID", "Only those before this run: the next page.")] = None,
) -> None:
    """Show runs, newest first. Finished ones are deleted after `run_hours`."""
    page = await app.runs.page(app.database.clock.now(), before=before, limit=limit)
    facts = document(runs=[run_fields(run) for run in page.items], next_before=page.next)
    out.show(facts, runs_grid(page.items), *next_page(page.next))


@app_command
async def show_run(app: App, out: Output, run_id: Annotated[str, argument("ID", "The run's id.")]) -> None:
    """Show a run: the progress of each account, and the report."""
    _show_run(out, await app.runs.show(run_id, app.database.clock.now()))


@app_command
async def cancel_run(app: App, out: Output, run_id: Annotated[str, argument("ID", "The run's id.")]) -> None:
    """End a run, so that another one can start. Collected posts stay."""
    _show_run(out, await app.runs.cancel(run_id, app.database.clock.now()))


def _show_run(out: Output, run: Run) -> None:
    ended = f", finished {at(run.finished_at)} UTC" if run.finished_at else ""
    most = counted(run.post_limit, "post")
    head = f"run {run.id}: {run.status}, started {at(run.created_at)} UTC{ended}, at most {most} each"
    rows: list[Sequence[object]] = [
        (f"@{each.handle}", each.status, *(getattr(each, name) for name in COUNTS), last_line(each.reason))
        for each in run.accounts
    ]
    if len(rows) > 1:
        rows.append(("all", "", *(run.report[name] for name in COUNTS), ""))
    out.show(document(run=run_fields(run)), head, Grid(columns=_COLUMNS, rows=rows))


def run_fields(run: Run) -> dict[str, Any]:
    """A run as a document. `result` is null until the run has finished, and then equals `report`."""
    return {
        "id": run.id,
        "status": run.status,
        "asked_by": run.asked_by,
        "failed_accounts": run.failed_accounts,
        "limit": run.post_limit,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "finished_at": run.finished_at,
        "report": run.report,
        "result": run.result,
    }


def runs_grid(runs: Sequence[Run]) -> Grid:
    """`failed` counts accounts, `unreadable` posts."""
    return Grid.of(
        runs,
        "run, status, asked by, started (UTC), finished (UTC), accounts, failed, posts, new, unreadable",
        run="id",
        started="created_at",
        accounts=lambda run: len(run.accounts),
        failed="failed_accounts",
        posts=lambda run: run.report["total"],
        new=lambda run: run.report["new"],
        unreadable=lambda run: run.report["failed"],
        empty="no runs: `mistnet runs start HANDLE` starts one",
    )
