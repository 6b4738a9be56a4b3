"""Handles of X as people write them: @name, name, or the address of a profile."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from mistnet.domain.errors import BadHandle

_HANDLE: Final = re.compile(r"[A-Za-z0-9_]{1,15}")
_HOSTS: Final = frozenset(
    prefix + host for prefix in ("", "www.", "mobile.", "m.") for host in ("x.com", "twitter.com")
)
_TABS: Final = frozenset({"with_replies", "media", "likes", "highlights", "articles", "followers", "following"})
_NOBODY: Final = frozenset(
    {"home", "explore", "search", "hashtag", "i", "intent", "settings", "messages", "notifications", "login", "share"}
)


def read_handle(written: str) -> str:
    """The handle alone. Raises BadHandle, which says how to write one."""
    given = written.strip()
    name = _from_address(given) if "/" in given else given.removeprefix("@")
    if not _HANDLE.fullmatch(name):
        raise BadHandle(written, "a handle has 1 to 15 letters, digits or _")
    return name


def _from_address(given: str) -> str:
    try:
        parts = urlsplit(given if "://" in given else f"https://{given}")
    except ValueError:
        raise BadHandle(given, "it is not an address") from None
    if parts.scheme not in ("http", "https") or (parts.hostname or "") not in _HOSTS:
        raise BadHandle(given, "it is not an address of X")
    name, *rest = [part for part in parts.path.split("/") if part] or [""]
    if name.lower() in _NOBODY or len(rest) > 1 or not _TABS.issuperset(rest):
        raise BadHandle(given, "it is not the address of a profile")
    return name.removeprefix("@")
