"""Nothing is fetched from where nothing should be: addresses, spellings, names that turn, sockets, bodies."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from mistnet.kit.transport import Unanswered
from mistnet.shops.model import CrawlRefused, UnsafeAddress
from mistnet.sources.web.client import worth_reading
from mistnet.sources.web.network import GuardedResolver, Network, open_guarded_socket
from mistnet.sources.web.port import SafeUrl, WebAnswer, forbidden, parse_safe_url, resolve_redirect

HOSTILE_URLS = [
    # loopback, however it is spelled
    "http://127.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0177.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://017700000001/",
    "http://%31%32%37.0.0.1/",
    "http://127.0.0.1./",
    "http://127.255.255.254/",
    "http://１２７.０.０.１/",  # noqa: RUF001 (full-width digits are the point)
    "http://①②⑦.⓪.⓪.①/",
    "http:\\\\127.0.0.1\\",
    "http:/127.0.0.1/",
    "http:127.0.0.1/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://foo.localhost/",
    "http://localhost.localdomain/",
    # this machine and its networks
    "http://0/",
    "http://0.0.0.0/",
    "http://0.0.0.1/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://012.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://192.168.1.254/admin",
    "http://3232235777/",
    "http://intranet/",
    "http://router.lan/",
    "http://printer.local/",
    "http://nas.home.arpa/",
    "http://jenkins.corp/",
    # clouds' own services
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://0251.0376.0251.0376/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://[fd00:ec2::254]/",
    # carriers, protocols, documentation, many at once
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://192.0.0.8/",
    "http://192.0.2.1/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://198.51.100.7/",
    "http://203.0.113.9/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    # IPv6
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a00:1::1]/",
    "http://[2001:0:7f00:1::]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[100::1]/",
    "http://[fc00::1]/",
    "http://[fd12:3456:789a::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[5f00::1]/",
    # not the web, not a plain door
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com:70/_x",
    "data:text/html,hi",
    "javascript:alert(1)",
    "ws://example.com/",
    "http://user:pass@example.com/",
    "http://shopee.tw@evil.example/",
    "http://example.com@127.0.0.1/",
    "http://example.com:22/",
    "http://example.com:6379/",
    "https://example.com:8443/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "http://",
    "http:///",
    "//127.0.0.1/",
    "",
    "not a url",
    "http://exa mple.com/",
    "http://256.256.256.256/",
    "http://1.2.3.4.5/",
    "http://[::1/",
    "http://abc.onion/",
    "http://example.com/" + "a" * 9_000,
]

PUBLIC_URLS = {
    "http://example.com": "http://example.com/",
    "HTTPS://Shopee.TW:443/a/../b#c": "https://shopee.tw/b",
    "https://8.8.8.8/": "https://8.8.8.8/",
    "https://[2606:4700::6810:85e5]/": "https://[2606:4700::6810:85e5]/",
    "http://[64:ff9b::808:808]/": "http://[64:ff9b::808:808]/",
    "https://bücher.example.com/": "https://xn--bcher-kva.example.com/",
}

HIDDEN_BEHIND_NAMES = [
    *("127.0.0.1", "10.1.2.3", "172.20.0.5", "192.168.1.1", "169.254.169.254", "100.64.3.4", "0.0.0.0", "224.0.0.5"),
    *("::1", "::", "fe80::1%eth0", "fe80::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::1"),
    *("2001:0:53aa:64c::1", "ff02::fb", "::7f00:1", "192.0.0.170", "198.19.255.255", "203.0.113.1", "250.1.1.1"),
]


def test_the_list_of_hostile_urls_is_long_enough() -> None:
    assert len(set(HOSTILE_URLS)) >= 100


def is_refused(url: str) -> bool:
    try:
        parse_safe_url(url)
    except UnsafeAddress:
        return True
    return False


def test_every_hostile_url_is_refused_before_anything_is_looked_up() -> None:
    assert [url for url in HOSTILE_URLS if not is_refused(url)] == []


@pytest.mark.parametrize(("url", "normal"), PUBLIC_URLS.items())
def test_a_public_url_is_let_through_in_its_normal_form(url: str, normal: str) -> None:
    assert parse_safe_url(url).url == normal


def test_a_host_of_ones_own_network_is_let_through_only_if_named_exactly() -> None:
    assert parse_safe_url("http://10.0.0.7:8080/x", trusted={"10.0.0.7:8080"}).trusted
    assert parse_safe_url("http://intranet/x", trusted={"intranet"}).trusted
    for other in ("http://10.0.0.7:8081/", "http://10.0.0.8:8080/"):
        with pytest.raises(UnsafeAddress):
            parse_safe_url(other, trusted={"10.0.0.7:8080"})


@pytest.mark.parametrize("location", ["http://127.0.0.1/", "//169.254.169.254/", "file:///etc/passwd", "http://[::1]/"])
def test_a_redirect_is_checked_like_any_other_url(location: str) -> None:
    with pytest.raises(UnsafeAddress):
        parse_safe_url(resolve_redirect("https://shopee.tw/x", location))


@given(st.ip_addresses(v=4))
def test_every_ipv4_address_that_is_not_public_is_forbidden(address: ipaddress.IPv4Address) -> None:
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert forbidden(str(address))


@given(st.ip_addresses(v=6))
def test_every_ipv6_address_that_is_not_public_is_forbidden(address: ipaddress.IPv6Address) -> None:
    if not address.is_global or address.is_multicast or address.ipv4_mapped or address.sixtofour or address.teredo:
        assert forbidden(str(address))


@given(st.sampled_from(["::ffff:{}", "::{}", "64:ff9b::{}", "2002:{hex}::", "2001:0:{hex}::"]), st.ip_addresses(v=4))
def test_no_form_of_ipv6_hides_a_private_ipv4_address(form: str, inner: ipaddress.IPv4Address) -> None:
    packed = inner.packed.hex()
    shown = form.format(inner, hex=f"{packed[:4]}:{packed[4:]}")
    if forbidden(str(inner)):
        assert forbidden(shown)


@given(st.text(max_size=40))
def test_no_text_gets_through_as_an_address_by_confusing_the_reader(text: str) -> None:
    if forbidden(text) is None:
        ipaddress.ip_address(text)


class Names(AbstractResolver):
    """A name server of our own: each question gets the next answer."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in answer.split(",")
        ]

    async def close(self) -> None:
        pass


async def fetched(network: Network, url: str) -> WebAnswer:
    return await network.get(parse_safe_url(url), headers={}, readable=worth_reading)


def opened(**about: object) -> Network:
    given: dict[str, object] = {"user_agent": "mistnet/test", "largest": 100_000, "total_seconds": 60.0, **about}
    return Network(**given)  # type: ignore[arg-type]  # a test's own mix of settings


async def test_a_name_that_resolves_to_a_private_address_is_refused() -> None:
    outcomes = {}
    for address in HIDDEN_BEHIND_NAMES:
        async with opened(resolver=Names(address)) as network:
            try:
                outcomes[address] = f"fetched: {await fetched(network, 'http://innocent.example.com/')}"
            except UnsafeAddress as refused:
                outcomes[address] = str(refused)
    assert len(outcomes) > 20
    assert {address: outcome for address, outcome in outcomes.items() if "resolves to" not in outcome} == {}


async def test_one_private_address_among_public_ones_spoils_a_name() -> None:
    async with opened(resolver=Names("93.184.216.34,127.0.0.1")) as network:
        with pytest.raises(UnsafeAddress):
            await fetched(network, "http://innocent.example.com/")


async def test_a_name_that_turns_is_checked_each_time_and_looked_up_once_per_visit() -> None:
    names = Names("203.0.114.1", "127.0.0.1")
    resolver = GuardedResolver(names)
    first = await resolver.resolve("turning.example.com", 80)
    assert first[0]["host"] == "203.0.114.1"
    with pytest.raises(UnsafeAddress):
        await resolver.resolve("turning.example.com", 80)


async def test_an_address_that_slipped_past_every_other_check_is_not_connected_to() -> None:
    async with listening(said(b"secret", Content_Type="text/html")) as (port, visits), opened() as network:
        unchecked = SafeUrl(url=f"http://127.0.0.1:{port}/", scheme="http", host="127.0.0.1", port=port)
        with pytest.raises(UnsafeAddress, match="loopback"):
            await network.get(unchecked, headers={}, readable=worth_reading)
    assert visits == []


async def test_a_private_name_is_looked_up_once_and_never_connected_to() -> None:
    names = Names("127.0.0.1")
    async with listening(said(b"secret")) as (port, visits), opened(resolver=names) as network:
        target = parse_safe_url(f"http://turning.example.com:{port}/", ports={port})
        with pytest.raises(UnsafeAddress):
            await network.get(target, headers={}, readable=worth_reading)
    assert visits == []
    assert names.asked == 1


PUBLIC = "203.0.114.1"
TURNING = "turning.example.com"


@asynccontextmanager
async def routed(monkeypatch: pytest.MonkeyPatch, *answers: bytes) -> AsyncIterator[tuple[int, list[str]]]:
    """A network in which a public address is a server on this machine. Tells every address a socket is connected to.

    One connection gets the answers one by one; after the last it is closed.
    """
    connected: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        writer.close()

    async def connect(sock: socket.socket, address: tuple[str, int]) -> None:
        connected.append(address[0])
        await reach(sock, ("127.0.0.1", address[1]) if address[0] == PUBLIC else address)

    loop = asyncio.get_running_loop()
    reach = loop.sock_connect
    monkeypatch.setattr(loop, "sock_connect", connect)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], connected
    finally:
        server.close()


PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"


async def test_a_name_that_turns_after_a_visit_is_not_visited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(PUBLIC, "127.0.0.1")
    async with routed(monkeypatch, PAGE) as (port, connected), opened(resolver=names) as network:
        target = parse_safe_url(f"http://{TURNING}:{port}/", ports={port})
        assert (await network.get(target, headers={}, readable=worth_reading)).body == b"<html>"
        with pytest.raises(UnsafeAddress, match=r"resolves to 127\.0\.0\.1"):
            await network.get(target, headers={}, readable=worth_reading)
    assert (connected, names.asked) == ([PUBLIC], 2)


async def test_a_name_that_turns_while_a_lost_request_is_sent_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks once more where a connection it kept is closed under it, and looks the name up for that."""
    names, dropped = Names(PUBLIC, "::1"), b""
    async with routed(monkeypatch, PAGE, dropped) as (port, connected), opened(resolver=names) as network:
        target = parse_safe_url(f"http://{TURNING}:{port}/", ports={port})
        await network.get(target, headers={}, readable=worth_reading)
        with pytest.raises(UnsafeAddress, match="resolves to ::1"):
            await network.get(target, headers={}, readable=worth_reading)
    assert (connected, names.asked) == ([PUBLIC], 2)


@pytest.mark.parametrize(
    "mixed",
    [
        f"{PUBLIC},127.0.0.1",
        f"127.0.0.1,{PUBLIC}",
        f"{PUBLIC},::1",
        f"{PUBLIC},::ffff:10.0.0.1",
        f"{PUBLIC},169.254.169.254,{PUBLIC}",
        "2606:4700::1111,fd00::1",
    ],
)
async def test_an_answer_of_public_and_private_addresses_is_connected_to_nowhere(
    monkeypatch: pytest.MonkeyPatch, mixed: str
) -> None:
    async with routed(monkeypatch, PAGE) as (port, connected), opened(resolver=Names(mixed)) as network:
        with pytest.raises(UnsafeAddress, match="resolves to"):
            await network.get(
                parse_safe_url(f"http://{TURNING}:{port}/", ports={port}), headers={}, readable=worth_reading
            )
    assert connected == []


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.0.0.1"])
def test_the_last_door_refuses_a_socket_to_a_private_address(address: str) -> None:
    with pytest.raises(OSError, match=address):
        open_guarded_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 80)))


@asynccontextmanager
async def listening(answer: bytes, *, hang: bool = False) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server on this machine that says one thing, and keeps what it was asked."""
    visits: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        try:
            await writer.drain()
            if hang:
                await asyncio.sleep(30)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], visits
    finally:
        server.close()


def said(body: bytes, **headers: str) -> bytes:
    shown = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 200 OK\r\n{shown}Connection: close\r\n\r\n".encode() + body


async def visited(answer: bytes, *, hang: bool = False, **about: object) -> WebAnswer:
    async with listening(answer, hang=hang) as (port, _visits), opened(**about) as network:
        trusted = f"127.0.0.1:{port}"
        return await network.get(
            parse_safe_url(f"http://{trusted}/", trusted={trusted}), headers={}, readable=worth_reading
        )


@pytest.mark.parametrize(
    ("pack", "name"),
    [(gzip.compress, "gzip"), (zlib.compress, "deflate"), (lambda body: zlib.compress(body, wbits=-15), "deflate")],
)
async def test_a_packed_body_is_unpacked(pack: Callable[[bytes], bytes], name: str) -> None:
    answer = await visited(said(pack(b"<html>" + b"x" * 50_000), Content_Encoding=name, Content_Type="text/html"))
    assert answer.body == b"<html>" + b"x" * 50_000


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"x" * 200_000, {}),
        (b"", {"Content_Length": "200000"}),
        (gzip.compress(b"0" * 5_000_000), {"Content_Encoding": "gzip"}),
        (zlib.compress(b"0" * 5_000_000), {"Content_Encoding": "deflate"}),
    ],
    ids=["endless", "announced", "gzip bomb", "deflate bomb"],
)
async def test_a_body_larger_than_allowed_is_not_read_to_its_end(body: bytes, headers: Mapping[str, str]) -> None:
    with pytest.raises(CrawlRefused, match="larger than"):
        await visited(said(body, Content_Type="text/html", **headers))


async def test_a_body_packed_in_an_unknown_way_is_refused() -> None:
    with pytest.raises(CrawlRefused, match="encoding that was not requested"):
        await visited(said(b"xx", Content_Encoding="zstd", Content_Type="text/html"))


@pytest.mark.parametrize("body", [b"\x1f\x8b broken", gzip.compress(b"y" * 9_000)[:-40] + b"z" * 32])
async def test_a_broken_packed_body_is_no_answer(body: bytes) -> None:
    with pytest.raises(Unanswered):
        await visited(said(body, Content_Encoding="gzip", Content_Type="text/html"))


async def test_a_host_that_never_finishes_is_given_up_in_time() -> None:
    begun = asyncio.get_running_loop().time()
    with pytest.raises(Unanswered, match="in time"):
        await visited(said(b"<html>", Content_Type="text/html"), hang=True, total_seconds=0.3)
    assert asyncio.get_running_loop().time() - begun < 3


async def test_a_picture_is_not_downloaded() -> None:
    answer = await visited(said(b"x" * 999_999, Content_Type="image/png"))
    assert answer.body == b""
    assert answer.unread


async def test_no_cookie_is_ever_sent_back() -> None:
    answer = said(b"<html>", Content_Type="text/html", Set_Cookie="id=7; Path=/", Content_Length="6")
    async with listening(answer) as (port, visits), opened() as network:
        target = parse_safe_url(f"http://127.0.0.1:{port}/", trusted={"127.0.0.1"})
        for _ in range(2):
            await network.get(target, headers={}, readable=worth_reading)
    assert len(visits) == 2
    assert not any(b"cookie" in each.lower() for each in visits)


async def test_a_host_played_by_a_simulation_is_asked_for_by_its_own_name() -> None:
    answer = said(b"<html>", Content_Type="text/html", Content_Length="6")
    async with listening(answer) as (port, visits), opened(via={"*": f"http://127.0.0.1:{port}"}) as network:
        await fetched(network, "https://shopee.tw/product/1/2?a=b%20c")
    assert visits[0].startswith(b"GET /product/1/2?a=b%20c HTTP/1.1\r\n")
    assert b"\r\nHost: shopee.tw\r\n" in visits[0]


async def test_a_simulation_does_not_open_the_door_to_private_addresses() -> None:
    async with opened(via={"*": "http://127.0.0.1:9"}) as network:
        with pytest.raises(UnsafeAddress):
            await fetched(network, "http://169.254.169.254/latest/meta-data/")
