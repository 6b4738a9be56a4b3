"""URLs read as browsers read them (WHATWG), by ada; only names no registry could hold are looked at again."""

from __future__ import annotations

from typing import Final

import msgspec
from ada_url import URL, SchemeType, idna_to_ascii, normalize_url

_PUNYCODE: Final = "xn--"


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A URL in its parts, named as in the standard."""

    href: str
    protocol: str
    username: str
    password: str
    host: str
    hostname: str
    port: str
    pathname: str
    search: str
    hash: str
    origin: str


def parse(url: str, base: str | None = None) -> Parsed | None:
    """None: not a URL, or not one without a base."""
    try:
        read = URL(url, base)
    except ValueError:
        return None
    if read.scheme_type != SchemeType.NOT_SPECIAL and not _decodes(read.hostname):
        return None
    return Parsed(**{name: getattr(read, name) for name in Parsed.__struct_fields__})


def href_of(url: str) -> str | None:
    """The whole URL as a browser would write it: far cheaper than its parts."""
    try:
        href: str = normalize_url(url)
    except ValueError:
        return None
    if _PUNYCODE in href:
        read = parse(href)
        return read.href if read else None
    return href


def _decodes(hostname: str) -> bool:
    """Ada lets labels pass that promise Punycode and hold none; the standard does not."""
    if _PUNYCODE not in hostname:
        return True
    return all(_label_decodes(label) for label in hostname.split(".") if label.startswith(_PUNYCODE))


def _label_decodes(label: str) -> bool:
    """What it stands for must lead back to it: characters that are only spellings of others have no place there."""
    try:
        plain = label.removeprefix(_PUNYCODE).encode("ascii").decode("punycode")
        return not plain.isascii() and bool(idna_to_ascii(plain) == label.encode())
    except (UnicodeError, ValueError):
        return False
