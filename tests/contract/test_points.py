"""Points, their valuation and the look that brought them land together, in any order and beside other writers."""

import asyncio
import itertools
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, text

from mistnet.governor.model import SourceName
from mistnet.kit.database import Database
from mistnet.kit.errors import WriteRefused
from mistnet.prices.model import (
    ItemId,
    PointFilter,
    PointLine,
    PriceFetch,
    PricePoint,
    UnreadableListing,
    Valuation,
)
from mistnet.prices.store.points import PointWriter
from mistnet.prices.store.valuations import Valuations, revalue
from mistnet.prices.tables import items, price_points, valuation_history
from mistnet.prices.valuation import Rates, rank
from mistnet.prices.valuation import value_points as valued
from mistnet.shops.model import PriceKind
from tests.databases import analyze, numbers, open_database
from tests.examples import count_examples
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql

EBAY, SHOPEE = SourceName("ebay_api"), SourceName("shopee")


@asynccontextmanager
async def opened(url: str, count: int = 1, *, currency: str | None = "USD") -> AsyncIterator[Database]:
    """A database with items 1 to `count`."""
    database = open_database(url, clock=TurnedClock())
    try:
        await add_items(database, count, currency=currency)
        yield database
    finally:
        await database.close()


async def add_items(database: Database, count: int, *, currency: str | None = "USD") -> list[ItemId]:
    about = {"attributes": b"{}", "exclude": b"[]", "sources": b"[]", "urls": b"[]", "currency": currency}
    times = {"added_at": START, "changed_at": START, "next_look_at": START}
    async with database.transaction() as connection:
        return [
            ItemId(
                (
                    await connection.execute(
                        insert(items)
                        .values(title="A cent", digest=secrets.token_hex(8), state="active", **about, **times)
                        .returning(items.c.id)
                    )
                ).scalar_one()
            )
            for _ in range(count)
        ]


def point(key: object, amount: str | int = "100", **about: Any) -> PricePoint:
    told: dict[str, Any] = {
        "kind": PriceKind.ASK,
        "currency": "USD",
        "title": "A cent",
        "url": "https://shop.example/1",
    }
    told |= {"observed_at": START, "match_strength": 0.9, "dedupe_key": f"ext_{key}", "external_id": str(key)}
    return PricePoint(**{**told, "amount": Decimal(amount), **about})


def asked(*points: PricePoint, item: int = 1, source: SourceName = EBAY, **about: Any) -> PriceFetch:
    return PriceFetch(item_id=ItemId(item), source=source, points=points, **{"listings": len(points), **about})


async def write(
    database: Database, *given: PriceFetch, now: datetime = START, writer: PointWriter | None = None
) -> None:
    async with database.transaction() as connection:
        await (writer or PointWriter()).write(connection, given, now)


async def all_points(database: Database, item: int = 1) -> list[PointLine]:
    return sorted((await Valuations(database).points(ItemId(item), limit=100_000)).items, key=lambda each: each.id)


async def worth(database: Database, item: int = 1) -> Valuation | None:
    return (await Valuations(database).current([ItemId(item)])).get(ItemId(item))


async def is_sound(database: Database, item: int = 1) -> None:
    """What is stored is what the stored points make it."""
    points = await all_points(database, item)
    found = await worth(database, item)
    wanted = valued(points, currency="USD", rates=Rates())
    assert wanted == (
        None if found is None else Valuation(**{n: getattr(found, n) for n in Valuation.__struct_fields__})
    )


def told(point: PricePoint) -> dict[str, Any]:
    return {name: getattr(point, name) for name in PricePoint.__struct_fields__}


async def test_a_look_brings_points_a_valuation_its_history_and_itself(url: str) -> None:
    async with opened(url) as database:
        given = [point(nr, 100 + nr, condition="used", bid_count=nr) for nr in range(5)]
        await write(database, asked(*given, listings=9))
        points = await all_points(database)
        assert [told(each) for each in points] == [told(each) for each in given]
        assert all((each.times_seen, each.first_seen_at, each.last_seen_at) == (1, START, START) for each in points)
        await is_sound(database)
        found = await worth(database)
        assert found is not None
        assert (found.estimate, found.points, found.currency) == (Decimal(102), 5, "USD")
        (past,) = (await Valuations(database).history(ItemId(1))).items
        assert (past.estimate, past.valued_at, past.ended_at) == (Decimal(102), START, None)
        assert past.carriers == found.carriers
        (look,) = await Valuations(database).fetches(ItemId(1))
        assert (look.listings, look.points, look.looked_at, look.found_at) == (9, 5, START, START)


async def test_the_same_look_twice_changes_only_how_often_and_when_it_was_seen(url: str) -> None:
    async with opened(url) as database:
        given = asked(*(point(nr, 100 + nr) for nr in range(5)))
        await write(database, given)
        before, worth_before = await all_points(database), await worth(database)
        later = START + timedelta(hours=1)
        await write(database, given, now=later)
        after = await all_points(database)
        assert after == [msgspec.structs.replace(each, times_seen=2, last_seen_at=later) for each in before]
        assert await worth(database) == worth_before
        assert len((await Valuations(database).history(ItemId(1))).items) == 1
        assert (await Valuations(database).versions(before[0].id)).items == []


async def test_a_remembered_answer_is_no_look(url: str) -> None:
    async with opened(url) as database:
        await write(database, asked(point(1, 100), point(2, 110, match_strength=0.6), listings=2))
        before, looks = await all_points(database), await Valuations(database).fetches(ItemId(1))
        again = asked(point(1, 100), point(2, 110), point(3, 120), listings=3, cached=True)
        await write(database, again, now=START + timedelta(hours=1))
        first, stronger, new = await all_points(database)
        assert first == before[0]
        assert stronger.match_strength == 0.9
        assert (stronger.last_seen_at, stronger.times_seen) == (START, 1)
        assert (new.last_seen_at, new.times_seen) == (START + timedelta(hours=1), 1)
        (look,) = await Valuations(database).fetches(ItemId(1))
        assert (look.looked_at, look.found_at, look.listings) == (looks[0].looked_at, looks[0].found_at, 3)
        await is_sound(database)


async def test_a_cached_answer_is_no_second_look_for_a_watch(url: str) -> None:
    async with opened(url) as database:
        watch = CrashingWatch()
        watch.crashes = False
        writer = PointWriter(watch)
        await write(database, asked(point(1)), writer=writer)
        await write(database, asked(point(1), cached=True), writer=writer)
        assert len(watch.told) == 1
        await write(database, asked(point(2, "200"), cached=True), writer=writer)
        assert len(watch.told) == 2, "what it says of another item is news for this one"


async def test_a_look_may_have_more_points_than_a_statement_takes_values(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.prices.store.points._AT_ONCE", 7)
    async with opened(url) as database:
        same = [point(nr, 100 + nr) for nr in range(40)]
        await write(database, asked(*same))
        stronger = [point(nr, 90 + nr, match_strength=1.0) for nr in range(20)]
        await write(database, asked(*stronger, *same[20:]))
        points = sorted(await all_points(database), key=lambda each: each.amount)
        assert [each.amount for each in points] == [*range(90, 110), *range(120, 140)]
        assert {each.times_seen for each in points} == {2}
        versions = [(await Valuations(database).versions(each.id)).items for each in points]
        assert [len(each) for each in versions] == [1] * 20 + [0] * 20
        await is_sound(database)


async def test_a_stronger_match_replaces_a_weaker_one_and_the_weaker_is_kept_as_a_version(url: str) -> None:
    async with opened(url) as database:
        await write(database, asked(point(1, "100", match_strength=0.6)))
        await write(database, asked(point(1, "90", match_strength=0.9)), now=START + timedelta(hours=1))
        await write(database, asked(point(1, "95", match_strength=0.7, observed_at=START + timedelta(days=9))))
        (kept,) = await all_points(database)
        assert (kept.amount, kept.match_strength, kept.times_seen) == (Decimal(90), 0.9, 3)
        (version,) = (await Valuations(database).versions(kept.id)).items
        assert (version.nr, version.amount, version.match_strength, version.observed_at) == (
            1,
            Decimal(100),
            0.6,
            START,
        )
        assert version.replaced_at == START + timedelta(hours=1)


async def test_of_equal_matches_the_later_look_counts_and_each_price_before_is_a_version(url: str) -> None:
    async with opened(url) as database:
        for hour, amount in enumerate(("100", "100", "80", "85")):
            at = START + timedelta(hours=hour)
            await write(database, asked(point(1, amount, observed_at=at)), now=at)
        (kept,) = await all_points(database)
        assert (kept.amount, kept.observed_at) == (Decimal(85), START + timedelta(hours=3))
        versions = (await Valuations(database).versions(kept.id)).items
        assert [(each.nr, each.amount) for each in versions] == [(2, Decimal(80)), (1, Decimal(100))]
        assert [each.amount for each in (await Valuations(database).versions(kept.id, after=2)).items] == [100]


async def test_a_doubted_telling_never_replaces_one_that_is_believed(url: str) -> None:
    async with opened(url) as database:
        await write(database, asked(point(1, "100")))
        await write(database, asked(point(1, "143.7", doubt="it jumped", observed_at=START + timedelta(days=1))))
        (kept,) = await all_points(database)
        assert (kept.amount, kept.doubt) == (Decimal(100), None)


async def test_the_same_key_of_another_source_or_item_is_another_point(url: str) -> None:
    async with opened(url, 2) as database:
        await write(database, asked(point(1)), asked(point(1), source=SHOPEE), asked(point(1), item=2))
        assert [each.source for each in await all_points(database)] == [EBAY, SHOPEE]
        assert len(await all_points(database, 2)) == 1


TELLINGS = st.lists(
    st.builds(
        lambda key, amount, strength, hours, doubt, title, source: (
            source,
            point(
                key,
                amount,
                match_strength=strength,
                observed_at=START - timedelta(hours=hours),
                doubt=doubt,
                title=title,
            ),
        ),
        st.integers(1, 3),
        st.sampled_from(["100", "100.00", "101", "7000"]),
        st.sampled_from([0.6, 0.9]),
        st.integers(0, 1),
        st.sampled_from([None, None, "odd"]),
        st.sampled_from(["a", "b\x00", "b\ud800"]),
        st.sampled_from([EBAY, SHOPEE]),
    ),
    min_size=1,
    max_size=10,
)


def in_looks(
    tellings: Sequence[tuple[SourceName, PricePoint]], chance: random.Random, item: ItemId
) -> list[list[PriceFetch]]:
    """In any order, in any number of looks, in any number of writes."""
    shuffled = list(tellings)
    chance.shuffle(shuffled)
    writes: list[list[PriceFetch]] = []
    while shuffled:
        some = [shuffled.pop() for _ in range(min(len(shuffled), chance.randint(1, 4)))]
        looks = [
            asked(*(each for of, each in some if of == source), item=item, source=source) for source in (EBAY, SHOPEE)
        ]
        writes.append([look for look in looks if look.points])
    return writes


def named(points: Sequence[PointLine], found: Valuation | None) -> Any:
    """A valuation with its points by what they are, not by the ids they happened to get."""
    if found is None:
        return None
    keys = {each.id: (each.source, each.dedupe_key) for each in points}
    carriers = [(keys[each.point_id], each.amount) for each in found.carriers]
    left_out = [(keys[each.point_id], each.why) for each in found.left_out]
    return carriers, left_out, found.estimate, found.low, found.high, found.confidence, found.newest_at


@pytest.fixture
def looped() -> Any:
    """One event loop for all examples: a database's connections belong to the loop that made them."""
    with asyncio.Runner() as runner:
        yield runner


def test_the_strongest_telling_wins_whatever_the_order_and_however_it_is_split(
    url: str, looped: asyncio.Runner
) -> None:
    database = open_database(url, clock=TurnedClock())
    by_hand = PointWriter()

    @settings(max_examples=count_examples(15), suppress_health_check=list(HealthCheck), database=None)
    @given(TELLINGS, st.randoms(use_true_random=False))
    def holds(tellings: list[tuple[SourceName, PricePoint]], chance: random.Random) -> None:
        looped.run(one(tellings, chance))

    async def one(tellings: list[tuple[SourceName, PricePoint]], chance: random.Random) -> None:
        first, second = await add_items(database, 2)
        for item in (first, second):
            for looks in in_looks(tellings, chance, item):
                await write(database, *looks, writer=by_hand)
            await is_sound(database, item)
        kept, again = await all_points(database, first), await all_points(database, second)
        assert sorted(map(repr, map(told, kept))) == sorted(map(repr, map(told, again)))
        assert named(kept, await worth(database, first)) == named(again, await worth(database, second))
        for each in kept:
            rivals = [told for of, told in tellings if of == each.source and told.dedupe_key == each.dedupe_key]
            assert each.match_strength == max(rival.match_strength for rival in rivals)
            assert each.amount == max(rivals, key=rank).amount

    try:
        holds()
    finally:
        looped.run(database.close())


async def test_what_was_seen_again_without_a_change_leaves_no_trace_in_the_history(url: str) -> None:
    async with opened(url) as database:
        for hour in range(4):
            at = START + timedelta(hours=hour)
            await write(database, asked(*(point(nr, "100", observed_at=at) for nr in range(6))), now=at)
        found = await worth(database)
        assert found is not None
        assert found.newest_at == START + timedelta(hours=3)
        assert len((await Valuations(database).history(ItemId(1))).items) == 1


async def test_the_history_of_valuations_is_kept_and_read_a_page_at_a_time(url: str) -> None:
    async with opened(url) as database:
        for day in range(7):
            await write(database, asked(point(day, 100 + 10 * day)), now=START + timedelta(days=day))
        reader = Valuations(database)
        first = (await reader.history(ItemId(1), limit=3)).items
        rest = (await reader.history(ItemId(1), after=first[-1].id)).items
        assert [each.points for each in (*first, *rest)] == [7, 6, 5, 4, 3, 2, 1]
        assert [each.valued_at for each in rest] == [START + timedelta(days=day) for day in (3, 2, 1, 0)]


async def test_a_valuation_nothing_carries_any_more_ends_and_its_history_says_when(url: str) -> None:
    async with opened(url) as database:
        await write(database, asked(point(1)))
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE items SET currency = 'JPY' WHERE id = 1"))
        assert await revalue(database, [ItemId(1)]) == 1
        assert await worth(database) is None
        (past,) = (await Valuations(database).history(ItemId(1))).items
        assert past.ended_at == START
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE items SET currency = 'USD' WHERE id = 1"))
        assert await revalue(database) == 1
        assert [each.ended_at for each in (await Valuations(database).history(ItemId(1))).items] == [None, START]


async def test_a_look_that_went_wrong_is_noted_and_touches_nothing_else(url: str) -> None:
    async with opened(url) as database:
        await write(database, asked(point(1), listings=4))
        before = await worth(database)
        later = START + timedelta(hours=1)
        await write(database, PriceFetch(item_id=ItemId(1), source=EBAY, problem="it was down"), now=later)
        (look,) = await Valuations(database).fetches(ItemId(1))
        assert (look.looked_at, look.problem, look.listings, look.points, look.found_at) == (
            later,
            "it was down",
            4,
            1,
            START,
        )
        assert await worth(database) == before
        await write(database, asked(listings=0), now=later)
        (look,) = await Valuations(database).fetches(ItemId(1))
        assert (look.problem, look.listings, look.points, look.found_at) == (None, 0, 0, START)


async def test_an_unreadable_listing_is_kept_once_with_its_problem(url: str) -> None:
    async with opened(url, 2) as database:
        odd = UnreadableListing(problem="no price\x00", payload=b'{"price": "\xff"}')
        await write(database, asked(unreadable=[odd, odd]), asked(item=2, unreadable=[odd]))
        await write(database, asked(unreadable=[odd]), now=START + timedelta(hours=1))
        async with database.read() as connection:
            (row,) = (
                await connection.execute(text("SELECT item_id, problem, payload, times_seen FROM odd_listings"))
            ).all()
        assert (row.item_id, row.problem, bytes(row.payload), row.times_seen) == (1, "no price\u2400", odd.payload, 2)


async def test_the_schema_refuses_a_bid_without_bidders(url: str) -> None:
    async with opened(url) as database:
        for bids in (None, 0):
            with pytest.raises(WriteRefused):
                await write(database, asked(point(1), point(2, kind=PriceKind.BID, bid_count=bids)))
        assert await all_points(database) == []
        await write(database, asked(point(2, kind=PriceKind.BID, bid_count=1)))
        assert len(await all_points(database)) == 1


@pytest.mark.parametrize("about", [{"match_strength": 1.1}, {"currency": "US$1"}])
async def test_impossible_points_are_refused_by_the_schema(url: str, about: dict[str, Any]) -> None:
    async with opened(url) as database:
        with pytest.raises(WriteRefused):
            await write(database, asked(point(1, **about)))
        assert await all_points(database) == []


async def test_a_look_for_an_item_that_does_not_exist_is_refused(url: str) -> None:
    async with opened(url) as database:
        with pytest.raises(WriteRefused, match="there is no item 99"):
            await write(database, asked(point(1), item=99))


class Crash(Exception):
    """What ends a process in the middle."""


class CrashingWatch:
    """Stands where the transaction has everything but its end."""

    def __init__(self) -> None:
        self.crashes = True
        self.told: list[tuple[ItemId, Decimal | None, Decimal | None, list[str]]] = []

    async def valued(
        self, _connection: object, item_id: ItemId, before: Any, after: Any, sources: Sequence[str], _now: datetime
    ) -> None:
        if self.crashes:
            raise Crash
        self.told.append(
            (item_id, before.estimate if before else None, after.estimate if after else None, list(sources))
        )


async def counts(database: Database) -> dict[str, int]:
    tables = ("price_points", "price_point_versions", "valuations", "valuation_history", "item_looks", "odd_listings")
    async with database.read() as connection:
        return {
            table: (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() for table in tables
        }


async def test_points_valuation_history_look_and_odd_listings_land_together_or_not_at_all(url: str) -> None:
    async with opened(url) as database:
        watch = CrashingWatch()
        writer = PointWriter(watch)
        odd = UnreadableListing(problem="no price", payload=b"{}")
        given = asked(point(1), point(2, "120"), unreadable=[odd])
        with pytest.raises(Crash):
            await write(database, given, writer=writer)
        assert set((await counts(database)).values()) == {0}
        watch.crashes = False
        await write(database, given, writer=writer)
        before = await counts(database)
        watch.crashes = True
        with pytest.raises(Crash):
            await write(database, asked(point(1, "80", match_strength=1.0), point(3)), writer=writer)
        assert await counts(database) == before
        assert [each.amount for each in await all_points(database)] == [100, 120]
        await is_sound(database)


async def test_a_watch_receives_every_answered_look_and_no_other(url: str) -> None:
    async with opened(url, 2) as database:
        watch = CrashingWatch()
        watch.crashes = False
        writer = PointWriter(watch)
        await write(database, asked(point(1)), asked(point(1, "120"), source=SHOPEE), writer=writer)
        await write(database, asked(listings=0), writer=writer)
        await write(database, PriceFetch(item_id=ItemId(1), source=EBAY, problem="down"), writer=writer)
        await write(database, asked(item=2), writer=writer)
        assert watch.told == [
            (1, None, Decimal("110.00"), [EBAY, SHOPEE]),
            (1, Decimal("110.00"), Decimal("110.00"), [EBAY]),
            (2, None, None, [EBAY]),
        ]


LOOKS = 12


async def test_two_writers_on_one_item_lose_no_update(postgresql_url: str) -> None:
    """Each with connections of its own. Whatever the interleaving, the valuation is that of all points."""
    one, other = (Database(postgresql_url, clock=TurnedClock()) for _ in range(2))
    try:
        await add_items(one, 2)

        async def looks(database: Database, source: SourceName, shared: Sequence[int]) -> None:
            for nr, item in itertools.product(range(LOOKS), (1, 2)):
                both = [point(f"shared{each}", 100 + nr, match_strength=nr / 100) for each in shared]
                await write(database, asked(point(nr, 100 + nr), *both, item=item, source=source))

        async with asyncio.timeout(120):
            await asyncio.gather(
                looks(one, EBAY, [1, 2]), looks(other, EBAY, [2, 1]), looks(one, SHOPEE, [1]), looks(other, SHOPEE, [1])
            )
        for item in (1, 2):
            points = await all_points(one, item)
            assert len(points) == 2 * LOOKS + 3
            assert {each.times_seen for each in points if "shared" not in each.dedupe_key} == {2}
            assert {each.times_seen for each in points if "shared" in each.dedupe_key} == {2 * LOOKS}
            assert {each.amount for each in points if "shared" in each.dedupe_key} == {99 + LOOKS}
            await is_sound(one, item)
    finally:
        await one.close()
        await other.close()


async def test_two_writers_with_the_same_items_in_any_order_never_wait_for_each_other(postgresql_url: str) -> None:
    one, other = (Database(postgresql_url, clock=TurnedClock()) for _ in range(2))
    try:
        await add_items(one, 6)
        odd = UnreadableListing(problem="no price", payload=b"{}")

        async def looks(database: Database, seed: int) -> None:
            chance = random.Random(seed)
            for nr in range(LOOKS):
                order = chance.sample(range(1, 7), 6)
                given = [asked(point(nr % 5, 100 + nr), item=each, unreadable=[odd]) for each in order]
                await write(database, *given)

        async with asyncio.timeout(120):
            await asyncio.gather(looks(one, 1), looks(other, 2), looks(one, 3))
        for item in range(1, 7):
            await is_sound(one, item)
    finally:
        await one.close()
        await other.close()


async def test_thousands_of_points_of_one_item_are_valued_and_only_the_telling_ones_named(url: str) -> None:
    async with opened(url) as database:
        chance = random.Random(3)
        for look in range(3):
            given = [
                point(f"{look}-{nr}", 100 + chance.randrange(20), match_strength=0.5 + nr / 4_000)
                for nr in range(1_000)
            ]
            await write(database, asked(*given))
        found = await worth(database)
        assert found is not None
        assert (found.points, len(found.carriers)) == (3_000, 100)
        (past, *_) = (await Valuations(database).history(ItemId(1))).items
        assert (past.points, past.carriers) == (3_000, found.carriers[:20])
        await is_sound(database)


async def test_points_are_read_by_pages_and_by_what_they_are(url: str) -> None:
    async with opened(url) as database:
        sold = [point(f"s{nr}", "90", kind=PriceKind.SOLD) for nr in range(3)]
        odd = [point("odd", "143.7", doubt="it jumped")]
        await write(database, asked(*(point(nr) for nr in range(5)), *odd), asked(*sold, source=SHOPEE))
        reader = Valuations(database)
        first = (await reader.points(ItemId(1), limit=4)).items
        rest = (await reader.points(ItemId(1), after=first[-1].id)).items
        assert [each.id for each in (*first, *rest)] == sorted((each.id for each in (*first, *rest)), reverse=True)
        assert len({each.id for each in (*first, *rest)}) == 9
        assert len((await reader.points(ItemId(1), PointFilter(kind=PriceKind.SOLD))).items) == 3
        assert len((await reader.points(ItemId(1), PointFilter(source=SHOPEE, kind=PriceKind.ASK))).items) == 0
        assert [each.dedupe_key for each in (await reader.points(ItemId(1), PointFilter(doubted=True))).items] == [
            "ext_odd"
        ]
        assert (await reader.named_points([first[0].id]))[first[0].id] == first[0]
        assert await reader.current([]) == {}


async def plan_of(database: Database, statement: Any) -> str:
    dialect = database.engine.dialect
    sql = str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    explain = "EXPLAIN " if database.dialect == "postgresql" else "EXPLAIN QUERY PLAN "
    async with database.read() as connection:
        rows = await connection.exec_driver_sql(explain + sql)
        return "\n".join(str(row[-1]) for row in rows)


async def copy_items(database: Database, last: int) -> None:
    """Items up to this one, each with the points and the history of the first, item by item."""
    async with database.transaction() as connection:
        for table, own in ((items, {"id": "n", "digest": "n"}), (price_points, {}), (valuation_history, {})):
            told = {each.name: f"o.{each.name}" for each in table.columns if each.name != "id" or table is items}
            told |= {name: f"CAST(n AS {'text' if name == 'digest' else 'bigint'})" for name in own}
            if "item_id" in told:
                told["item_id"] = "n"
            await connection.exec_driver_sql(
                f"INSERT INTO {table.name} ({', '.join(told)}) "
                f"SELECT {', '.join(told.values())} FROM {table.name} AS o CROSS JOIN {numbers(2, last)} "
                "ORDER BY numbers.n"
            )


async def test_the_points_of_one_item_among_many_are_found_by_an_index(url: str) -> None:
    async with opened(url) as database:
        await write(database, asked(*(point(nr) for nr in range(50))))
        await copy_items(database, 200)
        async with database.read() as connection:
            await analyze(connection)
        own = price_points.c
        page = select(own.id, own.amount).where(own.item_id == 7, own.id < 5_000).order_by(own.id.desc()).limit(20)
        known = select(own.id, own.amount).where(own.item_id.in_([7]))
        past = valuation_history.c
        before = (
            select(past.id, past.estimate).where(past.item_id == 7, past.id < 900).order_by(past.id.desc()).limit(20)
        )
        for statement, index in (
            (page, "price_points_i"),
            (known, "price_points_i"),
            (before, "valuation_history_item"),
        ):
            plan = await plan_of(database, statement)
            assert index in plan, plan
            assert "Sort" not in plan
            assert "TEMP B-TREE" not in plan
