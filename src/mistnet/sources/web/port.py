"""The port to the web: which URLs may be fetched at all, and one request to one of them. Simulations implement it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Protocol, TypeAlias

import ada_url
import msgspec

from mistnet.kit.transport import Late
from mistnet.shops.model import UnsafeAddress

_V4: Final = {
    IPv4Network("0.0.0.0/8"): "this network",
    IPv4Network("10.0.0.0/8"): "private",
    IPv4Network("100.64.0.0/10"): "shared by a carrier's customers",
    IPv4Network("127.0.0.0/8"): "loopback",
    IPv4Network("168.63.129.16/32"): "a cloud's own service",
    IPv4Network("169.254.0.0/16"): "link-local",
    IPv4Network("172.16.0.0/12"): "private",
    IPv4Network("192.0.0.0/24"): "reserved for protocols",
    IPv4Network("192.0.2.0/24"): "for documentation",
    IPv4Network("192.88.99.0/24"): "a 6to4 relay",
    IPv4Network("192.168.0.0/16"): "private",
    IPv4Network("198.18.0.0/15"): "for benchmarks",
    IPv4Network("198.51.100.0/24"): "for documentation",
    IPv4Network("203.0.113.0/24"): "for documentation",
    IPv4Network("224.0.0.0/4"): "multicast",
    IPv4Network("240.0.0.0/4"): "reserved",
}
_V6: Final = {
    IPv6Network("2001::/23"): "reserved for protocols (Teredo and others)",
    IPv6Network("2001:db8::/32"): "for documentation",
    IPv6Network("2002::/16"): "6to4",
    IPv6Network("3fff::/20"): "for documentation",
}
_GLOBAL: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LAST_32_BITS: Final = 0xFFFF_FFFF


def forbidden(address: str) -> str | None:
    """Why this address may not be fetched from, or None if it is public. What is not an address is forbidden."""
    if "%" in address:
        return "it has a zone, so it is of this machine's own networks"
    try:
        found = IPv6Address(address) if ":" in address else IPv4Address(address)
    except AddressValueError:
        return "it is no internet address"
    if isinstance(found, IPv6Address):
        # Several IPv6 forms embed an IPv4 address; of these only NAT64 can lead to a public one.
        if found.ipv4_mapped is not None:
            return f"an IPv4 address in disguise ({found.ipv4_mapped})"
        if found not in _NAT64:
            reason = next((why for network, why in _V6.items() if found in network), None)
            return reason if found in _GLOBAL else "not a public IPv6 address"
        found = IPv4Address(int(found) & _LAST_32_BITS)
    return next((why for network, why in _V4.items() if found in network), None)


def is_literal(host: str) -> bool:
    """Whether a normalized host is an address, not a name."""
    bare = host.strip("[]")
    try:
        _ = IPv6Address(bare.partition("%")[0]) if ":" in bare else IPv4Address(bare)
    except AddressValueError:
        return False
    return True


PORTS: Final = frozenset({80, 443})
LONGEST_URL: Final = 8_192
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_OWN_NAMES: Final = (
    *(".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home", ".corp", ".private"),
    *(".home.arpa", ".in-addr.arpa", ".ip6.arpa", ".test", ".invalid", ".onion", ".alt"),
)


class SafeUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A normalized URL and its parts. `trusted`: the settings name this host."""

    url: str
    scheme: str
    host: str
    port: int
    trusted: bool = False

    @property
    def origin(self) -> str:
        usual = _DEFAULT_PORTS[self.scheme] == self.port
        return f"{self.scheme}://{self.host}" if usual else f"{self.scheme}://{self.host}:{self.port}"


def parse_safe_url(url: str, *, ports: Collection[int] = PORTS, trusted: Collection[str] = ()) -> SafeUrl:
    """Normalize and check a URL. Raises UnsafeAddress with the reason."""
    if len(url) > LONGEST_URL:
        raise UnsafeAddress(url, f"it is longer than {LONGEST_URL} characters")
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        raise UnsafeAddress(url, "it is not a URL") from None
    scheme = parsed.protocol.removesuffix(":")
    if scheme not in _DEFAULT_PORTS:
        raise UnsafeAddress(url, f"only http and https are fetched, not {scheme[:20]}")
    if parsed.username or parsed.password:
        raise UnsafeAddress(url, "it carries a name or a password")
    # A fragment is never sent; it would only give one page several keys in the cache.
    parsed.hash = ""
    # `localhost.` is the same host as `localhost`.
    host, port = parsed.hostname.removesuffix("."), int(parsed.port or _DEFAULT_PORTS[scheme])
    if host in trusted or f"{host}:{port}" in trusted:
        return SafeUrl(url=parsed.href, scheme=scheme, host=host, port=port, trusted=True)
    if port not in ports:
        raise UnsafeAddress(url, f"port {port} is not among `crawl_ports`")
    if is_literal(host):
        if why := forbidden(host.strip("[]")):
            raise UnsafeAddress(url, f"its address is {why}")
    elif "." not in host or host.endswith(_OWN_NAMES):
        raise UnsafeAddress(url, "its host is a name of a local network")
    return SafeUrl(url=parsed.href, scheme=scheme, host=host, port=port)


def resolve_redirect(base: str, location: str) -> str:
    """The target of a redirect. Raises UnsafeAddress if it is not a URL."""
    try:
        return str(ada_url.URL(location, base=base).href)
    except ValueError:
        raise UnsafeAddress(location, "a redirect leads to what is not a URL") from None


class WebAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of any status; header names are lower case. `unread`: why the body was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    unread: str | None = None


Readable: TypeAlias = Callable[[int, Mapping[str, str]], str | None]
"""Checks an answer's status and headers; returns why its body is not read, or None."""


class WebTransport(Protocol):
    """Raises Unanswered, or CrawlRefused where a retry would not help."""

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer: ...


class LateNetwork(Late[WebTransport]):
    """The guarded network, with how large and how slow an answer may be, and which addresses stand in for hosts."""

    def __init__(
        self,
        given: WebTransport | None = None,
        *,
        user_agent: str,
        largest: int,
        total_seconds: float,
        via: Mapping[str, str],
    ) -> None:
        def make() -> AbstractAsyncContextManager[WebTransport]:
            from mistnet.sources.web.network import Network  # noqa: PLC0415 (slow to load; few commands fetch pages)

            return Network(user_agent=user_agent, largest=largest, total_seconds=total_seconds, via=via)

        super().__init__(make, given)

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        return await self.current.get(target, headers=headers, readable=readable)
