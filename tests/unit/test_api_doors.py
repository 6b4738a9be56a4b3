"""Who counts as local, which proxies are believed, and how long failed log-ins have to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from mistnet.web.clients import Throttle, TrustedProxies, is_loopback, network_of
from mistnet.web.dependencies import cursor_of, place_of
from mistnet.web.tokens import is_guessable, new_secret


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LocalHost"])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "::ffff:10.0.0.1", "127.1"]
)
def test_nothing_else_is_this_machine(host: str) -> None:
    assert not is_loopback(host)


def request_of(*headers: tuple[str, str], peer: str | None = "127.0.0.1") -> Request:
    """As the server hands it on; without a peer it came by the Unix socket."""
    server = ("127.0.0.1", 8470) if peer else ("/run/mistnet/mistnet.sock", None)
    return Request(
        {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "path": "/",
            "query_string": b"",
            "client": (peer, 50_000) if peer else None,
            "server": server,
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        }
    )


PROXIES = TrustedProxies(["127.0.0.1", "10.0.0.0/8", "2001:db8:aaaa::/48", "unix"])


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("6.6.6.6, 192.0.2.7", "192.0.2.7"),
        ("127.0.0.1, 192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, 10.1.2.3", "192.0.2.7"),
        ("6.6.6.6, 192.0.2.7, 10.1.2.3, 10.9.9.9", "192.0.2.7"),
        ("10.1.2.3", "10.1.2.3"),
        ("192.0.2.7:50123", "192.0.2.7"),
        ("[2001:db8::7]:50123", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, 2001:db8:aaaa::1", "192.0.2.7"),
        ("192.0.2.7, unknown", "127.0.0.1"),
        ("192.0.2.7, , 10.1.2.3,", "192.0.2.7"),
        ("", "127.0.0.1"),
        ("nonsense", "127.0.0.1"),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_no_trusted_proxy(said: str, client: str) -> None:
    assert PROXIES.client_address(request_of(("X-Forwarded-For", said))) == client


def test_forwarded_addresses_may_come_in_several_headers() -> None:
    headers = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "192.0.2.7, 10.1.2.3")]
    assert PROXIES.client_address(request_of(*headers)) == "192.0.2.7"


@pytest.mark.parametrize("peer", ["192.0.2.1", "127.0.0.2", "::1", "11.0.0.1"])
def test_what_a_proxy_says_that_is_not_trusted_is_not_believed(peer: str) -> None:
    request = request_of(("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-Proto", "https"), peer=peer)
    assert (PROXIES.client_address(request), PROXIES.is_encrypted(request)) == (peer, False)
    nobody = TrustedProxies([])
    assert not nobody.is_encrypted(request_of(("X-Forwarded-Proto", "https")))


def test_a_proxy_may_speak_through_the_unix_socket_if_it_is_trusted() -> None:
    request = request_of(("X-Forwarded-For", "192.0.2.7"), ("X-Forwarded-Proto", "https"), peer=None)
    assert (PROXIES.client_address(request), PROXIES.is_encrypted(request)) == ("192.0.2.7", True)
    others = TrustedProxies(["127.0.0.1"])
    assert (others.client_address(request), others.is_encrypted(request)) == ("unknown", False)


@pytest.mark.parametrize(
    ("said", "encrypted"), [("https", True), ("HTTPS", True), ("http", False), ("https, http", False)]
)
def test_the_nearest_proxy_says_whether_the_client_speaks_tls(said: str, *, encrypted: bool) -> None:
    assert PROXIES.is_encrypted(request_of(("X-Forwarded-Proto", said))) is encrypted


def test_one_client_has_a_whole_network_of_ipv6_addresses() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("192.0.2.7") == "192.0.2.7"
    assert network_of("unknown") == "unknown"


def test_ten_failures_in_a_minute_make_one_address_wait_and_no_other() -> None:
    clock = Seconds()
    throttle = Throttle(clock)
    for _ in range(10):
        assert throttle.wait("a") is None
        throttle.count_failure("a")
        clock.now += 1
    assert throttle.wait("a") == 50
    assert throttle.wait("b") is None
    clock.now += 50
    assert throttle.wait("a") is None


def test_a_hundred_failures_in_a_minute_make_one_account_wait_and_no_other() -> None:
    clock = Seconds()
    throttle = Throttle(clock)
    for number in range(100):
        assert throttle.wait(str(number), "admin") is None
        throttle.count_failure(str(number), "admin")
    assert throttle.wait("new", "admin") == 60
    assert throttle.wait("new", "other") is throttle.wait("new") is None
    clock.now = 60
    assert throttle.wait("new", "admin") is None


def test_addresses_that_gave_up_are_forgotten() -> None:
    clock = Seconds()
    throttle = Throttle(clock)
    for number in range(10_000):
        throttle.count_failure(str(number))
    clock.now = 61
    throttle.count_failure("last")
    assert len(throttle._by_address) == 1


def test_no_flood_of_addresses_fills_the_memory() -> None:
    throttle = Throttle(Seconds())
    for number in range(10_050):
        throttle.count_failure(str(number))
    assert len(throttle._by_address) == 10_000
    for _ in range(9):
        throttle.count_failure("10049")
    assert throttle.wait("10049") == 60


@pytest.mark.parametrize("secret", ["x" * 64, "passwordpassword", "adminadminadmin1", "change-me-please"])
def test_a_secret_with_little_in_it_can_be_guessed(secret: str) -> None:
    assert is_guessable(secret)


def test_a_long_secret_of_many_characters_cannot() -> None:
    for secret in (new_secret(), "an-admin-token-of-the-settings", "5f0c9a1e77d24b38a6c1d0e9b2f48371"):
        assert not is_guessable(secret)


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_cursor_leads_back_to_its_place(place: int) -> None:
    assert place_of(cursor_of(place)) == place
