"""Commands for runs: collect the newest posts of some accounts, and show the result."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import FileOption, LimitOption, listed_values
from mistnet.cli.output import Block, Grid, at, document, last_line, next_page, worker_hints
from mistnet.kit.errors import DatabaseBusy
from mistnet.kit.text import counted
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

DONE_WITH_GAPS: Final = 3
_POLL_SECONDS: Final = 0.5
_COLUMNS: Final = ("account", "status", "posts", "new", "skipped", "unreadable", "why")
LISTED: Final = (
    "run",
    "status",
    "asked by",
    "started (UTC)",
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
    accounts = read_handles(",".join(listed_values(handles, source, "handle")))
    async with open_app(invocation.settings) as app:
        run = await app.runs.start(
            accounts, limit, asked_by="command line", now=app.database.clock.now(), max_credits=max_credits
        )
        hints = await _hints(app)
        if not wait:
            whom = f"@{accounts[0]}" if len(accounts) == 1 else counted(len(accounts), "account")
            invocation.out.show(
                document(run=_fields(run)),
                f"run {run.id} has started: up to {counted(run.post_limit, 'post')} of {whom}",
                f"next: `mistnet runs show {run.id}` shows its progress",
                *hints,
            )
            return 0
        for hint in hints:
            sys.stderr.write(f"{hint}\n")
        run = await _wait_for(app, run)
    _show(invocation, run)
    return DONE_WITH_GAPS if run.failed_accounts else 0


@shared_options
async def list_runs(
    invocation: Invocation,
    *,
    limit: LimitOption = 20,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only those before this run: the next page.")
    ] = None,
) -> None:
    """Show runs, newest first. Finished ones are deleted after `run_hours`."""
    async with open_app(invocation.settings) as app:
        page = await app.runs.page(app.database.clock.now(), before=before, limit=limit)
    grid = Grid(
        columns=LISTED,
        rows=[listed_row(run) for run in page.items],
        empty="no runs: `mistnet runs start HANDLE` starts one",
    )
    facts = document(runs=[_fields(run) for run in page.items], next_before=page.next)
    invocation.out.show(facts, grid, *next_page(page.next))


@shared_options
async def show(
    invocation: Invocation,
    run_id: Annotated[str, typer.Argument(metavar="ID", help="The run's id.")],
) -> None:
    """Show a run: the progress of each account, and the report."""
    async with open_app(invocation.settings) as app:
        _show(invocation, await app.runs.show(run_id, app.database.clock.now()))


@shared_options
async def cancel(
    invocation: Invocation,
    run_id: Annotated[str, typer.Argument(metavar="ID", help="The run's id.")],
) -> None:
    """End a run, so that another one can start. What it has collected stays."""
    async with open_app(invocation.settings) as app:
        _show(invocation, await app.runs.cancel(run_id, app.database.clock.now()))


def _show(invocation: Invocation, run: Run) -> None:
    ended = f", finished {at(run.finished_at)} UTC" if run.finished_at else ""
    most = counted(run.post_limit, "post")
    head = f"run {run.id}: {run.status}, started {at(run.created_at)} UTC{ended}, at most {most} each"
    rows: list[Sequence[str]] = [
        (f"@{each.handle}", each.status, *(str(getattr(each, name)) for name in COUNTS), last_line(each.reason))
        for each in run.accounts
    ]
    if len(rows) > 1:
        rows.append(("all", "", *(str(run.report[name]) for name in COUNTS), ""))
    blocks: list[Block] = [head, Grid(columns=_COLUMNS, rows=rows)]
    invocation.out.show(document(run=_fields(run)), *blocks)


def _fields(run: Run) -> dict[str, Any]:
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


def listed_row(run: Run) -> Sequence[str]:
    report = run.report
    counts = (len(run.accounts), run.failed_accounts, report["total"], report["new"], report["failed"])
    return (run.id, run.status, run.asked_by, at(run.created_at), at(run.finished_at), *map(str, counts))


async def _hints(app: App) -> list[str]:
    """What is missing for the run to proceed."""
    if not app.settings.x_api_key:
        return ["workers will need a key for X: set MISTNET_X_API_KEY (`mistnet demo` needs none)"]
    return await worker_hints(app)


async def _wait_for(app: App, run: Run) -> Run:
    """Poll until the run has finished. A terminal shows a progress bar."""
    from rich.console import Console  # noqa: PLC0415 (slow to load; only --wait needs it)
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
            await asyncio.sleep(_POLL_SECONDS)
            with suppress(DatabaseBusy):
                run = await app.runs.show(run.id, app.database.clock.now())
            ended = sum(each.status not in UNFINISHED for each in run.accounts)
            progress.update(task, completed=ended, description=f"{counted(run.report['total'], 'post')}, accounts")
    return run
