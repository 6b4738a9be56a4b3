"""The simulator over real HTTP, on this machine only."""

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from mistnet.sim.clock import SimClock
from mistnet.sim.faults import Faults, SimFault
from mistnet.sim.server import NotLoopback, asgi, serving
from mistnet.sim.service import Key, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World

KEY = Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=10**6)


def fetch(url: str, body: object = None, key: str = "sim-key", timeout: float = 60) -> tuple[int, Any]:
    sent = None if body is None else json.dumps(body).encode()
    request = Request(url, data=sent, headers={"X-API-Key": key})
    try:
        with urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


class Served:
    def __init__(self, url: str, service: XService) -> None:
        self.url, self.service = url, service

    async def get(self, path: str, **options: Any) -> Any:
        return (await self.ask(path, **options))[1]

    async def ask(self, path: str, **options: Any) -> tuple[int, Any]:
        return await asyncio.to_thread(fetch, self.url + path, **options)


@asynccontextmanager
async def served(faults: Faults | None = None) -> AsyncIterator[Served]:
    clock = SimClock()
    service = XService(World(7, "tiny"), clock.now, keys=[KEY], faults=faults)
    async with serving(asgi(service, clock)) as url:
        yield Served(url, service)


async def test_a_served_world_answers_and_stops() -> None:
    async with served() as world:
        handle = world.service.world.stars[0].handle_at(0)
        page = await world.get(f"/twitter/tweet/advanced_search?query=from%3A{handle}&queryType=Latest")
        assert len(page["tweets"]) == 20
        assert (await world.ask("/twitter/user/info?userName=a", key="wrong"))[0] == 401
        port = int(world.url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


async def test_the_truth_can_be_asked_for_over_http() -> None:
    async with served() as world:
        now, truth = world.service.now(), Truth(world.service.world)
        handles = (await world.get("/_sim/accounts"))["handles"]
        assert handles == truth.accounts(now)
        account = (await world.get(f"/_sim/account?handle={handles[0]}"))["account"]
        assert account["search"] == [str(each) for each in truth.search_ids(handles[0], now)]
        assert account["user_id"] == str(world.service.world.stars[0].id)
        assert (await world.get("/_sim/account?handle=nobody_here"))["account"] is None
        leaf = world.service.world.stories.deep_leaf
        assert len((await world.get(f"/_sim/thread?id={leaf}"))["ancestors"]) == 60
        assert (await world.get(f"/_sim/post?id={leaf}"))["fate"] == "shown"
        assert (await world.get(f"/_sim/follows?handle={handles[0]}"))["followers"]
        cost = await world.get(f"/_sim/cost?handles={handles[0]}")
        assert cost["credits"] == sum(part["credits"] for part in cost["by_endpoint"].values()) > 300
        assert (await world.ask("/_sim/nothing"))[0] == 404
        assert (await world.ask("/_sim/thread"))[0] == 400


async def test_time_money_faults_and_counters_obey_over_http() -> None:
    async with served() as world:
        profile = f"/twitter/user/info?userName={world.service.world.stars[0].handle_at(0)}"
        assert (await world.get("/_sim/now"))["now"].startswith("2026-10-01T00:00:00")
        assert (await world.get("/_sim/advance", body={"seconds": 86_400}))["now"].startswith("2026-10-02")
        assert (await world.ask(profile))[0] == 200
        stats = await world.get("/_sim/stats")
        assert stats["calls"] == {"/twitter/user/info": 1}
        assert stats["credits"] == {"sim-key": 18}
        await world.ask("/_sim/faults", body={"rates": {"server_error": 1.0}})
        assert (await world.ask(profile))[0] >= 500
        assert (await world.ask("/_sim/faults", body={"rates": {"no such fault": 1.0}}))[0] == 400
        await world.ask("/_sim/faults", body={"preset": "none"})
        await world.ask("/_sim/balance", body={"key": "sim-key", "credits": 0})
        assert (await world.ask(profile))[0] == 402
        await world.ask("/_sim/reset", body={})
        assert (await world.get("/_sim/stats"))["calls"] == {}


async def test_a_cut_body_and_a_missing_answer_reach_the_client_as_such() -> None:
    path = "/twitter/user/info?userName=nobody_here"
    async with served(Faults(1, {SimFault.CUT_BODY: 1.0})) as world:
        with pytest.raises(http.client.IncompleteRead):
            await world.ask(path)
    async with served(Faults(1, {SimFault.TIMEOUT: 1.0})) as world:
        with pytest.raises(TimeoutError):
            await world.ask(path, timeout=0.3)


async def test_nothing_but_loopback_is_served() -> None:
    app = asgi(XService(World(7, "tiny"), SimClock().now))
    with pytest.raises(NotLoopback, match="stays on this machine"):
        async with serving(app, host="0.0.0.0"):
            pass
