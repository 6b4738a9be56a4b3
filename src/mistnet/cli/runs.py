"""Commands for runs: ask for the newest posts of some accounts, and see what came of it."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import FileOption, listed_values
from mistnet.cli.output import Block, Grid, at, document, last_line
from mistnet.kit.errors import DatabaseBusy
from mistnet.kit.text import counted
from mistnet.operations.errors import RunNotFound
from mistnet.operations.runs.model import (
    DEFAULT_LIMIT,
    LARGEST_CREDITS,
    LARGEST_LIMIT,
    LEAST_LIMIT,
    UNFINISHED,
    Run,
    RunAccount,
    read_handles,
)

DONE_WITH_GAPS: Final = 3
_LOOK_SECONDS: Final = 0.5
_SEEN_LATELY: Final = timedelta(minutes=2)
_COLUMNS: Final = ("account", "status", "posts", "new", "skipped", "unreadable", "why")
LISTED: Final = (
    "run",
    "status",
    "asked by",
    "begun (UTC)",
    "finished (UTC)",
    "accounts",
    "failed",
    "posts",
    "new",
    "unreadable",
)
"""`failed` counts accounts, `unreadable` posts."""


@shared_options
async def start(
    invocation: Invocation,
    handles: Annotated[
        list[str] | None, typer.Argument(metavar="[HANDLE]...", help="@name, name or https://x.com/name.")
    ] = None,
    *,
    source: FileOption = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=LEAST_LIMIT,
            max=LARGEST_LIMIT,
            metavar="N",
            help=f"How many posts of each account at most; {DEFAULT_LIMIT}, or what earlier fetches suggest.",
        ),
    ] = None,
    max_credits: Annotated[
        int | None,
        typer.Option(
            "--max-credits",
            min=1,
            max=LARGEST_CREDITS,
            metavar="N",
            help="What the run may cost; each account has an equal share of it.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is finished, and show the report.")] = False,
) -> int:
    """Collect the newest posts of accounts, tracked or not. Workers do it; one run at a time.

    With --wait the exit code is 3 if an account failed; Ctrl-C leaves the run going.
    """
    wanted = read_handles(",".join(listed_values(handles, source, "handle")))
    async with open_app(invocation.settings) as app:
        run = await app.runs.start(
            wanted, limit, asked_by="command line", now=app.database.clock.now(), max_credits=max_credits
        )
        hints = await _hints(app)
        if not wait:
            invocation.out.show(document(run=fields(run)), *_started(run), *hints)
            return 0
        for hint in hints:
            sys.stderr.write(f"{hint}\n")
        run = await _finished(app, run)
    invocation.out.show(document(run=fields(run)), *blocks(run))
    return DONE_WITH_GAPS if run.failed_accounts else 0


@shared_options
async def list_runs(
    invocation: Invocation,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many at most.")] = 20,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only those before this run: the next page.")
    ] = None,
) -> None:
    """Show runs, newest first. Finished ones are forgotten after `run_hours`."""
    async with open_app(invocation.settings) as app:
        await app.runs.settle(app.database.clock.now())
        found = await app.runs.list(limit, before)
    more = found[-1].id if len(found) == limit else None
    grid = Grid(
        columns=LISTED,
        rows=[listed_row(run) for run in found],
        empty="no runs: `mistnet runs start HANDLE` makes one",
    )
    hint = [f"more: --before {more}"] if more else []
    invocation.out.show(document(runs=[fields(run) for run in found], next_before=more), grid, *hint)


@shared_options
async def show(
    invocation: Invocation,
    run_id: Annotated[str, typer.Argument(metavar="ID", help="The run's id.")],
) -> None:
    """Show a run: how far each account is, and the report."""
    async with open_app(invocation.settings) as app:
        await app.runs.settle(app.database.clock.now())
        run = await app.runs.get(run_id)
    if run is None:
        raise RunNotFound(run_id)
    invocation.out.show(document(run=fields(run)), *blocks(run))


@shared_options
async def cancel(
    invocation: Invocation,
    run_id: Annotated[str, typer.Argument(metavar="ID", help="The run's id.")],
) -> None:
    """End a run where it stands, so that another one may begin. What it has collected stays."""
    async with open_app(invocation.settings) as app:
        run = await app.runs.cancel(run_id, app.database.clock.now())
    invocation.out.show(document(run=fields(run)), *blocks(run))


def fields(run: Run) -> dict[str, Any]:
    """A run as a document: `report` is how it stands, `result` the same once it is finished."""
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


def blocks(run: Run) -> list[Block]:
    ended = f", finished {at(run.finished_at)} UTC" if run.finished_at else ""
    most = counted(run.post_limit, "post")
    head = f"run {run.id}: {run.status}, begun {at(run.created_at)} UTC{ended}, at most {most} each"
    rows = [_account_row(each) for each in run.accounts]
    sums = [str(run.report[name]) for name in ("total", "new", "skipped", "failed")]
    together = [("all", "", *sums, "")] if len(rows) > 1 else []
    return [head, Grid(columns=_COLUMNS, rows=[*rows, *together])]


def _account_row(account: RunAccount) -> Sequence[str]:
    counts = (account.total, account.new, account.skipped, account.failed)
    return (f"@{account.handle}", account.status, *map(str, counts), last_line(account.reason))


def listed_row(run: Run) -> Sequence[str]:
    report = run.report
    counts = (len(run.accounts), run.failed_accounts, report["total"], report["new"], report["failed"])
    return (run.id, run.status, run.asked_by, at(run.created_at), at(run.finished_at), *map(str, counts))


def _started(run: Run) -> list[Block]:
    count = len(run.accounts)
    whom = f"@{run.accounts[0].handle}" if count == 1 else counted(count, "account")
    return [
        f"run {run.id} has begun: up to {counted(run.post_limit, 'post')} of {whom}",
        f"next: `mistnet runs show {run.id}` tells how far it is",
    ]


async def _hints(app: App) -> list[str]:
    """What a run still lacks to go on."""
    if not app.settings.x_api_key:
        return ["workers will need a key for X: set MISTNET_X_API_KEY (`mistnet demo` needs none)"]
    now = app.database.clock.now()
    if any(now - each.seen_at <= _SEEN_LATELY for each in await app.inspector.workers()):
        return []
    return ["no worker was seen lately: `mistnet work` starts one"]


async def _finished(app: App, run: Run) -> Run:
    """Looks again and again until the run is over; on a terminal, shows how far it is."""
    from rich.console import Console  # noqa: PLC0415 (only those who wait for a run wait for it, too)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("accounts", total=len(run.accounts))
        while not run.finished:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(DatabaseBusy):
                run = await _looked_at(app, run)
            ended = sum(each.status not in UNFINISHED for each in run.accounts)
            progress.update(task, completed=ended, description=f"{counted(run.report['total'], 'post')}, accounts")
    return run


async def _looked_at(app: App, run: Run) -> Run:
    await app.runs.settle(app.database.clock.now())
    found = await app.runs.get(run.id)
    if found is None:
        raise RunNotFound(run.id)
    return found
