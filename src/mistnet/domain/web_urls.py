"""Addresses that come from outside: only those of the web are kept."""

from __future__ import annotations

import re
from typing import Final

_WEB: Final = re.compile(r"https?://[^\s/?#\\][^\x00-\x1f\x7f]*", re.IGNORECASE)


def web_url(written: str | None) -> str | None:
    """Return an http or https URL as it is written, without blanks around it, and None for anything else.

    What others write may say `javascript:` or `data:`, and those who read our data may put it into a page.
    """
    bare = (written or "").strip()
    return bare if _WEB.fullmatch(bare) else None
