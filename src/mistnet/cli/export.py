"""The export command: the rows of a table or of all tables, a graph or lineage, as a stream, a file or a folder."""

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.export_graph import GraphOptions, export_graph
from mistnet.cli.input import PlatformOption, Since, Until, moment, storable
from mistnet.cli.output import document, progress_bar
from mistnet.cli.write_out import (
    ForceOption,
    OutputOption,
    OutputTarget,
    SafeOption,
    file_of,
    write_out,
)
from mistnet.data.export import Exporter, since_last, whole_folder, write_mark
from mistnet.data.model import BadSelection, Selection, TableName
from mistnet.data.store import has_payloads, selected_fields
from mistnet.graph.selection import GRAPH, Edges
from mistnet.kit.export import ExportTarget, Format, Target
from mistnet.prices.store.lineage import LINEAGE, LineageSelection, export_lineage

ALL: Final = "all"
_SUBJECTS: Final = (*TableName, GRAPH, LINEAGE, ALL)
_FORMATS_OF_ALL: Final = (Format.CSV, Format.JSONL, Format.PARQUET)


class Form(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    SQLITE = "sqlite"
    GEXF = "gexf"


def _subject(given: str) -> str:
    if given not in _SUBJECTS:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(map(repr, map(str, _SUBJECTS)))}.")
    return given


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to select, where and how to write it, and whether only what is new since the last time."""

    selection: Selection
    format: Format | None
    output: Path | None
    style: Mapping[str, bool]
    since_last: bool

    def select(self, what: TableName, now: datetime) -> Selection:
        selection = msgspec.structs.replace(self.selection, what=what)
        if not self.since_last or self.output is None:
            return selection
        return since_last(selection, self.output, now=now)


@shared_options
async def export(  # noqa: PLR0913 (one option each: tables and graphs share the command)
    invocation: Invocation,
    what: Annotated[
        str,
        typer.Argument(metavar="NAME", parser=_subject, help=f"One of {', '.join(_SUBJECTS)}."),
    ],
    *,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            metavar="|".join(Form),
            help="By default as the name of --output says. Tables: any but gexf, or jsonl by default; parquet and "
            "sqlite need --output. All: csv, by default, jsonl or parquet. A graph: gexf, by default, csv or parquet, "
            "always with --output.",
        ),
    ] = None,
    output: OutputOption = None,
    account: Annotated[
        list[str] | None,
        typer.Option(
            "--account",
            "--author",
            metavar="HANDLE",
            help="Only rows of the user with this handle now, or this id; more than once for several.",
        ),
    ] = None,
    platform: PlatformOption = None,
    since: Since = None,
    until: Until = None,
    stored_since: Annotated[
        datetime | None,
        typer.Option("--stored-since", parser=moment, metavar="TIME", help="First stored at this time or later."),
    ] = None,
    stored_until: Annotated[
        datetime | None,
        typer.Option("--stored-until", parser=moment, metavar="TIME", help="First stored before."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="WORDS", help="Only posts that a search finds, or what is in such posts."),
    ] = None,
    segment: Annotated[
        str | None,
        typer.Option("--segment", metavar="NAME", help="Only rows of the members of this segment; a graph: of them."),
    ] = None,
    since_last_: Annotated[
        bool,
        typer.Option(
            "--since-last",
            help="Only rows that were stored or changed since the last export of this table to the folder of --output.",
        ),
    ] = False,
    ids_only: Annotated[
        bool,
        typer.Option(
            "--ids-only", help="Only ids: one on each line, or with --format the columns that identify a row."
        ),
    ] = False,
    ids_as_text: Annotated[
        bool,
        typer.Option("--ids-as-text", help="Ids as text, in CSV with an apostrophe: no program rounds them then."),
    ] = False,
    excel: Annotated[
        bool,
        typer.Option(
            "--excel", help="CSV for Excel: with a byte order mark, --ids-as-text and --safe-for-spreadsheets."
        ),
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Posts and users: with the payloads as received.")] = False,
    around: Annotated[
        str | None,
        typer.Option("--around", metavar="HANDLE", help="A graph: of this user, their followers and followings."),
    ] = None,
    edges: Annotated[
        Edges | None,
        typer.Option("--edges", metavar="|".join(Edges), help="A graph: who follows whom, or who replies to whom."),
    ] = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="A graph of follows: also those that have ended, with when.")
    ] = False,
    safe: SafeOption = False,
    force: ForceOption = False,
) -> None:
    """Export a table, all of them, a graph of people, or lineage."""
    accounts = account or []
    for name, given in (
        *(("--account", each) for each in accounts),
        ("--segment", segment),
        ("--around", around),
        ("--query", query),
        ("--platform", platform),
    ):
        storable(name, given)
    graph = GraphOptions(segment=segment, around=around, edges=edges, ended=ended, since=since, until=until)
    of_tables = {
        "--account": accounts if what == GRAPH else None,
        "--segment": segment if what == LINEAGE else None,
        "--platform": platform,
        "--stored-since": stored_since,
        "--stored-until": stored_until,
        "--query": query,
        "--since-last": since_last_,
        "--ids-only": ids_only,
        "--ids-as-text": ids_as_text,
        "--excel": excel,
        "--raw": raw,
    }
    if what in (GRAPH, LINEAGE) and (wrong := [name for name, given in of_tables.items() if given]):
        hint = "; --around HANDLE is one user's graph" if what == GRAPH and accounts else ""
        goes = "goes" if len(wrong) == 1 else "go"
        raise typer.BadParameter(f"{' and '.join(wrong)} {goes} with tables, not with {what}{hint}")
    if what == GRAPH:
        await export_graph(invocation, graph, form and str(form), output, force=force, safe=safe)
        return
    if graph.is_given:
        raise typer.BadParameter(f"--around, --edges and --ended go with `export {GRAPH}`")
    if form is Form.GEXF:
        raise typer.BadParameter(f"gexf is for graphs: `export {GRAPH}`; a table can be {', '.join(Format)}")
    if what == LINEAGE:
        await _export_lineage(
            invocation, accounts, since, until, OutputTarget.of(_format(form), output, force=force, safe=safe)
        )
        return
    if since_last_ and file_of(output) is None:
        raise typer.BadParameter("--since-last needs --output: beside it is noted what was exported last")
    if since_last_ and force:
        raise typer.BadParameter("--since-last writes new rows alone, and --force would lose the others; leave out one")
    lines = ids_only and form is None and (output is None or output.suffix in (".txt", ""))
    wanted = Wanted(
        selection=Selection(
            what=TableName.POSTS if what == ALL else TableName(what),
            accounts=accounts,
            platform=platform,
            since=since,
            until=until,
            stored_since=stored_since,
            stored_until=stored_until,
            query=query,
            segment=segment,
            raw=raw,
            ids_only=ids_only,
        ),
        format=_format(form),
        output=file_of(output),
        style={"force": force, "safe": safe, "excel": excel, "ids_as_text": ids_as_text},
        since_last=since_last_,
    )
    if what == ALL:
        await _export_all(invocation, wanted)
    else:
        await _export_table(invocation, wanted, lines=lines)


def _format(form: Form | None) -> Format | None:
    return Format(form) if form else None


async def _export_lineage(
    invocation: Invocation, accounts: list[str], since: datetime | None, until: datetime | None, place: OutputTarget
) -> None:
    if len(accounts) > 1:
        raise typer.BadParameter("lineage is of one account, or of all")
    wanted = LineageSelection(author=accounts[0] if accounts else None, since=since, until=until)

    async def lineage(app: App, target: Target) -> int:
        return await export_lineage(app.database, wanted, place.format, target, now=app.database.clock.now())

    await write_out(invocation, place, lineage, what=LINEAGE, rows_of=f"rows of {LINEAGE}", facts={"what": LINEAGE})


async def _export_table(invocation: Invocation, wanted: Wanted, *, lines: bool) -> None:
    """`lines`: ids alone, one on each line. They have no format."""
    what = wanted.selection.what
    if lines:
        place = OutputTarget(format=Format.JSONL, output=wanted.output, **wanted.style)
    else:
        place = OutputTarget.of(wanted.format, wanted.output, **wanted.style)
    if lines and "id" not in [field.name for field in selected_fields(wanted.selection)]:
        raise typer.BadParameter(f"rows of {what} have no single id. Add --format csv for the columns that name them.")
    marks: list[Callable[[], None]] = []

    async def table(app: App, target: Target) -> int:
        exporter, selection = Exporter(app.database), wanted.select(what, app.database.clock.now())
        await exporter.check(selection)
        # A progress bar must not mix with rows on the terminal. Counting for it takes time, too.
        hidden = not sys.stderr.isatty() or (place.output is None and sys.stdout.isatty())
        total = None if hidden else await exporter.count(selection)
        with progress_bar("exporting", total, hidden=hidden) as progress:
            if lines:
                rows = await exporter.write_ids(selection, ExportTarget.of(target).target, progress)
            else:
                rows = await exporter.export(selection, place.format, target, progress)
        if place.output is not None:
            marks.append(partial(write_mark, selection, place.output, rows=rows))
        return rows

    await write_out(invocation, place, table, what=what, facts={"what": what})
    for write in marks:
        write()


async def _export_all(invocation: Invocation, wanted: Wanted) -> None:
    """All tables that can be filtered as asked; the others are named."""
    chosen, folder = wanted.format or Format.CSV, wanted.output
    if chosen not in _FORMATS_OF_ALL:
        raise typer.BadParameter(f"all tables can be {', '.join(_FORMATS_OF_ALL)}, not {chosen}")
    if folder is None:
        raise typer.BadParameter("all tables are written to a folder; name one with --output FOLDER")
    place = OutputTarget(format=chosen, output=folder, **wanted.style)
    async with open_app(invocation.settings) as app:
        exporter, now = Exporter(app.database), app.database.clock.now()
        selections, left_out = {}, []
        for name in TableName:
            selection = wanted.select(name, now)
            if selection.raw and not has_payloads(name):
                selection = msgspec.structs.replace(selection, raw=False)
            try:
                await exporter.check(selection)
                selections[name] = selection
            except BadSelection:
                left_out.append(name)
        with whole_folder(ALL, folder, force=place.force) as part:
            rows = await exporter.export_all(
                list(selections), selections.__getitem__, place.format, part, output=place.target
            )
        for name, selection in selections.items():
            write_mark(selection, folder, rows=rows[name])
    if invocation.out.as_json:
        shown = document(what=ALL, format=place.format, output=str(folder), rows=rows, left_out=left_out)
        invocation.out.show(shown)
        return
    sys.stderr.write(f"{sum(rows.values()):,} rows of {len(rows)} tables exported to {folder}\n")
    if left_out:
        sys.stderr.write(f"Left out, because they have no column for these filters: {', '.join(left_out)}\n")
