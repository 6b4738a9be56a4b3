"""Rows written out for other programs: a stream on standard output, or a file that has its name once it is complete."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.output import document
from mistnet.cli.shared import Invocation
from mistnet.store.export import Format, Target, whole_file

FormatOption = Annotated[
    Format, typer.Option("--format", metavar="|".join(Format), help="parquet and sqlite need --output.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Where to; without it, standard output.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")]

_FILES_ONLY: Final = (Format.PARQUET, Format.SQLITE)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go, and in which form."""

    format: Format
    output: Path | None
    force: bool = False


async def write_out(
    invocation: Invocation,
    place: Place,
    export: Callable[[App, Target], Awaitable[int]],
    *,
    what: str,
    rows_of: str | None = None,
    told: Mapping[str, object] = {},
) -> None:
    """Calls `export` with where to write to, and says how many rows it wrote, by another name if they have one.

    `told` goes before the rest of what --json shows.
    """
    output = place.output
    if output is None and place.format in _FILES_ONLY:
        raise typer.BadParameter(f"{place.format} cannot be streamed; name a file with --output FILE")
    if output is None and invocation.out.as_json:
        raise typer.BadParameter("standard output has the rows; --json needs --output FILE")
    async with open_app(invocation.settings) as app:
        if output is None:
            rows = await export(app, sys.stdout.buffer)
        else:
            with whole_file(what, output, force=place.force) as part:
                rows = await export(app, part)
    if invocation.out.as_json:
        invocation.out.show(document(**told, format=place.format, output=str(output), rows=rows))
    else:
        sys.stderr.write(f"{rows:,} {rows_of or what} exported{f' to {output}' if output else ''}\n")
