"""Merges streams of pages that are each in order into one stream in order, with one page of each in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

Page = Sequence[Any]


async def merge_pages(
    streams: Sequence[AsyncGenerator[Page, None]], key: Callable[[Any], Any]
) -> AsyncGenerator[Page, None]:
    """All rows by their key. The caller closes the streams."""
    waiting = await _next_pages([(stream, ()) for stream in streams])
    while len(waiting) > 1:
        # Up to the nearest end of a page, every row is known that comes before it.
        end = min(key(page[-1]) for _, page in waiting)
        yield sorted((row for _, page in waiting for row in page if key(row) <= end), key=key)
        waiting = await _next_pages([(stream, [row for row in page if key(row) > end]) for stream, page in waiting])
    for stream, page in waiting:
        yield page
        async for rest in stream:
            yield rest


async def _next_pages(
    waiting: Sequence[tuple[AsyncGenerator[Page, None], Page]],
) -> list[tuple[AsyncGenerator[Page, None], Page]]:
    """What is left of each page, or the page after it; streams that are over are left out."""
    found = [(stream, page or await anext(stream, [])) for stream, page in waiting]
    return [(stream, page) for stream, page in found if page]
