"""Describes exported tables: a Frictionless data package for programs, a codebook for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from mistnet import __version__
from mistnet.data.model import TableName
from mistnet.data.store.sources import SOURCES
from mistnet.kit.columns import ColumnShape, Field, fields_of, instant
from mistnet.kit.export import Format

PROFILE: Final = "https://datapackage.org/profiles/2.0/datapackage.json"

TYPES: Final[Mapping[ColumnShape, str]] = {
    ColumnShape.TEXT: "text",
    ColumnShape.ID: "64-bit id",
    ColumnShape.WHOLE: "whole number",
    ColumnShape.REAL: "number",
    ColumnShape.FLAG: "true or false",
    ColumnShape.TIME: "time in UTC",
    ColumnShape.AMOUNT: "exact decimal",
    ColumnShape.LIST: "list",
    ColumnShape.JSON: "JSON",
}
_PACKAGE_TYPES: Final[Mapping[ColumnShape, str]] = {
    ColumnShape.TEXT: "string",
    ColumnShape.ID: "integer",
    ColumnShape.WHOLE: "integer",
    ColumnShape.REAL: "number",
    ColumnShape.FLAG: "boolean",
    ColumnShape.TIME: "datetime",
    ColumnShape.AMOUNT: "number",
    ColumnShape.LIST: "array",
    ColumnShape.JSON: "any",
}
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
    return {
        "$schema": PROFILE,
        "name": "mistnet-export",
        "title": "Collected by mistnet",
        "created": instant(created),
        "version": __version__,
        "resources": [_resource(each, format_, ids_as_text=ids_as_text) for each in files],
    }


def _resource(file: TableFile, format_: Format, *, ids_as_text: bool) -> Mapping[str, Any]:
    identity = list(SOURCES[file.name].identity)
    encoding = {} if format_ is Format.PARQUET else {"encoding": "utf-8"}
    text = ids_as_text or format_ is Format.JSONL  # JSON has no 64-bit numbers
    return {
        "name": str(file.name),
        "path": file.path,
        "type": "table",
        "description": SOURCES[file.name].record.__doc__,
        "format": str(format_),
        "mediatype": _MEDIA_TYPES[format_],
        **encoding,
        "rows": file.rows,
        "schema": {
            "fields": [_field(each, format_, ids_as_text=text) for each in file.fields],
            "primaryKey": identity,
        },
    }


def _field(field: Field, format_: Format, *, ids_as_text: bool) -> Mapping[str, Any]:
    as_text = (field.shape is ColumnShape.ID and ids_as_text) or (
        field.shape is ColumnShape.AMOUNT and format_ is Format.JSONL
    )
    kind = "string" if as_text else _PACKAGE_TYPES[field.shape]
    required = {"constraints": {"required": True}} if field.required and field.shape is not ColumnShape.TEXT else {}
    return {"name": field.name, "type": kind, "description": field.meaning, **required}


def write_codebook(files: Sequence[TableFile]) -> str:
    """The tables and their columns, as Markdown."""
    parts = [
        "# Codebook",
        "The tables of this export. Times are in UTC. An empty cell, or null, means that nothing is known.",
        *(_section(each, f"`{each.path}`: {each.rows:,} rows.") for each in files),
    ]
    return "\n\n".join(parts) + "\n"


def table_reference(names: Sequence[TableName]) -> str:
    """The same for the documentation, where there are no files."""
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
        *(f"| `{each.name}` | {_type(each)} | {each.meaning} |" for each in file.fields),
    ]
    return "\n".join(lines)


def _type(field: Field) -> str:
    kind = TYPES[field.shape]
    if field.shape is ColumnShape.LIST:
        members = getattr(field.item, "__struct_fields__", None)
        kind = f"list of {', '.join(members)}" if members else "list of texts"
    return kind if field.required else f"{kind}, or null"
