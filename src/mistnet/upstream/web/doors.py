"""Reads a URL as browsers do and says whether it may be fetched at all, before anything is looked up. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import ada_url
import msgspec

from mistnet.domain.errors import UnsafeAddress
from mistnet.upstream.web.addresses import forbidden, is_literal

PORTS: Final = frozenset({80, 443})
LONGEST_URL: Final = 8_192
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_OWN_NAMES: Final = (
    *(".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home", ".corp", ".private"),
    *(".home.arpa", ".in-addr.arpa", ".ip6.arpa", ".test", ".invalid", ".onion", ".alt"),
)


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """A URL in its normal form, and whose door it is. `trusted`: the settings name this host."""

    url: str
    scheme: str
    host: str
    port: int
    trusted: bool = False

    @property
    def origin(self) -> str:
        usual = _DEFAULT_PORTS[self.scheme] == self.port
        return f"{self.scheme}://{self.host}" if usual else f"{self.scheme}://{self.host}:{self.port}"


def door_of(url: str, *, ports: Collection[int] = PORTS, trusted: Collection[str] = ()) -> Door:
    """Raises UnsafeAddress with the reason."""
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
    parsed.hash = ""
    host, port = parsed.hostname.removesuffix("."), int(parsed.port or _DEFAULT_PORTS[scheme])
    if host in trusted or f"{host}:{port}" in trusted:
        return Door(url=parsed.href, scheme=scheme, host=host, port=port, trusted=True)
    if port not in ports:
        raise UnsafeAddress(url, f"port {port} is not among `crawl_ports`")
    if why := _private(host):
        raise UnsafeAddress(url, why)
    return Door(url=parsed.href, scheme=scheme, host=host, port=port)


def joined(base: str, location: str) -> str:
    """Where a redirect leads. Raises UnsafeAddress if that is nowhere."""
    try:
        return str(ada_url.URL(location, base=base).href)
    except ValueError:
        raise UnsafeAddress(location, "a redirect leads to what is not a URL") from None


def _private(host: str) -> str | None:
    if is_literal(host):
        why = forbidden(host.strip("[]"))
        return f"its address is {why}" if why else None
    if not host or "." not in host:
        return "its host is a name of a local network"
    if any(host.endswith(own) for own in _OWN_NAMES):
        return "its host is a name of a local network"
    return None
