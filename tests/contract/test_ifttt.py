"""New followers that IFTTT pushes: hydrated by id first, on record whatever happens, the same twice is once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.server import asgi, serving
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.ingests import Ingest
from mistnet.social.model import UserId
from mistnet.web.api.ingests import HEADER
from tests.apis import Answer, Api, open_api
from tests.harvests import rows
from tests.worlds import KEY, service_of

pytestmark = pytest.mark.common_sql

PATH = "/webhooks/ifttt/new-x-follower"
SECRET = "a-secret-only-ifttt-knows"
NOBODY = UserId(99)


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "tiny")


@pytest.fixture(scope="module")
def people(world: World) -> Sequence[UserId]:
    everybody = [person.id for person in world.people]
    return sorted(UserId(each) for each in Truth(world).hydratable(everybody, WORLD_START_AT))


class Hook:
    """A service that IFTTT may push to, and what came of the pushes."""

    def __init__(self, api: Api) -> None:
        self.api, self.app = api, api.app

    async def push(self, body: Any, *, secret: str | None = SECRET, **about: Any) -> Answer:
        headers = {HEADER: secret} if secret is not None else {}
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        return await self.api.post(PATH, headers=headers, **sent, **about)

    async def events(self, kind: str) -> list[Ingest]:
        return [each for each in (await self.app.ingests.list()).items if each.kind == kind]

    async def edges(self) -> list[Any]:
        return await rows(self.app, "SELECT follower_id, followed_id, ended_at FROM follows")

    async def changes(self) -> list[Any]:
        return await rows(self.app, "SELECT follower_id, followed_id, kind, cause, ingest_id FROM follow_events")


@asynccontextmanager
async def hook(url: str, world: World, target: int | None, **settings: Any) -> AsyncIterator[Hook]:
    given: dict[str, Any] = {
        "ifttt_secret": SecretStr(SECRET),
        "ifttt_target_id": target,
        "x_api_key": [KEY],
        "x_rate_per_minute": 600_000,
        **settings,
    }
    async with serving(asgi(service_of(world))) as source, open_api(url, x_base_url=source, **given) as api:
        yield Hook(api)


async def test_an_empty_database_gets_both_users_and_the_edge(url: str, world: World, people: Sequence[UserId]) -> None:
    target, follower = people[:2]
    async with hook(url, world, target) as h:
        taken = await h.push({"follower_id": str(follower), "handle": "ignored", "at": "now"})
        assert taken.status == 200, taken
        (event,) = await h.events("webhook")
        assert taken.json == {
            "ingest_id": str(event.id),
            "target_id": str(target),
            "follower_id": str(follower),
            "fetched": [str(target), str(follower)],
        }
        assert await h.edges() == [(follower, target, None)]
        assert await h.changes() == [(follower, target, "followed", "pushed", event.id)]
        assert (event.status, event.subject_id, event.items, event.calls) == ("success", target, 1, 1)
        assert await h.app.ingests.ids(event.id) == sorted([target, follower])
        assert await rows(h.app, "SELECT count(*) FROM users WHERE handle IS NOT NULL") == [(2,)]
        (hydration,) = await h.events("users_by_ids")
        assert (hydration.status, hydration.items) == ("success", 2)


async def test_the_same_push_twice_leaves_one_edge_and_one_change(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    target, follower = people[:2]
    async with hook(url, world, target) as h:
        for _ in range(3):
            assert (await h.push({"follower_id": int(follower)})).status == 200
        assert len(await h.edges()) == len(await h.changes()) == 1
        assert len(await h.events("users_by_ids")) == 1, "nothing is asked for twice"
        assert [each.status for each in await h.events("webhook")] == ["success"] * 3


async def test_the_same_push_many_times_at_once_is_once(url: str, world: World, people: Sequence[UserId]) -> None:
    target, follower = people[:2]
    async with hook(url, world, target) as h:
        taken = await asyncio.gather(*(h.push({"follower_id": str(follower)}) for _ in range(6)))
        assert [each.status for each in taken] == [200] * 6
        assert len(await h.edges()) == len(await h.changes()) == 1


async def test_a_push_whose_users_cannot_be_had_is_on_record_and_writes_nothing_else(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with hook(url, world, people[0]) as h:
        refused = await h.push({"follower_id": str(NOBODY)})
        assert (refused.status, refused.json["error"]["code"]) == (422, "not_returned")
        assert "does not return 1 of 2 users: 99" in refused.json["error"]["message"]
        (event,) = await h.events("webhook")
        assert event.status == "error"
        assert "99" in str(event.problem)
        assert await h.app.ingests.ids(event.id) == sorted([NOBODY, people[0]])
        assert (await h.edges(), await h.changes()) == ([], [])
        assert await rows(h.app, "SELECT id FROM users") == []


async def test_a_push_that_fails_at_the_source_is_answered_with_503_and_recorded(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with hook(url, world, people[0], x_api_key=["not-the-key-of-the-world"]) as h:
        refused = await h.push({"follower_id": str(people[1])})
        assert refused.status == 503
        (event,) = await h.events("webhook")
        assert (event.status, event.http_status, event.endpoint) == ("error", 401, "user/batch_info_by_ids")
        assert await rows(h.app, "SELECT id FROM users") == []


@pytest.mark.parametrize(
    "body",
    [
        {"handle": "ann"},
        {"follower": "@ann", "follower_id": None},
        {"follower_id": ""},
        {"follower_id": "@ann"},
        {"follower_id": "-1"},
        {"follower_id": 0},
        {"follower_id": "9" * 30},
    ],
    ids=str,
)
async def test_a_handle_alone_is_refused_with_the_reason(
    url: str, world: World, people: Sequence[UserId], body: dict[str, Any]
) -> None:
    async with hook(url, world, people[0]) as h:
        refused = await h.push(body)
        assert (refused.status, list(refused.problems)) == (400, ["follower_id"])
        assert "handles change hands" in refused.problems["follower_id"]
        assert (await h.app.ingests.list()).items == []


async def test_an_edge_to_oneself_and_invalid_rows_are_refused(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with hook(url, world, people[0]) as h:
        answer = await h.push({"follower_id": str(people[0])})
        assert answer.problems == {"follower_id": "a user cannot follow itself"}
        for broken in (b"", b"{", b"[]", b'{"follower_id": {}}', b"[" * 100_000):
            assert (await h.push(broken)).status == 400
        assert (await h.app.ingests.list()).items == []


async def test_a_push_without_the_secret_is_refused(url: str, world: World, people: Sequence[UserId]) -> None:
    target, follower = people[:2]
    body = {"follower_id": str(follower)}
    async with hook(url, world, target) as h:
        for secret in (None, "", "wrong", SECRET[:-1]):
            refused = await h.push(body, secret=secret)
            assert refused.status == 401
            assert SECRET not in refused.text
        assert (await h.push({**body, "secret": "wrong"}, secret=None)).status == 401
        assert (await h.app.ingests.list()).items == []
        assert (await h.push({**body, "secret": SECRET}, secret=None)).status == 200
        kept = await rows(h.app, "SELECT asked_by, mode, problem FROM ingest_events")
        assert SECRET not in str(kept)


async def test_guesses_of_the_secret_are_rate_limited(url: str, world: World, people: Sequence[UserId]) -> None:
    async with hook(url, world, people[0]) as h:
        statuses = [(await h.push({"follower_id": "1"}, secret=f"guess {n}")).status for n in range(12)]
        assert statuses == [401] * 10 + [429] * 2
        known = await h.push({"follower_id": str(people[1])})
        assert known.status == 200, "the right secret is never refused for the failures of others"


async def test_without_a_secret_or_a_target_nothing_is_listened_to(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    body = {"follower_id": str(people[1])}
    async with hook(url, world, people[0], ifttt_secret=None) as h:
        for secret in (None, "", SECRET):
            assert (await h.push(body, secret=secret)).status == 401
    async with hook(url, world, None) as h:
        refused = await h.push(body)
        assert (refused.status, "ifttt_target_id" in refused.text) == (503, True)


async def test_without_a_key_the_push_is_on_record(url: str, world: World, people: Sequence[UserId]) -> None:
    async with hook(url, world, people[0], x_api_key=[]) as h:
        refused = await h.push({"follower_id": str(people[1])})
        assert (refused.status, "MISTNET_X_API_KEY" in refused.text) == (503, True)
        assert [each.status for each in await h.events("webhook")] == ["error"]


async def test_ingests_are_read_over_the_api_in_pages(url: str, world: World, people: Sequence[UserId]) -> None:
    async with hook(url, world, people[0]) as h:
        await h.push({"follower_id": str(people[1])})
        await h.push({"follower_id": str(NOBODY)})
        pages = [page async for page in h.api.pages("/api/ingests", limit=3)]
        listed = [each for page in pages for each in page]
        assert [len(page) for page in pages] == [3, 1]
        assert [(each["kind"], each["status"]) for each in listed] == [
            ("users_by_ids", "error"),
            ("webhook", "error"),
            ("users_by_ids", "success"),
            ("webhook", "success"),
        ]
        shown = await h.api.ok(f"/api/ingests/{listed[1]['id']}")
        assert shown["ids"] == [str(each) for each in sorted([NOBODY, people[0]])]
        assert shown["exchange"] is None
        assert len((await h.api.ok("/api/ingests?kind=webhook&status=error"))["items"]) == 1
        assert len((await h.api.ok(f"/api/ingests?subject={people[0]}"))["items"]) == 2
        assert (await h.api.get("/api/ingests/4000")).status == 404
        assert (await h.api.get("/api/ingests?kind=gossip")).status == 400


async def test_the_exchange_of_a_failure_is_shown_over_the_api(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with hook(url, world, people[0], x_api_key=["not-the-key-of-the-world"]) as h:
        await h.push({"follower_id": str(people[1])})
        (listed,) = (await h.api.ok("/api/ingests?kind=users_by_ids"))["items"]
        shown = await h.api.ok(f"/api/ingests/{listed['id']}")
        assert (shown["http_status"], shown["exchange"]["status"]) == (401, 401)
        assert "not-the-key-of-the-world" not in str(shown)
