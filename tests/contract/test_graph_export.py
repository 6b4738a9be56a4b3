"""Graphs leave whole: every member, every edge among them, in each format the same, in little memory."""

import csv
import importlib
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import typer
from sqlalchemy import event, text
from typer.testing import CliRunner

from mistnet.cli.export import Form, export
from mistnet.cli.export_graph import graph_files, nodes_file
from mistnet.graph.export import EDGE_FIELDS, NODE_FIELDS, GraphExporter, GraphFormat, GraphSelection
from mistnet.graph.selection import Edges, Neighbourhood, SegmentUsers, UserSet, neighbourhood_of, users_of_segment
from mistnet.kit.database import Database
from mistnet.kit.export import BadExport, Format, export_row
from tests.databases import analyze, open_database
from tests.graphs import DAY, answer, follow, people, person, segment, written
from tests.memory import most_memory
from tests.support import START

pytestmark = pytest.mark.common_sql

ANN, BEA, CAT, DOT, EVE = 2**62 + 1, 12, 13, 14, 15
ODD_NAME = 'a "quoted" <b>&amp; \x00\x0b\x1b\ud800\r\n\t\ufffe naïve 東京 🚀'
NAMESPACE = {"g": "http://gexf.net/1.3"}
PAGE = Path(__file__).parents[2] / "docs" / "graph-export.md"
parquet: Any = importlib.import_module("pyarrow.parquet")
cli = typer.Typer()
cli.command()(export)


@asynccontextmanager
async def filled(url: str) -> AsyncIterator[Database]:
    """Four in a segment and one outside, who follow and answer each other in every way there is."""
    database = open_database(url)
    try:
        told = {"followers_count": 2**40, "following_count": 3, "posts_count": 0, "verified": True, "created_at": START}
        await people(database, [person(ANN, "Ann", name=ODD_NAME, **told), person(BEA, "bea")])
        await people(database, [person(CAT, "cat", name="Cat"), person(DOT, "dot"), person(EVE, "eve")])
        await follow(database, (ANN, BEA), (BEA, ANN), (CAT, ANN), (EVE, ANN), (BEA, EVE))
        await follow(database, (CAT, BEA), ended_at=START + 2 * DAY)
        later = START + timedelta(hours=1)
        answers = [
            *(answer(100, ANN, None), answer(101, BEA, ANN, parent=100), answer(102, BEA, ANN, parent=100, at=later)),
            *(
                answer(103, CAT, None, parent=101),
                answer(104, CAT, BEA, parent=999),
                answer(105, CAT, None, parent=998),
            ),
            *(answer(106, ANN, ANN, parent=100), answer(107, EVE, ANN, parent=100), answer(108, ANN, EVE, parent=107)),
        ]
        await written(database, answers)
        await segment(database, "net", [ANN, BEA, CAT, DOT])
        await segment(database, "other", [EVE])
        yield database
    finally:
        await database.close()


async def selection(database: Database, edges: Edges, **about: Any) -> GraphSelection:
    return GraphSelection(users_of=await users_of_segment(database, "net"), edges=edges, **about)


async def edges_of(database: Database, asked: GraphSelection, page_rows: int = 1_000) -> list[tuple[Any, ...]]:
    found = GraphExporter(database, page_rows=page_rows).edges(asked)
    return [tuple(export_row(row, EDGE_FIELDS)) for page in [page async for page in found] for row in page]


async def nodes_of(database: Database, asked: GraphSelection, page_rows: int = 1_000) -> list[tuple[Any, ...]]:
    found = GraphExporter(database, page_rows=page_rows).nodes(asked)
    return [tuple(export_row(row, NODE_FIELDS)) for page in [page async for page in found] for row in page]


def read_gexf(path: Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]], ET.Element]:
    """As a program reads it that knows nothing of ours: by the format's own rules."""
    root = ET.parse(path).getroot()
    assert root.tag == "{http://gexf.net/1.3}gexf"
    assert root.get("version") == "1.3"
    (graph,) = root.findall("g:graph", NAMESPACE)
    order = [child.tag.rpartition("}")[2] for child in graph]
    assert order == ["attributes", "attributes", "nodes", "edges"]
    nodes = {
        str(each.get("id")): {**each.attrib, **_values(graph, "node", each)}
        for each in graph.findall(".//g:node", NAMESPACE)
    }
    edges = [{**each.attrib, **_values(graph, "edge", each)} for each in graph.findall(".//g:edge", NAMESPACE)]
    assert len({edge["id"] for edge in edges}) == len(edges)
    assert all(edge[end] in nodes for edge in edges for end in ("source", "target"))
    return nodes, edges, graph


def _values(graph: ET.Element, of: str, element: ET.Element) -> dict[str, Any]:
    declared = {
        each.get("id"): (str(each.get("title")), each.get("type"))
        for each in graph.findall(f"g:attributes[@class='{of}']/g:attribute", NAMESPACE)
    }
    read = {"long": int, "string": str, "boolean": {"true": True, "false": False}.__getitem__}
    told = [(declared[each.get("for")], each.get("value")) for each in element.findall(".//g:attvalue", NAMESPACE)]
    return {title: read[str(kind)](str(value)) for (title, kind), value in told}  # type: ignore[operator]  # three ways to read


async def test_follows_among_members_are_all_there_and_no_others(url: str) -> None:
    async with filled(url) as database:
        asked = await selection(database, Edges.FOLLOWS)
        first, last = "2026-03-01T12:00:00.000000Z", "2026-03-02T12:00:00.000000Z"
        assert await edges_of(database, asked) == [
            (str(BEA), str(ANN), 1, first, last, None),
            (str(CAT), str(ANN), 1, first, last, None),
            (str(ANN), str(BEA), 1, first, last, None),
        ]
        with_ended = await edges_of(database, await selection(database, Edges.FOLLOWS, ended=True))
        assert [edge for edge in with_ended if edge[5]] == [
            (str(CAT), str(BEA), 1, first, last, "2026-03-03T12:00:00.000000Z")
        ]
        assert len(with_ended) == 4


async def test_answers_are_counted_also_where_only_the_answered_post_tells_whose_it_was(url: str) -> None:
    async with filled(url) as database:
        found = await edges_of(database, await selection(database, Edges.REPLIES))
        assert [(edge[0], edge[1], edge[2]) for edge in found] == [
            (str(BEA), str(ANN), 2),
            (str(CAT), str(BEA), 2),  # one by the payload, one by the post it answers; one answers an unknown user
        ]
        assert found[0][3:] == ("2026-03-01T12:00:00.000000Z", "2026-03-01T13:00:00.000000Z", None)
        asked = await selection(database, Edges.REPLIES, since=START + timedelta(minutes=1))
        assert [edge[:3] for edge in await edges_of(database, asked)] == [(str(BEA), str(ANN), 1)]
        asked = await selection(database, Edges.REPLIES, until=START + timedelta(minutes=1))
        assert [edge[2] for edge in await edges_of(database, asked)] == [1, 2]


async def test_every_member_is_a_node_also_one_without_an_edge(url: str) -> None:
    async with filled(url) as database:
        found = await nodes_of(database, await selection(database, Edges.FOLLOWS))
    assert [node[0] for node in found] == [str(BEA), str(CAT), str(DOT), str(ANN)]
    assert found[3][1] == "Ann"
    assert found[3][3:] == (2**40, 3, 0, True, "2026-03-01T12:00:00.000000Z")
    assert found[2][2:] == (None,) * 6


async def test_a_neighbourhood_is_one_user_and_all_on_either_side_of_him(url: str) -> None:
    async with filled(url) as database:
        around = GraphSelection(users_of=await neighbourhood_of(database, "@BEA"), edges=Edges.FOLLOWS)
        assert [node[0] for node in await nodes_of(database, around)] == [str(BEA), str(EVE), str(ANN)]
        assert [edge[:2] for edge in await edges_of(database, around)] == [
            (str(BEA), str(EVE)),
            (str(BEA), str(ANN)),
            (str(EVE), str(ANN)),
            (str(ANN), str(BEA)),
        ]
        before = await neighbourhood_of(database, str(BEA), ended=True)
        asked = GraphSelection(users_of=before, edges=Edges.FOLLOWS, ended=True)
        assert str(CAT) in [node[0] for node in await nodes_of(database, asked)]


@pytest.mark.parametrize("edges", Edges)
async def test_all_formats_hold_the_same_graph(url: str, tmp_path: Path, edges: Edges) -> None:
    async with filled(url) as database:
        asked = await selection(database, edges)
        nodes, told = await nodes_of(database, asked), await edges_of(database, asked)
        exporter = GraphExporter(database, page_rows=2)
        for format_ in GraphFormat:
            size = await exporter.export(asked, format_, tmp_path / format_, tmp_path / f"{format_}.nodes")
            assert (size.nodes, size.edges) == (len(nodes), len(told))
    for name, fields, rows in (("", EDGE_FIELDS, told), (".nodes", NODE_FIELDS, nodes)):
        names = [field.name for field in fields]
        table = parquet.read_table(tmp_path / f"parquet{name}")
        assert table.column_names == names
        assert [tuple(export_row([*row.values()], fields)) for row in table.to_pylist()] == rows
        with (tmp_path / f"csv{name}").open(encoding="utf-8", newline="") as file:
            header, *cells = csv.reader(file)
        assert header == names
        assert [tuple(row) for row in cells] == [tuple(map(_cell, row)) for row in rows]
    people_read, edges_read, _ = read_gexf(tmp_path / "gexf")
    assert list(people_read) == [node[0] for node in nodes]
    assert [(each["source"], each["target"], float(each["weight"])) for each in edges_read] == [
        (edge[0], edge[1], edge[2]) for edge in told
    ]


def _cell(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


async def test_gexf_tells_of_people_and_of_when_each_edge_held(url: str, tmp_path: Path) -> None:
    path = tmp_path / "net.gexf"
    async with filled(url) as database:
        asked = await selection(database, Edges.FOLLOWS, ended=True)
        await GraphExporter(database).export(asked, GraphFormat.GEXF, path)
    nodes, edges, graph = read_gexf(path)
    assert {**graph.attrib} == {
        "defaultedgetype": "directed",
        "idtype": "string",
        "mode": "dynamic",
        "timeformat": "dateTime",
        "timerepresentation": "interval",
    }
    ann = nodes[str(ANN)]
    assert (ann["label"], ann["followers_count"], ann["verified"]) == ("Ann", 2**40, True)
    assert ann["name"].startswith('a "quoted" <b>&amp; ')
    assert ann["name"].endswith("\r\n\t\ufffd naïve 東京 🚀")
    assert "name" not in nodes[str(DOT)]
    (ended,) = [edge for edge in edges if "end" in edge]
    assert (ended["source"], ended["start"], ended["end"]) == (
        str(CAT),
        "2026-03-01T12:00:00.000000Z",
        "2026-03-03T12:00:00.000000Z",
    )


async def test_networkx_reads_the_same_graph_where_it_is_installed(sqlite_url: str, tmp_path: Path) -> None:
    networkx: Any = pytest.importorskip("networkx")
    async with filled(sqlite_url) as database:
        asked = await selection(database, Edges.REPLIES)
        await GraphExporter(database).export(asked, GraphFormat.GEXF, tmp_path / "net.gexf")
        told = {(edge[0], edge[1], edge[2]) for edge in await edges_of(database, asked)}
    graph = networkx.read_gexf(tmp_path / "net.gexf", version="1.3")
    assert {(one, other, int(about["weight"])) for one, other, about in graph.edges(data=True)} == told


async def random_graph(database: Database, chance: random.Random) -> tuple[set[int], set[tuple[int, int]]]:
    everybody = chance.sample(range(1, 10_000), 16)
    await people(database, [person(each) for each in everybody])
    pairs = {(one, other) for one in everybody for other in everybody if one != other and chance.random() < 0.2}
    hub = everybody[0]
    pairs |= {(hub, other) for other in everybody[1:]}
    await follow(database, *sorted(pairs))
    members = set(everybody[:10])
    await segment(database, "net", sorted(members))
    return members, pairs


async def test_pages_of_any_size_make_the_same_whole(url: str) -> None:
    database = open_database(url)
    members, pairs = await random_graph(database, random.Random(7))
    asked = await selection(database, Edges.FOLLOWS)
    truth = sorted(pair for pair in pairs if set(pair) <= members)
    for page_rows in (1, 2, 3, 7, 9, 10, 11, len(truth), 10_000):
        found = await edges_of(database, asked, page_rows)
        assert [(int(edge[0]), int(edge[1])) for edge in found] == truth, page_rows
        assert [int(node[0]) for node in await nodes_of(database, asked, page_rows)] == sorted(members)
    hub = min(members)
    around = GraphSelection(users_of=await neighbourhood_of(database, str(hub)), edges=Edges.FOLLOWS)
    near = {hub} | {one for one, other in pairs if other == hub} | {other for one, other in pairs if one == hub}
    for page_rows in (1, 3, 1_000):
        assert [int(node[0]) for node in await nodes_of(database, around, page_rows)] == sorted(near)
        found = await edges_of(database, around, page_rows)
        assert [(int(edge[0]), int(edge[1])) for edge in found] == sorted(p for p in pairs if set(p) <= near)
    await database.close()


MANY = 10_000
LARGE = 3_000  # tracing memory makes an export many times slower


async def fill_many(database: Database, many: int) -> UserSet:
    """A star in the middle whom all follow, and as many more edges between neighbours."""
    series = (
        f"generate_series(2, {many}) AS s(n)"
        if database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n < {many}) SELECT n FROM s)"
    )
    at = "'2026-03-01 12:00:00.000000'"
    await people(database, [person(1, "star")])
    own = await segment(database, "many", [1])
    columns = "platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in"
    statements = (
        f"""INSERT INTO users (platform, id, handle, detail, raw, first_seen_at, last_updated_at)
            SELECT 'x', n, 'somebody' || n, 'listed', '{{}}', {at}, {at} FROM {series}""",
        f"INSERT INTO follows ({columns}) SELECT 'x', n, 1, {at}, {at}, 1 FROM {series}",
        f"INSERT INTO follows ({columns}) SELECT 'x', 1, n, {at}, {at}, 1 FROM {series}",
        f"""INSERT INTO segment_members (segment_id, platform, user_id, since)
            SELECT {own}, 'x', n, {at} FROM {series}""",
        f"""INSERT INTO posts (platform, id, author_id, text, text_clean, created_at, in_reply_to_id,
                in_reply_to_user_id, raw, first_seen_at, last_updated_at)
            SELECT 'x', n, n, 'words', 'words', {at}, 1, 1, '{{}}', {at}, {at} FROM {series}""",
    )
    for sql in statements:  # each with figures of the one before: foreign keys are looked up by the planner's choice
        async with database.transaction() as connection:
            await connection.execute(text(sql))
        async with database.read() as connection:
            await analyze(connection)
    return SegmentUsers(segment_id=own, name="many")


@pytest.mark.in_turn(1)
async def test_memory_does_not_grow_with_the_graph(url: str, tmp_path: Path) -> None:
    database = open_database(url)
    circle = await fill_many(database, LARGE)
    exporter = GraphExporter(database, page_rows=200)
    few = GraphSelection(users_of=circle, edges=Edges.FOLLOWS)
    with most_memory() as held:
        size = await exporter.export(few, GraphFormat.GEXF, tmp_path / "net")
        peak = held()
    await database.close()
    assert (size.nodes, size.edges) == (LARGE, 2 * (LARGE - 1))
    written_bytes = (tmp_path / "net").stat().st_size
    assert written_bytes > 1_700_000
    # All rows together take half as much again as the file; pages, statements and garbage take half of it.
    assert peak < written_bytes, f"{peak:,} bytes for a file of {written_bytes:,}"


async def test_a_page_of_a_graph_is_found_by_an_index_however_many_edges_there_are(url: str) -> None:
    database = open_database(url)
    circle = await fill_many(database, MANY)
    asked: list[tuple[str, Any]] = []
    event.listen(
        database._reading.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, values, *_: asked.append((statement, values)),
    )
    star = Neighbourhood(user_id=1, name="star")  # type: ignore[arg-type]  # a plain number will do
    for each in (circle, star):
        for edges in Edges:
            exporter = GraphExporter(database, page_rows=500)
            await anext(exporter.edges(GraphSelection(users_of=each, edges=edges)))
            await anext(exporter.nodes(GraphSelection(users_of=each, edges=edges)))
    plans = [(sql, await plan(database, sql, values)) for sql, values in list(asked)]
    await database.close()
    for sql, found in plans:
        for table in ("follows", "posts", "users", "segment_members"):
            assert f"Seq Scan on {table}" not in found, f"{sql}\n{found}"
            assert not any(line.strip() == f"SCAN {table}" for line in found.splitlines()), f"{sql}\n{found}"


async def plan(database: Database, statement: str, values: Any) -> str:
    explain = "EXPLAIN QUERY PLAN " if database.dialect == "sqlite" else "EXPLAIN "
    async with database.read() as connection:
        rows = await connection.exec_driver_sql(explain + statement, values)
        return "\n".join(str(row[-1]) for row in rows)


async def test_a_segment_without_a_graph_is_refused_with_what_to_do(url: str) -> None:
    async with filled(url) as database:
        await segment(database, "posts", what="posts")
        await segment(database, "fresh", materialized=False)
        for name, said in (
            ("nothing", "no segment 'nothing'"),
            ("posts", "contains posts"),
            ("fresh", "mistnet segments materialize fresh"),
        ):
            with pytest.raises(BadExport, match=said):
                await users_of_segment(database, name)


async def test_a_user_who_is_not_one_is_refused(url: str) -> None:
    async with filled(url) as database:
        await people(database, [person(77, "bea2"), person(78, "Bea2")])
        for account in ("nobody", "4", "9" * 30, "@bea2"):
            with pytest.raises(BadExport, match=r"no stored user is|several stored users have"):
                await neighbourhood_of(database, account)


def run(url: str, *arguments: str) -> Any:
    return CliRunner().invoke(cli, ["graph", *arguments, "--database-url", url])


async def fill(url: str) -> None:
    async with filled(url):
        pass


async def test_the_command_writes_a_graph_and_says_how_large_it_is(url: str, tmp_path: Path) -> None:
    await fill(url)
    path = tmp_path / "net.gexf"
    arguments = ("--segment", "net", "--edges", "follows", "--output", str(path))
    assert run_apart(url, *arguments) == (0, "", f"4 people and 3 follows exported to {path}\n")
    assert len(read_gexf(path)[1]) == 3
    assert "--force replaces it" in run_apart(url, *arguments)[2]
    code, shown, _ = run_apart(url, *arguments, "--ended", "--force", "--json")
    assert (code, json.loads(shown)["rows"], json.loads(shown)["nodes"]) == (0, 4, 4)


async def test_edge_lists_have_their_people_in_a_file_beside_them(url: str, tmp_path: Path) -> None:
    await fill(url)
    for format_ in ("csv", "parquet"):
        path = tmp_path / f"net.{format_}"
        done = run_apart(url, "--around", "@bea", "--edges", "replies", "--output", str(path))
        beside = tmp_path / f"net.nodes.{format_}"
        assert done == (0, "", f"3 people and 3 replies exported to {path} and {beside}\n")
        assert beside.stat().st_size > 0
    assert (tmp_path / "net.csv").read_text().splitlines()[0] == ",".join(field.name for field in EDGE_FIELDS)


async def test_a_graph_export_that_is_interrupted_leaves_no_file(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "net.csv"

    def interrupted(_rows: int) -> None:
        assert (tmp_path / "net.nodes.csv.part").exists()
        raise KeyboardInterrupt

    async with filled(sqlite_url) as database:
        asked = await selection(database, Edges.FOLLOWS)
        with pytest.raises(KeyboardInterrupt), graph_files(path, nodes_file(path), force=False) as (part, nodes):
            await GraphExporter(database).export(asked, GraphFormat.CSV, part, nodes, interrupted)
    assert list(tmp_path.iterdir()) == []


def run_apart(url: str, *arguments: str) -> tuple[int, str, str]:
    """The command starts an event loop, so it runs beside the test's own."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run, url, *arguments).result()
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--segment NAME or --around HANDLE"),
        (("--segment", "net", "--around", "ann"), "one of them"),
        (("--segment", "net"), "--edges follows or --edges replies"),
        (("--segment", "net", "--edges", "follows"), "--output FILE"),
        (("--segment", "net", "--edges", "follows", "--since", "2026-01-01", "--output", "x"), "follows have --ended"),
        (("--segment", "net", "--edges", "replies", "--ended", "--output", "x"), "replies do not end"),
        (("--segment", "net", "--edges", "follows", "--format", "jsonl"), "gexf, csv, parquet"),
        (("--segment", "net", "--edges", "follows", "--output", "x"), "no segment 'net'"),
        (("--segment", "net", "--edges", "follows", "--output", "x.jsonl"), "a graph cannot be jsonl"),
        (
            ("--segment", "net", "--edges", "follows", "--format", "gexf", "--output", "x.csv"),
            "x.csv is named as csv, and --format says gexf",
        ),
        (("--around", "ann", "--edges", "follows", "--output", "x"), "no stored user is 'ann'"),
        (("--author", "ann"), "--around HANDLE"),
        (("--segment", "a\x00", "--edges", "follows"), "NUL"),
    ],
)
def test_a_slip_in_a_graph_export_is_told(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run(sqlite_url, *arguments)
    assert (refused.exit_code, said in unboxed(refused.stderr), refused.stdout) == (2, True, ""), refused.stderr
    assert list(tmp_path.iterdir()) == []


def unboxed(said: str) -> str:
    """Without the frame that is drawn around a complaint, and in one line."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", said).split())


def test_options_of_graphs_are_refused_for_tables(sqlite_url: str) -> None:
    for arguments, said in ((("--around", "ann"), "export graph"), (("--format", "gexf"), "jsonl, csv")):
        refused = CliRunner().invoke(cli, ["posts", *arguments, "--database-url", sqlite_url])
        assert (refused.exit_code, said in unboxed(refused.stderr)) == (2, True), refused.stderr


def test_the_command_knows_every_table_and_every_format() -> None:
    assert {*Format, *GraphFormat} == set(Form)


def test_the_page_lists_the_columns_in_their_order() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for fields in (NODE_FIELDS, EDGE_FIELDS):
        assert "`" + "`, `".join(field.name for field in fields) + "`" in page
