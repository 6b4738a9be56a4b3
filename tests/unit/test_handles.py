"""Handles are read as people write them, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.social.errors import BadHandle
from mistnet.social.model import read_handle


@pytest.mark.parametrize(
    "written",
    [
        "Ann_1",
        "@Ann_1",
        "  @Ann_1\n",
        "https://x.com/Ann_1",
        "http://www.twitter.com/Ann_1/",
        "https://mobile.x.com/@Ann_1?lang=en#top",
        "x.com/Ann_1",
        "HTTPS://X.COM/Ann_1",
        "https://x.com/Ann_1/with_replies",
    ],
)
def test_a_handle_is_read_however_it_is_written(written: str) -> None:
    assert read_handle(written) == "Ann_1"


@pytest.mark.parametrize(
    "written",
    [
        "",
        "@",
        "a b",
        "sixteen_letters_",
        "änn",
        "ann.lee",
        "@@ann",
        "https://x.com/",
        "https://x.com/home",
        "https://x.com/ann/status/12",
        "https://example.com/ann",
        "https://x.com.example.com/ann",
        "ftp://x.com/ann",
        "https://[x.com/ann",
        "/ann",
    ],
)
def test_what_is_no_handle_is_refused_with_the_way_to_write_one(written: str) -> None:
    with pytest.raises(BadHandle, match=r"write @name, name or https://x\.com/name"):
        read_handle(written)


@given(st.text())
def test_whatever_is_taken_is_a_handle(written: str) -> None:
    try:
        name = read_handle(written)
    except BadHandle:
        return
    assert 1 <= len(name) <= 15
    assert name.isascii()
    assert name.replace("_", "a").isalnum()
