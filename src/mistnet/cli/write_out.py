"""Exports: rows to standard output, or to a file that gets its name once it is complete."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation
from mistnet.cli.input import flag, option
from mistnet.cli.output import document
from mistnet.kit.export import BadExport, ExportTarget, Format, Target, whole_file

FormatOption = Annotated[
    Format | None,
    option(
        "--format",
        "|".join(Format),
        "By default as the name of --output says, or jsonl; parquet and sqlite need --output.",
    ),
]
OutputOption = Annotated[Path | None, option("--output", "FILE", "Where to; without it, or with -, standard output.")]
ForceOption = Annotated[bool, flag("--force", "Replace the file if there is one.")]

SafeOption = Annotated[
    bool, flag("--safe-for-spreadsheets", "CSV: an apostrophe before text that a spreadsheet would run as a formula.")
]

_SUFFIXES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".gexf": "gexf",
}
_FILES_ONLY: Final = (Format.PARQUET, Format.SQLITE)
_STANDARD_OUTPUT: Final = Path("-")


def file_of(output: Path | None) -> Path | None:
    """The file that --output names. A dash is standard output; ./- is a file."""
    return None if output == _STANDARD_OUTPUT else output


def choose_format(given: str | None, output: Path | None, *, default: str, known: Sequence[str] = (*Format,)) -> str:
    """The format from --format or the file's name. Both must agree."""
    suffix = output.suffix.lower() if output else ""
    named = _SUFFIXES.get(suffix)
    if given is not None and named not in (None, given):
        raise typer.BadParameter(
            f"{output} is named as {named}, and --format says {given}. Leave out --format, or name the file .{given}."
        )
    if given is None and suffix and named is None:
        *names, last = (f".{each}" for each in known)
        raise typer.BadParameter(
            f"{output}: no export is written as {suffix}. Name it {', '.join(names)} or {last}, or add --format."
        )
    return given or named or default


class OutputTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go, and in which format."""

    format: Format
    output: Path | None
    force: bool = False
    safe: bool = False
    excel: bool = False
    ids_as_text: bool = False

    @classmethod
    def of(cls, given: Format | None, output: Path | None, **style: bool) -> "OutputTarget":
        """The target of a table. `style` are the other fields."""
        output, excel = file_of(output), style.get("excel", False)
        chosen = choose_format(given, output, default=Format.CSV if excel else Format.JSONL)
        if chosen not in set(Format):
            raise typer.BadParameter(f"{chosen} is for graphs: `export graph`; this can be {', '.join(Format)}")
        require_csv(chosen, safe=style.get("safe", False), excel=excel)
        return cls(format=Format(chosen), output=output, **style)

    def target(self, place: Path | BinaryIO) -> ExportTarget:
        return ExportTarget(
            place,
            safe_cells=self.safe or self.excel,
            ids_as_text=self.ids_as_text or self.excel,
            byte_order_mark=self.excel,
        )


def require_csv(chosen: str, *, safe: bool, excel: bool = False) -> None:
    if (safe or excel) and chosen != Format.CSV:
        name = "--excel" if excel else "--safe-for-spreadsheets"
        raise typer.BadParameter(f"{name} goes with csv, not with {chosen}. Add --format csv.")


async def write_out(
    invocation: Invocation,
    place: OutputTarget,
    export: Callable[[App, Target], Awaitable[int]],
    *,
    what: str,
    rows_of: str | None = None,
    facts: Mapping[str, object] = {},
) -> None:
    """Call `export` with the target, and print how many rows it wrote. `facts` come first in the JSON."""
    output = place.output
    if output is None and place.format in _FILES_ONLY:
        raise typer.BadParameter(f"{place.format} cannot be streamed; name a file with --output FILE")
    if output is None and invocation.out.as_json:
        raise typer.BadParameter("standard output has the rows; --json needs --output FILE")
    async with open_app(invocation.settings) as app:
        if output is None:
            try:
                rows = await export(app, place.target(sys.stdout.buffer))
            except BrokenPipeError:
                raise  # a reader that leaves early is no error; a full disk is one
            except OSError as error:
                raise BadExport(what, f"standard output cannot be written: {error.strerror or error}") from error
        else:
            with whole_file(what, output, force=place.force) as part:
                rows = await export(app, place.target(part))
    if invocation.out.as_json:
        invocation.out.show(document(**facts, format=place.format, output=str(output), rows=rows))
    else:
        # Standard output may be the rows themselves.
        sys.stderr.write(f"{rows:,} {rows_of or what} exported{f' to {output}' if output else ''}\n")
