"""Items are kept once each, however often and by however many they are handed in, on every database."""

import asyncio
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest
from sqlalchemy import update

from mistnet.app import App
from mistnet.governor.model import SourceName
from mistnet.prices.matching import MISFIT
from mistnet.prices.model import BadItem, ItemId, ItemNotFound, ItemRequest, ItemState
from mistnet.prices.service import items_of
from mistnet.prices.store.items import ItemOutcome, Items
from mistnet.prices.store.price_jobs import AT_ONCE, items_due
from mistnet.prices.store.valuations import Valuations
from mistnet.prices.tables import items
from tests.followed import EBAY, follow, point, tell_prices
from tests.harvests import open_harvest, rows
from tests.support import START, TurnedClock

pytestmark = pytest.mark.common_sql

CENT = ItemRequest(title="1909-S VDB Lincoln cent", ref="cent", attributes={"year": "1909"}, exclude=("copy",))
SHOPEE = SourceName("shopee")
DAY = timedelta(days=1)


async def kept(app: App, *requests: ItemRequest) -> list[tuple[int, ItemOutcome]]:
    done = await items_of(app).add(requests, app.database.clock.now())
    return [(each.item_id, each.outcome) for each in done]


async def due(app: App, *sources: SourceName, every: timedelta = DAY) -> list[tuple[ItemId, SourceName]]:
    async with app.database.transaction() as connection:
        return list(await items_due(connection, now=app.database.clock.now(), default_every=every, sources=sources))


async def test_a_ref_names_one_item_and_saying_it_again_changes_nothing(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        ((first, outcome),) = await kept(app, CENT)
        assert outcome is ItemOutcome.ADDED
        clock.turn(hours=1)
        assert await kept(app, CENT) == [(first, ItemOutcome.SAME)]
        item = await items_of(app).get(ItemId(first))
        assert item is not None
        assert (item.changed_at, item.attributes, item.exclude) == (START, {"year": "1909"}, ("copy",))
        other = msgspec.structs.replace(CENT, currency="EUR", every_hours=6)
        assert await kept(app, other) == [(first, ItemOutcome.CHANGED)]
        item = await items_of(app).get(ItemId(first))
        assert item is not None
        assert (item.currency, item.every_hours, item.added_at) == ("EUR", 6.0, START)
        assert item.changed_at == clock.now()
        assert await rows(app, "SELECT COUNT(*) FROM items") == [(1,)]


async def test_without_a_ref_the_same_wish_is_the_same_item(url: str) -> None:
    async with open_harvest(url) as app:
        bare = msgspec.structs.replace(CENT, ref=None)
        shuffled = msgspec.structs.replace(bare, attributes=dict(reversed(list(bare.attributes.items()))))
        done = await kept(app, bare, shuffled, msgspec.structs.replace(bare, currency="USD"), CENT)
        assert [outcome for _, outcome in done] == [
            ItemOutcome.ADDED,
            ItemOutcome.SAME,
            ItemOutcome.ADDED,
            ItemOutcome.ADDED,
        ]
        assert done[0][0] == done[1][0]
        assert len({item_id for item_id, _ in done}) == 3


async def test_what_is_named_twice_in_one_go_is_as_if_it_came_one_after_the_other(url: str) -> None:
    async with open_harvest(url) as app:
        later = msgspec.structs.replace(CENT, title="1909-S VDB cent")
        done = await kept(app, CENT, later, later, CENT)
        assert [outcome for _, outcome in done] == [
            ItemOutcome.ADDED,
            ItemOutcome.CHANGED,
            ItemOutcome.SAME,
            ItemOutcome.CHANGED,
        ]
        assert len({item_id for item_id, _ in done}) == 1


async def test_many_hands_add_the_same_items_once(url: str) -> None:
    async with open_harvest(url) as app:
        requests = [ItemRequest(title=f"Coin {n}", ref=f"r{n}" if n % 2 else None) for n in range(40)]
        turns = [requests, requests[::-1], requests[10:30], requests[::2]]
        done = await asyncio.gather(*(kept(app, *turn) for turn in turns))
        assert await rows(app, "SELECT COUNT(*), COUNT(DISTINCT title) FROM items") == [(40, 40)]
        assert sum(outcome is ItemOutcome.ADDED for each in done for _, outcome in each) == 40


async def test_pages_of_an_item_become_links_with_their_one_crawl_in_the_same_transaction(url: str) -> None:
    async with open_harvest(url, crawl_lanes=["ebay"]) as app:
        urls = ("https://www.ebay.com/itm/155932418766?_trksid=p1", "https://shop.example/cent")
        await kept(app, ItemRequest(title="A cent", urls=urls), ItemRequest(title="Another", urls=urls[:1]))
        found = await rows(app, "SELECT url_norm, lane FROM links ORDER BY id")
        assert sorted(found) == [
            ("https://shop.example/cent", "web"),
            ("https://www.ebay.com/itm/155932418766", "ebay"),
        ]
        assert await rows(app, "SELECT kind, lane FROM jobs") == [("crawl", "ebay")]


async def test_a_removed_item_keeps_its_points_and_its_ref_is_free_again(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        ((first, _),) = await kept(app, CENT)
        await tell_prices(app, ItemId(first), [point("700", "a", START)])
        gone, changed = await items_of(app).set_state(ItemId(first), ItemState.REMOVED, clock.now())
        assert (gone.state, changed) == (ItemState.REMOVED, True)
        ((second, outcome),) = await kept(app, CENT)
        assert outcome is ItemOutcome.ADDED
        assert second != first
        assert len((await Valuations(app.database).points(ItemId(first))).items) == 1
        assert list(await Valuations(app.database).current([ItemId(first)])) == [first]
        for state in (ItemState.ACTIVE, ItemState.REMOVED):
            with pytest.raises(ItemNotFound, match="was removed"):
                await items_of(app).set_state(ItemId(first), state, clock.now())
        with pytest.raises(ItemNotFound, match="there is no item 99"):
            await items_of(app).set_state(ItemId(99), ItemState.PAUSED, clock.now())


async def test_an_item_may_not_take_the_ref_or_the_words_of_another(url: str) -> None:
    async with open_harvest(url) as app:
        (first, _), (second, _), (third, _) = await kept(
            app, CENT, ItemRequest(title="A dime", ref="dime"), ItemRequest(title="A dollar")
        )
        harness, now = items_of(app), app.database.clock.now()
        with pytest.raises(BadItem, match=f"item {first} has it"):
            await harness.change(ItemId(second), msgspec.structs.replace(CENT, title="x"), now)
        with pytest.raises(BadItem, match=f"item {third} has the same fields"):
            await harness.change(ItemId(second), ItemRequest(title="A dollar"), now)
        assert (
            await harness.change(ItemId(second), ItemRequest(title="A dime", ref="ten"), now)
        ).outcome is ItemOutcome.CHANGED
        assert (
            await harness.change(ItemId(second), ItemRequest(title="A dime", ref="ten"), now)
        ).outcome is ItemOutcome.SAME
        assert await rows(app, "SELECT ref FROM items ORDER BY id") == [("cent",), ("ten",), (None,)]


async def test_items_are_due_at_their_own_rhythm_and_ask_only_sources_they_want(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        usual = await follow(app, "usual")
        often = await follow(app, "often", every_hours=1, sources=(SHOPEE,))
        paused = await follow(app, "paused")
        await items_of(app).set_state(paused, ItemState.PAUSED, clock.now())
        assert await due(app, EBAY, SHOPEE) == [(usual, EBAY), (usual, SHOPEE), (often, SHOPEE)]
        assert await due(app, EBAY, SHOPEE) == []
        clock.turn(hours=1)
        assert await due(app, EBAY, SHOPEE) == [(often, SHOPEE)]
        assert await due(app, EBAY) == []
        clock.turn(hours=22)
        assert await due(app, EBAY) == []
        await items_of(app).set_state(paused, ItemState.ACTIVE, clock.now())
        assert await due(app, EBAY) == [(paused, EBAY)]
        clock.turn(hours=1)
        assert (usual, EBAY) in await due(app, EBAY)


async def test_a_source_asked_by_hand_just_now_waits_for_the_next_round_unless_the_item_changed(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        item = await follow(app, ref="cent")
        assert await due(app, EBAY, SHOPEE) == [(item, EBAY), (item, SHOPEE)]
        clock.turn(hours=20)
        await tell_prices(app, item, source=EBAY)
        await tell_prices(app, item, source=SHOPEE, problem="it was down")
        clock.turn(hours=4)
        assert await due(app, EBAY, SHOPEE) == []
        await follow(app, "1909-S VDB cent", ref="cent")
        assert await due(app, EBAY, SHOPEE) == [(item, EBAY), (item, SHOPEE)]


async def test_however_many_are_due_each_comes_once_and_the_longest_waiting_first(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        requests = [ItemRequest(title=f"Coin {n}", ref=str(n)) for n in range(AT_ONCE + 20)]
        ids = [item_id for item_id, _ in await kept(app, *requests)]
        clock.turn(minutes=1)
        late = ids[-1]
        async with app.database.transaction() as connection:
            await connection.execute(update(items).where(items.c.id == late).values(next_look_at=START - DAY))
        first, second = await due(app, EBAY), await due(app, EBAY)
        assert (len(first), len(second), await due(app, EBAY)) == (AT_ONCE, 20, [])
        assert first[0] == (late, EBAY)
        assert sorted(item_id for item_id, _ in [*first, *second]) == sorted(ids) == ids


async def test_a_changed_item_leaves_out_points_that_fit_no_more_and_takes_them_back(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        item = await follow(app, "Lincoln cent", ref="cent")
        own = [
            point("700", "a", START, title="1909-S Lincoln cent"),
            point("10", "b", START, title="1944 Lincoln cent"),
            point("12", "c", START, title="1944-D Lincoln cent", doubt="a tenth of the last"),
        ]
        await tell_prices(app, item, own)
        facts = Valuations(app.database)
        before = (await facts.current([item]))[item]
        assert (before.points, before.points_left_out) == (2, 1)
        await follow(app, "Lincoln cent", ref="cent", attributes={"year": "1909"})
        worth = (await facts.current([item]))[item]
        assert (worth.estimate, worth.points) == (Decimal("700.00"), 1)
        doubts = {each.dedupe_key: each.doubt for each in (await facts.points(item)).items}
        assert doubts["ext_a"] is None
        assert doubts["ext_b"] == f"{MISFIT}: its year is 1944, not 1909"
        assert doubts["ext_c"] == "a tenth of the last"
        assert len((await facts.history(item)).items) == 2
        await follow(app, "Lincoln cent", ref="cent")
        assert (await facts.current([item]))[item].points == 2
        assert {each.doubt for each in (await facts.points(item)).items} == {None, "a tenth of the last"}


async def test_a_page_the_item_names_itself_fits_whatever_the_title(url: str) -> None:
    async with open_harvest(url) as app:
        page = "https://www.ebay.com/itm/155932418766"
        item = await follow(app, "One", ref="r", urls=(page,))
        await tell_prices(app, item, [point("5", "155932418766", START, title="Nothing alike", url=page + "?x=1")])
        await follow(app, "Another title", ref="r", urls=(page,))
        assert (await Valuations(app.database).current([item]))[item].points == 1
        await follow(app, "Another title", ref="r")
        assert await Valuations(app.database).current([item]) == {}


async def test_another_currency_ends_the_items_valuation_at_once(url: str) -> None:
    async with open_harvest(url) as app:
        item = await follow(app, ref="r")
        await tell_prices(app, item, [point("5", "a", START)])
        await follow(app, ref="r", currency="EUR")
        assert await Valuations(app.database).current([item]) == {}
        (past,) = (await Valuations(app.database).history(item)).items
        assert past.ended_at == app.database.clock.now()


async def test_without_a_writer_of_links_pages_are_written_down_and_left_alone(sqlite_url: str) -> None:
    async with open_harvest(sqlite_url, crawl_lanes=["web"]) as app:
        await Items(app.database).add([ItemRequest(title="A", urls=("https://shop.example/a",))], START)
        assert await rows(app, "SELECT state FROM links") == [("new",)]
        assert await rows(app, "SELECT id FROM jobs") == []
