"""Exports tables: one as a stream or a file, all as a folder with a data package and a codebook."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from mistnet import __version__
from mistnet.data.model import Selection, TableName
from mistnet.data.store import TableReader, selected_fields
from mistnet.data.tables import SOURCES, Condition
from mistnet.kit.columns import ColumnShape, Field, fields_of, instant
from mistnet.kit.database import Database
from mistnet.kit.export import BadExport, ExportTarget, Format, Target, export_pages, put, stream_pages

OnPage = Callable[[int], object]
SETTLED: Final = timedelta(minutes=1)
"""An incremental export ends this long ago: a transaction that began before may still add rows from then."""

_SUFFIXES: Final = {Format.JSONL: "jsonl", Format.CSV: "csv", Format.PARQUET: "parquet"}


class ExportMark(msgspec.Struct, frozen=True, kw_only=True):
    """How far the last incremental export of a table to a folder came."""

    table: str
    until: datetime
    file: str
    rows: int


class Exporter:
    """Writes the rows of one database."""

    def __init__(self, database: Database, *, page_rows: int = 1_000) -> None:
        self._database = database
        self._reader = TableReader(database, page_rows=page_rows)

    async def count(self, selection: Selection) -> int:
        return await self._reader.count(selection)

    async def export(
        self, selection: Selection, format_: Format, target: Target, on_page: OnPage = lambda _: None
    ) -> int:
        """Export all rows in order, and return how many there were."""
        fields, pages = selected_fields(selection), self._reader.pages(selection)
        return await export_pages(selection.what, fields, pages, format_, target, on_page)

    async def write_ids(self, selection: Selection, target: BinaryIO | Path, on_page: OnPage = lambda _: None) -> int:
        """One id on each line, as programs that fetch posts or users by id read them."""
        place = [each.name for each in selected_fields(selection)].index("id")
        rows = 0
        with target.open("wb") if isinstance(target, Path) else nullcontext(target) as file:
            async for page in self._reader.pages(selection):
                put(file, "".join(f"{row[place]}\n" for row in page).encode())
                rows += len(page)
                on_page(len(page))
            file.flush()
        return rows

    def stream(
        self,
        selection: Selection,
        format_: Format,
        output: Callable[[BinaryIO], ExportTarget] = ExportTarget,
        conditions: Sequence[Condition] = (),
    ) -> AsyncGenerator[bytes, None]:
        """The rows that also meet the conditions as bytes, for a response."""
        pages = self._reader.pages(selection, *conditions)
        return stream_pages(selection.what, selected_fields(selection), pages, format_, output)

    async def check(self, selection: Selection) -> None:
        """Raise now what an export of this selection would raise at its first row."""
        await self._reader.check(selection)

    async def export_all(
        self,
        names: Sequence[TableName],
        selection_of: Callable[[TableName], Selection],
        format_: Format,
        folder: Path,
        output: Callable[[Path], ExportTarget] = ExportTarget,
        on_page: OnPage = lambda _: None,
    ) -> Mapping[TableName, int]:
        """A file for each table, `datapackage.json` and `codebook.md`."""
        rows, files = {}, []
        for name in names:
            selection, file = selection_of(name), f"{name}.{_SUFFIXES[format_]}"
            rows[name] = await self.export(selection, format_, output(folder / file), on_page)
            files.append(TableFile(name=name, path=file, fields=selected_fields(selection), rows=rows[name]))
        now = self._database.clock.now()
        options = output(folder)
        package = data_package(files, format_, created=now, ids_as_text=options.ids_as_text)
        (folder / "datapackage.json").write_bytes(msgspec.json.format(msgspec.json.encode(package), indent=2))
        (folder / "codebook.md").write_text(write_codebook(files), encoding="utf-8")
        return rows


@contextmanager
def whole_folder(what: str, path: Path, *, force: bool) -> Iterator[Path]:
    """A folder beside the path that gets its name when it is complete, and is removed otherwise."""
    part, old = (path.parent / f"{path.name}.{end}" for end in ("part", "old"))
    try:
        if path.exists() and not force:
            raise BadExport(what, f"{path} already exists; --force replaces it")
        if path.exists() and not (path / "datapackage.json").exists():
            raise BadExport(what, f"{path} is no earlier export, so it is not replaced; name another folder")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            yield part
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                path.rename(old)
            part.rename(path)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise BadExport(what, f"{path} cannot be written: {error.strerror or error}") from error


def since_last(selection: Selection, output: Path, *, now: datetime) -> Selection:
    """The rows that were stored or changed since the last export of the same selection to the same folder.

    A table without times of changes is exported whole.
    """
    if SOURCES[selection.what].changed is None:
        return selection
    last = read_mark(selection.what, mark_file(selection, output))
    return msgspec.structs.replace(selection, changed_since=last and last.until, changed_until=now - SETTLED)


def mark_file(selection: Selection, output: Path) -> Path:
    """Where the mark of an export is kept: beside the export, one for each table and its filters."""
    filters = {name: value for name, value in msgspec.structs.asdict(selection).items() if value and name != "what"}
    known = {name: value for name, value in filters.items() if not name.startswith("changed_")}
    digest = hashlib.sha256(msgspec.json.encode(known, order="sorted")).hexdigest()[:8]
    return output.parent / f".{selection.what}{f'-{digest}' if known else ''}.mistnet-mark.json"


def read_mark(what: str, file: Path) -> ExportMark | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ExportMark)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        problem = f"{file} says what was exported last, and cannot be read: {error}. Remove it to export all rows"
        raise BadExport(what, problem) from error


def write_mark(selection: Selection, output: Path, *, rows: int) -> None:
    """After the export is in place: a crash between the two exports rows again, and loses none."""
    if selection.changed_until is None:
        return
    mark = ExportMark(table=selection.what, until=selection.changed_until, file=output.name, rows=rows)
    file = mark_file(selection, output)
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_bytes(msgspec.json.encode(mark) + b"\n")
        part.replace(file)
    except OSError as error:
        raise BadExport(selection.what, f"{file} cannot be written: {error.strerror or error}") from error


def described(name: TableName) -> Mapping[str, Any]:
    """A table as programs read it: its name, meaning, and columns."""
    source = SOURCES[name]
    fields = selected_fields(Selection(what=name))
    return {
        "name": name,
        "meaning": source.record.__doc__,
        "columns": [{"name": each.name, "type": each.shape, "meaning": each.meaning} for each in fields],
    }


PROFILE: Final = "https://datapackage.org/profiles/2.0/datapackage.json"

_TYPES: Final[Mapping[ColumnShape, tuple[str, str]]] = {
    ColumnShape.TEXT: ("text", "string"),
    ColumnShape.ID: ("64-bit id", "integer"),
    ColumnShape.WHOLE: ("whole number", "integer"),
    ColumnShape.REAL: ("number", "number"),
    ColumnShape.FLAG: ("true or false", "boolean"),
    ColumnShape.TIME: ("time in UTC", "datetime"),
    ColumnShape.AMOUNT: ("exact decimal", "number"),
    ColumnShape.LIST: ("list", "array"),
    ColumnShape.JSON: ("JSON", "any"),
}
"""What a column holds, for people and in a data package."""

_MEDIA_TYPES: Final = {
    Format.CSV: "text/csv",
    Format.JSONL: "application/x-ndjson",
    Format.PARQUET: "application/vnd.apache.parquet",
}


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """One table of an export."""

    name: TableName
    path: str
    fields: Sequence[Field]
    rows: int


def data_package(
    files: Sequence[TableFile], format_: Format, *, created: datetime, ids_as_text: bool = False
) -> Mapping[str, Any]:
    """A Frictionless data package, version 2."""
    text = ids_as_text or format_ is Format.JSONL  # JSON has no 64-bit numbers

    def describe(field: Field) -> Mapping[str, Any]:
        as_text = (field.shape is ColumnShape.ID and text) or (
            field.shape is ColumnShape.AMOUNT and format_ is Format.JSONL
        )
        kind = "string" if as_text else _TYPES[field.shape][1]
        required = {"constraints": {"required": True}} if field.required and field.shape is not ColumnShape.TEXT else {}
        return {"name": field.name, "type": kind, "description": field.meaning, **required}

    resources = [
        {
            "name": str(file.name),
            "path": file.path,
            "type": "table",
            "description": SOURCES[file.name].record.__doc__,
            "format": str(format_),
            "mediatype": _MEDIA_TYPES[format_],
            **({} if format_ is Format.PARQUET else {"encoding": "utf-8"}),
            "rows": file.rows,
            "schema": {
                "fields": [describe(each) for each in file.fields],
                "primaryKey": list(SOURCES[file.name].identity),
            },
        }
        for file in files
    ]
    return {
        "$schema": PROFILE,
        "name": "mistnet-export",
        "title": "Collected by mistnet",
        "created": instant(created),
        "version": __version__,
        "resources": resources,
    }


def write_codebook(files: Sequence[TableFile]) -> str:
    """The tables and their columns, as Markdown."""
    parts = [
        "# Codebook",
        "The tables of this export. Times are in UTC. An empty cell, or null, means that nothing is known.",
        *(_section(each, f"`{each.path}`: {each.rows:,} rows.") for each in files),
    ]
    return "\n\n".join(parts) + "\n"


def table_reference(names: Sequence[TableName]) -> str:
    """The codebook for the documentation, where there are no files."""
    files = [TableFile(name=each, path="", fields=fields_of(SOURCES[each].record), rows=0) for each in names]
    return "\n\n".join(_section(each, "") for each in files)


def _section(file: TableFile, note: str) -> str:
    source = SOURCES[file.name]
    identity = ", ".join(f"`{each}`" for each in source.identity)
    lines = [
        f"## `{file.name}`",
        "",
        " ".join((source.record.__doc__ or "").split()),
        "",
        f"{note}{' ' if note else ''}A row is identified by {identity}.",
        "",
        "| column | type | meaning |",
        "|---|---|---|",
    ]
    for each in file.fields:
        kind = _TYPES[each.shape][0]
        if each.shape is ColumnShape.LIST:
            members = getattr(each.item, "__struct_fields__", None)
            kind = f"list of {', '.join(members)}" if members else "list of texts"
        lines.append(f"| `{each.name}` | {kind if each.required else f'{kind}, or null'} | {each.meaning} |")
    return "\n".join(lines)
