"""Text for people: numbers and nouns, lists, and texts without secrets, control characters or too much length."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Final


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 post`, `2 posts`, `1,200 posts`; `many` where the plural is not the singular with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def money(amount: Decimal | None, currency: str | None, most: Decimal | None = None) -> str:
    """`1,370.00 TWD`, or `1,370.00 to 1,400.00 TWD` where it depends; empty without an amount."""
    if amount is None:
        return ""
    upto = f" to {most:,f}" if most is not None and most != amount else ""
    return f"{amount:,f}{upto} {currency or ''}".strip()


_BETWEEN: Final = re.compile(r"[,\s]+")
_BEFORE_ADDRESS: Final = re.compile(r"(?<![,\s])[,\s]++(?=[A-Za-z][A-Za-z0-9+.-]*://)")


def split_list(*written: str) -> list[str]:
    """All parts of all texts, in order. None of them is empty."""
    return [part for text in written for part in _BETWEEN.split(text) if part]


def split_addresses(*written: str) -> list[str]:
    """The same for addresses, which may have commas of their own."""
    return [part.strip(" ,") for text in written for part in _BEFORE_ADDRESS.split(text.strip()) if part.strip(" ,")]


LARGEST_ID: Final = 2**63 - 1
_DIGITS_OF_AN_ID: Final = len(str(LARGEST_ID))


def read_number(written: str, *, most: int = LARGEST_ID) -> int | None:
    """Read what ASCII digits spell. Return None for any other text and for more than `most`.

    `int` alone raises ValueError for more than 4,300 digits, and reads the digits of every script.
    """
    if not (written.isascii() and written.isdecimal()):
        return None
    digits = written.lstrip("0") or "0"
    if len(digits) > _DIGITS_OF_AN_ID:
        return None
    number = int(digits)
    return number if number <= most else None


def read_id(written: str) -> int | None:
    """Read an id of a row. Return None for text that no row can have as its id."""
    return read_number(written) or None


_WEB: Final = re.compile(r"https?://[^\s/?#\\][^\x00-\x1f\x7f]*", re.IGNORECASE)


def web_url(written: str | None) -> str | None:
    """Return an http or https URL as it is written, without blanks around it, and None for anything else.

    What others write may say `javascript:` or `data:`, and those who read our data may put it into a page.
    """
    bare = (written or "").strip()
    return bare if _WEB.fullmatch(bare) else None


_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str, *, one_line: bool = False) -> str:
    """Replace control characters: text of unknown origin must not steer a terminal, nor break out of its line."""
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode())
    return " ".join(shown.split()) if one_line else shown


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


def last_line(text: str | None) -> str:
    """The last line of an error, which says what happened. Empty without one."""
    return ((text or "").strip().splitlines() or [""])[-1]


def shorten(text: str, limit: int) -> str:
    """Keep the beginning and more of the end, where a traceback has the error."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters cut ...]\n"
    head = limit // 4
    tail = limit - head - len(note)
    return text[:head] + note + text[-tail:]
