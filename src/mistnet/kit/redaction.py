"""Remove secrets from texts, and shorten long ones, for logs, errors and the database."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"

_SHAPES = (
    (re.compile(r"(?i)(\b[a-z][a-z0-9+]{1,30}://[^\s:/@]{0,200}):[^\s/@]{1,500}@"), r"\1:" + MASK + "@"),
    (re.compile(r"(?i)\b(bearer|basic)\s{1,4}[a-z0-9._~+/\-]{6,}=*"), r"\1 " + MASK),
    (
        re.compile(
            r"(?i)([\"']?\b(?:x-)?(?:api[-_]?key|access[-_]?token|auth[-_]?token|token|secret|password|passwd|pwd"
            # A sentence, such as "access token: Session has expired", is no secret.
            r"|authorization)[\"']?\s{0,4}(?:=|:(?!(?<=token:)\s(?-i:(?!Bearer|Basic)[A-Z][a-z]{1,20}\s[a-z])))\s{0,4}"
            r"[\"']?)(?:bearer\s{1,4}|basic\s{1,4})?[^\s\"'&,;}\])]{3,}"
        ),
        r"\1" + MASK,
    ),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask the given secrets, and whatever the text around it marks as a secret."""
    for secret in sorted({s for s in secrets if len(s) >= 4}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


def shorten(text: str, limit: int) -> str:
    """Keep the beginning and more of the end, where a traceback has the error."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters cut ...]\n"
    head = limit // 4
    tail = limit - head - len(note)
    return text[:head] + note + text[-tail:]
