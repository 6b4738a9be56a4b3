"""The export command: a table's rows, or a graph, as a stream or files in a format other programs read."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.input import storable
from mistnet.cli.opening import open_database
from mistnet.cli.output import document
from mistnet.cli.search import Author, Since, Until, moment
from mistnet.cli.write_out import (
    ForceOption,
    OutputOption,
    OutputTarget,
    SafeOption,
    choose_format,
    named_file,
    require_csv,
    write_out,
)
from mistnet.graph.export import GraphExporter, GraphFormat, GraphSelection, GraphSize, OnPage
from mistnet.graph.selection import GRAPH, Edges, UserSet, neighbourhood_of, users_of_segment
from mistnet.kit.database import Database
from mistnet.kit.export import Format, Target, whole_file
from mistnet.kit.text import counted
from mistnet.operations.export import Exported, Exporter, Selection
from mistnet.prices.lineage.export import LINEAGE, LineageWanted, export_lineage

_SEVERAL_FILES: Final = (GraphFormat.CSV, GraphFormat.PARQUET)


class GraphAsked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command's options say of a graph."""

    segment: str | None
    around: str | None
    edges: Edges | None
    ended: bool
    since: datetime | None
    until: datetime | None

    @property
    def is_meant(self) -> bool:
        return self.ended or any(each is not None for each in (self.segment, self.around, self.edges))


async def export_graph(
    invocation: Invocation,
    asked: GraphAsked,
    form: str | None,
    output: Path | None,
    *,
    force: bool,
    safe: bool = False,
) -> None:
    output = named_file(output)
    format_, edges = _format(form, output), _edges(asked)
    require_csv(format_, safe=safe)
    if output is None:
        raise typer.BadParameter("a graph is written to files; name one with --output FILE")
    nodes = nodes_file(output) if format_ in _SEVERAL_FILES else None
    async with open_database(invocation.settings) as database:
        selection = GraphSelection(
            users_of=await _users_of(database, asked),
            edges=edges,
            ended=asked.ended,
            since=asked.since,
            until=asked.until,
        )
        with _files(output, nodes, force=force) as (part, nodes_part), _export_graph_watched() as told:
            size = await GraphExporter(database, safe_cells=safe).export(selection, format_, part, nodes_part, told)
    _say(invocation, size, format_, edges, [output, *([nodes] if nodes else [])])


def nodes_file(output: Path) -> Path:
    """Where the people of a graph stand whose edges are in a file of their own: net.csv, net.nodes.csv."""
    return output.with_name(f"{output.stem}.nodes{output.suffix}")


def _format(form: str | None, output: Path | None) -> GraphFormat:
    chosen = choose_format(form, output, default=GraphFormat.GEXF, known=(*GraphFormat,))
    if chosen not in set(GraphFormat):
        raise typer.BadParameter(f"a graph cannot be {chosen}; choose from {', '.join(GraphFormat)}")
    return GraphFormat(chosen)


def _edges(asked: GraphAsked) -> Edges:
    if (asked.segment is None) == (asked.around is None):
        raise typer.BadParameter("say whose graph: --segment NAME or --around HANDLE, one of them")
    if asked.edges is None:
        raise typer.BadParameter(f"say what an edge is: --edges {' or --edges '.join(Edges)}")
    if asked.edges is Edges.FOLLOWS and (asked.since or asked.until):
        raise typer.BadParameter("--since and --until choose replies by their time; follows have --ended")
    if asked.edges is Edges.REPLIES and asked.ended:
        raise typer.BadParameter("replies do not end; --ended goes with --edges follows")
    return asked.edges


async def _users_of(database: Database, asked: GraphAsked) -> UserSet:
    if asked.segment is not None:
        return await users_of_segment(database, asked.segment)
    return await neighbourhood_of(database, str(asked.around), ended=asked.ended)


@contextmanager
def _files(output: Path, nodes: Path | None, *, force: bool) -> Iterator[tuple[Path, Path | None]]:
    """Files get their names when all of them are complete."""
    if nodes is None:
        with whole_file(GRAPH, output, force=force) as part:
            yield part, None
        return
    with whole_file(GRAPH, output, force=force) as part, whole_file(GRAPH, nodes, force=force) as nodes_part:
        yield part, nodes_part


@contextmanager
def _export_graph_watched() -> Iterator[OnPage]:
    """How much was written so far, where somebody looks on; how much there will be is not known."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)

    rows = 0
    with Console(stderr=True).status("exporting") as status:

        def told(more: int) -> None:
            nonlocal rows
            rows += more
            status.update(f"exporting: {rows:,} people and edges")

        yield told


def _say(invocation: Invocation, size: GraphSize, format_: GraphFormat, edges: Edges, written: list[Path]) -> None:
    if invocation.out.as_json:
        invocation.out.show(
            document(
                what=GRAPH,
                format=format_,
                edges=edges,
                output=str(written[0]),
                nodes_output=str(written[-1]),
                nodes=size.nodes,
                rows=size.edges,
            )
        )
    else:
        sys.stderr.write(
            f"{counted(size.nodes, 'person', 'people')} and {size.edges:,} {edges} exported to "
            f"{' and '.join(map(str, written))}\n"
        )


_FILES_ONLY: Final = (Format.PARQUET, Format.SQLITE)


class ExportSubject(StrEnum):
    """All tables, a graph, and which posts promoted which products."""

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
            help="By default what the name of --output says. Tables: any but gexf, or jsonl by default; parquet and "
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
    raw: Annotated[bool, typer.Option("--raw", help="With the payloads as they came.")] = False,
    segment: Annotated[
        str | None, typer.Option("--segment", metavar="NAME", help="A graph: of the members of this segment.")
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(
            "--around", metavar="HANDLE", help="A graph: of this user, all who follow him and all whom he follows."
        ),
    ] = None,
    edges: Annotated[
        Edges | None,
        typer.Option("--edges", metavar="|".join(Edges), help="A graph: who follows whom, or who answers whom."),
    ] = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="A graph of follows: also those that have ended, with when.")
    ] = False,
    safe: SafeOption = False,
    force: ForceOption = False,
) -> None:
    """Write out all rows of a table, those of one author or span of time, a graph of people, or lineage."""
    for name, given in (("--author", author), ("--segment", segment), ("--around", around)):
        storable(name, given)
    graph = GraphAsked(segment=segment, around=around, edges=edges, ended=ended, since=since, until=until)
    if what in (ExportSubject.GRAPH, ExportSubject.LINEAGE) and (stored_since or stored_until):
        raise typer.BadParameter(f"--stored-since and --stored-until go with posts and users, not with {what}")
    if what is ExportSubject.GRAPH:
        if author is not None or raw:
            raise typer.BadParameter("a graph knows no --author and no --raw; --around HANDLE is one user's graph")
        await export_graph(invocation, graph, form and str(form), output, force=force, safe=safe)
        return
    if graph.is_meant:
        raise typer.BadParameter(f"--segment, --around, --edges and --ended go with `export {GRAPH}`")
    if form is Form.GEXF:
        raise typer.BadParameter(f"gexf is for graphs: `export {GRAPH}`; a table can be {', '.join(Format)}")
    place = OutputTarget.of(Format(form) if form else None, output, force=force, safe=safe)
    if what is ExportSubject.LINEAGE:
        if raw:
            raise typer.BadParameter("lineage is made of several tables and has no payloads; leave out --raw")
        wanted = LineageWanted(author=author, since=since, until=until)
        await _export_lineage(invocation, wanted, place)
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
        with _progress(await exporter.count(selection) if _watched(place.output) else None) as told:
            return await exporter.export(selection, place.format, target, told)

    await write_out(invocation, place, table, what=selection.what, told={"what": selection.what})


async def _export_lineage(invocation: Invocation, wanted: LineageWanted, place: OutputTarget) -> None:
    async def lineage(app: App, target: Target) -> int:
        return await export_lineage(app.database, wanted, place.format, target, now=app.database.clock.now())

    await write_out(invocation, place, lineage, what=LINEAGE, rows_of=f"rows of {LINEAGE}", told={"what": LINEAGE})


def _watched(output: Path | None) -> bool:
    """Whether somebody looks on, and the bar would not get among the rows."""
    return sys.stderr.isatty() and not (output is None and sys.stdout.isatty())


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], object]]:
    if total is None:
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 (only people at a terminal wait for it)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("exporting", total=total)
        yield lambda rows: bar.advance(task, rows)
