"""Whether a request comes from this machine, and from a page of ours."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request

_PROXY_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
_FRIENDLY: Final = {"same-origin", "none"}


def is_loopback(host: str) -> bool:
    """Of an address or a name; a name other than localhost may lead anywhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def came_from_here(request: Request) -> bool:
    """Straight from a program on this machine, that knows whom it talks to.

    A proxy speaks for others. Another name in Host means that somebody's page was led here by its own name server.
    """
    if request.client is None or not is_loopback(request.client.host):
        return False
    if any(name in request.headers for name in _PROXY_HEADERS):
        return False
    hosts = request.headers.getlist("host")
    return len(hosts) == 1 and is_loopback(_name(hosts[0]))


def sent_by_a_browser(request: Request) -> bool:
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def same_origin(request: Request) -> bool:
    """Browsers say where a request was made; other programs say nothing, and nobody rides on them."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in _FRIENDLY:
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def is_encrypted(request: Request) -> bool:
    """Whether the visitor speaks TLS, be it with us or with the proxy before us."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
