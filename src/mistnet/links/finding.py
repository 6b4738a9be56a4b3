"""URLs in the text of a post: the shops' own forms first, then whatever X itself would make a link of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mistnet.links.other_urls import other_urls
from mistnet.links.shop_urls import blanked, shop_urls


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A URL as it stands in the text: `text[start:end]`."""

    url: str
    start: int
    end: int


def find_urls(text: str) -> Sequence[Found]:
    """Every occurrence, in order. What it finds is always a piece of the text, unchanged."""
    if "." not in text:
        return []
    spans = sorted(shop_urls(text))
    spans += other_urls(blanked(text, spans))
    return [Found(url=text[start:end], start=start, end=end) for start, end in sorted(spans)]
