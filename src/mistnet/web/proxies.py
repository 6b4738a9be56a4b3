"""Which proxies are believed when they say whom they speak for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from fastapi import Request

Address: TypeAlias = IPv4Address | IPv6Address

SOCKET_PEER: Final = "unix"
"""How the setting names those who connect by the Unix socket: such a peer has no address."""

_ONE_CLIENT_V6: Final = 64
_FORWARDING: Final = {
    *("forwarded", "via", "client-ip", "true-client-ip", "proxy-client-ip", "wl-proxy-client-ip"),
    *("x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-remote-ip", "x-remote-addr", "x-originating-ip"),
    *("x-proxyuser-ip", "x-appengine-user-ip", "x-nginx-proxy"),
}
_FORWARDING_PREFIXES: Final = (
    *("x-forwarded", "x-original-", "x-envoy-", "x-amzn-", "x-azure-"),
    *("cf-", "fastly-", "fly-", "tailscale-"),
)


class TrustedProxies:
    """The setting `trusted_proxies`. What any other peer says about where a request came from is not believed."""

    def __init__(self, listed: Iterable[str]) -> None:
        named = set(listed)
        self._socket = SOCKET_PEER in named
        self._networks = [ip_network(each) for each in named - {SOCKET_PEER}]

    def sent(self, request: Request) -> bool:
        """Whether one of them sent this request to us."""
        if request.client is None:
            return self._socket and came_by_socket(request)
        return self._trusts(_parse(request.client.host))

    def client_address(self, request: Request) -> str:
        """The address of the client: the rightmost one that no trusted proxy has.

        Clients can send an X-Forwarded-For of their own. Proxies add to its end, so that all left of the first
        address we do not trust may be made up.
        """
        found = _parse(request.client.host) if request.client else None
        if not self.sent(request):
            return _shown(found)
        for each in reversed(_forwarded_for(request)):
            address = _parse(each)
            if address is None:
                break
            found = address
            if not self._trusts(address):
                break
        return _shown(found)

    def is_encrypted(self, request: Request) -> bool:
        """Whether the client speaks TLS, with us or with a proxy that we trust."""
        if request.url.scheme == "https":
            return True
        said = _listed(request, "x-forwarded-proto")
        return self.sent(request) and bool(said) and said[-1].lower() == "https"

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def is_forwarded(request: Request) -> bool:
    """Whether any header says that the request came through a proxy.

    A bare `proxy_pass` of nginx adds none; but most versions of nginx then speak HTTP/1.0, which no browser does.
    """
    names = set(request.headers.keys())
    return (
        request.scope["http_version"] == "1.0"
        or not names.isdisjoint(_FORWARDING)
        or any(name.startswith(_FORWARDING_PREFIXES) for name in names)
    )


def came_by_socket(request: Request) -> bool:
    """A Unix socket has a path in place of a host, and no port."""
    server = request.scope.get("server")
    return server is not None and server[1] is None


def network_of(address: str) -> str:
    """What one client has to itself: with IPv6 that is a whole network, from which it can take any address."""
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, _ONE_CLIENT_V6), strict=False))
    return address


def _forwarded_for(request: Request) -> list[str]:
    return [_without_port(each) for each in _listed(request, "x-forwarded-for")]


def _listed(request: Request, header: str) -> list[str]:
    """All values of a header, which may come in one line or in several."""
    return [each for each in _split(request.headers.getlist(header)) if each]


def _split(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield from (each.strip() for each in line.split(","))


def _without_port(written: str) -> str:
    """Some proxies write 192.0.2.1:50000 or [2001:db8::1]:50000."""
    if written.startswith("["):
        return written[1:].partition("]")[0]
    return written.partition(":")[0] if written.count(":") == 1 else written


def _parse(written: str) -> Address | None:
    """None for what is no address. An IPv4 address in IPv6 clothes is the IPv4 address."""
    try:
        address = ip_address(written.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _shown(address: Address | None) -> str:
    return "unknown" if address is None else str(address)
