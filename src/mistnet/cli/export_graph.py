"""Exporting a graph: who follows or answers whom in a segment or around one user."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import typer

from mistnet.cli.opening import open_database
from mistnet.cli.output import document
from mistnet.cli.shared import Invocation
from mistnet.cli.write_out import choose_format, named_file, require_csv
from mistnet.domain.plural import counted
from mistnet.store.circles import GRAPH, Circle, circle_of_segment, neighbourhood_of
from mistnet.store.database import Database
from mistnet.store.export import whole_file
from mistnet.store.graph_export import Edges, GraphExporter, GraphFormat, GraphSelection, GraphSize, Told

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
            circle=await _circle(database, asked),
            edges=edges,
            ended=asked.ended,
            since=asked.since,
            until=asked.until,
        )
        with _files(output, nodes, force=force) as (part, nodes_part), _watched() as told:
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


async def _circle(database: Database, asked: GraphAsked) -> Circle:
    if asked.segment is not None:
        return await circle_of_segment(database, asked.segment)
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
def _watched() -> Iterator[Told]:
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
