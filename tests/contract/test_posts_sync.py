"""Posts sync: a set of users' posts since a post, targets first, on every database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from loguru import logger

from mistnet.governor.model import X_SOURCE
from mistnet.kit.transport import HttpAnswer, HttpRequest, Transport
from mistnet.settings import load_settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.ingests import Ingest
from mistnet.social.jobs.posts_sync import AUTHORS_PER_QUESTION, posts_sync
from mistnet.social.model import PostId, UserId
from tests.command_groups import commands_of
from tests.databases import make_app
from tests.harvests import change, rows, run, tell, told, user
from tests.loops import LOOP
from tests.simulated import list_handles, world_served
from tests.support import TurnedClock
from tests.worlds import KEY, WorldTransport, service_of

pytestmark = pytest.mark.common_sql

commands = commands_of("hydrate")

NOBODY = UserId(99)
STRANGER = 12_345
Turn = Callable[[HttpAnswer], HttpAnswer]


class Line:
    """The way to a world: it keeps what was asked, and may spoil answers of an endpoint."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.asked: list[str] = []
        self.spoil: dict[str, list[Turn]] = {}

    async def send(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(request.query.get("query") or request.query["userIds"])
        answer = await self._transport.send(request)
        turns = self.spoil.get(request.path.rsplit("/", 1)[-1])
        return turns.pop(0)(answer) if turns else answer

    @property
    def questions(self) -> list[str]:
        return [each for each in self.asked if "from:" in each]


class Sync:
    """An app against a world, and short ways to sync and look."""

    def __init__(self, url: str, world: World, **about: Any) -> None:
        self.clock = TurnedClock(WORLD_START_AT)
        self.line = Line(WorldTransport(service_of(world)))
        given: dict[str, Any] = {"second_look_seconds": 0, "x_rate_per_minute": 6_000_000, **about}
        self.app = make_app(
            load_settings(database_url=url, x_api_key=KEY, **given), clock=self.clock, transports={"x": self.line}
        )

    async def sync(self, ids: Sequence[int], floor: int) -> None:
        await self.app.enqueue([posts_sync([UserId(each) for each in ids], PostId(floor), asked_by="a test")])
        await self.work()

    async def work(self) -> None:
        async with self.app.worker(until_idle=True) as worker:
            await worker.run()

    async def event(self) -> Ingest:
        (found,) = [each for each in (await self.app.ingests.list()).items if each.kind == "posts_sync"]
        return found

    async def ids(self, table: str) -> set[int]:
        return {each[0] for each in await rows(self.app, f"SELECT id FROM {table}")}


@asynccontextmanager
async def opened(url: str, world: World, **about: Any) -> AsyncIterator[Sync]:
    sync = Sync(url, world, **about)
    try:
        yield sync
    finally:
        await sync.app.database.close()


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "tiny")


class Target:
    """An account of the world and what it wrote."""

    def __init__(self, truth: Truth, handle: str) -> None:
        found = truth.account(handle, WORLD_START_AT)
        assert found is not None
        self.handle, self.id, self.posts = handle, found.user_id, sorted(found.search)


@pytest.fixture(scope="module")
def targets(world: World) -> Sequence[Target]:
    truth = Truth(world)
    return [Target(truth, handle) for handle in truth.accounts(WORLD_START_AT)]


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), level="WARNING", format="{message}")
    yield lines
    logger.remove(sink)


def middle(*targets: Target) -> int:
    """A post in the midst of what these wrote."""
    posts = sorted(each for target in targets for each in target.posts)
    return posts[len(posts) // 2]


async def test_an_empty_database_gets_the_targets_and_all_their_posts_since(
    url: str, world: World, targets: Sequence[Target]
) -> None:
    one, other = targets[:2]
    floor = middle(one, other)
    wanted = {each for each in (*one.posts, *other.posts) if each > floor}
    async with opened(url, world) as s:
        await s.sync([one.id, other.id], floor)
        assert wanted <= await s.ids("posts")
        own = await rows(s.app, f"SELECT id FROM posts WHERE author_id IN ({one.id}, {other.id}) AND NOT nested")
        assert {each[0] for each in own} == wanted, "nothing older is asked for"
        event = await s.event()
        assert (event.status, event.asked_by, event.mode, event.problem) == (
            "success",
            "a test",
            f"since {floor}",
            None,
        )
        assert (event.items, event.calls) == (len(wanted), len(s.line.asked))
        listed = ", ".join(map(str, wanted))
        assert await rows(s.app, f"SELECT DISTINCT ingest_id FROM posts WHERE id IN ({listed})") == [(event.id,)]
        assert await s.app.ingests.ids(event.id) == sorted([one.id, other.id])
        assert await rows(s.app, "SELECT id FROM users WHERE handle IS NULL") == [], "no user is a shell"
        assert await rows(s.app, "SELECT user_id FROM accounts") == [], "the sync tracks no account"


async def test_a_target_that_cannot_be_had_fails_the_sync_and_nothing_is_written(
    url: str, world: World, targets: Sequence[Target]
) -> None:
    async with opened(url, world) as s:
        await s.sync([targets[0].id, NOBODY], 1)
        assert (await s.ids("users"), await s.ids("posts")) == (set(), set())
        event = await s.event()
        assert (event.status, event.items) == ("error", 0)
        assert "x does not return 1 of 2 users: 99" in str(event.problem)
        assert await s.app.ingests.ids(event.id) == sorted([NOBODY, targets[0].id])
        assert await rows(s.app, "SELECT state FROM jobs") == [("failed",)]
        assert s.line.questions == []


async def test_a_post_of_another_author_is_stored_with_its_author_and_a_warning(
    url: str, world: World, targets: Sequence[Target], warnings: list[str]
) -> None:
    target = targets[0]

    def with_a_stranger(answer: HttpAnswer) -> HttpAnswer:
        page = msgspec.json.decode(answer.body)
        foreign = msgspec.json.decode(msgspec.json.encode(page["tweets"][0]))
        foreign["id"] = str(int(foreign["id"]) - 1)
        foreign["author"] |= {"id": str(STRANGER), "userName": "stranger"}
        page["tweets"].insert(1, foreign)
        return HttpAnswer(status=200, headers={}, body=msgspec.json.encode(page))

    async with opened(url, world) as s:
        s.line.spoil["advanced_search"] = [with_a_stranger]
        await s.sync([target.id], middle(target))
        assert await rows(s.app, f"SELECT handle FROM users WHERE id = {STRANGER}") == [("stranger",)]
        assert len(await rows(s.app, f"SELECT id FROM posts WHERE author_id = {STRANGER}")) == 1
        event = await s.event()
        assert (event.status, event.problem) == ("success", "1 post is of authors who were not asked for")
        assert [line for line in warnings if f"of user {STRANGER}" in line]
        assert {each for each in target.posts if each > middle(target)} <= await s.ids("posts")


def with_one_illegible(answer: HttpAnswer) -> HttpAnswer:
    page = msgspec.json.decode(answer.body)
    page["tweets"][1] = {"id": "no number", "text": "?"}
    return HttpAnswer(status=200, headers={}, body=msgspec.json.encode(page))


@pytest.mark.parametrize("times", [1, 2])
async def test_a_page_with_something_illegible_is_read_once_more(
    url: str, world: World, targets: Sequence[Target], times: int
) -> None:
    target = targets[0]
    wanted = {each for each in target.posts if each > middle(target)}
    async with opened(url, world) as s:
        s.line.spoil["advanced_search"] = [with_one_illegible] * times
        await s.sync([target.id], middle(target))
        assert s.line.questions[0] == s.line.questions[1]
        lost = wanted - await s.ids("posts")
        event = await s.event()
        assert (event.status, event.items) == ("success", len(wanted) - len(lost))
        assert len(lost) == times - 1
        assert (event.problem is None) is (times == 1), "what is in quarantine is told"
        assert len(await rows(s.app, "SELECT id FROM quarantine")) == 1


async def test_users_who_are_known_are_not_fetched_again(url: str, world: World, targets: Sequence[Target]) -> None:
    async with opened(url, world) as s:
        async with s.app.sources[X_SOURCE].opened():
            await s.app.hydration.hydrate("users", [targets[0].id])
        s.line.asked.clear()
        await s.sync([targets[0].id], targets[0].posts[-1])
        assert s.line.asked == s.line.questions
        s.clock.turn(days=2)
        await s.sync([targets[0].id], targets[0].posts[-2])
        assert str(targets[0].id) in s.line.asked, "a handle that old may have changed"


async def test_many_authors_share_a_question(url: str, world: World, targets: Sequence[Target]) -> None:
    truth = Truth(world)
    people = sorted(truth.hydratable([person.id for person in world.people], WORLD_START_AT))[
        : AUTHORS_PER_QUESTION + 2
    ]
    floor = max(each for target in targets for each in target.posts)
    async with opened(url, world) as s:
        await s.sync(people, floor)
        assert [each.count("from:") for each in s.line.questions] == [
            *[AUTHORS_PER_QUESTION] * 2,
            *[2] * 2,
        ], "two looks at each"
        assert (await s.event()).status == "success"


async def test_a_handle_that_changed_hands_is_looked_up_and_searched_again(
    url: str, world: World, targets: Sequence[Target]
) -> None:
    one, other = targets[:2]
    floor = one.posts[-3]
    async with opened(url, world) as s:
        async with s.app.sources[X_SOURCE].opened():
            await s.app.hydration.hydrate("users", [one.id])
        await change(s.app, "UPDATE users SET handle = :name, handle_key = :key", name=other.handle, key=other.handle)
        await s.sync([one.id], min(floor, other.posts[-3]))
        assert {each for each in one.posts if each > floor} <= await s.ids("posts")
        assert s.line.questions[0].startswith(f"from:{other.handle} ")
        assert s.line.questions[1].startswith(f"from:{one.handle} ")


async def test_a_fault_is_kept_with_the_open_ingest_and_the_sync_goes_on(
    url: str, world: World, targets: Sequence[Target]
) -> None:
    def down(_answer: HttpAnswer) -> HttpAnswer:
        return HttpAnswer(status=503, headers={"server": "away"}, body=b"no")

    target = targets[0]
    async with opened(url, world, max_attempts=5, backoff_base_seconds=60) as s:
        s.line.spoil["advanced_search"] = [down]
        await s.app.enqueue([posts_sync([UserId(target.id)], PostId(middle(target)))])
        async with s.app.worker() as worker:
            working = asyncio.create_task(worker.run())
            async with asyncio.timeout(50):
                while not await rows(s.app, "SELECT 1 FROM jobs WHERE state = 'retryable'"):
                    await asyncio.sleep(0.02)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        event = await s.event()
        assert (event.status, event.http_status) == ("in_progress", 503)
        s.clock.turn(hours=1)
        await s.work()
        done = await s.event()
        assert (done.id, done.status, done.exchange) == (event.id, "success", None)
        assert {each for each in target.posts if each > middle(target)} <= await s.ids("posts")


async def test_a_sync_that_dies_leaves_its_event_with_the_exchange(
    url: str, world: World, targets: Sequence[Target]
) -> None:
    def refused(_answer: HttpAnswer) -> HttpAnswer:
        return HttpAnswer(status=400, headers={}, body=b'{"message": "what?"}')

    async with opened(url, world) as s:
        s.line.spoil["batch_info_by_ids"] = [refused]
        await s.sync([targets[0].id], 1)
        event = await s.event()
        assert (event.status, event.http_status, event.endpoint) == ("error", 400, "user/batch_info_by_ids")
        assert (await s.ids("users"), await s.ids("posts")) == (set(), set())


def test_the_command_leaves_a_sync_to_the_workers(url: str, world: World) -> None:
    async def fill() -> None:
        async with opened(url, world) as s:
            await tell(s.app, user(11, "Ann"))

    LOOP.run(fill())
    made = told(run(commands, url, "posts-of", "7,@ann", "8", "--since", "2026-03-01", "--json"))
    assert (made["users"], made["jobs"]["created"]) == (["7", "8", "11"], 1)
    again = run(commands, url, "posts-of", "8", "7", "11", "--since", "2026-03-01")
    assert (again.exit_code, "they were already" in again.stdout) == (0, True)


def test_a_handle_that_is_not_stored_is_looked_up(sqlite_url: str) -> None:
    with world_served(seed=7) as source:
        handle = list_handles(source)[0]
        settings = {"MISTNET_X_API_KEY": KEY, "MISTNET_X_BASE_URL": source}
        made = told(run(commands, sqlite_url, "posts-of", f"7,@{handle}", "--since-id", "4", "--json", **settings))
        known = told(run(commands, sqlite_url, "posts-of", f"@{handle}", "--since-id", "4", "--json"))
    assert len(made["users"]) == 2
    assert known["users"] == [each for each in made["users"] if each != "7"], "it is stored now"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["7"], "say since when"),
        (["7", "--since", "2026-03-01", "--since-id", "4"], "say since when"),
        (["@nobody", "--since-id", "4"], "MISTNET_X_API_KEY"),
        (["7", "--since", "yesterday"], "2027-01-31"),
        (["--since-id", "4"], "name at least one id"),
        (["a-handle", "--since-id", "4"], "nothing was fetched"),
        (["7,0", "--since-id", "4"], "is not a user id"),
    ],
)
def test_a_sync_that_cannot_be_meant_is_one_line_with_the_next_step(
    sqlite_url: str, arguments: list[str], said: str
) -> None:
    refused = run(commands, sqlite_url, "posts-of", *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr
