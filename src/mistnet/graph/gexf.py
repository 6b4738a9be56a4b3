"""Writes a graph as GEXF 1.3, which Gephi and its kin read: XML, one element after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from xml.sax.saxutils import escape, quoteattr

from mistnet import __version__
from mistnet.kit.export import ColumnShape, Field, Row, put, stream_to

_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML may hold, not even written as a number."""

_TYPES: Final = {
    ColumnShape.TEXT: "string",
    ColumnShape.JSON: "string",
    ColumnShape.WHOLE: "long",
    ColumnShape.REAL: "double",
    ColumnShape.FLAG: "boolean",
}
_OWN: Final = {"id", "source", "target", "weight"}
"""What GEXF has a place of its own for."""

_OPENING: Final = """<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://gexf.net/1.3" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://gexf.net/1.3 http://gexf.net/1.3/gexf.xsd" version="1.3">
<meta lastmodifieddate="{day}">
<creator>mistnet {version}</creator>
<description>{about}</description>
</meta>
<graph defaultedgetype="directed" idtype="string" {mode}>
{attributes}<nodes>
"""
_STATIC: Final = 'mode="static"'
_DYNAMIC: Final = 'mode="dynamic" timeformat="dateTime" timerepresentation="interval"'


class GexfWriter:
    """Nodes first, then edges, as the format wants it."""

    def __init__(self, file: BinaryIO, fields: tuple[Sequence[Field], Sequence[Field]], *, dynamic: bool) -> None:
        self._file = file
        self._dynamic = dynamic
        self._node_fields, self._edge_fields = fields
        self._in_nodes = True

    def nodes(self, rows: Sequence[Row]) -> None:
        put(self._file, "".join(map(self._node, rows)).encode())

    def edges(self, rows: Sequence[Row]) -> None:
        self.end_nodes()
        put(self._file, "".join(map(self._edge, rows)).encode())

    def end_nodes(self) -> None:
        if self._in_nodes:
            self._in_nodes = False
            put(self._file, b"</nodes>\n<edges>\n")

    def _node(self, row: Row) -> str:
        told = _by_name(self._node_fields, row)
        label = _quoted(told["handle"] or told["name"] or told["id"])
        return f'<node id="{told["id"]}" label={label}>{_values(self._node_fields, row)}</node>\n'

    def _edge(self, row: Row) -> str:
        told = _by_name(self._edge_fields, row)
        one, other, weight = told["source"], told["target"], told["weight"]
        span = self._span(told) if self._dynamic else ""
        own = f'id="{one}-{other}" source="{one}" target="{other}" weight="{weight}"{span}'
        return f"<edge {own}>{_values(self._edge_fields, row)}</edge>\n"

    def _span(self, told: dict[str, Any]) -> str:
        end = f' end="{told["ended_at"]}"' if told["ended_at"] else ""
        return f' start="{told["first_at"]}"{end}'


@contextmanager
def gexf(
    path: Path, about: str, fields: tuple[Sequence[Field], Sequence[Field]], *, now: datetime, dynamic: bool
) -> Iterator[GexfWriter]:
    """A file that is whole at the end of the block. If `dynamic`, edges say since when, and until when, they held."""
    opening = _OPENING.format(
        day=f"{now:%Y-%m-%d}",
        version=__version__,
        about=escape(_clean(about)),
        mode=_DYNAMIC if dynamic else _STATIC,
        attributes=_attributes("node", fields[0]) + _attributes("edge", fields[1]),
    )
    with stream_to(path) as file:
        put(file, opening.encode())
        writer = GexfWriter(file, fields, dynamic=dynamic)
        yield writer
        writer.end_nodes()
        put(file, b"</edges>\n</graph>\n</gexf>\n")


def _attributes(of: str, fields: Sequence[Field]) -> str:
    declared = "".join(
        f'<attribute id="{field.name}" title="{field.name}" type="{_TYPES[field.shape]}"/>\n'
        for field in fields
        if field.name not in _OWN
    )
    return f'<attributes class="{of}" mode="static">\n{declared}</attributes>\n'


def _values(fields: Sequence[Field], row: Row) -> str:
    """What is not known is left out."""
    known = [
        f'<attvalue for="{field.name}" value={_shown(field, value)}/>'
        for field, value in zip(fields, row, strict=True)
        if value is not None and field.name not in _OWN
    ]
    return f"<attvalues>{''.join(known)}</attvalues>" if known else ""


def _shown(field: Field, value: Any) -> str:
    """Ids, times and numbers are our own writing; only what people wrote may hold anything."""
    if field.shape is ColumnShape.FLAG:
        return '"true"' if value else '"false"'
    return _quoted(value) if field.shape is ColumnShape.TEXT else f'"{value}"'


def _by_name(fields: Sequence[Field], row: Row) -> dict[str, Any]:
    return {field.name: value for field, value in zip(fields, row, strict=True)}


def _quoted(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return text if text.isprintable() else _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
