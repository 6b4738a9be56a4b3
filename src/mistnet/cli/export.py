"""The export command: a table's rows, or a graph, as a stream or files in a format other programs read."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from mistnet.app import App
from mistnet.cli.export_graph import GraphAsked, export_graph
from mistnet.cli.joblines import storable
from mistnet.cli.search import Author, Since, Until, moment
from mistnet.cli.shared import Invocation, shared_options
from mistnet.cli.write_out import ForceOption, OutputOption, Place, SafeOption, write_out
from mistnet.store.circles import GRAPH
from mistnet.store.export import Exported, Exporter, Format, Selection, Target
from mistnet.store.graph_export import Edges
from mistnet.store.lineage_export import LINEAGE, LineageWanted, export_lineage

_FILES_ONLY: Final = (Format.PARQUET, Format.SQLITE)


class Wanted(StrEnum):
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
    what: Annotated[Wanted, typer.Argument(metavar="WHAT", help=f"One of {', '.join(Wanted)}.")],
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
    if what in (Wanted.GRAPH, Wanted.LINEAGE) and (stored_since or stored_until):
        raise typer.BadParameter(f"--stored-since and --stored-until go with posts and users, not with {what}")
    if what is Wanted.GRAPH:
        if author is not None or raw:
            raise typer.BadParameter("a graph knows no --author and no --raw; --around HANDLE is one user's graph")
        await export_graph(invocation, graph, form and str(form), output, force=force, safe=safe)
        return
    if graph.is_meant:
        raise typer.BadParameter(f"--segment, --around, --edges and --ended go with `export {GRAPH}`")
    if form is Form.GEXF:
        raise typer.BadParameter(f"gexf is for graphs: `export {GRAPH}`; a table can be {', '.join(Format)}")
    place = Place.of(Format(form) if form else None, output, force=force, safe=safe)
    if what is Wanted.LINEAGE:
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


async def _export_table(invocation: Invocation, selection: Selection, place: Place) -> None:
    async def table(app: App, target: Target) -> int:
        exporter = Exporter(app.database)
        with _progress(await exporter.count(selection) if _watched(place.output) else None) as told:
            return await exporter.export(selection, place.format, target, told)

    await write_out(invocation, place, table, what=selection.what, told={"what": selection.what})


async def _export_lineage(invocation: Invocation, wanted: LineageWanted, place: Place) -> None:
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
