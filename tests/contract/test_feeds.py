"""Feeds on every database: asked for, read, refused, scheduled, removed; and the care for the token."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from mistnet.app import App
from mistnet.cli.main import app as command_line
from mistnet.governor.model import THREADS_SOURCE, X_SOURCE, Halt
from mistnet.kit.types import metadata
from mistnet.queue.model import WorkerName
from mistnet.queue.settler import settlement
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.people import WorldSize
from mistnet.sim.threads import DEFAULT_TOKEN, ThreadsService
from mistnet.social.errors import FeedNotFound
from mistnet.social.feeds import FeedId, FeedState
from mistnet.social.jobs.feeds import feed_poll
from mistnet.sources.threads.decode import user_id_of
from tests.apis import open_api
from tests.feeds import NOBODY, FeedOracle, open_feeds, threads_of, work_off
from tests.harvests import change, end_badly, rows, run, told
from tests.support import LEASE, TurnedClock

pytestmark = [pytest.mark.common_sql, pytest.mark.usefixtures("no_rate_waits")]

SIZE = WorldSize(users=22, stars=9, posts=100)


async def add(app: App, *handles: str, every: float | None = None) -> Sequence[Any]:
    return await app.feeds.store.add(handles, every_seconds=every, job_writer=app.job_writer)


async def everything(app: App) -> str:
    """All that the database holds, as text."""
    found = []
    async with app.database.read() as connection:
        for table in metadata.sorted_tables:
            found += [repr(tuple(row)) for row in await connection.execute(table.select())]
    return "\n".join(found)


async def test_a_feed_is_added_once_listed_and_removed(url: str) -> None:
    async with open_feeds(url, threads_of(size=SIZE)) as app:
        assert [each.result for each in await add(app, "Ann", "bob", "ann")] == ["added", "added", "known"]
        assert [each.result for each in await add(app, "ANN", every=600)] == ["known"]
        found = await app.feeds.store.list()
        assert [(each.handle, each.state, each.every_seconds) for each in found] == [
            ("Ann", "new", 600),
            ("bob", "new", None),
        ]
        assert await rows(app, "SELECT COUNT(*) FROM jobs WHERE kind = 'feed_poll'") == [(2,)]
        assert (await app.feeds.store.remove("ANN")).state is FeedState.REMOVED
        assert [each.handle for each in await app.feeds.store.list()] == ["bob"]
        assert await rows(app, "SELECT COUNT(*) FROM jobs WHERE kind = 'feed_poll'") == [(1,)]
        with pytest.raises(FeedNotFound, match="mistnet feeds add ann"):
            await app.feeds.store.remove("ann")
        assert [each.result for each in await add(app, "ann")] == ["added"]


async def test_feeds_bring_posts_replies_and_quoted_posts_and_no_token(url: str) -> None:
    service = threads_of(3, size=SIZE)
    oracle = FeedOracle(service)
    own, other, *_ = oracle.open_handles
    async with open_feeds(url, service) as app:
        await add(app, own, other, oracle.truth.closed(WORLD_START_AT)[0], NOBODY)
        await work_off(app)
        assert await oracle.compare(app.database, [own, other]) == []
        assert service.stats.calls["me/replies"] > 0
        assert service.stats.calls["conversation"] > 0
        refused = [each for each in await app.feeds.store.list() if each.state is FeedState.REFUSED]
        assert [each.reason for each in refused] == [f"threads has no account @{each.handle}" for each in refused]
        assert len(refused) == 2
        assert DEFAULT_TOKEN not in await everything(app)


async def test_links_of_a_feed_are_found_in_every_place(sqlite_url: str) -> None:
    service = threads_of(3, size=SIZE)
    oracle = FeedOracle(service)
    async with open_feeds(sqlite_url, service) as app:
        await add(app, *oracle.open_handles)
        await work_off(app)
        kept = await rows(app, "SELECT post_id, place, url FROM post_links WHERE platform = 'threads'")
    stored = {(post_id, place, posted) for post_id, place, posted in kept}
    places = {"text_attachment_link": "text_attachment"}
    for handle in oracle.open_handles:
        for post_id, links in oracle.feed(handle).links.items():
            for place, posted in links.items():
                assert (post_id, places.get(place, place), posted) in stored
    assert {place for _, place, _ in stored} >= {"text", "attachment", "text_attachment"}


async def test_a_poll_raises_the_boundary_only_when_it_is_over(url: str) -> None:
    service = threads_of(3, size=SIZE)
    async with open_feeds(url, service) as app:
        await add(app, FeedOracle(service).open_handles[1])
        kind = app.kinds[feed_poll(FeedId(1)).kind]
        boundaries = []
        while leases := await claim(app):
            (outcome,) = await kind.handle([kind.job(leases[0])])
            await settle(app, leases[0], outcome)
            boundaries.append((await app.feeds.store.list())[0].newest_post_at)
        assert len(boundaries) > 5
        assert boundaries[:-1] == [None] * (len(boundaries) - 1)
        assert boundaries[-1] is not None


async def claim(app: App) -> Sequence[Any]:
    return await app.queue.claim(
        worker=WorkerName("ann"),
        targets=app.kinds.targets(slots=1, lanes=["threads"], lane_caps={}),
        room=1,
        lease=LEASE,
        now=app.database.clock.now(),
        aged_before=None,
    )


async def settle(app: App, lease: Any, outcome: Any) -> None:
    now = app.database.clock.now()
    done = settlement(lease, outcome, now=now, policy=app.policy, chance=0.5)
    await app.queue.settle([done], now=now)


async def test_polls_are_made_when_they_are_due_and_one_that_died_waits_its_turn(url: str) -> None:
    service, clock = threads_of(3, size=SIZE), TurnedClock()
    handle = FeedOracle(service).open_handles[0]
    async with open_feeds(url, service, clock=clock, feed_every_seconds=900) as app:
        await add(app, handle, NOBODY)
        assert await app.feeds.make_due(app.job_writer) == 0, "their first polls are alive"
        await work_off(app)
        assert await app.feeds.make_due(app.job_writer) == 0
        clock.turn(seconds=901)
        assert await app.feeds.make_due(app.job_writer) == 1, "the refused one is left alone"
        await change(app, "DELETE FROM jobs")
        await end_badly(app, feed_poll(FeedId(1)))
        assert await app.feeds.make_due(app.job_writer) == 0, "it was tried just now"
        clock.turn(seconds=901)
        assert await app.feeds.make_due(app.job_writer) == 1
        assert await rows(app, "SELECT state FROM jobs") == [("pending",)]
        assert await rows(app, "SELECT COUNT(*) FROM job_history WHERE state = 'cancelled'") == [(1,)]
        clock.turn(days=8)
        assert await app.feeds.make_due(app.job_writer) == 1, "a refused one is looked at again"


async def test_a_void_token_pauses_threads_and_costs_no_attempt(url: str) -> None:
    service = threads_of(3, size=SIZE)
    async with open_feeds(url, service) as app:
        service.tokens[DEFAULT_TOKEN].expires_at = WORLD_START_AT
        await add(app, "ann")
        await work_off(app)
        assert (await app.sources.halts()).get(THREADS_SOURCE) is Halt.REFUSED
        assert "threads" in await app.halted()
        assert await app.stopped_by() == ("threads", Halt.REFUSED)
        assert await app.stopped_by(["x"]) is None
        ((state, attempts, reason),) = await rows(app, "SELECT state, attempts, wait_reason FROM jobs")
        assert (state, attempts) == ("pending", 0)
        assert "set MISTNET_THREADS_TOKEN" in reason
        kinds = [kind for (kind,) in await rows(app, "SELECT kind FROM events ORDER BY id")]
        assert [kind for kind in kinds if kind != "alert.opened"] == ["source.paused"], "its alert may be open already"
        service.tokens[DEFAULT_TOKEN].expires_at = WORLD_START_AT + timedelta(days=60)
        await app.sources.store.resume(THREADS_SOURCE, now=app.database.clock.now())
    handle = FeedOracle(service).open_handles[1]
    async with open_feeds(url, service) as app:
        await add(app, handle)
        await work_off(app)
        assert {each.state for each in await app.feeds.store.list()} == {"refused", "active"}


async def test_what_a_token_may_not_read_is_said_by_the_feed(url: str) -> None:
    service = threads_of(3, size=SIZE)
    own, other, *_ = FeedOracle(service).open_handles
    async with open_feeds(url, service) as app:
        service.tokens[DEFAULT_TOKEN].scopes = ("threads_basic", "threads_profile_discovery")
        await add(app, own, other)
        await work_off(app)
        for each in await app.feeds.store.list():
            assert each.state is FeedState.ACTIVE
            assert "threads_read_replies" in (each.reason or "")
            assert (each.newest_reply_at, each.newest_post_at is None) == (None, False)
        service.tokens[DEFAULT_TOKEN].scopes = ("threads_basic",)
        await change(app, "UPDATE users SET profiled_at = NULL")
        await app.feeds.store.poll([other], job_writer=app.job_writer)
        await work_off(app)
        found = await app.feeds.store.get(other)
        assert found.state is FeedState.REFUSED
        assert "threads_profile_discovery" in (found.reason or "")
        service.tokens[DEFAULT_TOKEN].scopes = ("threads_basic", "threads_read_replies", "threads_profile_discovery")
        assert [each.result for each in await add(app, other)] == ["again"]
        await app.feeds.store.poll([own], job_writer=app.job_writer)
        await work_off(app)
        assert await FeedOracle(service).compare(app.database, [own, other]) == [], "replies of old posts are read too"


async def test_the_token_is_looked_after_by_workers(url: str, tmp_path: Path) -> None:
    service, clock = threads_of(3, size=SIZE), TurnedClock(WORLD_START_AT)
    service.now = clock.now
    file = tmp_path / "token"
    async with open_feeds(url, service, clock=clock, threads_token_file=file) as app:
        await app.feeds.maintain_token()
        assert app.feeds.token.state.expires_at == service.tokens[DEFAULT_TOKEN].expires_at
        assert app.feeds.token.refresh_from == WORLD_START_AT + timedelta(days=38)
        assert not app.feeds.token.state.refreshed
        clock.turn(days=39)
        await app.feeds.maintain_token()
        assert app.feeds.token.state.refreshed
        fresh = app.feeds.keeper.token
        assert fresh not in (None, DEFAULT_TOKEN)
        assert app.feeds.token.state.expires_at == clock.now() + timedelta(days=60)
        asked = service.stats.calls.total()
        await app.feeds.maintain_token()
        assert service.stats.calls.total() == asked, "once an hour is enough"
        assert str(fresh) not in await everything(app)
        assert set(app.secrets) >= {fresh, DEFAULT_TOKEN}
    async with open_feeds(url, service, clock=clock, threads_token_file=file) as app:
        await add(app, FeedOracle(service, at=clock.now()).open_handles[1])
        await work_off(app)
        assert [each.state for each in await app.feeds.store.list()] == ["active"]


async def test_feeds_are_governed_through_the_api(url: str) -> None:
    async with open_api(url) as api:
        added = await api.post("/api/feeds", json={"handles": ["@Ann", "threads.com/@bob"], "every_seconds": 900})
        assert [(each["result"], each["feed"]["handle"]) for each in added.json["feeds"]] == [
            ("added", "Ann"),
            ("added", "bob"),
        ]
        pages = [each["handle"] async for page in api.pages("/api/feeds", limit=1) for each in page]
        assert pages == ["Ann", "bob"]
        shown = await api.ok("/api/feeds/ann")
        assert (shown["state"], shown["every_seconds"], shown["job"]["state"]) == ("new", 900, "pending")
        assert (await api.post("/api/feeds/@ann/poll")).status == 202
        assert (await api.ask("DELETE", "/api/feeds/ann")).json["state"] == "removed"
        for answer in (await api.get("/api/feeds/ann"), await api.ask("DELETE", "/api/feeds/ann")):
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
        bad = await api.post("/api/feeds", json={"handles": ["x y"]})
        assert (bad.status, "handles" in bad.problems) == (400, True)
        too_often = await api.post("/api/feeds", json={"handles": ["ann"], "every_seconds": 1})
        assert too_often.status == 400


def test_feeds_are_governed_from_the_command_line(url: str) -> None:
    added = told(run(command_line, url, "feeds", "add", "@Ann", "bob", "--every", "30m", "--json"))
    assert [(each["handle"], each["result"], each["every_seconds"]) for each in added["feeds"]] == [
        ("Ann", "added", 1800.0),
        ("bob", "added", 1800.0),
    ]
    shown = run(command_line, url, "feeds", "list").stdout
    assert "@Ann" in shown
    assert "30m" in shown
    assert told(run(command_line, url, "feeds", "poll", "--json"))["feeds"][1]["handle"] == "bob"
    gone = told(run(command_line, url, "feeds", "remove", "ann", "--json"))
    assert gone["feeds"][0]["state"] == "removed"
    assert [each["handle"] for each in told(run(command_line, url, "feeds", "list", "--json"))["feeds"]] == ["bob"]
    for wrong in (["feeds", "remove", "ann"], ["feeds", "add", "a-b"], ["feeds", "token"]):
        assert run(command_line, url, *wrong).exit_code == 2
    token = run(command_line, url, "feeds", "token", "--json", MISTNET_THREADS_TOKEN="THAA-a-secret-token")
    assert json.loads(token.stdout)["token"]["configured"] is True
    assert "THAA" not in token.stdout


async def test_threads_is_a_source_with_a_pause_and_a_rate_of_its_own(url: str) -> None:
    service = threads_of(3, size=SIZE)
    async with open_feeds(url, service, x_api_key=[SecretStr("an-x-key")]) as app:
        await app.sources.store.pause(THREADS_SOURCE, "by hand", now=app.database.clock.now())
        await add(app, FeedOracle(service).open_handles[1])
        await work_off(app)
        assert service.stats.calls.total() == 0
        assert (await app.sources.halts()).get(X_SOURCE) is None
        assert (await app.sources.halts()).get(THREADS_SOURCE) is Halt.PAUSED


def test_the_world_of_threads_follows_from_its_seed() -> None:
    first, second, other = (truth_of(threads_of(seed, size=SIZE)) for seed in (3, 3, 4))
    assert first == second
    assert first != other


def truth_of(service: ThreadsService) -> Any:
    oracle = FeedOracle(service)
    return [oracle.feed(handle) for handle in oracle.open_handles]


def test_ids_of_feeds_users_fit_the_store() -> None:
    assert -(2**63) < user_id_of("ann") < 0
