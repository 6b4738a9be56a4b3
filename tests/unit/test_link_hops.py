"""Wrappers are seen through offline; short links are followed only where they may lead."""

import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.shops.links.address import RefusedUrl
from mistnet.shops.links.naming import canonical_link, fetchable_url, inline_target, may_follow

ITEM = "https://shopee.tw/product/11/22"


@pytest.mark.parametrize(
    "wrapper",
    [
        "https://l.threads.com/?u={}&e=AT1", "https://l.threads.net/?e=AT1&u={}", "https://l.instagram.com/?u={}",
        "https://l.facebook.com/l.php?u={}&h=x", "https://lm.facebook.com/l.php?u={}",
        "https://shopee.tw/universal-link?redir={}&deep_and_deferred=1", "https://s.shopee.tw/an_redir?origin_link={}",
        "https://shope.ee/an_redir?affiliate_id=1&origin_link={}", "https://www.google.com/url?q={}&sa=D",
    ],
)  # fmt: skip
def test_a_wrapper_tells_where_it_leads(wrapper: str) -> None:
    assert fetchable_url(wrapper.format(quote(ITEM, safe=""))) == ITEM


def test_taobao_and_ebay_wrap_their_own_items() -> None:
    listing = "https://www.ebay.com/itm/123456789012"
    assert fetchable_url(f"https://rover.ebay.com/rover/1/711/1?mpre={quote(listing, safe='')}&campid=5") == listing
    item = "https://item.taobao.com/item.htm?id=1"
    assert fetchable_url(f"https://login.taobao.com/jump?target={quote(item, safe='')}") == item


def test_wrappers_in_wrappers_are_opened_to_a_limit() -> None:
    url = ITEM
    for _ in range(5):
        url = f"https://l.threads.com/?u={quote(url, safe='')}"
    assert fetchable_url(url) == ITEM
    deeper = f"https://l.facebook.com/l.php?u={quote(url, safe='')}"
    assert isinstance(fetchable_url(deeper), RefusedUrl)
    assert isinstance(canonical_link(deeper), RefusedUrl)


@pytest.mark.parametrize("url", [ITEM, "https://l.threads.com/", "https://example.com/?u=x"])
def test_what_wraps_nothing_stays_as_it_was(url: str) -> None:
    assert fetchable_url(url) == url


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", "https://shopee.tw@evil.com/", "https://fakeshopee.tw/", "file:///etc/passwd"]
)
def test_a_wrapper_does_not_make_its_target_better(target: str) -> None:
    assert isinstance(canonical_link(f"https://l.threads.com/?u={quote(target, safe='')}"), RefusedUrl)


def test_a_shops_wrapper_may_not_lead_out_of_the_shop() -> None:
    assert isinstance(canonical_link("https://s.shopee.tw/an_redir?origin_link=https%3A%2F%2Fexample.com"), RefusedUrl)


@pytest.mark.parametrize(
    ("start", "target", "allowed"),
    [
        ("https://s.shopee.tw/abc", ITEM, True),
        ("https://s.shopee.tw/abc", "/universal-link/product/1/2", True),
        ("https://shp.ee/abc", "https://shopee.com.br/product/1/2", True),
        ("https://m.tb.cn/h.abc", "https://detail.tmall.com/item.htm?id=1", True),
        ("https://m.tb.cn/h.abc", "https://www.goofish.com/item?id=1", True),
        ("https://amzn.to/abc", "https://www.amazon.de/dp/B07FW264WL", True),
        ("https://bit.ly/abc", "https://example.com/x", True),
        ("https://bit.ly/abc", ITEM, True),
        ("http://example.com/", "https://www.example.com/", True),
        ("https://s.shopee.tw/abc", "https://example.com/", False),
        ("https://s.shopee.tw/abc", "https://www.ebay.com/itm/123456789012", False),
        ("https://s.shopee.tw/abc", "https://shopee.tw.evil.com/", False),
        ("https://s.shopee.tw/abc", "https://shopee.tw@evil.com/", False),
        ("https://s.shopee.tw/abc", "//evil.example/", False),
        ("https://s.shopee.tw/abc", "https://shopee.tw:8443/", False),
        ("https://bit.ly/abc", "https://fakeshopee.tw/", False),
        ("https://bit.ly/abc", "file:///etc/passwd", False),
        ("https://bit.ly/abc", "javascript:alert(1)", False),
        ("nonsense", ITEM, False),
    ],
)
def test_a_hop_stays_within_the_shop(start: str, target: str, allowed: bool) -> None:
    assert may_follow(start, target) is allowed


@pytest.mark.parametrize(
    ("html", "target"),
    [
        (
            "<script>var url = 'https://item.taobao.com/item.htm?id=12&amp;x=1'; var extraData = {}</script>",
            "https://item.taobao.com/item.htm?id=12&x=1",
        ),
        (r'var url="https:\/\/a.m.taobao.com\/i12.htm?a=1\x26b=2\u0026c=3";', "https://a.m.taobao.com/i12.htm?a=1&b=2&c=3"),
        ("var url = ''; var url = 'taobao://x'; var url = '//item.taobao.com/item.htm?id=1'", "https://item.taobao.com/item.htm?id=1"),
        ('<script>window.location.href = "https://example.com/a"</script>', "https://example.com/a"),
        ("<script>location.replace('https://example.com/a')</script>", "https://example.com/a"),
        ('<META HTTP-EQUIV="refresh" content="0; url=https://example.com/a?b=1&amp;c=2">', "https://example.com/a?b=1&c=2"),
        ("<html>var url = 'javascript:alert(1)'</html>", None),
        ("<html>nothing here</html>", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_target_in_a_pages_script_is_found(html: str, target: str | None) -> None:
    assert inline_target(html) == target


@pytest.mark.parametrize(
    "hostile", ["<meta ", "<meta http-equiv=refresh ", "var url = '", "var   ", "location = ", "url="]
)
def test_no_page_takes_long(hostile: str) -> None:
    started = time.process_time()
    assert inline_target(hostile * 30_000) is None
    assert time.process_time() - started < 2


@given(st.text(), st.text())
def test_any_text_may_be_asked_about(one: str, other: str) -> None:
    assert isinstance(fetchable_url(one), str | RefusedUrl)
    assert may_follow(one, other) in (True, False)
    assert inline_target(one) is None or inline_target(one)
