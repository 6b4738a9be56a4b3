"""Exports a graph of people for the export command: as one file, or as a file of people and one of edges."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import typer

from mistnet.cli.command import Invocation
from mistnet.cli.db import open_database
from mistnet.cli.output import document, progress_bar
from mistnet.cli.write_out import choose_format, file_of, require_csv
from mistnet.graph.export import GraphExporter, GraphFormat, GraphSelection
from mistnet.graph.selection import GRAPH, Edges, UserSet, neighbourhood_of, users_of_segment
from mistnet.kit.export import whole_file
from mistnet.kit.text import counted

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
        """Whether there is an option that only graphs have."""
        return self.ended or any(each is not None for each in (self.around, self.edges))


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


@contextmanager
def graph_files(output: Path, nodes: Path | None, *, force: bool) -> Iterator[tuple[Path, Path | None]]:
    """Files get their names once all of them are complete."""
    with ExitStack() as files:
        part = files.enter_context(whole_file(GRAPH, output, force=force))
        yield part, files.enter_context(whole_file(GRAPH, nodes, force=force)) if nodes else None
