"""Turns the bytes of a page into text. What a page says of its own encoding is often wrong, so UTF-8 is tried first."""

import codecs
import re
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEADER: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML: Final = re.compile(rb"^\s*<\?xml[^>]{0,100}encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
_HEAD: Final = 4096
# A page that names more is not believed: each takes another pass over all of it.
_MOST_NAMES: Final = 5
# Python's own, which no page is written in; some take time that grows with the square of the text.
_NO_CHARSETS: Final = frozenset(
    (
        *("hex", "base64", "zlib", "bz2", "uu", "rot13", "quopri", "punycode", "idna"),
        *("unicode_escape", "raw_unicode_escape", "undefined"),
    )
)
# Browsers read these names as their larger relatives.
_WIDER: Final = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso-8859-1": "cp1252",
    "latin-1": "cp1252",
    "latin1": "cp1252",
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "sjis": "cp932",
    "x-sjis": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "big5": "big5hkscs",
    "iso-8859-9": "cp1254",
    "tis-620": "cp874",
    "windows-874": "cp874",
}


def decode(body: bytes, *, content_type: str | None = None, charset: str | None = None) -> str:
    """The text of a page: by its byte-order mark, as strict UTF-8, by header, by meta tag, and at last with gaps."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    named = [*dict.fromkeys([charset, *_HEADER.findall(content_type or ""), *_declared(body)])][:_MOST_NAMES]
    for name in ("utf-8", *filter(None, named)):
        text = _strictly(body, name)
        if text is not None:
            return text
    return _leniently(body, next(filter(None, named), "cp1252"))


def _declared(body: bytes) -> list[str]:
    head = body[:_HEAD]
    return [each.decode("ascii", "ignore") for each in (*_XML.findall(head), *_META.findall(head))]


def _strictly(body: bytes, name: str) -> str | None:
    try:
        return body.decode(_codec(name))
    except (UnicodeError, LookupError, ValueError):
        return None


def _leniently(body: bytes, name: str) -> str:
    """Pages cut in the middle of a character, or with a few stray bytes, are still pages."""
    text = body.decode("utf-8", "replace")
    if text.count("\N{REPLACEMENT CHARACTER}") * 200 <= len(text):
        return text
    try:
        return body.decode(_codec(name), "replace")
    except (UnicodeError, LookupError, ValueError):
        return text


def _codec(name: str) -> str:
    lowered = name.strip().lower()
    found = _WIDER.get(lowered, lowered)
    return found if codecs.lookup(found).name.replace("-", "_") not in _NO_CHARSETS else "?"
