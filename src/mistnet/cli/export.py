"""The export command: the rows of a table, a graph or lineage, as a stream or as files."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.input import Author, Since, Until, moment, storable
from mistnet.cli.output import document, progress_bar
from mistnet.cli.write_out import (
    ForceOption,
    OutputOption,
    OutputTarget,
    SafeOption,
    choose_format,
    file_of,
    require_csv,
    write_out,
)
from mistnet.graph.export import GraphExporter, GraphFormat, GraphSelection
from mistnet.graph.selection import GRAPH, Edges, UserSet, neighbourhood_of, users_of_segment
from mistnet.kit.export import Format, Target, whole_file
from mistnet.kit.text import counted
from mistnet.operations.export import Exported, Exporter, Selection
from mistnet.prices.store.lineage import LINEAGE, LineageSelection, export_lineage

_SEVERAL_FILES: Final = (GraphFormat.CSV, GraphFormat.PARQUET)


class GraphOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that describe a graph."""

    segment: str | None
    around: str | None
    edges: Edges | None
    ended: bool
    since: datetime | None
    until: datetime | None

    def checked_edges(self) -> Edges:
        """What an edge is. Raises if the options do not go together."""
        if (self.segment is None) == (self.around is None):
            raise typer.BadParameter("say whose graph: --segment NAME or --around HANDLE, one of them")
        if self.edges is None:
            raise typer.BadParameter(f"say what an edge is: --edges {' or --edges '.join(Edges)}")
        if self.edges is Edges.FOLLOWS and (self.since or self.until):
            raise typer.BadParameter("--since and --until choose replies by their time; follows have --ended")
        if self.edges is Edges.REPLIES and self.ended:
            raise typer.BadParameter("replies do not end; --ended goes with --edges follows")
        return self.edges

    @property
    def is_given(self) -> bool:
        return self.ended or any(each is not None for each in (self.segment, self.around, self.edges))


async def export_graph(
    invocation: Invocation,
    options: GraphOptions,
    form: str | None,
    output: Path | None,
    *,
    force: bool,
    safe: bool = False,
) -> None:
    output = file_of(output)
    chosen = choose_format(form, output, default=GraphFormat.GEXF, known=(*GraphFormat,))
    if chosen not in set(GraphFormat):
        raise typer.BadParameter(f"a graph cannot be {chosen}; choose from {', '.join(GraphFormat)}")
    format_, edges = GraphFormat(chosen), options.checked_edges()
    require_csv(format_, safe=safe)
    if output is None:
        raise typer.BadParameter("a graph is written to files; name one with --output FILE")
    nodes = nodes_file(output) if format_ in _SEVERAL_FILES else None
    async with open_database(invocation.settings) as database:
        users_of: UserSet
        if options.segment is not None:
            users_of = await users_of_segment(database, options.segment)
        else:
            users_of = await neighbourhood_of(database, str(options.around), ended=options.ended)
        selection = GraphSelection(
            users_of=users_of,
            edges=edges,
            ended=options.ended,
            since=options.since,
            until=options.until,
        )
        bar = progress_bar("exporting people and edges")
        with graph_files(output, nodes, force=force) as (part, nodes_part), bar as progress:
            size = await GraphExporter(database, safe_cells=safe).export(selection, format_, part, nodes_part, progress)
    written = [str(output), *([str(nodes)] if nodes else [])]
    if invocation.out.as_json:
        facts = document(what=GRAPH, format=format_, edges=edges, output=written[0], nodes_output=written[-1])
        invocation.out.show({**facts, "nodes": size.nodes, "rows": size.edges})
        return
    people = counted(size.nodes, "person", "people")
    sys.stderr.write(f"{people} and {size.edges:,} {edges} exported to {' and '.join(written)}\n")


def nodes_file(output: Path) -> Path:
    """The file of a graph's people, beside that of its edges: net.csv, net.nodes.csv."""
    return output.with_name(f"{output.stem}.nodes{output.suffix}")


class ExportSubject(StrEnum):
    """The tables, a graph, and which posts promoted which products."""

    POSTS = "posts"
    USERS = "users"
    ACCOUNTS = "accounts"
    USER_VERSIONS = "user_versions"
    SUGGESTIONS = "suggestions"
    MISSING = "missing"
    CALLS = "calls"
    GRAPH = "graph"
    LINEAGE = "lineage"


class Form(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    SQLITE = "sqlite"
    GEXF = "gexf"


@contextmanager
def graph_files(output: Path, nodes: Path | None, *, force: bool) -> Iterator[tuple[Path, Path | None]]:
    """Files get their names once all of them are complete."""
    with ExitStack() as files:
        part = files.enter_context(whole_file(GRAPH, output, force=force))
        yield part, files.enter_context(whole_file(GRAPH, nodes, force=force)) if nodes else None


@shared_options
async def export(  # noqa: PLR0913 (one option each: tables and graphs share the command)
    invocation: Invocation,
    what: Annotated[ExportSubject, typer.Argument(metavar="WHAT", help=f"One of {', '.join(ExportSubject)}.")],
    *,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            metavar="|".join(Form),
            help="By default as the name of --output says. Tables: any but gexf, or jsonl by default; parquet and "
            "sqlite need --output. A graph: gexf, by default, csv or parquet, always with --output.",
        ),
    ] = None,
    output: OutputOption = None,
    author: Author = None,
    since: Since = None,
    until: Until = None,
    stored_since: Annotated[
        datetime | None,
        typer.Option(
            "--stored-since", parser=moment, metavar="TIME", help="Posts and users: first stored at this time or later."
        ),
    ] = None,
    stored_until: Annotated[
        datetime | None,
        typer.Option("--stored-until", parser=moment, metavar="TIME", help="Posts and users: first stored before."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="With the payloads as received.")] = False,
    segment: Annotated[
        str | None, typer.Option("--segment", metavar="NAME", help="A graph: of the members of this segment.")
    ] = None,
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
    """Export all rows of a table, those of one author or span of time, a graph of people, or lineage."""
    for name, given in (("--author", author), ("--segment", segment), ("--around", around)):
        storable(name, given)
    graph = GraphOptions(segment=segment, around=around, edges=edges, ended=ended, since=since, until=until)
    if what in (ExportSubject.GRAPH, ExportSubject.LINEAGE) and (stored_since or stored_until):
        raise typer.BadParameter(f"--stored-since and --stored-until go with posts and users, not with {what}")
    if what is ExportSubject.GRAPH:
        if author is not None or raw:
            raise typer.BadParameter("--author and --raw do not go with a graph; --around HANDLE is one user's graph")
        await export_graph(invocation, graph, form and str(form), output, force=force, safe=safe)
        return
    if graph.is_given:
        raise typer.BadParameter(f"--segment, --around, --edges and --ended go with `export {GRAPH}`")
    if form is Form.GEXF:
        raise typer.BadParameter(f"gexf is for graphs: `export {GRAPH}`; a table can be {', '.join(Format)}")
    place = OutputTarget.of(Format(form) if form else None, output, force=force, safe=safe)
    if what is ExportSubject.LINEAGE:
        if raw:
            raise typer.BadParameter("lineage has no payloads; leave out --raw")
        wanted = LineageSelection(author=author, since=since, until=until)

        async def lineage(app: App, target: Target) -> int:
            return await export_lineage(app.database, wanted, place.format, target, now=app.database.clock.now())

        await write_out(invocation, place, lineage, what=LINEAGE, rows_of=f"rows of {LINEAGE}", facts={"what": LINEAGE})
        return
    selection = Selection(
        what=Exported(what),
        author=author,
        since=since,
        until=until,
        stored_since=stored_since,
        stored_until=stored_until,
        raw=raw,
    )
    await _export_table(invocation, selection, place)


async def _export_table(invocation: Invocation, selection: Selection, place: OutputTarget) -> None:
    async def table(app: App, target: Target) -> int:
        exporter = Exporter(app.database)
        # A progress bar must not mix with rows on the terminal. Counting for it takes time, too.
        hidden = not sys.stderr.isatty() or (place.output is None and sys.stdout.isatty())
        total = None if hidden else await exporter.count(selection)
        with progress_bar("exporting", total, hidden=hidden) as progress:
            return await exporter.export(selection, place.format, target, progress)

    await write_out(invocation, place, table, what=selection.what, facts={"what": selection.what})
