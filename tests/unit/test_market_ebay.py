"""eBay's API: what it lists becomes listings, what it refuses becomes our own errors, its token stays a secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from mistnet.governor.errors import BadRequest, BrokenAnswer, NotPermitted, RateLimited, SourceDown, SourceRefused
from mistnet.governor.model import CallPurpose
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered
from mistnet.prices.model import PriceAnswer as Told
from mistnet.prices.model import PriceListing, UnreadableListing
from mistnet.shops.model import PriceKind
from mistnet.sim.market import MarketService
from mistnet.sim.market_goods import Market, truth
from mistnet.sources.ebay.client import TOKENS, Credentials, EbayAsker
from mistnet.sources.ebay.source import EbayRules, EbaySource, read_for_sale, read_sold
from tests.markets import EbayTransport, an_item, request_for
from tests.support import START, OpenGate, TurnedClock, no_wait

ID, SECRET, TOKEN = "client-0001", "very-secret-0001", "v^1.1#token-of-the-day"
PRICE = {"value": "19.99", "currency": "USD"}
Reply = HttpAnswer | Unanswered | Callable[[HttpRequest], HttpAnswer]


def summary(**about: Any) -> bytes:
    usual = {
        "itemId": "v1|1|0",
        "title": "1921 Morgan Dollar",
        "itemWebUrl": "https://www.ebay.com/itm/1",
        "buyingOptions": ["FIXED_PRICE"],
        "price": PRICE,
    }
    told = {name: value for name, value in {**usual, **about}.items() if value is not ...}
    return json.dumps(told).encode()


def listed(raw: bytes) -> list[PriceListing]:
    found = read_for_sale(raw, now=START)
    assert not isinstance(found, UnreadableListing), found
    return list(found)


def shown(listings: list[PriceListing]) -> list[tuple[str, str, str | None, int | None]]:
    return [(each.kind.value, str(each.amount), each.external_id, each.bid_count) for each in listings]


def test_a_fixed_price_is_an_ask() -> None:
    (found,) = listed(summary(condition="Ungraded", itemEndDate="2099-01-01T00:00:00.000Z"))
    assert (found.kind, found.amount, found.currency) == (PriceKind.ASK, Decimal("19.99"), "USD")
    assert (found.condition, found.external_id, found.observed_at) == ("Ungraded", "v1|1|0", START)


@pytest.mark.parametrize(
    ("about", "wanted"),
    [
        ({"buyingOptions": ["FIXED_PRICE", "BEST_OFFER"]}, [("ask", "19.99", "v1|1|0", None)]),
        (
            {"buyingOptions": ["AUCTION"], "price": ..., "currentBidPrice": PRICE, "bidCount": 3},
            [("bid", "19.99", "v1|1|0", 3)],
        ),
        (
            {"buyingOptions": ["AUCTION"], "price": ..., "currentBidPrice": PRICE, "bidCount": 0},
            [("ask", "19.99", "v1|1|0", 0)],
        ),
        ({"buyingOptions": ["AUCTION"], "currentBidPrice": ...}, [("ask", "19.99", "v1|1|0", 0)]),
        (
            {
                "buyingOptions": ["FIXED_PRICE", "AUCTION"],
                "currentBidPrice": {"value": "5", "currency": "USD"},
                "bidCount": 2,
            },
            [("ask", "19.99", "v1|1|0:buy_it_now", None), ("bid", "5", "v1|1|0", 2)],
        ),
        (
            {"buyingOptions": ["FIXED_PRICE", "AUCTION"], "currentBidPrice": {"value": 5, "currency": "USD"}},
            [("ask", "19.99", "v1|1|0:buy_it_now", None), ("ask", "5", "v1|1|0", 0)],
        ),
    ],
    ids=["best offer", "bids", "no bids", "opening price only", "buy it now and bids", "buy it now, no bids"],
)
def test_an_auction_is_a_bid_only_with_a_bidder(about: dict[str, Any], wanted: list[Any]) -> None:
    assert shown(listed(summary(**about))) == wanted


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        ({"price": ...}, "neither a price nor a bid"),
        ({"price": {"value": "12,99", "currency": "USD"}}, "no amount"),
        ({"price": {"value": "NaN", "currency": "USD"}}, "no price"),
        ({"price": {"value": "0", "currency": "USD"}}, "no price"),
        ({"price": {"value": "-3", "currency": "USD"}}, "no price"),
        ({"price": {"value": True, "currency": "USD"}}, "no amount"),
        ({"price": {"currency": "USD"}}, "nothing is no amount"),
        ({"price": {"value": "3", "currency": "dollars"}}, "no currency"),
        ({"price": {"value": "3"}}, "nothing is no currency"),
        ({"price": "12.99"}, "Expected `object"),
        ({"title": None}, "Expected `str`"),
        ({"title": "  "}, "is empty"),
        ({"itemId": ...}, "itemId"),
        ({"itemWebUrl": ...}, "itemWebUrl"),
        ({"itemWebUrl": "javascript:alert(1)"}, "itemWebUrl"),
        ({"buyingOptions": ["AUCTION"], "price": ..., "bidCount": 2}, "no bid price"),
        ({"buyingOptions": ["AUCTION"], "currentBidPrice": PRICE, "bidCount": "many"}, "no count"),
        ({"itemEndDate": "2020-01-01T00:00:00Z"}, "ended at"),
        ({"itemEndDate": "soon"}, "no time"),
    ],
)
def test_a_malformed_summary_is_kept_with_its_problem_and_never_raises(about: dict[str, Any], problem: str) -> None:
    found = read_for_sale(summary(**about), now=START)
    assert isinstance(found, UnreadableListing)
    assert problem in found.problem
    assert found.payload == summary(**about)


@pytest.mark.parametrize("raw", [b"null", b"[]", b"17", b'"text"', b"{", b"", b"\xff", b"[" * 5_000])
def test_whatever_is_listed_in_the_place_of_a_summary_is_kept(raw: bytes) -> None:
    assert isinstance(read_for_sale(raw, now=START), UnreadableListing)
    assert isinstance(read_sold(raw, now=START), UnreadableListing)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=4), inside, max_size=3),
    max_leaves=6,
)
MONEY = st.fixed_dictionaries({"value": JSON | st.just("5"), "currency": JSON | st.just("USD")})
FIELDS = ("itemId", "title", "itemWebUrl", "bidCount", "condition", "itemEndDate", "buyingOptions", "lastSoldDate")
PRICES = ("price", "currentBidPrice", "lastSoldPrice")
ODD = st.dictionaries(st.sampled_from([*FIELDS, *PRICES]), JSON | MONEY, max_size=3)


@hypothesis.given(ODD)
def test_whatever_a_summary_holds_it_is_read_or_kept(odd: dict[str, Any]) -> None:
    raw = summary(**odd)
    for found in (read_for_sale(raw, now=START), read_sold(raw, now=START)):
        odd_ones, listings = ([found], []) if isinstance(found, UnreadableListing) else ([], list(found))
        told = Told(listings=listings, unreadable=odd_ones)
        assert msgspec.json.decode(msgspec.json.encode(told), type=Told) == told


def test_each_sale_is_an_observation_of_its_own() -> None:
    usual = {"buyingOptions": ..., "price": ..., "lastSoldPrice": PRICE}
    days = ("2026-01-01T10:00:00.000Z", "2026-01-02T10:00:00.000Z")
    told = [read_sold(summary(**usual, lastSoldDate=day), now=START) for day in days]
    first, second = [listing for each in told if not isinstance(each, UnreadableListing) for listing in each]
    assert first.kind is PriceKind.SOLD
    assert first.external_id == "v1|1|0:sold:20260101T100000"
    assert second.external_id != first.external_id


@pytest.mark.parametrize("date", [None, "yesterday", "2199-01-01T00:00:00Z", ...])
def test_a_sale_without_a_day_in_the_past_cannot_be_read(date: Any) -> None:
    assert isinstance(read_sold(summary(lastSoldPrice=PRICE, lastSoldDate=date), now=START), UnreadableListing)


@dataclass
class Counter:
    """eBay's counter: gives out tokens, and answers as the test says, in turn."""

    replies: list[Reply] = field(default_factory=list)
    token_replies: list[Reply] = field(default_factory=list)
    asked: list[HttpRequest] = field(default_factory=list)
    lasts: int = 7_200

    async def send(self, request: HttpRequest) -> HttpAnswer:
        await asyncio.sleep(0)
        self.asked.append(request)
        if request.path == TOKENS:
            given = {"access_token": f"{TOKEN}-{len(self.of(TOKENS))}", "expires_in": self.lasts}
            reply = self.token_replies.pop(0) if self.token_replies else ok(given)
        else:
            reply = self.replies.pop(0) if self.replies else ok({"total": 0})
        if isinstance(reply, Unanswered):
            raise reply
        return reply(request) if callable(reply) else reply

    def of(self, path: str) -> list[HttpRequest]:
        return [each for each in self.asked if each.path == path]


def ok(body: Mapping[str, Any]) -> HttpAnswer:
    return status(200, body)


def status(code: int, body: Mapping[str, Any] | None = None, **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpAnswer(status=code, headers=named, body=json.dumps(body or {}).encode())


def error(code: int, message: str) -> HttpAnswer:
    return status(code, {"errors": [{"errorId": 1001, "message": message}]})


@dataclass
class Harness:
    counter: Counter
    clock: TurnedClock
    gate: OpenGate
    source: EbaySource

    async def ask(self, **about: Any) -> Told:
        return await self.source.search(an_item(**about), purpose=CallPurpose())


def harness(*replies: Reply, tokens: list[Reply] | None = None, lasts: int = 7_200, **rules: Any) -> Harness:
    counter = Counter(list(replies), tokens or [], lasts=lasts)
    clock, gate = TurnedClock(), OpenGate("")
    credentials = Credentials(client_id=ID, client_secret=SECRET, sold=rules.get("sold", False))
    asker = EbayAsker(counter, gate=gate, clock=clock, credentials=credentials, sleep=no_wait)
    return Harness(counter, clock, gate, EbaySource(asker, clock=clock, rules=EbayRules(**rules)))


async def test_a_question_carries_the_words_the_marketplace_and_all_ways_of_buying() -> None:
    ebay = harness(filter="conditions:{USED}")
    await ebay.ask(title="Morgan Dollar", attributes={"year": "1921", "series": "Morgan", "grade": "MS65"})
    (request,) = ebay.counter.of("/buy/browse/v1/item_summary/search")
    assert request.query == {
        "q": "Morgan Dollar 1921",
        "limit": "200",
        "offset": "0",
        "filter": "buyingOptions:{FIXED_PRICE|AUCTION|BEST_OFFER},conditions:{USED}",
    }
    assert request.headers["X-EBAY-C-MARKETPLACE-ID"] == "EBAY_US"
    assert request.headers["Authorization"] == f"Bearer {TOKEN}-1"


async def test_a_long_title_is_cut_between_words() -> None:
    ebay = harness()
    await ebay.ask(title=" ".join(["silver"] * 40))
    asked = ebay.counter.asked[-1].query["q"]
    assert len(asked) <= 100
    assert set(asked.split()) == {"silver"}


async def test_pages_are_read_to_the_end_or_as_far_as_the_settings_want() -> None:
    def page(request: HttpRequest) -> HttpAnswer:
        start = int(request.query["offset"])
        shown = [json.loads(summary(itemId=f"v1|{start + place}|0")) for place in range(200)]
        return ok({"itemSummaries": shown, "total": 900, "next": "https://api.ebay.com/more"})

    whole = harness(*[page] * 9, listings=10_000)
    assert len((await whole.ask()).listings) == 900 + 100  # the last page is full here, whatever the total says
    some = harness(*[page] * 9, listings=300)
    assert len((await some.ask()).listings) == 300
    assert [each.query["offset"] for each in some.counter.asked if each.query] == ["0", "200"]


async def test_a_listing_told_on_two_pages_is_one() -> None:
    first = ok({"itemSummaries": [json.loads(summary())], "total": 201, "next": "x"})
    second = ok({"itemSummaries": [json.loads(summary()), json.loads(summary(itemId="v1|2|0"))], "total": 201})
    found = await harness(first, second, listings=400).ask()
    assert [each.external_id for each in found.listings] == ["v1|1|0", "v1|2|0"]


async def test_what_it_counts_and_does_not_list_is_a_broken_answer() -> None:
    with pytest.raises(BrokenAnswer, match="lists none"):
        await harness(ok({"total": 5})).ask()
    with pytest.raises(BrokenAnswer):
        await harness(ok({})).ask()
    assert (await harness(ok({"total": 0})).ask()).listings == []


async def test_one_token_serves_until_shortly_before_its_end() -> None:
    ebay = harness()
    for _ in range(3):
        await ebay.ask()
    ebay.clock.turn(seconds=7_200 - 301)
    await ebay.ask()
    assert len(ebay.counter.of(TOKENS)) == 1
    ebay.clock.turn(seconds=2)
    await ebay.ask()
    assert len(ebay.counter.of(TOKENS)) == 2
    assert ebay.counter.asked[-1].headers["Authorization"] == f"Bearer {TOKEN}-2"


async def test_many_questions_at_once_fetch_one_token() -> None:
    ebay = harness()
    await asyncio.gather(*(ebay.ask() for _ in range(20)))
    assert len(ebay.counter.of(TOKENS)) == 1


async def test_a_token_that_is_not_known_any_more_is_replaced_once() -> None:
    ebay = harness(error(401, "Invalid access token"))
    assert (await ebay.ask()).listings == []
    assert len(ebay.counter.of(TOKENS)) == 2
    twice = harness(error(401, "Invalid access token"), error(401, "Invalid access token"))
    with pytest.raises(SourceDown, match="does not know a token that it gave out"):
        await twice.ask()
    assert (await twice.ask()).listings == [], "eBay may forget a token twice: the next call needs no help"


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (error(403, "Access denied"), SourceRefused),
        (error(429, "Too many requests"), RateLimited),
        (error(500, "oops"), SourceDown),
        (error(503, "oops"), SourceDown),
        (error(408, "slow"), SourceDown),
        (error(400, "bad filter"), BadRequest),
        (error(404, "not found"), BadRequest),
        (HttpAnswer(status=200, headers={}, body=b"<html>"), BrokenAnswer),
        (HttpAnswer(status=200, headers={}, body=b'{"itemSummaries": 7, "total": 1}'), BrokenAnswer),
    ],
    ids=lambda given: str(getattr(given, "status", getattr(given, "__name__", given))),
)
async def test_each_refusal_has_its_own_error(reply: HttpAnswer, wanted: type[Exception]) -> None:
    with pytest.raises(wanted):
        await harness(reply).ask()


async def test_a_connection_that_fails_is_tried_once_more_at_once() -> None:
    ebay = harness(Unanswered("cut"))
    assert (await ebay.ask()).listings == []
    with pytest.raises(SourceDown, match="cut"):
        await harness(Unanswered("cut"), Unanswered("cut")).ask()


async def test_a_rate_limit_says_when_to_come_back() -> None:
    for said, seconds in (("17", 17), ("", 60), ("soon", 60), ("999999999", 86_400), ("9" * 5_000, 86_400)):
        ebay = harness(status(429, {}, retry_after=said))
        with pytest.raises(RateLimited) as limited:
            await ebay.ask()
        assert limited.value.until == START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "invalid_client", "error_description": "client authentication failed"}, "ebay_client_id"),
        ({"error": "invalid_scope", "error_description": "the scope is invalid"}, "ebay_sold"),
    ],
)
async def test_wrong_credentials_stop_the_source_and_say_which(body: dict[str, str], said: str) -> None:
    for code in (400, 401):
        with pytest.raises(SourceRefused, match=said):
            await harness(tokens=[status(code, body)]).ask()


async def test_sales_are_asked_for_where_the_settings_say_so() -> None:
    sale = json.loads(summary(lastSoldPrice=PRICE, lastSoldDate="2026-01-01T10:00:00Z"))
    ebay = harness(ok({"total": 0}), ok({"itemSales": [sale], "total": 1}), sold=True)
    found = await ebay.ask()
    assert [each.kind for each in found.listings] == [PriceKind.SOLD]
    assert "buy.marketplace.insights" in (ebay.counter.of(TOKENS)[0].form or {})["scope"]
    assert "filter" not in ebay.counter.asked[-1].query


async def test_sales_that_are_not_granted_are_said_to_be_so() -> None:
    with pytest.raises(NotPermitted, match="ebay_sold"):
        await harness(ok({"total": 0}), error(403, "Insufficient permissions"), sold=True).ask()


async def test_no_secret_is_in_any_error_or_description() -> None:
    told = f"you sent {SECRET} and {TOKEN}-1"
    bad = Credentials(client_id=ID, client_secret=SECRET)
    hidden = (SECRET, f"{TOKEN}-1", bad.basic)
    for reply in (error(500, told), error(403, told), error(400, told), Unanswered(told)):
        with pytest.raises(Exception) as raised:  # noqa: PT011 (whichever it is)
            await harness(reply, reply).ask()
        assert not any(secret in f"{raised.value!r} {raised.value} {raised.value.__cause__}" for secret in hidden)
    assert not any(secret in repr(bad) for secret in hidden)
    ebay = harness()
    await ebay.ask()
    assert not any(secret in repr(request) for request in ebay.counter.asked for secret in hidden)


async def test_the_simulated_market_is_read_as_it_is() -> None:
    clock = TurnedClock()
    market = MarketService(clock.now, seed=3)
    credentials = Credentials(client_id="sim-client-id", client_secret="sim-client-secret", sold=True)
    asker = EbayAsker(EbayTransport(market), gate=OpenGate(""), clock=clock, credentials=credentials)
    source = EbaySource(asker, clock=clock, rules=EbayRules(listings=400, sold=True))
    for index in (0, 1, 22):
        good = market.good(index)
        item_request = request_for(good)
        answer = await source.search(
            an_item(item_request.title, attributes=item_request.attributes), purpose=CallPurpose()
        )
        found = {each.external_id: (each.kind.value, each.amount) for each in answer.listings}
        wanted = truth(good, Market.EBAY, clock.now(), sold=True)
        assert all(found[name] == (point.kind, point.amount) for name, point in wanted.items())
        assert len(found) == len(answer.listings)
