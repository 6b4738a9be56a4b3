"""What a visited page amounts to, without a network or a database."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest

from mistnet.governor.errors import BadRequest, BrokenAnswer, SourceBlocked, SourceDown
from mistnet.shops.extraction.facts import EarlierPrice
from mistnet.shops.jobs import NO_CURRENCY, find_target, judge_page, judge_price, page_hop, product_name, short_hop
from mistnet.shops.model import (
    CrawlRefused,
    Hop,
    LinkAtHand,
    LinkId,
    LinkKind,
    LinkState,
    PageFacts,
    PageVerdict,
    PageVisit,
    bounded,
    content_hash,
)
from mistnet.shops.shop import WEB, Shop
from mistnet.shops.shopee import SHOPEE
from mistnet.sources.reading import ReadsHere
from tests.support import START

READ = ReadsHere().page
ITEM = "https://shopee.tw/product/1/2"


def facts(amount: str = "100", currency: str | None = "TWD", **about: object) -> PageFacts:
    given = {"verdict": PageVerdict.OFFER, "amount": Decimal(amount), "currency": currency, **about}
    return PageFacts(**given)  # type: ignore[arg-type]  # a test's own mix


def seen(url: str = ITEM, *, status: int = 200, body: bytes = b"<html></html>", kind: str = "text/html") -> PageVisit:
    return PageVisit(url=url, final_url=url, status=status, headers={"content-type": kind}, body=body)


def link(url: str = ITEM, shop: Shop = SHOPEE, kind: LinkKind = LinkKind.ITEM) -> LinkAtHand:
    return LinkAtHand(
        id=LinkId(1),
        url_norm=url,
        url=url,
        host=url.split("/")[2],
        lane=shop.lane,
        shop=shop,
        kind=kind,
        state=LinkState.NEW,
        item_id="2" if kind is LinkKind.ITEM else None,
    )


def earlier(*amounts: str) -> list[EarlierPrice]:
    return [
        EarlierPrice(amount=Decimal(each), currency="TWD", observed_at=START + timedelta(days=day))
        for day, each in enumerate(amounts)
    ]


def test_an_amount_in_no_known_currency_is_doubted() -> None:
    assert judge_price(facts(currency=None), [], seen_before=None) == NO_CURRENCY


def test_a_jump_is_doubted_until_a_second_look_sees_the_same() -> None:
    leap = facts("90000")
    why = judge_price(leap, earlier("100", "101", "100"), seen_before=None)
    assert why
    assert judge_price(leap, earlier("100", "101", "100"), seen_before=content_hash(facts("70000"))) == why
    assert judge_price(leap, earlier("100", "101", "100"), seen_before=content_hash(leap)) is None


def test_what_breaks_its_currencys_rules_is_not_believed_however_often_it_is_seen() -> None:
    odd = facts("100.37131", "VND")
    assert judge_price(odd, [], seen_before=None)
    assert judge_price(odd, [], seen_before=content_hash(odd))


@pytest.mark.parametrize(("one", "other"), [("10", "10.00"), ("1E+1", "10")])
def test_the_same_amount_written_otherwise_is_the_same_offer(one: str, other: str) -> None:
    assert content_hash(facts(one)) == content_hash(facts(other))
    assert content_hash(facts(one)) != content_hash(facts("11"))


def test_pieces_sold_are_no_change_of_an_offer() -> None:
    assert content_hash(facts(sold_count=5)) == content_hash(facts(sold_count=6))


@pytest.mark.parametrize("status", [404, 410])
async def test_a_missing_page_is_gone(status: int) -> None:
    assert (await judge_page(seen(status=status), "shopee", READ)).verdict is PageVerdict.GONE


@pytest.mark.parametrize("status", [401, 403, 451])
async def test_a_refusal_is_a_wall_whatever_the_page_says(status: int) -> None:
    offer = b"""<html><h1>Cup</h1><script type="application/ld+json">{"@type": "Product", "name": "Cup",
        "offers": {"price": "5.00", "priceCurrency": "EUR"}}</script></html>"""
    shown = partial(seen, "https://kiosk.example/cup", body=offer)
    assert (await judge_page(shown(status=200), "web", READ)).verdict is PageVerdict.OFFER
    with pytest.raises(SourceBlocked):
        await judge_page(shown(status=status), "web", READ)


@pytest.mark.parametrize(
    "wall",
    [
        "https://shopee.tw/verify/captcha?x=1",
        "https://shopee.tw/buyer/login?next=1",
        "https://login.taobao.com/member/login.jhtml",
    ],
)
async def test_a_redirect_to_a_wall_is_a_wall(wall: str) -> None:
    with pytest.raises(SourceBlocked):
        await judge_page(seen(wall, status=302), "shopee", READ)


async def test_a_wall_blocks_us_and_one_host_at_fault_is_named() -> None:
    with pytest.raises(SourceBlocked, match=r"^shopee blocks us: "):
        await judge_page(seen("https://shopee.tw/verify/captcha?x=1", status=302), "shopee", READ)
    with pytest.raises(SourceDown, match=r"^a\.example\.com: status 503$"):
        await judge_page(seen("https://a.example.com/x", status=503, body=b"<html><p>Sorry</p></html>"), "web", READ)


def test_a_source_is_called_down_only_if_it_says_so_itself() -> None:
    assert str(SourceDown("x", "503 overloaded", status=503)) == "x is down: 503 overloaded"
    assert str(SourceDown("x", "no answer in time")) == "x gave no whole answer: no answer in time"
    assert str(SourceDown("x", "it says 304", status=304)) == "x: it says 304"


async def test_shopees_refusal_in_json_is_a_wall() -> None:
    told = b'{"error":90309999,"is_login":false,"redirect_to_error_page":true}'
    with pytest.raises(SourceBlocked):
        await judge_page(
            seen("https://shopee.tw/api/v4/item/get?itemid=2", body=told, kind="application/json"), "shopee", READ
        )


@pytest.mark.parametrize(("status", "error"), [(500, SourceDown), (503, SourceDown), (400, BadRequest)])
async def test_a_servers_fault_is_tried_again_and_ours_is_not(status: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        await judge_page(seen("https://a.example.com/x", status=status, body=b"<html><p>Sorry</p></html>"), "web", READ)


async def test_a_short_links_script_is_followed_inside_the_shop_only() -> None:
    short = "https://m.tb.cn/h.5xYzAbC"
    page = b"<script>var url = 'https://item.taobao.com/item.htm?id=673425618890';</script>"
    assert (
        await find_target(seen(short, body=page), "taobao", READ) == "https://item.taobao.com/item.htm?id=673425618890"
    )
    with pytest.raises(CrawlRefused):
        await find_target(
            seen(short, body=b"<script>var url = 'https://evil.example.com/x?id=673425618890';</script>"),
            "taobao",
            READ,
        )
    with pytest.raises(BrokenAnswer):
        await find_target(seen(short), "taobao", READ)
    assert await find_target(seen(short, status=404), "taobao", READ) is None, "it is gone: no failure"


@pytest.mark.parametrize(
    ("before", "after", "hop"),
    [
        ("https://s.shopee.tw/abc", "https://shopee.tw/product/1/2?x=1", Hop.STOP),
        ("https://s.shopee.tw/abc", "https://shopee.tw/error_page", Hop.STOP),
        ("https://s.shopee.tw/abc", "https://evil.example.com/", Hop.REFUSE),
        ("https://s.shopee.tw/abc", "https://shopee.tw.evil.com/product/1/2", Hop.REFUSE),
        ("https://s.shopee.tw/abc", "http://127.0.0.1/", Hop.REFUSE),
    ],
)
def test_a_short_link_stays_in_its_shop(before: str, after: str, hop: Hop) -> None:
    assert short_hop(before, after) is hop


@pytest.mark.parametrize(
    ("after", "hop"),
    [
        ("https://shopee.tw/product/1/2?x", Hop.FOLLOW),
        ("https://shopee.tw/verify/traffic", Hop.STOP),
        ("https://evil.example.com/", Hop.REFUSE),
    ],
)
def test_an_items_page_stays_in_its_shop(after: str, hop: Hop) -> None:
    assert page_hop(link(), ITEM, after) is hop


def test_a_page_of_the_open_web_may_lead_to_another() -> None:
    page = link("https://a.example.com/x", WEB, LinkKind.PAGE)
    assert page_hop(page, page.url, "https://b.example.org/y") is Hop.FOLLOW


def test_a_page_without_ids_is_named_by_its_host_and_url() -> None:
    name = product_name(link("https://a.example.com/x", WEB, LinkKind.PAGE))
    assert (name.shop_id, name.item_id) == ("a.example.com", "https://a.example.com/x")


def test_long_names_stay_apart_and_short_enough() -> None:
    long = "https://a.example.com/" + "商" * 2_000
    assert bounded(long) != bounded(long + "x")
    assert len(bounded(long).encode()) <= 2_000
    assert bounded(bounded(long)) == bounded(long)
