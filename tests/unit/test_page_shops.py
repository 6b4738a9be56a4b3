"""The shops' own JSON: amounts in their odd units, absent values, variants, refusals."""

import json
from decimal import Decimal
from typing import Any

import pytest

from mistnet.shops.extraction.facts import find_doubt
from mistnet.shops.extraction.read import read_page
from mistnet.shops.extraction.shopee import read_answer as read_shopee
from mistnet.shops.extraction.taobao import read_answer as read_taobao
from mistnet.shops.model import Availability, PageFacts, PageVerdict
from tests.corpora import corpus

SHOPEE = "https://shopee.tw/product/11/22"
TAOBAO = "https://item.taobao.com/item.htm?id=33"
ITEM: dict[str, Any] = {
    "itemid": 22,
    "shopid": 11,
    "name": "無線耳機",
    "brand": "Oto",
    "price": 49900000,
    "price_min": 49900000,
    "price_max": 89900000,
    "price_before_discount": 99900000,
    "price_min_before_discount": -1,
    "stock": 12,
    "sold": 3,
    "historical_sold": 1480,
    "item_status": "normal",
    "item_rating": {"rating_star": 4.9, "rating_count": [310, 1, 2, 3, 4, 300]},
}


def answer(payload: object, url: str = SHOPEE) -> PageFacts:
    return read_page(json.dumps(payload).encode(), url=url, content_type="application/json")


@pytest.mark.parametrize("wrapped", [{"error": None, "data": ITEM}, {"item": ITEM}, ITEM, {"data": {"item": ITEM}}])
def test_shopees_integers_are_hundred_thousandths(wrapped: object) -> None:
    facts = answer(wrapped)
    assert (facts.verdict, facts.amount, facts.amount_max) == (PageVerdict.OFFER, Decimal(499), Decimal(899))
    assert (facts.list_amount, facts.currency) == (Decimal(999), "TWD")
    assert (facts.sold_count, facts.rating_count, facts.availability) == (1480, 310, Availability.IN_STOCK)
    assert (facts.title, facts.brand, facts.sku) == ("無線耳機", "Oto", "22")


def test_the_newer_answer_of_shopee_is_read() -> None:
    payload = {
        "error": 0,
        "data": {
            "item": {"item_id": 22, "shop_id": 11, "title": "Cup", "currency": "TWD", "price": 15000000, "models": []},
            "product_review": {"historical_sold": 70, "total_rating_count": 9},
        },
    }
    facts = answer(payload)
    assert (facts.title, facts.amount, facts.currency) == ("Cup", Decimal(150), "TWD")
    assert (facts.sold_count, facts.rating_count) == (70, 9)


def test_variants_tell_the_price_where_the_item_does_not() -> None:
    item = {**ITEM, "price": -1, "price_min": 0, "price_max": -1, "models": [{"price": 200000}, {"price": 300000}]}
    facts = answer(item)
    assert (facts.amount, facts.amount_max) == (Decimal(2), Decimal(3))


def test_nothing_and_less_mean_absent() -> None:
    facts = answer({**ITEM, "price": 0, "price_min": -1, "price_max": 0, "price_before_discount": 0})
    assert (facts.verdict, facts.amount, facts.list_amount) == (PageVerdict.NO_PRICE, None, None)


def test_sold_out_and_hidden_items_are_told_apart() -> None:
    assert answer({**ITEM, "item_status": "sold_out"}).availability is Availability.OUT_OF_STOCK
    assert answer({**ITEM, "item_status": "banned"}).verdict is PageVerdict.GONE
    hidden = answer({**ITEM, "hidden_price_display": "?99"})
    assert (hidden.verdict, hidden.amount) == (PageVerdict.NO_PRICE, None)


@pytest.mark.parametrize(
    "payload",
    [
        {"error": 90309999, "is_login": False, "redirect_to_error_page": True},
        {"error": 90309999, "data": None, "tracking_id": "x"},
        {"error": 0, "data": None},
        {},
    ],
)
def test_a_refusal_of_shopee_is_a_block(payload: object) -> None:
    facts = answer(payload)
    assert facts.verdict is PageVerdict.BLOCKED
    assert facts.reason


def test_an_item_shopee_does_not_know_is_gone() -> None:
    assert answer({"error": 4, "error_msg": "item not found", "data": None}).verdict is PageVerdict.GONE


def test_parts_of_a_dong_stay_as_they_came_so_that_they_can_be_doubted() -> None:
    facts = answer({**ITEM, "price": 12345678901, "price_min": 12345678901}, "https://shopee.vn/product/11/22")
    assert facts.amount == Decimal("123456.78901")
    assert find_doubt(facts, ()) is not None


DETAIL: dict[str, Any] = {
    "item": {"itemId": 33, "title": "连衣裙", "images": ["//img.example/a.jpg"], "commentCount": "88"},
    "mock": {
        "trade": {"buyEnable": True},
        "price": {"price": {"priceText": "258.00-398.00"}, "extraPrices": None},
        "skuCore": {"sku2info": {"0": {"price": {"priceMoney": 25800}, "quantity": 0}}},
    },
    "soldQuantity": {"confirmGoodsCount": 120, "soldTotalCount": 450},
}


def test_taobaos_text_is_in_yuan() -> None:
    facts = answer(DETAIL, TAOBAO)
    assert (facts.amount, facts.amount_max, facts.currency) == (Decimal("258.00"), Decimal("398.00"), "CNY")
    assert (facts.title, facts.sku, facts.rating_count, facts.sold_count) == ("连衣裙", "33", 88, 450)
    assert (facts.availability, facts.image_url) == (Availability.IN_STOCK, "https://img.example/a.jpg")


def test_taobaos_money_is_in_fen() -> None:
    infos = {"1": {"price": {"priceMoney": 25850}}, "2": {"price": {"priceMoney": "39600"}}}
    facts = answer({"item": {"itemId": 33, "title": "裙"}, "skuCore": {"sku2info": infos}}, TAOBAO)
    assert (facts.amount, facts.amount_max) == (Decimal("258.50"), Decimal(396))


def test_answers_folded_into_text_are_unfolded() -> None:
    inner = json.dumps({"price": {"price": {"priceText": "59.9"}}, "trade": {"buyEnable": "false"}})
    payload = {
        "api": "mtop.taobao.detail.getdetail",
        "ret": ["SUCCESS::调用成功"],
        "data": {"item": {"itemId": "33", "title": "杯"}, "apiStack": [{"name": "esi", "value": inner}]},
    }
    facts = answer(payload, "https://h5api.m.taobao.com/h5/mtop.taobao.detail.getdetail/6.0/")
    assert (facts.amount, facts.availability) == (Decimal("59.9"), Availability.OUT_OF_STOCK)


@pytest.mark.parametrize(
    ("ret", "verdict"),
    [
        ("FAIL_SYS_USER_VALIDATE", PageVerdict.BLOCKED),
        ("RGV587_ERROR::SM::哎哟喂,被挤爆啦", PageVerdict.BLOCKED),
        ("FAIL_SYS_TOKEN_EXOIRED::令牌过期", PageVerdict.BLOCKED),
        ("ERR_ITEM_NOT_FOUND::宝贝不存在", PageVerdict.GONE),
    ],
)
def test_a_refusal_of_taobao_is_told_by_its_return(ret: str, verdict: PageVerdict) -> None:
    payload = {"api": "mtop.taobao.detail", "ret": [ret], "data": {}}
    assert answer(payload, TAOBAO).verdict is verdict
    callback = f"mtopjsonp1({json.dumps(payload)})".encode()
    assert read_page(callback, url=TAOBAO, content_type="text/javascript").verdict is verdict


def test_the_script_of_a_tmall_page_tells_its_list_price() -> None:
    html = (
        '<meta charset="gbk"><title>帽子-tmall.com天猫</title><h1>帽子</h1><script>'
        'TShop.Setup({"itemDO":{"title":"帽子",'
        '"reservePrice":"128.00","quantity":5},"detail":{"defaultItemPrice":"98.00 - 128.00"}});</script>'
    )
    facts = read_page(html.encode("gbk"), url="https://detail.tmall.com/item.htm?id=33", content_type="text/html")
    assert (facts.amount, facts.amount_max, facts.currency) == (Decimal("98.00"), Decimal("128.00"), "CNY")
    assert next(each.confidence for each in facts.evidence if each.field == "amount") < 0.6


def test_a_detail_page_of_taobao_keeps_its_answer_in_a_script() -> None:
    html = f"<script>var _DATA_Detail = {json.dumps(DETAIL)};</script>"
    facts = read_page(html.encode(), url="https://detail.m.tmall.com/item.htm?id=33", content_type="text/html")
    assert (facts.amount, facts.title) == (Decimal("258.00"), "连衣裙")


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        5,
        "x",
        {"data": [[{}]]},
        {**ITEM, "price": 10**60, "price_min": True, "price_max": "7"},
        [{"itemid": "x", "shopid": None, "price": "y"}],
    ],
)
def test_strange_answers_break_no_reader(payload: object) -> None:
    for facts in (read_shopee(payload), read_taobao(payload)):
        assert facts.amount is None


def test_recorded_answers_of_the_shops_are_read() -> None:
    for path in sorted(corpus("shopee").glob("*item*.json")):
        item = json.loads(path.read_text())
        facts = answer(item, "https://shopee.com.my/product/62833587/5118016952")
        assert (facts.amount, facts.currency) == (Decimal(item["price"]) / 100_000, "MYR")
        assert (facts.sold_count, facts.rating_count) == (item["historical_sold"], item["cmt_count"])
    for path in sorted(corpus("taobao").glob("*.json")):
        case = json.loads(path.read_text())
        facts = answer(case["payload"], f"https://item.taobao.com/item.htm?id={case['expected']['item_id']}")
        assert (str(facts.amount), facts.currency) == (case["expected"]["ask_price"], "CNY")
        assert (facts.title, facts.sku) == (case["expected"]["title"], case["expected"]["item_id"])
