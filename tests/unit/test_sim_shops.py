"""The simulated shops are the same for the same seed, and tell the truth about their prices."""

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from mistnet.sim.service import NeverAnswers, SimAnswer
from mistnet.sim.shelf import BY_CANONICAL, PRICE_DAYS, SHELF, SHORT_LINKS, Fate
from mistnet.sim.shops import ROUGH, ShopService, hosts

AT = datetime(2026, 3, 1, tzinfo=UTC)


def asked(shops: ShopService, url: str, headers: Mapping[str, str] | None = None) -> SimAnswer:
    host, _, rest = url.split("://", 1)[1].partition("/")
    path, _, query = rest.partition("?")
    return shops.handle(host, f"/{path}", query, headers or {})


def calm() -> ShopService:
    return ShopService(lambda: AT)


def test_shopee_tells_its_price_in_hundred_thousandths() -> None:
    thing = SHELF[0]
    answer = asked(calm(), f"https://shopee.tw/api/v4/item/get?itemid={thing.item_id}&shopid={thing.shop_id}")
    assert json.loads(answer.body)["data"]["price"] == int(thing.price(AT) * 100_000)


def test_prices_stay_for_days_and_then_may_move_a_little() -> None:
    thing = SHELF[0]
    prices = [thing.price(AT + timedelta(days=day)) for day in range(120)]
    assert len(set(prices)) > 5
    changes = sum(one != other for one, other in itertools.pairwise(prices))
    assert changes <= 120 / PRICE_DAYS + 1
    assert max(prices) / min(prices) < 1.5


@pytest.mark.parametrize("short", SHORT_LINKS)
def test_a_short_link_leads_to_its_thing_by_redirect_or_script(short: str) -> None:
    answer = asked(calm(), short)
    thing = BY_CANONICAL[SHORT_LINKS[short]]
    told = answer.headers.get("location", "") + answer.body.decode()
    assert thing.item_id in told
    assert answer.status == (200 if thing.shop == "taobao" else 302)


def test_every_thing_stands_on_a_known_host() -> None:
    assert {thing.canonical.split("/")[2] for thing in SHELF} <= hosts()


def test_a_page_is_not_sent_again_to_who_has_it() -> None:
    shops, url = calm(), "https://www.ebay.com/itm/155932418766"
    first = asked(shops, url)
    again = asked(shops, url, {"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_a_decoy_is_another_price_at_each_visit() -> None:
    thing = next(each for each in SHELF if each.fate is Fate.DECOY)
    shops = calm()
    url = f"https://shopee.vn/api/v4/item/get?itemid={thing.item_id}&shopid={thing.shop_id}"
    prices = {json.loads(asked(shops, url).body)["data"]["price"] for _ in range(5)}
    assert len(prices) == 5
    assert all(price % 100_000 for price in prices), "fractions of a currency that has none"


def test_the_same_seed_has_the_same_bad_days_and_no_more_than_two_in_a_row() -> None:
    def statuses(seed: int) -> list[int]:
        shops = ShopService(lambda: AT, seed=seed, faults=ROUGH)
        found = []
        for _ in range(60):
            try:
                found.append(asked(shops, "https://www.ebay.com/itm/155932418766").status)
            except NeverAnswers:
                found.append(0)
        return found

    assert statuses(1) == statuses(1) != statuses(2)
    assert any(status != 200 for status in statuses(1))
    assert "000" not in "".join("1" if status == 200 else "0" for status in statuses(3))
