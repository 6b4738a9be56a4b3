"""The simulated markets: the same seed sells the same, its truth is what it shows, and its doors are guarded."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from mistnet.sim.market import (
    BROWSE,
    CABINET_HOST,
    CLIENT_ID,
    CLIENT_SECRET,
    HUB_HOST,
    HUB_KEY,
    INSIGHTS,
    ROUGH,
    TOKENS,
    MarketService,
)
from mistnet.sim.market_goods import Good, Market, OfferFate, Way, broken, offers, sales, truth
from mistnet.sim.service import NeverAnswers, SimAnswer

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
EBAY = "api.ebay.com"


def service(**about: object) -> MarketService:
    return MarketService(lambda: AT, **about)  # type: ignore[arg-type]


def token(market: MarketService) -> Mapping[str, str]:
    basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
    form = urlencode({"grant_type": "client_credentials", "scope": "s"}).encode()
    answer = market.handle("POST", EBAY, TOKENS, "", {"Authorization": f"Basic {basic}"}, form)
    given = json.loads(answer.body)["access_token"]
    return {"Authorization": f"Bearer {given}", "X-EBAY-C-MARKETPLACE-ID": "EBAY_US"}


def browse(market: MarketService, headers: Mapping[str, str], **query: object) -> SimAnswer:
    return market.handle("GET", EBAY, BROWSE, urlencode({"limit": 200, "filter": "AUCTION", **query}), headers)


def test_the_same_seed_sells_the_same_and_another_does_not() -> None:
    assert list(offers(Good(1, 3), Market.EBAY, AT)) == list(offers(Good(1, 3), Market.EBAY, AT))
    assert list(offers(Good(1, 3), Market.EBAY, AT)) != list(offers(Good(2, 3), Market.EBAY, AT))


def test_every_way_and_every_bait_is_on_offer_somewhere() -> None:
    shown = [
        offer
        for index in range(60)
        for market in Market
        for offer in [*offers(Good(7, index), market, AT), *sales(Good(7, index), market, AT)]
    ]
    assert {offer.way for offer in shown} == set(Way)
    assert {offer.fate for offer in shown} == set(OfferFate)
    assert {bool(offer.bids) for offer in shown if offer.way is Way.AUCTION} == {True, False}
    assert len({(offer.market, offer.number) for offer in shown}) == len(shown)


def test_prices_move_with_the_days_and_stand_still_within_them() -> None:
    def amounts(at: datetime) -> list[object]:
        return [offer.price or offer.bid for offer in offers(Good(7, 1), Market.EBAY, at)]

    assert amounts(AT) == amounts(AT + timedelta(minutes=5))
    assert any(amounts(AT) != amounts(AT + timedelta(days=days)) for days in (3, 6, 9))


def test_a_thing_everybody_sells_needs_a_second_page_and_one_record_is_told_twice() -> None:
    market = service()
    headers, good = token(market), Good(7, 22)
    first = json.loads(browse(market, headers, q=good.title).body)
    second = json.loads(browse(market, headers, q=good.title, offset=200).body)
    assert first["next"]
    assert "next" not in second
    told = Counter(str(each["itemId"]) for each in [*first["itemSummaries"], *second["itemSummaries"]])
    assert first["total"] == len(list(offers(good, Market.EBAY, AT)))
    assert first["itemSummaries"][-1] == second["itemSummaries"][0]
    assert sum(told.values()) == first["total"] + 1


def test_without_a_filter_auctions_are_left_out() -> None:
    market = service()
    headers = token(market)
    shown = json.loads(browse(market, headers, q=Good(7, 22).title, filter="").body)["itemSummaries"]
    assert all("FIXED_PRICE" in each["buyingOptions"] for each in shown)


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({}, {"q": "KM00001"}, 401),
        ({"Authorization": "Bearer made-up"}, {"q": "KM00001"}, 401),
        (None, {}, 400),
        (None, {"q": "KM00001", "limit": 500}, 400),
        (None, {"q": "KM00001", "offset": 7}, 400),
        (None, {"q": "nothing like it"}, 200),
    ],
)
def test_ebay_answers_those_it_knows_and_questions_that_make_sense(
    headers: Mapping[str, str] | None, query: Mapping[str, object], status: int
) -> None:
    market = service()
    known = token(market)
    assert browse(market, known if headers is None else headers, **query).status == status


def test_a_token_ends() -> None:
    now = [AT]
    market = MarketService(lambda: now[0])
    headers = token(market)
    assert browse(market, headers, q="KM00001").status == 200
    now[0] += timedelta(seconds=7_200)
    assert browse(market, headers, q="KM00001").status == 401


def test_a_shop_wants_its_key() -> None:
    market = service()
    assert market.handle("GET", HUB_HOST, "/api/coins", "q=KM00001", {}).status == 401
    assert market.handle("GET", HUB_HOST, "/api/coins", "q=KM00001", {"X-Hub-Key": HUB_KEY}).status == 200


def test_what_is_true_is_on_show_and_the_broken_are_counted() -> None:
    market = service()
    headers = {**token(market), "X-Hub-Key": HUB_KEY}
    for index in range(12):
        good = Good(7, index)
        sold = json.loads(market.handle("GET", EBAY, INSIGHTS, urlencode({"q": good.title}), headers).body)
        ids = {f"{each['itemId']}" for each in sold.get("itemSales", ())}
        wanted = {name.partition(":sold:")[0] for name in truth(good, Market.EBAY, AT, sold=True) if ":sold:" in name}
        assert wanted <= ids
        assert broken(good, Market.CABINET, AT, sold=False) <= len(list(offers(good, Market.CABINET, AT)))


def test_bad_days_follow_from_the_seed_and_no_question_fails_for_ever() -> None:
    def day(seed: int) -> list[str]:
        market = service(seed=seed, faults=dict.fromkeys(ROUGH, 0.16))
        heard = []
        for _ in range(30):
            try:
                answer = market.handle("GET", CABINET_HOST, "/search", "words=KM00001", {})
                heard.append("cut" if answer.cut else str(answer.status))
            except NeverAnswers:
                heard.append("silence")
        return heard

    assert day(1) == day(1)
    assert day(1) != day(2)
    assert "200" in day(1)
    assert len(set(day(1))) > 2
