"""Where a request comes from: its address, proxy or page; and how many of an address's log-ins failed."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from fastapi import Request

from mistnet.web.tokens import LoginMethod

Address: TypeAlias = IPv4Address | IPv6Address

SOCKET_PEER: Final = "unix"
"""The name in the setting for peers on the Unix socket, which have no address."""

_ONE_CLIENT_V6: Final = 64
_HTTP_PORT: Final = 80
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
    """The setting `trusted_proxies`. Forwarding headers of other peers are ignored: anyone can send them."""

    def __init__(self, listed: Iterable[str]) -> None:
        named = set(listed)
        self._socket = SOCKET_PEER in named
        self._networks = [ip_network(each) for each in named - {SOCKET_PEER}]

    def sent(self, request: Request) -> bool:
        """Whether a trusted proxy sent this request."""
        if request.client is None:
            return self._socket and came_by_socket(request)
        return self._trusts(_parse(request.client.host))

    def client_address(self, request: Request) -> str:
        """The address of the client: the rightmost one that no trusted proxy has.

        Clients can send an X-Forwarded-For of their own. Proxies append to it, so everything left of the first
        untrusted address may be forged.
        """
        found = _parse(request.client.host) if request.client else None
        if not self.sent(request):
            return _text(found)
        for each in reversed(_listed(request, "x-forwarded-for")):
            address = _parse(_without_port(each))
            if address is None:
                break
            found = address
            if not self._trusts(address):
                break
        return _text(found)

    def is_encrypted(self, request: Request) -> bool:
        """Whether the client uses TLS, to this service or to a trusted proxy."""
        if request.url.scheme == "https":
            return True
        protocols = _listed(request, "x-forwarded-proto")
        return self.sent(request) and bool(protocols) and protocols[-1].lower() == "https"

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def is_forwarded(request: Request) -> bool:
    """Whether a header shows that the request came through a proxy.

    A bare `proxy_pass` of nginx adds none, but most versions of nginx then use HTTP/1.0, which no browser does.
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


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine. Names other than localhost may resolve to anything."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def local_entry(request: Request) -> LoginMethod | None:
    """How a program on this machine connected directly. None: it did not, or may act for others.

    A proxy acts for others. Another name in Host means DNS rebinding (a page of another site whose name resolves to
    this machine), or that the request was meant for the address of a proxy.
    """
    hosts = request.headers.getlist("host")
    if is_forwarded(request) or len(hosts) != 1:
        return None
    if came_by_socket(request):
        return LoginMethod.SOCKET if is_loopback(_without_port(hosts[0])) else None
    if request.client is None or not is_loopback(request.client.host):
        return None
    address, port = request.scope["server"]
    names = ("localhost", f"[{address}]" if ":" in address else address)
    # Browsers leave the default port out of Host.
    expected = {f"{name}:{port}" for name in names} | (set(names) if port == _HTTP_PORT else set())
    return LoginMethod.LOOPBACK if hosts[0].lower() in expected else None


def is_from_browser(request: Request) -> bool:
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def same_origin(request: Request) -> bool:
    """Whether a request comes from our own pages. Other programs send neither header, and no site can misuse them."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def network_of(address: str) -> str:
    """The network that one client owns. An IPv6 client owns a /64 and can use any address in it."""
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, _ONE_CLIENT_V6), strict=False))
    return address


def _listed(request: Request, header: str) -> list[str]:
    """All values of a header, which may come in one line or in several."""
    values = [each.strip() for line in request.headers.getlist(header) for each in line.split(",")]
    return [each for each in values if each]


def _without_port(written: str) -> str:
    """Some proxies write 192.0.2.1:50000 or [2001:db8::1]:50000."""
    if written.startswith("["):
        return written[1:].partition("]")[0]
    return written.partition(":")[0] if written.count(":") == 1 else written


def _parse(written: str) -> Address | None:
    """The address, or None. An IPv4-mapped IPv6 address becomes the IPv4 address."""
    try:
        # A link-local address may name its interface: fe80::1%eth0.
        address = ip_address(written.partition("%")[0])
    except ValueError:
        return None
    # A socket that serves both families shows IPv4 clients as ::ffff:192.0.2.1.
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _text(address: Address | None) -> str:
    return "unknown" if address is None else str(address)


_SPAN_SECONDS: Final = 60.0
_BY_ADDRESS: Final = 10
_BY_ACCOUNT: Final = 100
# An attacker with many addresses must not fill the memory.
_ADDRESSES: Final = 10_000

_Attempts: TypeAlias = deque[float]


class Throttle:
    """Counts failed attempts of the last minute, by address and by account.

    There is no total: strangers could fill it, and then everyone else would have to wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, _Attempts] = OrderedDict()
        self._by_account: dict[str, _Attempts] = {}

    def count_failure(self, address: str, account: str | None = None) -> None:
        now = self._clock()
        # The address that failed last is at the end, so that the oldest are at the beginning.
        while self._by_address:
            attempts = next(iter(self._by_address.values()))
            if attempts[-1] > now - _SPAN_SECONDS and len(self._by_address) < _ADDRESSES:
                break
            self._by_address.popitem(last=False)
        # No more than the limit: only when the oldest of them ends matters.
        self._by_address.setdefault(address, deque(maxlen=_BY_ADDRESS)).append(now)
        self._by_address.move_to_end(address)
        if account is not None:
            self._by_account.setdefault(account, deque(maxlen=_BY_ACCOUNT)).append(now)

    def wait(self, address: str, account: str | None = None) -> int | None:
        """The seconds until this address may try again, or anyone for this account. None: now."""
        now = self._clock()
        counted = (
            (self._by_address.get(address), _BY_ADDRESS),
            (self._by_account.get(account) if account is not None else None, _BY_ACCOUNT),
        )
        waits = []
        for attempts, most in counted:
            while attempts and attempts[0] <= now - _SPAN_SECONDS:
                attempts.popleft()
            if attempts and len(attempts) >= most:
                waits.append(math.ceil(attempts[0] + _SPAN_SECONDS - now))
        return max(waits, default=None)
