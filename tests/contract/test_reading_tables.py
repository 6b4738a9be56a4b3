"""`mistnet.open`: every table as records and frames, in the memory of a page, without being able to write."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

import mistnet
from mistnet.data.model import MissingLibrary, Selection, TableName
from mistnet.data.store import TableReader
from mistnet.data.tables import SOURCES
from mistnet.kit.errors import DatabaseError, DatabaseFails, DatabaseMissing, MissingExtra, SettingsError
from tests.contract.test_export import LARGE, fill_many, filled
from tests.databases import open_database
from tests.memory import most_memory

pytestmark = pytest.mark.common_sql

ANALYSE = Path(__file__).resolve().parents[2] / "docs" / "analyse.md"
PROMISED = (
    *("posts", "users", "accounts", "conversations", "follows", "follow_events", "links", "products", "offers"),
    *("price_points", "valuations", "coverage"),
)


async def test_every_table_is_a_method_that_gives_records_and_every_kind_of_frame(sqlite_url: str) -> None:
    async with filled(sqlite_url):
        with mistnet.open(sqlite_url) as data:
            for name in TableName:
                method = getattr(data, name)
                rows = method()
                found = list(rows)
                assert found, name
                assert {type(each) for each in found} == {SOURCES[name].record}
                assert list(rows.columns) == [each for each in found[0].__struct_fields__ if each in rows.columns]
                assert all(rows.columns.values()), "each column has its meaning"
                frames: list[Any] = [rows.to_arrow(), rows.polars(), rows.pandas(), rows.duckdb()]
                assert [len(each) for each in frames] == [len(found)] * 4
                assert [list(_columns(each)) for each in frames] == [list(rows.columns)] * 4
                assert method.__doc__
                with pytest.raises((AttributeError, TypeError)):
                    found[0].platform = "changed"
    assert set(PROMISED) <= set(TableName)
    assert [name for name in PROMISED if f"`{name}`" not in ANALYSE.read_text(encoding="utf-8")] == []


def _columns(frame: Any) -> Any:
    return frame.column_names if hasattr(frame, "column_names") else frame.columns


async def test_iteration_holds_a_page_and_batches_hold_a_batch(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    await fill_many(database, 2 * LARGE)
    await database.close()
    with mistnet.open(sqlite_url) as data:
        with most_memory() as held:
            assert len(list(data.posts())) == 2 * LARGE
            whole = held()
        with most_memory() as held:
            assert sum(1 for _ in data.posts()) == 2 * LARGE
            one_by_one = held()
        with most_memory() as held:
            assert sum(batch.num_rows for batch in data.posts().arrow_batches(rows=500)) == 2 * LARGE
            batches = held()
    assert max(one_by_one, batches) < whole / 2, (one_by_one, batches, whole)


async def test_what_is_opened_for_reading_cannot_be_written(url: str) -> None:
    async with filled(url):
        with mistnet.open(url) as data:

            async def delete() -> None:
                async with data._database.transaction() as connection:
                    await connection.execute(text("DELETE FROM post_links"))

            before = data.post_links().count()
            with pytest.raises((DBAPIError, DatabaseError, DatabaseFails)):
                data._engine.run(delete())
            assert data.post_links().count() == before > 0


async def test_a_folder_is_opened_by_its_settings_and_a_missing_one_is_told(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(sqlite_url):
        file = Path(sqlite_url.removeprefix("sqlite:///"))
        (tmp_path / "mistnet.toml").write_text(f'database_url = "sqlite:///{os.path.relpath(file, tmp_path)}"\n')
        for place in (tmp_path, str(tmp_path), file, sqlite_url):
            with mistnet.open(place) as data:
                assert data.users().count() == 3
        monkeypatch.chdir(tmp_path)
        with mistnet.open() as data:
            assert [each.handle for each in data.accounts()] == ["Ann", "bea"]
        (tmp_path / "mistnet.toml").write_text("database_url = ")
        with pytest.raises(SettingsError, match="cannot be read"):
            mistnet.open(tmp_path)
        (tmp_path / "mistnet.toml").unlink()
        for place in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(DatabaseMissing, match="there is no database"):
                mistnet.open(place)


async def test_every_filter_narrows_what_is_read(sqlite_url: str) -> None:
    chosen: list[tuple[dict[str, Any], int]] = [
        ({"account": "bea"}, 1),
        ({"account": ["bea", 12]}, 1),
        ({"platform": "threads"}, 1),
        ({"since": "2026-03-03", "until": "2026-03-05"}, 2),
        ({"segment": "few"}, 1),
        ({"query": "quoted -mist"}, 1),
        ({"stored_since": "2026-03-02"}, 0),
        ({"stored_until": "2026-03-02"}, 10),
    ]
    async with filled(sqlite_url):
        with mistnet.open(sqlite_url) as data:
            for filters, count in chosen:
                rows = data.posts(**filters)
                assert (rows.count(), len(list(rows))) == (count, count), filters
            assert {each.raw is not None for each in data.posts(raw=True)} == {True}
            assert "raw" not in data.posts().columns


async def test_posts_of_no_known_conversation_are_none_and_hide_none(url: str) -> None:
    async with filled(url) as database:
        for page_rows in (1, 2, 1_000):
            reader = TableReader(database, page_rows=page_rows)
            pages = reader.pages(Selection(what=TableName.CONVERSATIONS))
            found = [(row[0], row[1], row[4]) async for page in pages for row in page]
            assert found == [("x", 1, 3), ("x", 4, 4)], page_rows


async def test_a_library_that_is_not_installed_is_named(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(sqlite_url):
        with mistnet.open(sqlite_url) as data:
            for name in ("polars", "pandas", "duckdb"):
                monkeypatch.setitem(sys.modules, name, None)
                with pytest.raises(MissingLibrary, match=f"pip install .*{name}"):
                    getattr(data.users(), name)()
            monkeypatch.setitem(sys.modules, "pyarrow", None)
            with pytest.raises(MissingExtra, match=r"pip install 'mistnet\[parquet\]'"):
                data.users().to_arrow()
            assert [each.handle for each in data.users() if each.id == 12] == ["bea"], "records need no library"
