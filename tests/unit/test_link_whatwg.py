"""URLs are read as browsers read them."""
# ruff: noqa: RUF001 (letters that look like others are the point)

import pytest

from mistnet.shops.links.address import href_of, parse


def test_a_url_is_told_in_its_parts() -> None:
    parsed = parse("HTTPS://user:pw@EXAMPLE.com:8443/a/../b?c#d")
    assert parsed
    assert (parsed.href, parsed.origin) == ("https://user:pw@example.com:8443/b?c#d", "https://example.com:8443")
    assert (parsed.username, parsed.password, parsed.host, parsed.port) == ("user", "pw", "example.com:8443", "8443")
    assert (parsed.protocol, parsed.hostname, parsed.pathname) == ("https:", "example.com", "/b")
    assert (parsed.search, parsed.hash) == ("?c", "#d")


@pytest.mark.parametrize(
    ("relative", "href"),
    [("../c", "https://a.example/c"), ("//b.example", "https://b.example/"), ("?q", "https://a.example/x/y?q")],
)
def test_a_relative_url_needs_a_base(relative: str, href: str) -> None:
    found = parse(relative, "https://a.example/x/y")
    assert found
    assert found.href == href
    assert parse(relative) is None


@pytest.mark.parametrize(
    "url", ["http://a.xn--pokxncvks/", "https://xn--/", "http://", "http://a b/", "http://1.2.3.999/", "\ud800", ""]
)
def test_what_browsers_refuse_is_no_url(url: str) -> None:
    assert parse(url) is None
    assert href_of(url) is None


@pytest.mark.parametrize("url", ["http://0x7f.1/", "http://0177.0.0.1/", "http://2130706433/", "http://①②⑦.⓪.⓪.①/"])
def test_numbers_in_disguise_are_addresses(url: str) -> None:
    assert href_of(url) == "http://127.0.0.1/"


def test_names_in_other_scripts_are_punycode() -> None:
    assert href_of("https://faß.example/") == "https://xn--fa-hia.example/"
    assert href_of("https://ｅｘａｍｐｌｅ。com/") == "https://example.com/"
