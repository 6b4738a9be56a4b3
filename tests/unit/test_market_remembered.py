"""A question asked twice costs one call: the key is what is asked, the memory ends, and a second look goes past it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.governor.errors import SourceDown
from mistnet.governor.model import CallPurpose, SourceName
from mistnet.prices.model import Item, ItemRequest, PriceAnswer, PriceListing, UnreadableListing
from mistnet.settings import load_settings
from mistnet.shops.model import PriceKind
from mistnet.sources.price_answers import Remembered, query_of, remembered_as
from tests.markets import an_item
from tests.shops import Books
from tests.support import START, TurnedClock

HOUR = timedelta(hours=1)


NAME = SourceName("shop")


@dataclass
class Shop:
    """Counts how often it is asked."""

    name: SourceName = NAME
    asked: list[str] = field(default_factory=list)
    down: bool = False

    async def search(self, item: Item, *, purpose: CallPurpose, fresh: bool = False) -> PriceAnswer:
        self.asked.append(item.title)
        await asyncio.sleep(0)
        if self.down:
            raise SourceDown(self.name, "closed")
        listing = PriceListing(
            kind=PriceKind.ASK,
            amount=Decimal("12.10"),
            currency="USD",
            title=f"{item.title} {len(self.asked)}",
            url="https://shop.example.com/1",
            observed_at=START,
            external_id="1",
            attributes={"year": "1921"},
        )
        return PriceAnswer(listings=[listing], unreadable=[UnreadableListing(problem="odd", payload=b"\x00\xff")])


@dataclass
class Corner:
    shop: Shop = field(default_factory=Shop)
    clock: TurnedClock = field(default_factory=TurnedClock)
    books: Books = field(default_factory=Books)
    with_grade: bool = False

    def __post_init__(self) -> None:
        self.source = Remembered(self.shop, answers=self.books, clock=self.clock, keep=HOUR, with_grade=self.with_grade)

    async def ask(self, *, fresh: bool = False, **about: Any) -> PriceAnswer:
        return await self.source.search(an_item(**about), purpose=CallPurpose(), fresh=fresh)


def test_the_key_is_what_it_is_agreed_to_be() -> None:
    coin = ItemRequest(
        title="Lincoln Cent VDB",
        attributes={"year": "1909", "mint_mark": "S", "denomination": "1c", "series": "Lincoln", "grade": "MS65"},
    )
    assert remembered_as("ebay_api", coin) == "ebay_api|1909|S|1c|Lincoln|Lincoln Cent VDB"
    assert remembered_as("ebay_api", ItemRequest(title="Coin")) == "ebay_api|||||Coin"
    assert remembered_as("hub", coin, with_grade=True) == "hub|1909|S|1c|Lincoln|Lincoln Cent VDB|MS65"


PARTS = st.fixed_dictionaries(
    {name: st.text("a|%7C2", max_size=5) for name in ("year", "mint_mark", "denomination", "series", "title")}
)


@given(PARTS, PARTS)
def test_two_questions_have_one_key_only_if_they_are_the_same(one: dict[str, str], other: dict[str, str]) -> None:
    def key(parts: dict[str, str]) -> str:
        attributes = {name: value for name, value in parts.items() if name != "title"}
        return remembered_as("shop", ItemRequest(title=parts["title"], attributes=attributes))

    same = {name: value for name, value in one.items() if value} == {
        name: value for name, value in other.items() if value
    }
    assert (key(one) == key(other)) == same


@given(PARTS, st.text(max_size=5))
def test_what_is_asked_depends_on_the_key_alone(parts: dict[str, str], grade: str) -> None:
    attributes = {name: value for name, value in parts.items() if name != "title"}
    plain = ItemRequest(title=parts["title"], attributes=attributes)
    graded = ItemRequest(title=parts["title"], attributes={**attributes, "grade": grade}, exclude=("x",), ref="r")
    assert query_of(plain) == query_of(graded)


async def test_the_same_question_is_asked_once_an_hour() -> None:
    corner = Corner()
    first = await corner.ask(title="coin")
    again = await corner.ask(title="coin", ref="another", exclude=("copy",))
    assert corner.shop.asked == ["coin"]
    assert not first.cached
    assert again.cached
    assert again.listings == first.listings
    assert again.unreadable == first.unreadable
    corner.clock.turn(seconds=3_599)
    await corner.ask(title="coin")
    assert len(corner.shop.asked) == 1
    corner.clock.turn(seconds=1)
    assert not (await corner.ask(title="coin")).cached
    assert len(corner.shop.asked) == 2


async def test_another_question_is_asked() -> None:
    corner = Corner()
    await corner.ask(title="coin")
    await corner.ask(title="coin", attributes={"year": "1921"})
    await corner.ask(title="coins")
    assert len(corner.shop.asked) == 3


async def test_a_shop_that_is_asked_for_the_grade_remembers_each_grade() -> None:
    corner = Corner(with_grade=True)
    await corner.ask(title="coin", attributes={"grade": "MS65"})
    await corner.ask(title="coin", attributes={"grade": "VF20"})
    assert len(corner.shop.asked) == 2


async def test_a_second_look_goes_past_the_memory_and_renews_it() -> None:
    corner = Corner()
    await corner.ask(title="coin")
    looked = await corner.ask(title="coin", fresh=True)
    assert not looked.cached
    assert (await corner.ask(title="coin")).listings == looked.listings
    assert len(corner.shop.asked) == 2


async def test_who_asks_the_same_at_once_waits_for_the_one_answer() -> None:
    corner = Corner()
    answers = await asyncio.gather(*(corner.ask(title="coin") for _ in range(20)))
    assert len(corner.shop.asked) == 1
    assert sum(not answer.cached for answer in answers) == 1


async def test_a_failure_is_not_remembered() -> None:
    corner = Corner()
    corner.shop.down = True
    with pytest.raises(SourceDown):
        await corner.ask(title="coin")
    corner.shop.down = False
    assert not (await corner.ask(title="coin")).cached


async def test_an_unreadable_cached_answer_is_fetched_again() -> None:
    corner = Corner()
    await corner.ask(title="coin")
    (key,) = corner.books.answers
    kept = corner.books.answers[key]
    corner.books.answers[key] = type(kept)(**{**{n: getattr(kept, n) for n in kept.__struct_fields__}, "body": b"{}"})
    assert not (await corner.ask(title="coin")).cached
    assert (await corner.ask(title="coin")).cached


async def test_a_very_long_title_has_a_key_that_fits() -> None:
    corner = Corner()
    await corner.ask(title="c" * 9_000)
    await corner.ask(title="c" * 9_001)
    assert len(corner.shop.asked) == 2
    assert max(len(key.encode()) for key in corner.books.answers) <= 2_000


@pytest.mark.parametrize(
    ("variables", "on", "seconds"),
    [
        ({}, True, 3_600.0),
        ({"CACHE_ENABLED": "false", "CACHE_TTL_SECONDS": "60"}, False, 60.0),
        ({"MISTNET_PRICE_CACHE": "false", "MISTNET_PRICE_CACHE_SECONDS": "7"}, False, 7.0),
    ],
)
def test_the_memory_can_be_set_by_either_name(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], on: bool, seconds: float
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = load_settings()
    assert (found.price_cache, found.price_cache_seconds) == (on, seconds)
    assert found.crawl_cache is False
    if "CACHE_TTL_SECONDS" in variables:
        assert found.crawl_cache_seconds == seconds
