"""Following a link hop by hop: which hop is allowed, and the target some pages hide in their script."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from mistnet.links.address import Address, read
from mistnet.links.hosts import family, site_of
from mistnet.links.imitations import imitated
from mistnet.links.refused import Refused
from mistnet.links.whatwg import parse

_QUOTED: Final = r"(?P<quote>[\"'])(?P<url>[^\"'\n]{1,8000})(?P=quote)"
# The forms a page uses to send its reader on, most telling first.
_SCRIPTS: Final = (
    re.compile(rf"\bvar\s{{1,9}}url\s{{0,9}}=\s{{0,9}}{_QUOTED}"),
    re.compile(rf"\blocation\.(?:replace|assign)\(\s{{0,9}}{_QUOTED}"),
    re.compile(rf"\blocation(?:\.href)?\s{{0,9}}=\s{{0,9}}{_QUOTED}"),
)
_META: Final = re.compile(r"<meta\b[^<>]{1,8000}>", re.IGNORECASE)
_REFRESH: Final = re.compile(r"\bhttp-equiv\s{0,9}=\s{0,9}[\"']?refresh\b", re.IGNORECASE)
_CONTENT: Final = re.compile(r"\burl\s{0,9}=\s{0,9}['\"]?(?P<url>[^'\">\s]+)", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_HEAD: Final = 200_000


def may_follow(from_url: str, to_url: str) -> bool:
    """A shop's link may only lead on within the shop; any other may lead anywhere that is not refused."""
    start = read(from_url)
    if isinstance(start, Refused):
        return False
    target = _seen_from(start, to_url)
    if isinstance(target, Refused) or imitated(target.host):
        return False
    site = site_of(start.host)
    if site is None:
        return True
    reached = site_of(target.host)
    return reached is not None and not target.port and family(reached.shop) is family(site.shop)


def inline_target(html: str) -> str | None:
    """Where a page that answered 200 sends its reader: Taobao's short links do it in a script. None: nowhere."""
    head = html[:_HEAD]
    for pattern in _SCRIPTS:
        for hit in pattern.finditer(head):
            if target := _target(hit["url"]):
                return target
    refresh = next((tag[0] for tag in _META.finditer(head) if _REFRESH.search(tag[0])), "")
    told = _CONTENT.search(refresh)
    return _target(told["url"]) if told else None


def _seen_from(start: Address, url: str) -> Address | Refused:
    """A hop may be told relative to where one stands."""
    joined = parse(url, start.href)
    return read(joined.href) if joined else Refused("this is not a URL")


def _target(written: str) -> str | None:
    """A whole http(s) URL, or nothing: apps have schemes of their own beside it."""
    try:
        plain = unescape(_ESCAPE.sub(_unescaped, written)).strip()
    except ValueError:  # a character reference with thousands of digits
        return None
    if plain.startswith("//"):
        plain = f"https:{plain}"
    if not plain.lower().startswith(("http://", "https://")):
        return None
    return None if isinstance(read(plain), Refused) else plain


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else escape[3]
