"""Segments on every database: what their rules find, who came and went, who was in them at any time."""

import random
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from mistnet.graph.segments.model import BadSegment, SegmentCycle, SegmentNotFound, Snapshot
from mistnet.kit.errors import WriteRefused
from mistnet.social.model import THREADS, LinkMention, Post
from tests.graphs import written
from tests.harvests import post
from tests.segmented import Workshop, ids, members_after, workshop
from tests.support import START

pytestmark = pytest.mark.common_sql

FOUR = ("followers", "followed", "mutuals", "unreciprocated_followed")


def brute_force(edges: set[tuple[int, int]], kind: str, subject: int) -> set[int]:
    followers = {one for one, other in edges if other == subject}
    followed = {other for one, other in edges if one == subject}
    return {
        "followers": followers,
        "followed": followed,
        "mutuals": followers & followed,
        "unreciprocated_followed": followed - followers,
    }[kind]


async def graph_of(shop: Workshop, chance: random.Random, size: int = 20) -> set[tuple[int, int]]:
    people = range(1, size + 1)
    await shop.people(*people)
    pairs = [(one, other) for one in people for other in people if one != other and chance.random() < 0.3]
    await shop.follow(*pairs)
    return set(pairs)


async def test_each_rule_finds_whom_a_plain_count_finds_while_the_graph_changes(url: str) -> None:
    chance = random.Random(0)
    async with workshop(url) as shop:
        edges = await graph_of(shop, chance)
        for subject in (1, 2):
            await shop.synced_both(subject)
            for kind in FOUR:
                await shop.define(f"{kind}-{subject}", kind=kind, subject=str(subject))
        for name in ("union", "intersection", "difference"):
            await shop.define(name, kind=name, of=["followers-1", "mutuals-2", "followed-2"])
        for _ in range(3):
            wanted = {f"{kind}-{subject}": brute_force(edges, kind, subject) for kind in FOUR for subject in (1, 2)}
            parts = [wanted[name] for name in ("followers-1", "mutuals-2", "followed-2")]
            wanted["union"] = parts[0] | parts[1] | parts[2]
            wanted["intersection"] = parts[0] & parts[1] & parts[2]
            wanted["difference"] = parts[0] - parts[1] - parts[2]
            for name, members in wanted.items():
                snapshot = await shop.materialize(name)
                assert await shop.members(name, page=7) == members
                assert snapshot.members == len(members)
            for edge in chance.sample(sorted(edges), 25):
                edges.discard(edge)
                await shop.unfollow(*edge)


async def test_members_as_of_any_time_are_what_the_events_replay_to(url: str) -> None:
    chance = random.Random(5)
    async with workshop(url) as shop:
        await shop.people(*range(1, 21))
        await shop.define("some", kind="specified_users")
        seen: dict[datetime, set[int]] = {START: set()}
        inputs: set[int] = set()
        for _ in range(8):
            added, removed = set(chance.sample(range(1, 21), 6)), set(chance.sample(range(1, 21), 6))
            await shop.store.add_inputs("some", ids(*added), now=shop.clock.now())
            await shop.store.remove_inputs("some", ids(*removed))
            inputs = (inputs | added) - removed
            snapshot = await shop.materialize("some")
            seen[snapshot.at] = set(inputs)
        events = list(reversed((await shop.store.events("some")).items))
        assert len(events) > 20
        first = await shop.store.known_since("some")
        assert first is not None
        baseline = [("entered", each) for each in seen[first]]
        for at, members in seen.items():
            for moment in (at, at + timedelta(milliseconds=300)):
                since = [(each.kind, int(each.user_id or 0)) for each in events if each.at <= moment]
                before = [*(baseline if moment >= first else []), *since]
                assert await shop.members("some", moment, page=3) == members == members_after(before)
        assert await shop.members("some") == inputs
        assert await shop.members("some", START - timedelta(days=1)) == set()


async def test_a_snapshot_counts_who_came_and_went_and_names_its_ingests(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2, 3, 4)
        await shop.follow((2, 1), (3, 1))
        await shop.synced_both()
        await shop.define("fans", kind="followers", subject="1")
        first = await shop.materialize("fans")
        assert (first.members, first.entered, first.departed, len(first.ingests)) == (2, 0, 0, 1)
        assert ((await shop.store.events("fans")).items, await shop.store.known_since("fans")) == ([], first.at)
        await shop.unfollow(3, 1)
        await shop.follow((4, 1))
        second = await shop.materialize("fans")
        assert (second.members, second.entered, second.departed) == (2, 1, 1)
        third = await shop.materialize("fans")
        assert (third.members, third.entered, third.departed) == (2, 0, 0)
        assert [each.id for each in (await shop.store.snapshots("fans")).items] == [third.id, second.id, first.id]
        events = [(each.kind, each.user_id, each.handle) for each in (await shop.store.events("fans")).items]
        assert events == [
            ("entered", 4, "user4"),
            ("left", 3, "user3"),
        ]
        assert [each.kind for each in (await shop.store.events("fans", kind="left")).items] == ["left"]
        since = {each.user_id: each.since for each in (await shop.store.members("fans")).items}
        assert since == {2: first.at, 4: second.at}


async def test_members_who_enter_and_leave_are_published_in_one_event_each(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(*range(1, 151))
        await shop.define("some", kind="specified_users")
        await shop.store.add_inputs("some", ids(1), now=START)
        await shop.materialize("some")
        assert await shop.events("segment.entered") == [], "the first time is a baseline"
        await shop.store.add_inputs("some", ids(*range(1, 151)), now=START)
        second = await shop.materialize("some")
        (entered,) = await shop.events("segment.entered")
        assert (entered["segment"], entered["what"], entered["count"], entered["more"]) == ("some", "users", 149, True)
        assert (len(entered["ids"]), entered["snapshot_id"]) == (100, str(second.id))
        assert await shop.events("segment.left") == []
        await shop.store.remove_inputs("some", ids(7))
        await shop.materialize("some")
        assert [(each["ids"], each["more"]) for each in await shop.events("segment.left")] == [(["7"], False)]
        assert len(await shop.events("segment.entered")) == 1, "no user entered, so there is no event"


async def test_what_a_segment_builds_on_is_worked_out_first_and_in_the_same_moment(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2, 3, 4)
        await shop.follow((2, 1), (3, 1), (1, 3), (1, 4))
        await shop.synced_both()
        await shop.define("fans", kind="followers", subject="1")
        await shop.define("idols", kind="followed", subject="1")
        await shop.define("friends", kind="intersection", of=["fans", "idols"])
        await shop.define("others", kind="difference", of=["fans", "friends"])
        snapshot = await shop.materialize("others")
        assert await shop.members("others") == {2}
        moments = {
            name: (await shop.store.get(name)).materialized_at for name in ("fans", "idols", "friends", "others")
        }
        assert set(moments.values()) == {snapshot.at}
        assert len(snapshot.ingests) == 2


async def test_a_disabled_segment_is_taken_as_it_is_by_those_that_build_on_it(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2, 3)
        for name in ("one", "two"):
            await shop.define(name, kind="specified_users")
            await shop.store.add_inputs(name, ids(1), now=START)
        await shop.define("both", kind="union", of=["one", "two"])
        await shop.materialize("one")
        await shop.store.disable("one", now=shop.clock.now())
        await shop.store.add_inputs("one", ids(2), now=START)
        await shop.store.add_inputs("two", ids(3), now=START)
        await shop.materialize("both")
        assert await shop.members("both") == {1, 3}
        await shop.store.enable("one", now=shop.clock.now())
        await shop.materialize("both")
        assert await shop.members("both") == {1, 2, 3}


POSTS: list[tuple[int, int, str, str | None, str | None, float]] = [
    (101, 1, "silver coin for sale", "https://t.co/a", "https://www.ebay.com/itm/1?x=2", 0),
    (102, 1, "silver lining", None, None, 1),
    (103, 2, "gold coin", "https://t.co/b", "https://example.com/ebay.com/", 2),
    (104, 2, "銀貨を売ります", "https://shopee.tw/product/1/2", None, 3),
    (105, 3, "silver and gold", "https://t.co/c", "HTTPS://user@Shop.Example.COM:8443#top", 4),
    (106, 3, "nothing here", "https://t.co/d", "https://notexample.com/", 5),
]
RULES: list[tuple[dict[str, Any], set[int]]] = [
    ({"query": "silver"}, {101, 102, 105}),
    ({"query": "silver -gold"}, {101, 102}),
    ({"query": "銀貨"}, {104}),
    ({"authors_in": "dealers"}, {101, 102, 103, 104}),
    ({"authors_in": "dealers", "query": "coin"}, {101, 103}),
    ({"link": "ebay"}, {101}),
    ({"link": "example.com"}, {103, 105}),
    ({"link": "shop.example.com"}, {105}),
    ({"link": "shopee"}, {104}),
    ({"since": "2026-03-01T13:00:00Z", "until": "2026-03-01T15:00:00Z"}, {102, 103}),
    ({"within_seconds": 7300.0, "authors_in": "dealers"}, {104}),
    ({"authors_in": "dealers", "query": "coin", "link": "ebay", "since": "2026-03-01T00:00:00Z"}, {101}),
]


def told(post_id: int, author: int, text: str, url: str | None, leads_to: str | None, hours: float) -> Post:
    links = [LinkMention(url=url, expanded_url=leads_to)] if url else []
    at = START + timedelta(hours=hours)
    return msgspec.structs.replace(post(post_id, author), text=text, links=links, created_at=at)


async def test_posts_are_found_by_author_words_link_and_time(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2, 3)
        await written(shop.app.database, [told(*each) for each in POSTS])
        await shop.define("dealers", kind="specified_users")
        await shop.store.add_inputs("dealers", ids(1, 2), now=START)
        shop.clock.turn(hours=5)
        for number, (rule, wanted) in enumerate(RULES):
            await shop.define(f"posts{number}", kind="posts", **rule)
            await shop.materialize(f"posts{number}")
            assert await shop.members(f"posts{number}") == wanted, rule
        (first, *_) = (await shop.store.members("posts0")).items
        assert (first.post_id, first.user_id, first.handle, first.text) == (101, None, "user1", "silver coin for sale")
        await shop.define("either", kind="union", of=["posts0", "posts5"])
        await shop.materialize("either")
        assert await shop.members("either") == {101, 102, 105}


async def test_posts_of_both_platforms_with_one_id_are_two_members(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1)
        async with shop.app.database.transaction() as connection:
            await connection.execute(
                text(
                    "INSERT INTO users (platform, id, handle, detail, raw, first_seen_at, last_updated_at) "
                    "SELECT 'threads', id, handle, detail, raw, first_seen_at, last_updated_at FROM users"
                )
            )
        other = msgspec.structs.replace(post(9, 1), platform=THREADS)
        await written(shop.app.database, [post(9, 1), other])
        await shop.define("words", kind="posts", query="post")
        snapshot = await shop.materialize("words")
        assert snapshot.members == 2
        assert [each.platform for each in (await shop.store.members("words")).items] == ["threads", "x"]


async def test_a_rolling_window_lets_go_of_what_grows_old(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1)
        await written(shop.app.database, [told(7, 1, "news", None, None, 0)])
        await shop.define("news", kind="posts", query="news", within_seconds=3600.0)
        assert (await shop.materialize("news")).members == 1
        shop.clock.turn(hours=2)
        assert (await shop.materialize("news")).departed == 1


async def test_a_circle_is_refused_with_its_path_and_nothing_is_changed(url: str) -> None:
    async with workshop(url) as shop:
        await shop.define("one", kind="specified_users")
        await shop.define("two", kind="specified_users")
        await shop.define("three", kind="union", of=["one", "two"])
        await shop.define("four", kind="union", of=["three", "two"])
        with pytest.raises(SegmentCycle) as refused:
            await shop.define("one", kind="difference", of=["four", "two"])
        assert refused.value.path == ("one", "four", "three", "one")
        assert (await shop.store.get("one")).rule.__class__.__name__ == "SpecifiedUsers"


async def test_users_and_posts_are_never_mixed(url: str) -> None:
    async with workshop(url) as shop:
        await shop.define("people", kind="specified_users")
        await shop.define("words", kind="posts", query="coin")
        with pytest.raises(BadSegment, match="cannot be mixed"):
            await shop.define("mixed", kind="union", of=["people", "words"])
        with pytest.raises(BadSegment, match="authors are users"):
            await shop.define("odd", kind="posts", authors_in="words")
        with pytest.raises(BadSegment, match="choose another name"):
            await shop.define("people", kind="posts", query="coin")
        with pytest.raises(BadSegment, match="define it first"):
            await shop.define("odd", kind="union", of=["people", "nobody"])
        assert [each.name for each in (await shop.store.list()).items] == ["people", "words"]


async def test_a_rule_can_be_changed_and_the_history_stays(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2, 3)
        await shop.follow((2, 1), (1, 3))
        await shop.synced_both()
        before = await shop.define("circle", kind="followers", subject="1")
        again = await shop.define("circle", kind="followers", subject="1")
        assert again == before, "the same rule once more changes nothing"
        first = await shop.materialize("circle")
        changed = await shop.define("circle", kind="followed", subject="1")
        assert (changed.id, changed.changed_at > before.changed_at) == (before.id, True)
        await shop.materialize("circle")
        assert await shop.members("circle") == {3}
        assert await shop.members("circle", first.at) == {2}


async def test_inputs_that_are_no_stored_users_are_refused_by_the_store_itself(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1)
        await shop.define("some", kind="specified_users")
        with pytest.raises(WriteRefused):
            await shop.store.add_inputs("some", ids(1, 404), now=START)
        assert (await shop.store.inputs("some")).items == []
        for table in ("segment_members", "segment_events"):
            snapshot = await shop.materialize("some")
            own = {"segment_members": "since", "segment_events": "kind, snapshot_id, at"}[table]
            values = {"segment_members": f"'{START}'", "segment_events": f"'entered', {snapshot.id}, '{START}'"}[table]
            with pytest.raises(WriteRefused):
                await shop_writes(
                    shop, f"INSERT INTO {table} (segment_id, platform, user_id, {own}) VALUES (1, 'x', 404, {values})"
                )


async def shop_writes(shop: Workshop, sql: str) -> None:
    async with shop.app.database.transaction() as connection:
        await connection.execute(text(sql))


async def test_inputs_are_added_once_listed_by_id_and_taken_away(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2, 3)
        await shop.define("some", kind="specified_users")
        assert await shop.store.add_inputs("some", ids(3, 1, 3), now=START) == 2
        assert await shop.store.add_inputs("some", ids(1, 2), now=START) == 1
        assert [each.user_id for each in (await shop.store.inputs("some", limit=2)).items] == [1, 2]
        assert [each.user_id for each in (await shop.store.inputs("some", after=2)).items] == [3]
        assert await shop.store.remove_inputs("some", ids(1, 9)) == 1
        await shop.define("fans", kind="followers", subject="1")
        with pytest.raises(BadSegment, match="takes no inputs"):
            await shop.store.add_inputs("fans", ids(1), now=START)


async def test_an_unknown_name_is_refused_with_a_similar_one(url: str) -> None:
    async with workshop(url) as shop:
        await shop.define("followers", kind="specified_users")
        with pytest.raises(SegmentNotFound, match="Did you mean 'followers'"):
            await shop.store.get("folowers")


async def test_a_clock_that_goes_back_does_not_turn_history_round(url: str) -> None:
    async with workshop(url) as shop:
        await shop.people(1, 2)
        await shop.define("some", kind="specified_users")
        await shop.store.add_inputs("some", ids(1), now=START)
        first = await shop.materialize("some")
        await shop.store.add_inputs("some", ids(2), now=START)
        shop.clock.turn(seconds=-60)
        await shop.ask("some")
        await shop.step()
        second: Snapshot = ((await shop.store.snapshots("some", limit=1)).items)[0]
        assert second.at > first.at
        assert await shop.members("some", first.at) == {1}
        assert await shop.members("some", second.at) == {1, 2}
