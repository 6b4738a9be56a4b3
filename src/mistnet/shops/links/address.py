"""Parses a posted address as a browser does, adds a missing scheme, and refuses what must not be followed."""

# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec
from ada_url import URL, SchemeType, idna_to_ascii, normalize_url

_PUNYCODE: Final = "xn--"


def parse(url: str, base: str | None = None) -> URL | None:
    """The parts of a URL, named as in the standard; None if it is not a URL, or needs a base."""
    try:
        parsed = URL(url, base)
    except ValueError:
        return None
    encoded = [label for label in parsed.hostname.split(".") if label.startswith(_PUNYCODE)]
    # Ada accepts labels that begin like Punycode and hold none; the standard does not. The decoded label must encode
    # to the same label: it must not hold variants of other characters.
    for label in encoded if parsed.scheme_type != SchemeType.NOT_SPECIAL else ():
        try:
            plain = label.removeprefix(_PUNYCODE).encode("ascii").decode("punycode")
            if plain.isascii() or idna_to_ascii(plain) != label.encode():
                return None
        except (UnicodeError, ValueError):
            return None
    return parsed


def href_of(url: str) -> str | None:
    """The whole URL as a browser writes it: far cheaper than its parts."""
    try:
        href: str = normalize_url(url)
    except ValueError:
        return None
    if _PUNYCODE in href:
        parsed = parse(href)
        return parsed.href if parsed else None
    return href


class RefusedUrl(msgspec.Struct, frozen=True):
    """A link that is not followed. The reason is one short clause for people."""

    reason: str


_LONGEST_HOST: Final = 253
# Blanks and invisible characters, which are copied along with a URL.
_AROUND: Final = " \t\r\n\f\v\u00a0\u3000\u200b\u200c\u200d\u2060\ufeff\u00ad\ufe0e\ufe0f"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?!\d+(?:[/?#]|$))")
_HOST_FIRST: Final = re.compile(r"[^\s/?#\\.]+[.。．]|\[|localhost\b")
_PARTS: Final = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_AUTHORITY: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?")
_ESCAPED_AND: Final = re.compile(r"&amp;", re.IGNORECASE)


class WebAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An http(s) URL in parts. `host` has no trailing dot; `port` is empty if it is the default."""

    href: str
    scheme: str
    host: str
    port: str
    path: str
    query: str
    fragment: str

    @property
    def segments(self) -> list[str]:
        """The non-empty segments of the path, decoded."""
        steps = [each for each in self.path.split("/") if each]
        return [unquote(each) for each in steps] if "%" in self.path else steps

    @property
    def fields(self) -> dict[str, str]:
        """The query by name; the first value of a repeated name."""
        return dict(reversed(parse_qsl(self.query, keep_blank_values=True)))


def read(url: str) -> WebAddress | RefusedUrl:
    """Parse any text. `&amp;` is unescaped, because web pages and X write `&` like that."""
    whole = url.strip(_AROUND)
    # People also post `//host/…` and `host.tld/…`. A number after the colon is a port, not the rest of a scheme.
    if whole.startswith("//"):
        whole = f"https:{whole}"
    elif not _SCHEME.match(whole) and _HOST_FIRST.match(whole):
        whole = f"https://{whole}"
    href = href_of(whole if "&" not in whole else _ESCAPED_AND.sub("&", whole))
    if href is None:
        return RefusedUrl("this is not a URL")
    parts = _PARTS.fullmatch(href)
    if parts is None:
        return RefusedUrl("only http and https are followed")
    scheme, authority, path, query, fragment = parts.groups(default="")
    if "@" in authority:
        return RefusedUrl("it has a user name, which can hide the true host")
    split = _AUTHORITY.fullmatch(authority)
    host, port = split.groups(default="") if split else ("", "")
    # `shop.example.` and `shop.example` are the same host, so links to either must have one name.
    bare = host.removesuffix(".")
    if not bare or ".." in f".{host}" or len(bare) > _LONGEST_HOST:
        return RefusedUrl("its host name is not valid")
    if bare != host:
        href = href.replace(host, bare, 1)
    return WebAddress(href=href, scheme=scheme, host=bare, port=port, path=path, query=query, fragment=fragment)
