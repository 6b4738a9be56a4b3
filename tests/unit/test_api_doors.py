"""Who counts as local, and how long whoever tries tokens has to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.api.local import is_loopback
from mistnet.api.paging import cursor_of, place_of
from mistnet.api.throttle import Throttle


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


def test_ten_failures_in_a_minute_make_one_address_wait_and_no_other() -> None:
    clock = Seconds()
    throttle = Throttle(clock)
    for _ in range(10):
        assert throttle.wait("a") is None
        throttle.failed("a")
        clock.now += 1
    assert throttle.wait("a") == 50
    assert throttle.wait("b") is None
    clock.now += 50
    assert throttle.wait("a") is None


def test_many_addresses_together_have_to_wait_too() -> None:
    clock = Seconds()
    throttle = Throttle(clock)
    for number in range(100):
        assert throttle.wait(str(number)) is None
        throttle.failed(str(number))
    assert throttle.wait("new") == 60
    clock.now = 60
    assert throttle.wait("new") is None


def test_addresses_that_gave_up_are_forgotten() -> None:
    clock = Seconds()
    throttle = Throttle(clock)
    for number in range(10_000):
        throttle.failed(str(number))
    clock.now = 61
    throttle.failed("last")
    assert len(throttle._by_address) == 1


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_cursor_leads_back_to_its_place(place: int) -> None:
    assert place_of(cursor_of(place)) == place
