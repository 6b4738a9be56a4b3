"""Whether a request comes from this machine, and from a page of ours."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request

from mistnet.api.proxies import came_by_socket, is_forwarded
from mistnet.domain.visitors import Entry

_FRIENDLY: Final = {"same-origin", "none"}
_HTTP_PORT: Final = 80


def is_loopback(host: str) -> bool:
    """Of an address or a name; a name other than localhost may lead anywhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def local_entry(request: Request) -> Entry | None:
    """How a program on this machine reached us directly. None: it did not, or it may speak for others.

    A proxy speaks for others. Another name in Host means that a page of another site was led here by its own name
    server, or that the request was meant for the address of a proxy.
    """
    hosts = request.headers.getlist("host")
    if is_forwarded(request) or len(hosts) != 1:
        return None
    if came_by_socket(request):
        return Entry.SOCKET if is_loopback(_name(hosts[0])) else None
    if request.client is None or not is_loopback(request.client.host):
        return None
    return Entry.LOOPBACK if hosts[0].lower() in _own_hosts(request) else None


def sent_by_a_browser(request: Request) -> bool:
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def same_origin(request: Request) -> bool:
    """Browsers say where a request was made; other programs say nothing, and nobody rides on them."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in _FRIENDLY:
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _own_hosts(request: Request) -> set[str]:
    """What Host says when the request was meant for the address and the port that it came to."""
    address, port = request.scope["server"]
    names = ("localhost", f"[{address}]" if ":" in address else address)
    return {f"{name}:{port}" for name in names} | (set(names) if port == _HTTP_PORT else set())


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
