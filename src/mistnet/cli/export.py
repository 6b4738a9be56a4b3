"""The export command: a table's rows as a stream or a file, in a format other programs read."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mistnet.app import open_app
from mistnet.cli.joblines import storable
from mistnet.cli.output import document
from mistnet.cli.search import Author, Since, Until
from mistnet.cli.shared import Invocation, shared_options
from mistnet.store.export import Exported, Exporter, Format, Selection, whole_file

_FILES_ONLY = (Format.PARQUET, Format.SQLITE)


@shared_options
async def export(
    invocation: Invocation,
    what: Annotated[Exported, typer.Argument(metavar="WHAT", help=f"One of {', '.join(Exported)}.")],
    *,
    format_: Annotated[
        Format, typer.Option("--format", metavar="|".join(Format), help="parquet and sqlite need --output.")
    ] = Format.JSONL,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Where to; without it, standard output.")
    ] = None,
    author: Author = None,
    since: Since = None,
    until: Until = None,
    raw: Annotated[bool, typer.Option("--raw", help="With the payloads as they came.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write out all rows of a table, or those of one author or span of time."""
    storable("--author", author)
    if output is None and format_ in _FILES_ONLY:
        raise typer.BadParameter(f"{format_} cannot be streamed; name a file with --output FILE")
    if output is None and invocation.out.as_json:
        raise typer.BadParameter("standard output has the rows; --json needs --output FILE")
    selection = Selection(what=what, author=author, since=since, until=until, raw=raw)
    async with open_app(invocation.settings) as app:
        exporter = Exporter(app.database)
        with _progress(await exporter.count(selection) if _watched(output) else None) as told:
            if output is None:
                rows = await exporter.export(selection, format_, sys.stdout.buffer, told)
            else:
                with whole_file(what, output, force=force) as part:
                    rows = await exporter.export(selection, format_, part, told)
    if invocation.out.as_json:
        invocation.out.show(document(what=what, format=format_, output=str(output), rows=rows))
    else:
        sys.stderr.write(f"{rows:,} {what} exported{f' to {output}' if output else ''}\n")


def _watched(output: Path | None) -> bool:
    """Whether somebody looks on, and the bar would not get among the rows."""
    return sys.stderr.isatty() and not (output is None and sys.stdout.isatty())


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], object]]:
    if total is None:
        yield lambda _: None
        return
    columns = (TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("exporting", total=total)
        yield lambda rows: bar.advance(task, rows)
