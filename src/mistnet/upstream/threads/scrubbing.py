"""Takes access tokens out of what upstream answers, before anybody reads or keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

MASK: Final = b"***"
_SHORTEST: Final = 4
_IN_URL: Final = re.compile(rb"((?:access|input)_tokens?(?:=|%3[Dd]|\\u003[Dd]))(?:[^&\"'\\\s%<>]|%(?!26)){1,4096}")


def scrubbed(body: bytes, secrets: Iterable[str]) -> bytes:
    """Every token as it stands, as URLs and JSON write it, and whatever a URL calls a token."""
    forms = {form for each in secrets if len(each) >= _SHORTEST for form in _forms(each)}
    for secret in sorted(forms, key=len, reverse=True):
        body = body.replace(secret, MASK)
    return _IN_URL.sub(rb"\1" + MASK, body)


def _forms(secret: str) -> set[bytes]:
    plain = secret.encode()
    in_json = msgspec.json.encode(secret)[1:-1]
    in_ascii = secret.encode("ascii", "backslashreplace")
    slashed = in_json.replace(b"/", b"\\/")
    return {plain, in_json, in_ascii, slashed, quote(secret, safe="").encode(), quote_plus(secret).encode()} - {b""}
