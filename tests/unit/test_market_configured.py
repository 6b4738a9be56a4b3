"""Shops without code: a file says where things are; what it gets wrong is told, what a shop gets wrong is kept."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.governor.errors import BadRequest, BrokenAnswer, RateLimited, SourceDown, SourcePaused, SourceRefused
from mistnet.governor.model import CallPurpose, SourceName
from mistnet.prices.model import PriceAnswer, PriceListing
from mistnet.shops.model import BadShop, CrawlRefused, PriceKind
from mistnet.sources.listings import JsonFound, read_listing
from mistnet.sources.reading import ReadsHere
from mistnet.sources.shopfile import ConfiguredShop, ShopRules, fill_url, read_shops
from mistnet.sources.web.client import WebClient, WebRules
from mistnet.sources.web.port import WebAnswer
from tests.markets import an_item, shops_file
from tests.shops import Books, Pages, html, redirect
from tests.support import START, OpenGate, TurnedClock

HUB: dict[str, Any] = {
    "url": "https://hub.example.com/api?q={title}",
    "format": "json",
    "listings": "found.*",
    "currency": "USD",
    "fields": {"title": "name", "price": "price", "url": "link", "id": "sku"},
}
PAGE: dict[str, Any] = {
    "url": "https://page.example.net/search?q={title}",
    "format": "html",
    "listings": "li.thing",
    "fields": {"title": "a", "price": "b.price", "url": "a@href", "id": "@data-id"},
}
HUB_URL = "https://hub.example.com/api?q=coin"
PAGE_URL = "https://page.example.net/search?q=coin"
NAME = SourceName("shop")


def a_json(body: object, *, status: int = 200, **headers: str) -> WebAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WebAnswer(status=status, headers={"content-type": "application/json", **named}, body=raw)


class Street:
    """One shop on a web of canned pages."""

    def __init__(self, rules: dict[str, Any], answers: dict[str, WebAnswer], **environment: str) -> None:
        self.clock, self.books, self.gate = TurnedClock(), Books(), OpenGate("")
        self.pages = Pages(answers)
        self.rules = ShopRules.model_validate(rules)
        robots = frozenset({NAME} if self.rules.asks_robots else ())
        headers = {name: environment.get(variable, "") for name, variable in self.rules.secret_headers.items()}
        web = WebClient(
            self.pages,
            gates={NAME: self.gate},
            hosts=self.books,
            answers=self.books,
            clock=self.clock,
            rules=WebRules(host_delay=0.0, robots=robots, headers=headers),
        )
        self.shop = ConfiguredShop(
            NAME, self.rules, web=web, reader=ReadsHere(), clock=self.clock, environment=environment
        )

    async def ask(self, **about: Any) -> PriceAnswer:
        return await self.shop.search(an_item("coin", **about), purpose=CallPurpose())


async def asked(rules: dict[str, Any], answers: dict[str, WebAnswer], **environment: str) -> PriceAnswer:
    return await Street(rules, answers, **environment).ask()


async def hub(listing: dict[str, Any], **more: Any) -> PriceAnswer:
    return await asked({**HUB, **more}, {HUB_URL: a_json({"found": [listing]})})


async def the_problem(listing: dict[str, Any], **more: Any) -> str:
    answer = await hub(listing, **more)
    (odd,) = answer.unreadable
    assert not answer.listings
    return odd.problem


async def test_a_shop_in_json_is_read_by_dotted_paths() -> None:
    listing = {"sku": 17, "name": "  A   coin ", "price": 12.5, "link": "/coin/17"}
    (found,) = (await hub(listing)).listings
    assert (found.kind, found.amount, found.currency) == (PriceKind.ASK, Decimal("12.5"), "USD")
    assert (found.title, found.external_id, found.url) == ("A coin", "17", "https://hub.example.com/coin/17")
    assert found.observed_at == START


async def test_a_shop_in_html_is_read_by_selectors_and_attributes() -> None:
    page = b"""<ul><li class=thing data-id="a1"><a href="/c/1?x=1">Coin &amp; case</a>
      <b class=price>1.299,50 \xe2\x82\xac</b>
      <li class=thing data-id="a2"><a href="https://other.example.org/2">Two</a><b class=price>EUR 3</b></ul>"""
    answer = await asked(PAGE, {PAGE_URL: html(page)})
    shown = [(each.external_id, each.title, str(each.amount), each.currency, each.url) for each in answer.listings]
    assert shown == [
        ("a1", "Coin & case", "1299.50", "EUR", "https://page.example.net/c/1?x=1"),
        ("a2", "Two", "3", "EUR", "https://other.example.org/2"),
    ]


async def test_a_path_may_fan_out_end_at_a_list_and_pick_by_number() -> None:
    body = {"groups": {"a": {"rows": [{"n": ["A", "x"], "p": 1}]}, "b": {"rows": [{"n": ["B"], "p": 2}]}}}
    rules = {**HUB, "listings": "groups.*.rows", "fields": {"title": "n.0", "price": "p"}}
    answer = await asked(rules, {HUB_URL: a_json(body)})
    assert [each.title for each in answer.listings] == ["A", "B"]
    assert answer.listings[0].url == HUB_URL, "without an address of its own it is where it was found"


@pytest.mark.parametrize(
    ("price", "more", "amount"),
    [
        (1299, {"minor_units": 100}, "12.99"),
        ("1299", {"minor_units": 100}, "12.99"),
        ("12.500", {}, "12.500"),
        ("US$1,299.00", {}, "1299.00"),
        (12.1, {}, "12.1"),
        (0.1, {}, "0.1"),
    ],
)
async def test_amounts_are_exact_however_they_are_written(price: Any, more: dict[str, Any], amount: str) -> None:
    (found,) = (await hub({"name": "coin", "price": price}, **more)).listings
    assert found.amount == Decimal(amount)


@pytest.mark.parametrize(
    ("listing", "problem"),
    [
        ({"name": "coin"}, "no price"),
        ({"price": 3}, "no title"),
        ({"name": "coin", "price": "on request"}, "is no price"),
        ({"name": "coin", "price": True}, "no amount"),
        ({"name": "coin", "price": {"a": 1}}, "no amount"),
        ({"name": "coin", "price": 0}, "no price"),
        ({"name": "coin", "price": -2}, "no price"),
        ({"name": ["a"], "price": 3}, "no text"),
        ({"name": "coin", "price": 3, "link": "javascript:alert(1)"}, "no address"),
        ({"name": "coin", "price": 3, "link": "http://[::bad"}, "no address"),
        ({"name": "coin", "price": "€3", "money": "USD"}, "in EUR, its currency is USD"),
        ({"name": "coin", "price": 3, "money": "XXY"}, "no currency"),
        ({"name": "coin", "price": 3, "type": "swap"}, "say in `kinds`"),
        ({"name": "coin", "price": 3, "type": "gone", "sold": "some day"}, "no time"),
        ({"name": "coin", "price": 3, "type": "gone", "sold": "2199-01-01"}, "still to come"),
        ({"name": "coin", "price": 3, "bids": "lots"}, "no count"),
    ],
)
async def test_a_listing_that_cannot_be_read_is_kept_with_its_problem(listing: dict[str, Any], problem: str) -> None:
    fields = {**HUB["fields"], "currency": "money", "kind": "type", "sold_at": "sold", "bids": "bids"}
    more = {"fields": fields, "kinds": {"gone": "sold"}}
    assert problem in await the_problem(listing, **more)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=True) | st.text(max_size=12),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=4), inside, max_size=3),
    max_leaves=6,
)
NAMES = ("name", "price", "link", "sku", "money", "type", "sold", "bids")


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4), st.sampled_from([1, 100, 999_999]))
def test_whatever_a_listing_holds_it_is_read_or_kept_and_can_be_remembered(odd: dict[str, Any], units: int) -> None:
    listing = {"name": "coin", "price": 300, "money": "USD", **odd}
    fields = {**HUB["fields"], "currency": "money", "kind": "type", "sold_at": "sold", "bids": "bids"}
    rules = ShopRules.model_validate({**HUB, "fields": fields, "minor_units": units})
    found = read_listing(JsonFound(listing), rules, page_url=HUB_URL, now=START)
    listings, unreadable = ([found], []) if isinstance(found, PriceListing) else ([], [found])
    answer = PriceAnswer(listings=listings, unreadable=unreadable)
    assert msgspec.json.decode(msgspec.json.encode(answer), type=PriceAnswer) == answer


async def test_half_a_character_in_one_listing_spoils_none_of_the_others() -> None:
    body = b'{"found": [{"name": "a \\ud83d b", "price": 3, "sku": "1"}, {"name": "c", "price": 4.5, "sku": "2"}]}'
    answer = await asked(HUB, {HUB_URL: a_json(body)})
    assert [(each.title, str(each.amount)) for each in answer.listings] == [("a ? b", "3"), ("c", "4.5")]
    assert msgspec.json.encode(answer)


async def test_a_currency_is_told_or_set_and_never_guessed() -> None:
    bare = {name: value for name, value in HUB.items() if name != "currency"}
    answer = await asked(bare, {HUB_URL: a_json({"found": [{"name": "coin", "price": 3}]})})
    assert "no currency is told" in answer.unreadable[0].problem


@pytest.mark.parametrize(
    ("listing", "kind"),
    [
        ({"type": "Fixed"}, PriceKind.ASK),
        ({"type": "sold", "sold": "2026-02-01T10:00:00+02:00"}, PriceKind.SOLD),
        ({"type": "auction", "bids": "3 bids"}, PriceKind.BID),
        ({"type": "auction", "bids": 0}, PriceKind.ASK),
        ({"type": "auction"}, PriceKind.ASK),
        ({}, PriceKind.ASK),
        ({"sold": 1_767_225_600}, PriceKind.SOLD),
    ],
)
async def test_what_kind_of_price_it_is_is_told_by_a_field(listing: dict[str, Any], kind: PriceKind) -> None:
    fields = {**HUB["fields"], "kind": "type", "sold_at": "sold", "bids": "bids"}
    kinds = {"fixed": "ask", "auction": "bid"}
    (found,) = (await hub({"name": "coin", "price": 3, **listing}, fields=fields, kinds=kinds)).listings
    assert found.kind is kind
    assert (found.observed_at < START) == (kind is PriceKind.SOLD)


async def test_pages_are_followed_on_the_same_host_as_far_as_the_file_allows() -> None:
    second = "https://hub.example.com/api?q=coin&page=2"
    third = "https://hub.example.com/api?q=coin&page=3"
    thing = {"name": "coin", "price": 3}
    answers = {
        HUB_URL: a_json({"found": [{**thing, "sku": 1}], "next": "/api?q=coin&page=2"}),
        second: a_json({"found": [{**thing, "sku": 1}, {**thing, "sku": 2}], "next": third}),
        third: a_json({"found": [{**thing, "sku": 3}], "next": HUB_URL}),
    }
    found = await asked({**HUB, "next": "next", "pages": 2}, answers)
    assert [each.external_id for each in found.listings] == ["1", "2"]
    street = Street({**HUB, "next": "next", "pages": 50}, answers)
    assert len((await street.ask()).listings) == 3
    assert street.pages.urls == [HUB_URL, second, third], "a circle is walked once"


async def test_the_next_page_of_a_page_is_where_its_link_leads() -> None:
    first = (
        b'<li class=thing data-id=1><a href=/1>A</a><b class=price>$3</b></li><a rel=next href="?q=coin&p=2">more</a>'
    )
    second = b"<li class=thing data-id=2><a href=/2>B</a><b class=price>$4</b></li>"
    answers = {PAGE_URL: html(first), "https://page.example.net/search?q=coin&p=2": html(second)}
    found = await asked({**PAGE, "currency": "USD", "next": "a[rel=next]", "pages": 9}, answers)
    assert [each.title for each in found.listings] == ["A", "B"]


async def test_a_next_page_on_another_host_is_refused() -> None:
    answers = {HUB_URL: a_json({"found": [], "next": "https://evil.example.org/"})}
    with pytest.raises(BrokenAnswer, match="same host"):
        await asked({**HUB, "next": "next", "pages": 2}, answers)


async def test_a_page_that_is_not_the_one_we_know_is_no_page_without_things() -> None:
    assert (await asked(HUB, {HUB_URL: a_json({"found": []})})).listings == []
    with pytest.raises(BrokenAnswer, match="no 'found' in it"):
        await asked(HUB, {HUB_URL: a_json({"results": []})})
    assert (await asked(PAGE, {PAGE_URL: html(b"<p>hello</p>")})).listings == []
    sure = {**PAGE, "empty": "p.none"}
    assert (await asked(sure, {PAGE_URL: html(b"<p class=none>nothing</p>")})).listings == []
    with pytest.raises(BrokenAnswer, match="is on the page"):
        await asked(sure, {PAGE_URL: html(b"<p>please log in</p>")})


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (a_json({}, status=500), SourceDown),
        (a_json({}, status=503), SourceDown),
        (a_json({}, status=408), SourceDown),
        (a_json({}, status=429), RateLimited),
        (a_json({}, status=403), SourceDown),
        (a_json({}, status=401), SourceDown),
        (a_json({}, status=404), BadRequest),
        (a_json(b"{"), BrokenAnswer),
        (a_json(b'{"found": [{"price": 1e999999999999999999999}]}'), BrokenAnswer),
        (WebAnswer(status=200, headers={"content-type": "image/png"}, body=b""), BrokenAnswer),
    ],
    ids=lambda given: str(getattr(given, "status", getattr(given, "__name__", given))),
)
async def test_each_refusal_of_a_shop_has_its_own_error(answer: WebAnswer, wanted: type[Exception]) -> None:
    with pytest.raises(wanted):
        await asked(HUB, {HUB_URL: answer})


async def test_a_shop_that_does_not_answer_is_down() -> None:
    street = Street(HUB, {})
    street.pages.silent.add("hub.example.com")
    with pytest.raises(SourceDown):
        await street.ask()


SECRETIVE = {**HUB, "secret_headers": {"X-Key": "SHOP_KEY"}}


async def test_a_secret_comes_from_the_environment_and_goes_to_its_host_alone() -> None:
    street = Street(SECRETIVE, {HUB_URL: redirect("https://evil.example.org/")}, SHOP_KEY="hush-hush")
    with pytest.raises(CrawlRefused):
        await street.ask()
    assert [(url, headers["X-Key"]) for url, headers in street.pages.asked] == [(HUB_URL, "hush-hush")]
    weaker = Street(SECRETIVE, {HUB_URL: redirect("http://hub.example.com/api")}, SHOP_KEY="hush-hush")
    with pytest.raises(CrawlRefused):
        await weaker.ask()


async def test_a_secret_that_is_missing_or_refused_stops_the_shop_and_says_which() -> None:
    with pytest.raises(SourcePaused, match="no SHOP_KEY"):
        await asked(SECRETIVE, {})
    with pytest.raises(SourceRefused, match="what SHOP_KEY holds") as refused:
        await asked(SECRETIVE, {HUB_URL: a_json({}, status=401)}, SHOP_KEY="hush-hush")
    assert "hush-hush" not in str(refused.value)
    assert refused.value.until == START + timedelta(hours=1)


async def test_a_page_is_asked_for_only_if_robots_txt_allows_it() -> None:
    robots = {"https://page.example.net/robots.txt": html(b"User-agent: *\nDisallow: /search")}
    with pytest.raises(CrawlRefused, match=r"robots\.txt"):
        await asked(PAGE, {**robots, PAGE_URL: html(b"")})
    assert (await asked({**PAGE, "robots": False}, {**robots, PAGE_URL: html(b"<p></p>")})).listings == []


def test_the_words_of_an_item_are_made_safe_for_an_address() -> None:
    item = an_item("R&D 5¢ #1/2", attributes={"year": "1909", "mint_mark": "S", "grade": "MS 65", "series": "R&D"})
    url = "https://a.example.com/{year}?t={title}&m={mint_mark}&d={denomination}&g={grade}&q={query}&lit={{x}}"
    assert fill_url(url, item) == (
        "https://a.example.com/1909?t=R%26D%205%C2%A2%20%231%2F2&m=S&d=&g=MS%2065"
        "&q=R%26D%205%C2%A2%20%231%2F2%201909%20S&lit={x}"
    )


GOOD = """
[shops.hub]
url = "https://hub.example.com/?q={query}"
format = "json"
listings = "found.*"
currency = "USD"
[shops.hub.fields]
title = "name"
price = "price"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "shops.toml"
    file.write_text(text)
    return file


def test_a_file_that_is_right_is_read(tmp_path: Path) -> None:
    (name,) = read_shops(written(tmp_path, GOOD))
    assert name == "hub"
    assert set(read_shops(shops_file(tmp_path))) == {"hub", "cabinet"}
    assert read_shops(written(tmp_path, "")) == {}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[shops.hub]", "[shops.Hub]", "shop Hub: use small letters"),
        ("shops.hub", "shops.ebay", "shop ebay: mistnet has a source of this name"),
        ("{query}", "{tittle}", "shop hub: url: there is nothing to put in {tittle}. Did you mean 'title'?"),
        ("{query}", "{year}", "shop hub: url: it asks for nothing: put {query} or {title}"),
        ("{query}", "{query", "shop hub: url: its braces do not match"),
        ("https://hub.example.com", "ftp://hub.example.com", "url: it must begin with https://"),
        ("hub.example.com", "{query}.example.com", "name a host without gaps"),
        ('"json"', '"xml"', "shop hub: format: input should be 'json' or 'html'"),
        ('listings = "found.*"', "", "shop hub: listings: it is missing"),
        ('"found.*"', '"found..x"', "listings: 'found..x' has an empty part"),
        ('title = "name"', 'titel = "name"', "shop hub: fields.titel: there is no such key. Did you mean 'title'?"),
        ('price = "price"', 'price = "price"\nids = "x"', "fields.ids: there is no such key."),
        ('currency = "USD"', 'currency = "$"', "currency: '$' is no currency; write an ISO code"),
        ('currency = "USD"', 'curency = "USD"', "curency: there is no such key. Did you mean 'currency'?"),
        ('currency = "USD"', "minor_units = 100", "currency: bare numbers need one"),
        ('currency = "USD"', "pages = 3", "next: say where the address of the next page is"),
        ('currency = "USD"', 'kind = "bid"', "fields.bids: bids need their number"),
        ('currency = "USD"', 'kind = "offer"', "kind: input should be 'ask', 'bid' or 'sold'"),
        ('currency = "USD"', 'kinds = {a = "ask"}', "kinds: nothing tells which of them"),
        ('currency = "USD"', 'headers = {"Bad Name" = "x"}', "'Bad Name' is no header"),
        ('currency = "USD"', 'headers = {"Host" = "x"}', "'Host' is no header"),
        ('currency = "USD"', 'secret_headers = {"X-Key" = "s3cr3t-value!"}', "write the name of an environment"),
        ('currency = "USD"', 'secret_headers = {"X-Key" = "MISTNET_KEY"}', "call the variable otherwise"),
        ('currency = "USD"', "rate_per_minute = 0", "rate_per_minute: input should be greater than 0"),
        ("[shops.hub]", "[shop.hub]", "shop: there is no such key. Did you mean 'shops'?"),
        ("[shops.hub]", "[shops.hub", "it is not valid TOML"),
    ],
)
def test_what_a_file_gets_wrong_is_told_with_its_place_and_what_to_do(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    file = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadShop) as wrong:
        read_shops(file)
    assert str(wrong.value).startswith(f"{file}: ")
    assert said in str(wrong.value)
    assert "s3cr3t" not in str(wrong.value)


def test_a_selector_that_is_none_is_told(tmp_path: Path) -> None:
    page = GOOD.replace('"json"', '"html"').replace("found.*", "li.thing").replace('"name"', '"a[["')
    with pytest.raises(BadShop, match=r"fields\.title: 'a\[\[' is no CSS selector"):
        read_shops(written(tmp_path, page))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadShop, match="price_sources"):
        read_shops(tmp_path / "nowhere.toml")
    with pytest.raises(BadShop, match="cannot be read"):
        read_shops(tmp_path)
