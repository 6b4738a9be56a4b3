"""The export command: the rows of a table or of all tables, a graph or lineage, as a stream, a file or a folder."""

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.export_graph import GraphOptions, export_graph
from mistnet.cli.input import PlatformOption, Since, Until, argument, flag, moment, option, storable
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


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to select, where and how to write it. Tables and graphs share the command."""

    form: Annotated[
        Form | None,
        option(
            "--format",
            "|".join(Form),
            "By default as the name of --output says. Tables: any but gexf, or jsonl by default; parquet and "
            "sqlite need --output. All: csv, by default, jsonl or parquet. A graph: gexf, by default, csv or parquet, "
            "always with --output.",
        ),
    ] = None
    output: OutputOption = None
    account: Annotated[
        list[str] | None,
        typer.Option(
            "--account",
            "--author",
            metavar="HANDLE",
            help="Only rows of the user with this handle now, or this id; more than once for several.",
        ),
    ] = None
    platform: PlatformOption = None
    since: Since = None
    until: Until = None
    stored_since: Annotated[
        datetime | None, option("--stored-since", "TIME", "First stored at this time or later.", parser=moment)
    ] = None
    stored_until: Annotated[
        datetime | None, option("--stored-until", "TIME", "First stored before.", parser=moment)
    ] = None
    query: Annotated[
        str | None, option("--query", "WORDS", "Only posts that a search finds, or what is in such posts.")
    ] = None
    segment: Annotated[
        str | None, option("--segment", "NAME", "Only rows of the members of this segment; a graph: of them.")
    ] = None
    since_last: Annotated[
        bool,
        flag(
            "--since-last",
            "Only rows that were stored or changed since the last export of this table to the folder of --output.",
        ),
    ] = False
    ids_only: Annotated[
        bool, flag("--ids-only", "Only ids: one on each line, or with --format the columns that identify a row.")
    ] = False
    ids_as_text: Annotated[
        bool, flag("--ids-as-text", "Ids as text, in CSV with an apostrophe: no program rounds them then.")
    ] = False
    excel: Annotated[
        bool, flag("--excel", "CSV for Excel: with a byte order mark, --ids-as-text and --safe-for-spreadsheets.")
    ] = False
    raw: Annotated[bool, flag("--raw", "Posts and users: with the payloads as received.")] = False
    around: Annotated[
        str | None, option("--around", "HANDLE", "A graph: of this user, their followers and followings.")
    ] = None
    edges: Annotated[
        Edges | None, option("--edges", "|".join(Edges), "A graph: who follows whom, or who replies to whom.")
    ] = None
    ended: Annotated[bool, flag("--ended", "A graph of follows: also those that have ended, with when.")] = False
    safe: SafeOption = False
    force: ForceOption = False

    @property
    def format(self) -> Format | None:
        """The format of a table, if one is given."""
        return Format(self.form) if self.form else None

    @property
    def style(self) -> Mapping[str, bool]:
        """How rows are written."""
        return {name: getattr(self, name) for name in ("force", "safe", "excel", "ids_as_text")}

    def select(self, what: TableName, now: datetime) -> Selection:
        """These rows of a table; with --since-last only those that are new since the last export."""
        names = [name for name in Selection.__struct_fields__ if name in self.__struct_fields__]
        selection = Selection(what=what, accounts=self.account or (), **{name: getattr(self, name) for name in names})
        output = file_of(self.output)
        return since_last(selection, output, now=now) if self.since_last and output else selection


@shared_options
async def export(
    invocation: Invocation,
    what: Annotated[str, argument("NAME", f"One of {', '.join(_SUBJECTS)}.", parser=_subject)],
    *,
    given: ExportOptions,
) -> None:
    """Export a table, all of them, a graph of people, or lineage."""
    accounts = given.account or []
    texts = {"--segment": given.segment, "--around": given.around, "--query": given.query}
    for name, text in (*(("--account", each) for each in accounts), *texts.items(), ("--platform", given.platform)):
        storable(name, text)
    graph = GraphOptions(**{name: getattr(given, name) for name in GraphOptions.__struct_fields__})
    of_tables = {
        "--account": accounts if what == GRAPH else None,
        "--segment": given.segment if what == LINEAGE else None,
        "--platform": given.platform,
        "--stored-since": given.stored_since,
        "--stored-until": given.stored_until,
        "--query": given.query,
        "--since-last": given.since_last,
        "--ids-only": given.ids_only,
        "--ids-as-text": given.ids_as_text,
        "--excel": given.excel,
        "--raw": given.raw,
    }
    if what in (GRAPH, LINEAGE) and (wrong := [name for name, value in of_tables.items() if value]):
        hint = "; --around HANDLE is one user's graph" if what == GRAPH and accounts else ""
        goes = "goes" if len(wrong) == 1 else "go"
        raise typer.BadParameter(f"{' and '.join(wrong)} {goes} with tables, not with {what}{hint}")
    if what == GRAPH:
        form = given.form and str(given.form)
        await export_graph(invocation, graph, form, given.output, force=given.force, safe=given.safe)
        return
    if graph.is_given:
        raise typer.BadParameter(f"--around, --edges and --ended go with `export {GRAPH}`")
    if given.form is Form.GEXF:
        raise typer.BadParameter(f"gexf is for graphs: `export {GRAPH}`; a table can be {', '.join(Format)}")
    if what == LINEAGE:
        await _export_lineage(invocation, given)
        return
    if given.since_last and file_of(given.output) is None:
        raise typer.BadParameter("--since-last needs --output: beside it is noted what was exported last")
    if given.since_last and given.force:
        raise typer.BadParameter("--since-last writes new rows alone, and --force would lose the others; leave out one")
    if what == ALL:
        await _export_all(invocation, given)
    else:
        await _export_table(invocation, TableName(what), given)


async def _export_lineage(invocation: Invocation, given: ExportOptions) -> None:
    place, accounts = OutputTarget.of(given.format, given.output, **given.style), given.account or []
    if len(accounts) > 1:
        raise typer.BadParameter("lineage is of one account, or of all")
    wanted = LineageSelection(author=accounts[0] if accounts else None, since=given.since, until=given.until)

    async def lineage(app: App, target: Target) -> int:
        return await export_lineage(app.database, wanted, place.format, target, now=app.database.clock.now())

    await write_out(invocation, place, lineage, what=LINEAGE, rows_of=f"rows of {LINEAGE}", facts={"what": LINEAGE})


async def _export_table(invocation: Invocation, what: TableName, given: ExportOptions) -> None:
    # Ids alone, one on each line: they have no format.
    output = given.output
    lines = given.ids_only and given.form is None and (output is None or output.suffix in (".txt", ""))
    if lines:
        place = OutputTarget(format=Format.JSONL, output=file_of(output), **given.style)
    else:
        place = OutputTarget.of(given.format, output, **given.style)
    if lines and "id" not in [field.name for field in selected_fields(Selection(what=what, ids_only=True))]:
        raise typer.BadParameter(f"rows of {what} have no single id. Add --format csv for the columns that name them.")
    marks: list[Callable[[], None]] = []

    async def table(app: App, target: Target) -> int:
        exporter, selection = Exporter(app.database), given.select(what, app.database.clock.now())
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


async def _export_all(invocation: Invocation, given: ExportOptions) -> None:
    """All tables that can be filtered as asked; the others are named."""
    chosen, folder = given.format or Format.CSV, file_of(given.output)
    if chosen not in _FORMATS_OF_ALL:
        raise typer.BadParameter(f"all tables can be {', '.join(_FORMATS_OF_ALL)}, not {chosen}")
    if folder is None:
        raise typer.BadParameter("all tables are written to a folder; name one with --output FOLDER")
    place = OutputTarget(format=chosen, output=folder, **given.style)
    async with open_app(invocation.settings) as app:
        exporter, now = Exporter(app.database), app.database.clock.now()
        selections, left_out = {}, []
        for name in TableName:
            selection = given.select(name, now)
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
