"""Segments as rows: read, and turned into values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mistnet.domain.ingests import IngestId
from mistnet.domain.segments import AnyRule, Segment, SegmentName, Snapshot, What
from mistnet.store.tables import segment_snapshots, segments

SEGMENT: Final = select(*(segments.c[name] for name in Segment.__struct_fields__))
SNAPSHOT: Final = select(*(segment_snapshots.c[name] for name in Snapshot.__struct_fields__))


async def all_segments(connection: AsyncConnection) -> Mapping[SegmentName, Segment]:
    """Every segment, by its name. There are as many as people have given names to."""
    rows = (await connection.execute(SEGMENT.order_by(segments.c.id))).mappings()
    found = [segment_of(row) for row in rows]
    return {each.name: each for each in found}


def segment_of(row: Mapping[Any, Any]) -> Segment:
    rule: AnyRule = msgspec.json.decode(row["rule"], type=AnyRule)
    return Segment(**{**row, "what": What(row["what"]), "rule": rule})


def snapshot_of(row: Mapping[Any, Any]) -> Snapshot:
    ingests = [IngestId(int(each)) for each in msgspec.json.decode(row["ingests"], type=list[str])]
    return Snapshot(**{**row, "ingests": ingests})
