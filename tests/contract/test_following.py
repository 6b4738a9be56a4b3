"""Follows as people and programs meet them: the commands and the API, on every database."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mistnet.graph.follows.model import FOLLOW_SYNC, Cause, FollowsSeen, Side, follow_sync
from mistnet.queue.model import Write
from mistnet.settings import load_settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.people import SimAccountState
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.ingests import IngestKind
from mistnet.social.model import UserId, X
from tests.apis import Api, open_api
from tests.command_groups import commands_of
from tests.databases import make_app
from tests.follow_lists import ANN, ScriptedSource, open_harness
from tests.harvests import rows, run, tell, told, user
from tests.loops import LOOP
from tests.support import TurnedClock
from tests.worlds import KEY, WorldTransport, service_of

pytestmark = pytest.mark.common_sql

commands = commands_of("follows")


async def with_followers(api: Api, *ids: int) -> None:
    ingest_id = await api.app.ingests.begin(IngestKind.FOLLOWERS_SYNC, asked_by="a test", subject_id=1)
    seen: Write = FollowsSeen(
        platform=X,
        side=Side.FOLLOWERS,
        subject_id=ANN,
        ids=[UserId(each) for each in ids],
        ingest_id=ingest_id,
        cause=Cause.PUSHED,
    )
    await tell(api.app, user(1, "ann"), *(user(each, f"u{each}") for each in ids), seen)


async def test_both_lists_and_their_changes_can_be_walked_in_pages(url: str) -> None:
    async with open_api(url) as api:
        await with_followers(api, 5, 3, 9_007_199_254_740_993)
        for who in ("1", "ann", "@Ann"):
            found = [each async for page in api.pages(f"/api/users/{who}/followers", limit=1) for each in page]
            assert [each["user_id"] for each in found] == ["3", "5", "9007199254740993"]
            assert {each["doubted"] for each in found} == {False}
        (ann,) = (await api.ok("/api/users/5/followings"))["items"]
        assert (ann["user_id"], ann["handle"], ann["ended_at"]) == ("1", "ann", None)
        assert (await api.ok("/api/users/1/followings"))["items"] == []
        assert (await api.ok("/api/users/1/followers?ended=true"))["items"] == []
        events = [each async for page in api.pages("/api/users/1/follow-events", limit=2) for each in page]
        assert [each["follower_id"] for each in events] == ["9007199254740993", "5", "3"]
        assert {(each["kind"], each["cause"], each["followed_handle"]) for each in events} == {
            ("followed", "pushed", "ann")
        }
        for path in ("followers", "followings", "follow-events"):
            assert (await api.get(f"/api/users/nobody/{path}")).status == 404
            assert (await api.get(f"/api/users/1/{path}?cursor=!")).status == 400


async def test_a_sync_is_requested_once_and_shared(url: str) -> None:
    async with open_api(url) as api:
        first = await api.post("/api/users/77/follow-sync", json={})
        assert first.status == 202
        assert first.json == {
            "user_id": "77",
            "mode": "incremental",
            "syncs": [{"side": "followers", "created": True}, {"side": "followings", "created": True}],
        }
        again = await api.post("/api/users/77/follow-sync", json={"side": "followers", "mode": "full"})
        assert again.json["syncs"] == [{"side": "followers", "created": False}]
        keys = await rows(api.app, f"SELECT key FROM jobs WHERE kind = '{FOLLOW_SYNC}' ORDER BY key")
        assert keys == [("followers:77",), ("followings:77",)]
        assert (await api.post("/api/users/nobody/follow-sync", json={})).status == 404
        wrong = await api.post("/api/users/77/follow-sync", json={"side": "left"})
        assert (wrong.status, list(wrong.problems)) == (400, ["side"])


async def job_caps(api: Api) -> list[int | None]:
    found = await rows(api.app, f"SELECT CAST(args AS text) FROM jobs WHERE kind = '{FOLLOW_SYNC}' ORDER BY key")
    return [json.loads(args).get("max_credits") for (args,) in found]


async def test_a_long_list_is_not_read_without_a_confirmation(url: str) -> None:
    async with open_api(url) as api:
        await tell(api.app, user(1, "ann", followers_count=60_000, following_count=100))
        refused = await api.post("/api/users/ann/follow-sync", json={})
        assert refused.status == 409
        assert "60,272 credits (US$ 0.60)" in refused.json["error"]["message"]
        assert "`confirm_credits`" in refused.json["error"]["message"]
        assert await rows(api.app, "SELECT 1 FROM jobs") == []
        assert (await api.post("/api/users/ann/follow-sync", json={"side": "followings"})).status == 202
        assert (await api.post("/api/users/ann/follow-sync", json={"confirm": True})).status == 202
        assert await job_caps(api) == [None, None]


async def test_a_cap_is_divided_among_lists_and_replaces_an_unknown_price(url: str) -> None:
    async with open_api(url) as api:
        await tell(api.app, user(1, "ann", followers_count=60_000, following_count=100))
        assert (await api.post("/api/users/1/follow-sync", json={"max_credits": 10_000})).status == 202
        assert await job_caps(api) == [9_960, 39]
        assert (await api.post("/api/users/77/follow-sync", json={"side": "followers"})).status == 202
        assert await job_caps(api) == [9_960, 50_000, 39]


def test_the_command_tells_the_price_and_wants_a_confirmation(url: str) -> None:
    async def long_lists() -> None:
        async with open_api(url) as api:
            await tell(api.app, user(1, "ann", followers_count=60_000, following_count=100))

    LOOP.run(long_lists())
    quoted = told(run(commands, url, "sync", "ann", "--quote", "--json"))
    assert (quoted["credits"], quoted["confirm_credits"]) == (60_272, 50_000)
    assert quoted["quotes"][0] == {"side": "followers", "users": 60_000, "credits": 60_036}
    shown = run(commands, url, "sync", "ann", "--quote").stdout
    assert "about 60,272 credits ($0.60) in all" in shown
    assert "Nothing is read yet" in shown
    refused = run(commands, url, "sync", "ann")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert run(commands, url, "sync", "ann", MISTNET_CONFIRM_CREDITS="60272").exit_code == 0
    assert "are being read already" in run(commands, url, "sync", "ann", "--yes").stdout


def test_the_commands_ask_and_show(url: str) -> None:
    asked = told(run(commands, url, "sync", "77", "--side", "followers", "--full", "--json"))
    one = {
        "user_id": "77",
        "handle": None,
        "syncs": [{"side": "followers", "created": True}],
        "quotes": [{"side": "followers", "users": None, "credits": None}],
        "credits": None,
        "confirm_credits": 50_000,
    }
    assert asked == {**one, "mode": "full", "users": [one]}
    assert "are being read already" in run(commands, url, "sync", "77", "--side", "followers").stdout
    assert told(run(commands, url, "status", "--json")) == {"syncs": []}
    for command in ("list", "events"):
        missing = run(commands, url, command, "@nobody")
        assert missing.exit_code == 2
        assert "run `mistnet follows sync @nobody` to fetch it" in missing.stderr
    bad = run(commands, url, "sync", "not a handle!")
    assert bad.exit_code == 2
    unknown = run(commands, url, "sync", "@somebody")
    assert unknown.exit_code == 2
    assert "MISTNET_X_API_KEY" in unknown.stderr


def test_the_commands_show_lists_events_and_how_syncs_went(url: str) -> None:
    async def prepare() -> None:
        async with open_harness(url, ScriptedSource(followers_of=[4, 3, 2], followings_of=[3])) as harness:
            await harness.sync(side=Side.FOLLOWINGS)
            await harness.sync()
            harness.source.followers_of = [5, 4, 2]
            await harness.sync()

    LOOP.run(prepare())
    shown: Any = told(run(commands, url, "list", "@ann", "--limit", "1", "--json"))
    assert (shown["live"], shown["doubted"], shown["ended"], shown["next_after"]) == (3, 0, 1, "2")
    assert [each["user_id"] for each in shown["users"]] == ["2"]
    rest: Any = told(run(commands, url, "list", "1", "--after", "2", "--json"))
    assert [each["handle"] for each in rest["users"]] == ["u4", "u5"]
    ended: Any = told(run(commands, url, "list", "ann", "--ended", "--json"))
    assert [each["user_id"] for each in ended["users"]] == ["3"]
    events: Any = told(run(commands, url, "events", "ann", "--limit", "1", "--json"))
    assert events["events"][0]["follower_id"] == "3"
    assert (events["events"][0]["kind"], events["events"][0]["cause"]) == ("unfollowed", "unfollowed")
    plain = run(commands, url, "events", "ann", "--before", str(events["next_before"])).stdout
    assert "@u5" in plain
    assert "@u4" not in plain, "who was on the first list is no news"
    assert f"followers known since {shown['known_since'][:10]}" in plain
    status: Any = told(run(commands, url, "status", "@ann", "--json"))
    assert [(each["side"], each["status"], each["plausible"]) for each in status["syncs"]] == [
        ("followers", "success", True),
        ("followings", "success", True),
    ]
    assert "followers of @ann: 3; 1 ended; known since" in run(commands, url, "list", "@ann").stdout


async def test_upstream_bills_no_more_than_the_cap_of_a_sync(sqlite_url: str) -> None:
    world = World(7, "small")
    service, clock = service_of(world), TurnedClock(WORLD_START_AT)
    settings = load_settings(database_url=sqlite_url, x_api_key=KEY, x_rate_per_minute=6_000_000)
    app = make_app(settings, clock=clock, transports={"x": WorldTransport(service)})
    try:
        star = UserId(world.stars[0].id)
        await app.enqueue([follow_sync(star, Side.FOLLOWERS, mode="full", asked_by="a test", max_credits=500)])
        async with app.worker(concurrency=1, until_idle=True) as worker:
            await worker.run()
        assert await rows(app, "SELECT problem FROM ingest_events") == [
            ("stopped at its cap of 500 credits: 392 are spent, 187 users are read",)
        ]
    finally:
        await app.database.close()
    assert sum(service.stats.credits.values()) == 392


async def test_the_whole_app_syncs_a_world_through_its_client_for_the_least_it_can_cost(url: str) -> None:
    world = World(7, "small")
    service, clock = service_of(world), TurnedClock(WORLD_START_AT)
    star = world.stars[0]
    assert star.state is SimAccountState.ACTIVE
    settings = load_settings(database_url=url, x_api_key=KEY, x_rate_per_minute=6_000_000)
    app = make_app(settings, clock=clock, transports={"x": WorldTransport(service)})
    try:
        await app.enqueue([follow_sync(UserId(star.id), Side.FOLLOWERS, mode="full", asked_by="a test")])
        async with app.worker(concurrency=1, until_idle=True) as worker:
            await worker.run()
        truth = Truth(world).followers(star.handle_at(0), WORLD_START_AT)
        found = await rows(app, "SELECT follower_id FROM follows WHERE ended_at IS NULL")
        assert {each for (each,) in found} == set(truth)
        assert len(truth) > 200
    finally:
        await app.database.close()
    pages = service.stats.credits_by_endpoint["/twitter/user/followers"]
    assert sum(service.stats.credits.values()) == pages + 2 * 18
    assert service.stats.calls["/twitter/user/followers"] == 2
