"""Segments over the API: defined, fed, worked out, looked at, on every database."""

import json
from typing import Any

import pytest
from sqlalchemy import update

from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.model import UserId
from mistnet.social.tables import users
from tests.apis import Answer, Api, open_api
from tests.segmented import Workshop
from tests.worlds import WorldTransport, service_of

pytestmark = pytest.mark.common_sql

SPECIFIED = {"rule": {"kind": "specified_users"}}


def shop_of(api: Api) -> Workshop:
    return Workshop(api.app, api.clock)


async def put(api: Api, name: str, **body: Any) -> Answer:
    return await api.ask("PUT", f"/api/segments/{name}", json=body)


def problem(answer: Answer) -> str:
    return str(answer.json["error"]["message"])


async def test_a_segment_is_defined_fed_worked_out_and_looked_at(url: str) -> None:
    async with open_api(url) as api:
        shop = shop_of(api)
        await shop.people(1, 2, 3)
        defined = await put(api, "some", **SPECIFIED, every_seconds=3600)
        assert (defined.status, defined.json["created"], defined.json["changed"]) == (200, True, False)
        told = defined.json["segment"]
        assert (told["id"], told["what"], told["rule"], told["members"]) == ("1", "users", SPECIFIED["rule"], None)
        changed = await api.post("/api/segments/some/inputs", json={"add": ["1", "2", "3"]})
        assert changed.json == {"added": 3, "removed": 0, "fetched": []}
        changed = await api.post("/api/segments/some/inputs", json={"remove": ["3"]})
        assert changed.json == {"added": 0, "removed": 1, "fetched": []}
        inputs = [page async for page in api.pages("/api/segments/some/inputs", limit=1)]
        assert [[each["user_id"] for each in page] for page in inputs] == [["1"], ["2"]]
        asked = await api.post("/api/segments/some/materialize")
        assert (asked.status, asked.json["created"]) == (202, True)
        assert (await api.post("/api/segments/some/materialize")).json["created"] is False
        await shop.step()
        first = api.clock.now()
        shown = await api.ok("/api/segments/some")
        assert (shown["members"], shown["materialized_at"]) == (2, "2026-03-01T12:00:00Z")
        await shop.store.remove_inputs("some", [UserId(1)])
        await shop.materialize("some")
        assert [each["user_id"] for each in (await api.ok("/api/segments/some/members"))["items"]] == ["2"]
        then = (await api.ok(f"/api/segments/some/members?as_of={first:%Y-%m-%dT%H:%M:%SZ}"))["items"]
        assert [(each["user_id"], each["handle"]) for each in then] == [("1", "user1"), ("2", "user2")]
        pages = [page async for page in api.pages("/api/segments/some/events", limit=2)]
        assert [[(each["kind"], each["user_id"]) for each in page] for page in pages] == [
            [("left", "1")],
        ]
        assert len((await api.ok("/api/segments/some/events?kind=left"))["items"]) == 1
        snapshots = (await api.ok("/api/segments/some/snapshots"))["items"]
        assert [(each["members"], each["entered"], each["departed"]) for each in snapshots] == [(1, 0, 1), (2, 0, 0)]


async def test_segments_are_listed_page_by_page_and_written_out(url: str) -> None:
    async with open_api(url) as api:
        shop = shop_of(api)
        await shop.people(1, 2)
        for name in ("one", "two", "three"):
            await put(api, name, **SPECIFIED)
        pages = [page async for page in api.pages("/api/segments", limit=2)]
        assert [[each["name"] for each in page] for page in pages] == [["one", "two"], ["three"]]
        await api.post("/api/segments/one/inputs", json={"add": ["1", "2"]})
        await shop.materialize("one")
        lines = await api.get("/api/segments/one/export")
        assert lines.headers["Content-Type"] == "application/x-ndjson"
        assert [json.loads(each)["user_id"] for each in lines.body.splitlines()] == ["1", "2"]
        table = await api.get("/api/segments/one/export?format=csv")
        assert table.body.decode().splitlines()[0] == "platform,user_id,handle,name,since"
        assert len(table.body.splitlines()) == 3
        async with api.app.database.transaction() as connection:
            await connection.execute(update(users).where(users.c.id == 1).values(name="=1+1"))
        for query, cell in (("", ",=1+1,"), ("&safe_for_spreadsheets=true", ",'=1+1,")):
            assert cell in (await api.get(f"/api/segments/one/export?format=csv{query}")).text


async def test_what_cannot_be_is_refused_with_the_reason(url: str) -> None:
    async with open_api(url) as api:
        await put(api, "some", **SPECIFIED)
        await put(api, "more", **SPECIFIED)
        assert (await put(api, "both", rule={"kind": "union", "of": ["some", "more"]})).status == 200
        circle = await put(api, "some", rule={"kind": "union", "of": ["both", "more"]})
        assert (circle.status, "some -> both -> some" in problem(circle)) == (400, True)
        for rule in ({"kind": "nothing"}, {}, {"kind": "followers"}, {"kind": "union", "of": ["some", "nobody"]}):
            answer = await put(api, "odd", rule=rule)
            assert (answer.status, answer.json["error"]["fields"][0]["field"]) == (400, "rule"), rule
        assert (await put(api, "Not-A-Name", **SPECIFIED)).status == 400
        assert (await put(api, "fast", **SPECIFIED, every_seconds=1)).status == 400
        assert (await api.get("/api/segments/odd")).status == 404
        assert (await api.post("/api/segments/odd/materialize")).status == 404
        assert (await api.post("/api/segments/some/disable")).json["enabled"] is False
        assert (await api.post("/api/segments/some/materialize")).status == 409
        assert (await api.post("/api/segments/some/enable")).json["enabled"] is True
        no_key = await api.post("/api/segments/some/inputs", json={"add": ["7"]})
        assert (no_key.status, "MISTNET_X_API_KEY" in problem(no_key)) == (400, True)
        takes_none = await api.post("/api/segments/both/inputs", json={"add": ["7"]})
        assert (takes_none.status, "takes no inputs" in problem(takes_none)) == (400, True)


async def test_inputs_are_hydrated_first_and_one_that_is_missing_commits_nothing(url: str) -> None:
    world = World(7, "small")
    found = Truth(world).hydratable([UserId(each.id) for each in world.people], WORLD_START_AT)
    somebody = [str(each) for each in sorted(found)[:2]]
    async with open_api(url, x_api_key=["sim-key"]) as api:
        line: Any = api.app.x._transport
        line._given = line._open = WorldTransport(service_of(world))
        await put(api, "some", **SPECIFIED)
        missing = await api.post("/api/segments/some/inputs", json={"add": [*somebody, "99"]})
        assert (missing.status, missing.json["error"]["code"], "99" in problem(missing)) == (422, "not_returned", True)
        assert (await api.ok("/api/segments/some/inputs"))["items"] == []
        done = await api.post("/api/segments/some/inputs", json={"add": somebody})
        assert done.json == {"added": 2, "removed": 0, "fetched": somebody}
        assert [each["user_id"] for each in (await api.ok("/api/segments/some/inputs"))["items"]] == somebody
