"""Pages that keep readers out, and things that are gone, are told from pages without a price."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import pytest

from mistnet.shops.extraction.read import read_page
from mistnet.shops.model import PageFacts, PageVerdict


def page(html: str, url: str = "https://www.shop.example/p/1") -> PageFacts:
    return read_page(html.encode(), url=url, content_type="text/html")


@pytest.mark.parametrize(
    "html",
    [
        "<title>Robot Check</title><p>Enter the characters you see below</p>",
        "<title>Just a moment...</title>",
        "<title>Access Denied</title>",
        '<title>www.shop.example</title><div id="px-captcha"></div>',
        "<p>Please verify you are human to continue</p>",
        "<p>亲，请登录</p>",
        "<title>Shop</title><p>Our systems have detected unusual traffic from your network.</p>",
    ],
)
def test_a_wall_is_a_block(html: str) -> None:
    facts = page(html)
    assert facts.verdict is PageVerdict.BLOCKED
    assert facts.reason
    assert facts.evidence


@pytest.mark.parametrize(
    "url",
    [
        "https://shopee.tw/verify/captcha?anti_bot_tracking_id=1",
        "https://shopee.vn/verify/traffic",
        "https://shopee.co.id/buyer/login?next=x",
        "https://login.taobao.com/member/login.jhtml",
    ],
)
def test_the_address_alone_can_tell_a_wall(url: str) -> None:
    assert page("<title>Shop</title>", url).verdict is PageVerdict.BLOCKED


def test_an_empty_page_of_shopee_is_a_block_and_not_a_missing_price() -> None:
    html = '<title>Shopee</title><div id="main"></div><script src="/app.js"></script>'
    assert page(html, "https://shopee.tw/product/1/2").verdict is PageVerdict.BLOCKED
    assert page(html).verdict is PageVerdict.NO_PRICE


@pytest.mark.parametrize(
    "html",
    [
        "<title>404 Not Found</title>",
        "<title>Page not found | Shop</title><h1>Sorry</h1>",
        "<h1>This item is no longer available</h1>",
        "<p>很抱歉，您查看的宝贝不存在，可能已下架或者被转移。</p>",
        "<title>商品已下架</title>",
        '<h1>Coin</h1><div class="vi-status-msg">This listing was ended by the seller.</div><b class="price">US $5</b>',
    ],
)
def test_a_thing_that_is_gone_is_told_apart(html: str) -> None:
    assert page(html).verdict is PageVerdict.GONE


def test_a_product_page_with_a_captcha_script_is_still_a_product_page() -> None:
    data = '{"@type":"Product","name":"Robot check kit","offers":{"price":5,"priceCurrency":"EUR"}}'
    facts = page(
        f'<title>Robot check kit</title><script type="application/ld+json">{data}</script>'
        '<div class="g-recaptcha"></div><p>Please log in to see your points</p>'
    )
    assert facts.verdict is PageVerdict.OFFER


def test_a_long_page_that_mentions_a_log_in_is_no_wall() -> None:
    facts = page("<h1>Tea</h1><p>Please log in</p>" + "<p>Leaves from the hills, dried with care.</p>" * 80)
    assert facts.verdict is PageVerdict.NO_PRICE
