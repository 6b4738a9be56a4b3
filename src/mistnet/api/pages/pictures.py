"""Small pictures of segments' graphs: laid out behind the pages, kept, and drawn anew when a segment has changed."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from mistnet.api.pages.layout import layout
from mistnet.api.pages.snapshots import Snapshot
from mistnet.domain.segments import SegmentId
from mistnet.store.database import Database
from mistnet.store.graph_export import Edges
from mistnet.store.graph_samples import Sample, sample

WIDTH, HEIGHT, MARGIN = 800, 480, 34
_NAMED, _WELL_NAMED = 24, 8
_MOST_LINES: Final = 1_500
_LONGEST_NAME: Final = 18
_KEPT: Final = 32
_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 1.5


class DrawnDot(msgspec.Struct, frozen=True, kw_only=True):
    """A circle, what it tells who points at it, and its name if it has room for one: 2 everywhere, 1 if it is wide."""

    x: float
    y: float
    radius: float
    label: str
    told: str
    named: int


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A graph as shapes. Lines of one sort are one path."""

    dots: Sequence[DrawnDot]
    one_way: str
    both_ways: str
    lines: int
    candidates: int


class Pictures:
    """One for each process. Nothing is drawn while nobody looks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: dict[tuple[SegmentId, Edges, datetime], Snapshot[Picture]] = {}
        self.drawn = 0
        """How many were drawn so far: another number means that a page may have something new to show."""

    async def get(self, segment_id: SegmentId, edges: Edges, as_of: datetime) -> Picture | None:
        """As the segment was worked out then. None: it is being drawn, and is there when the page is asked for anew."""
        key = (segment_id, edges, as_of)
        snapshot = self._kept.pop(key, None) or Snapshot(lambda: self._draw(segment_id, edges), seconds=_SECONDS)
        self._kept[key] = snapshot
        self._forget_the_oldest()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await snapshot.get()
        except TimeoutError:
            return None

    def _forget_the_oldest(self) -> None:
        idle = [key for key, snapshot in self._kept.items() if snapshot.idle]
        for key in idle[: max(len(self._kept) - _KEPT, 0)]:
            del self._kept[key]

    async def close(self) -> None:
        for snapshot in self._kept.values():
            await snapshot.close()

    async def _draw(self, segment_id: SegmentId, edges: Edges) -> Picture:
        """The layout takes a while: it must not keep other requests waiting."""
        found = await sample(self._database, segment_id, edges)
        picture = await asyncio.to_thread(draw, found, edges)
        self.drawn += 1
        return picture


def draw(found: Sample, edges: Edges) -> Picture:
    """The better connected a member, the larger and the nearer to the middle it begins."""
    places = {dot.user_id: place for place, dot in enumerate(found.dots)}
    heaviest = sorted(found.lines, key=lambda line: (-line.weight, line.source, line.target))[:_MOST_LINES]
    ways = {(places[line.source], places[line.target]) for line in heaviest}
    pairs = sorted({(min(way), max(way)) for way in ways})
    spots = [_on_paper(*spot) for spot in layout(len(places), pairs)]
    return Picture(
        dots=list(_dots(found, edges, spots)),
        one_way=_path(spots, [pair for pair in pairs if not _mutual(pair, ways)]),
        both_ways=_path(spots, [pair for pair in pairs if _mutual(pair, ways)]),
        lines=len(ways),
        candidates=found.candidates,
    )


def _dots(found: Sample, edges: Edges, spots: Sequence[tuple[float, float]]) -> Iterator[DrawnDot]:
    gets: Mapping[int, int] = Counter(line.target for line in found.lines)
    gives: Mapping[int, int] = Counter(line.source for line in found.lines)
    most = max((gets[dot.user_id] for dot in found.dots), default=0) or 1
    words = ("followed by", "follows") if edges is Edges.FOLLOWS else ("answered by", "answers")
    for place, (dot, (x, y)) in enumerate(zip(found.dots, spots, strict=True)):
        own = dot.user_id
        who = f"@{dot.handle}" if dot.handle else dot.name or str(own)
        yield DrawnDot(
            x=x,
            y=y,
            radius=round(4 + 9 * math.sqrt(gets[own] / most), 1),
            label=who if len(who) <= _LONGEST_NAME else f"{who[: _LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}",
            told=f"{who}: {words[0]} {gets[own]:,} and {words[1]} {gives[own]:,} of those drawn",
            named=(place < _NAMED) + (place < _WELL_NAMED),
        )


def _mutual(pair: tuple[int, int], ways: set[tuple[int, int]]) -> bool:
    return pair in ways and pair[::-1] in ways


def _on_paper(x: float, y: float) -> tuple[float, float]:
    return round(MARGIN + x * (WIDTH - 2 * MARGIN), 1), round(MARGIN + y * (HEIGHT - 2 * MARGIN), 1)


def _path(spots: Sequence[tuple[float, float]], pairs: Sequence[tuple[int, int]]) -> str:
    return "".join(f"M{spots[one][0]} {spots[one][1]}L{spots[other][0]} {spots[other][1]}" for one, other in pairs)
