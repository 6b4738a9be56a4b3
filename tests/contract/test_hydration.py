"""Strict hydration: everything that was asked for is written at once, or nothing is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from mistnet.governor.errors import BrokenAnswer, RateLimited, SourceDown, SourceRefused
from mistnet.governor.model import X_SOURCE
from mistnet.kit.errors import WriteRefused
from mistnet.kit.transport import HttpAnswer, HttpRequest, Transport, Unanswered
from mistnet.queue.errors import NotNow, WorkError
from mistnet.settings import load_settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from mistnet.social.ingests import Ingest, IngestKind, IngestStatus, NotReturned, What
from mistnet.social.jobs import args
from mistnet.social.model import PostId, UserId
from mistnet.sources.x.source import PATIENCE, Batches, Hydration
from tests.databases import make_app
from tests.support import TurnedClock
from tests.worlds import KEY, WorldTransport, service_of

pytestmark = pytest.mark.common_sql

NOBODY = 99
TABLES = ("users", "posts", "accounts", "missing", "quarantine", "user_versions")
Turn = Callable[[HttpAnswer], HttpAnswer]


class Line:
    """The way to a world; it counts what is asked, and may spoil answers by their number."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.spoil: dict[int, Turn] = {}
        self.asked: list[int] = []

    async def send(self, request: HttpRequest) -> HttpAnswer:
        ids = request.query.get("userIds") or request.query["tweet_ids"]
        self.asked.append(ids.count(",") + 1)
        answer = await self._transport.send(request)
        turn = self.spoil.pop(len(self.asked), None)
        return turn(answer) if turn else answer


class Lab:
    """Strict hydration on a real database, against a world."""

    def __init__(self, url: str, world: World, **about: Any) -> None:
        self.clock = TurnedClock(WORLD_START_AT)
        self.line = Line(WorldTransport(service_of(world)))
        settings = load_settings(database_url=url, x_api_key=KEY, x_rate_per_minute=6_000_000, **about)
        self.app = make_app(settings, clock=self.clock, transports={"x": self.line})
        self.slept: list[float] = []
        batches = Batches(users=settings.batch_users_by_ids_max, posts=settings.batch_posts_by_ids_max)
        self.hydration = Hydration(self.app.database, self.app.x, batches=batches, sleep=self.sleep)
        self.hydrate = self.hydration.hydrate

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.turn(seconds=seconds)

    async def rows(self) -> dict[str, int]:
        async with self.app.database.read() as connection:
            counts = {
                table: (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()
                for table in TABLES
            }
        return {table: count for table, count in counts.items() if count}

    async def event(self) -> Ingest:
        """The only ingest there is."""
        (found,) = (await self.app.ingests.list()).items
        return found

    async def ids(self, table: str) -> set[int]:
        async with self.app.database.read() as connection:
            return set((await connection.execute(text(f"SELECT id FROM {table}"))).scalars())

    async def wrote(self, table: str, where: str = "TRUE") -> set[int | None]:
        """The ingests that the rows of a table name."""
        async with self.app.database.read() as connection:
            named = await connection.execute(text(f"SELECT DISTINCT ingest_id FROM {table} WHERE {where}"))
            return set(named.scalars())


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "small")


@pytest.fixture(scope="module")
def people(world: World) -> Sequence[UserId]:
    """More than two batches of users who can be had."""
    ids = [UserId(person.id) for person in world.people]
    return sorted(UserId(each) for each in Truth(world).hydratable(ids, WORLD_START_AT))[:230]


@pytest.fixture(scope="module")
def words(world: World) -> Sequence[PostId]:
    """More than two batches of posts that can be had."""
    truth = Truth(world)
    return sorted(PostId(each) for each in truth.search_ids(truth.accounts(WORLD_START_AT)[0], WORLD_START_AT))[:120]


@asynccontextmanager
async def open_lab(url: str, world: World, **about: Any) -> AsyncIterator[Lab]:
    lab = Lab(url, world, **about)
    try:
        async with lab.app.sources[X_SOURCE].opened():
            yield lab
    finally:
        await lab.app.database.close()


def broken(_answer: HttpAnswer) -> HttpAnswer:
    return HttpAnswer(status=200, headers={}, body=b"{")


def refusing(status: int, **headers: str) -> Turn:
    return lambda _: HttpAnswer(status=status, headers=headers, body=b'{"message": "no"}')


def with_one_illegible(answer: HttpAnswer) -> HttpAnswer:
    told: dict[str, Any] = msgspec.json.decode(answer.body)
    told["users"][0] = {"id": "not a number"}
    return HttpAnswer(status=200, headers={}, body=msgspec.json.encode(told))


async def test_users_come_in_batches_of_a_hundred(url: str, world: World, people: Sequence[UserId]) -> None:
    async with open_lab(url, world) as lab:
        done = await lab.hydrate("users", [*people, *people])
        assert lab.line.asked == [100, 100, 30]
        assert (done.calls, done.fetched, done.present) == (3, list(people), [])
        assert await lab.ids("users") == set(people)
        assert await lab.rows() == {"users": 230}


async def test_posts_come_in_batches_of_fifty_with_their_authors(
    url: str, world: World, words: Sequence[PostId]
) -> None:
    async with open_lab(url, world) as lab:
        done = await lab.hydrate("posts", words)
        assert lab.line.asked == [50, 50, 20]
        assert (done.calls, len(done.fetched)) == (3, 120)
        assert set(words) <= await lab.ids("posts")
        assert set(await lab.rows()) == {"users", "posts"}


async def test_each_row_names_the_ingest_that_last_wrote_it(url: str, world: World, words: Sequence[PostId]) -> None:
    async with open_lab(url, world) as lab:
        first = await lab.hydrate("posts", words)
        assert {*await lab.wrote("users"), *await lab.wrote("posts")} == {first.ingest_id}
        (author, *_) = sorted(await lab.ids("users"))
        second = await lab.hydrate("users", [author], force=True)
        assert await lab.wrote("users", f"id = {author}") == {second.ingest_id}
        assert await lab.wrote("users", f"id <> {author}") == {first.ingest_id}


async def test_one_unknown_id_and_no_row_is_written(url: str, world: World, people: Sequence[UserId]) -> None:
    async with open_lab(url, world) as lab:
        for place in (0, 150, 230):
            wanted = [*people[:place], NOBODY, *people[place:], 98]
            with pytest.raises(
                NotReturned, match=r"x does not return 2 of 232 users: 98, 99\. Nothing was written"
            ) as told:
                await lab.hydrate("users", wanted)
            assert told.value.missing == (98, 99)
            assert await lab.rows() == {}


async def test_one_unknown_post_and_neither_posts_nor_authors_are_written(
    url: str, world: World, words: Sequence[PostId]
) -> None:
    async with open_lab(url, world) as lab:
        with pytest.raises(NotReturned, match=r"1 of 121 posts: 99\."):
            await lab.hydrate("posts", [*words, NOBODY])
        assert await lab.rows() == {}


async def test_only_missing_users_are_fetched(url: str, world: World, people: Sequence[UserId]) -> None:
    async with open_lab(url, world) as lab:
        await lab.hydrate("users", people[:20])
        done = await lab.hydrate("users", people[:50])
        assert lab.line.asked == [20, 30]
        assert (done.present, done.fetched) == (list(people[:20]), list(people[20:50]))


async def test_if_all_users_are_stored_nothing_is_fetched(
    url: str, world: World, people: Sequence[UserId], words: Sequence[PostId]
) -> None:
    async with open_lab(url, world) as lab:
        await lab.hydrate("users", people[:3])
        await lab.hydrate("posts", words[:3])
        before = await lab.rows()
        again = await lab.hydrate("users", people[:3]), await lab.hydrate("posts", words[:3])
        assert [(done.calls, done.fetched, len(done.present)) for done in again] == [(0, [], 3)] * 2
        assert len(lab.line.asked) == 2
        assert await lab.rows() == before


async def test_a_user_who_was_missing_once_is_fetched_again(url: str, world: World, people: Sequence[UserId]) -> None:
    async with open_lab(url, world) as lab:
        async with lab.app.database.transaction() as connection:
            await connection.execute(
                text(
                    "INSERT INTO missing (platform, what, id, reason, asked_at) "
                    f"VALUES ('x', 'user', {people[0]}, 'was gone', '2026-01-01 00:00:00.000000')"
                )
            )
        assert (await lab.hydrate("users", people[:1])).calls == 1


async def test_force_asks_for_all_and_refreshes_what_is_stored(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with open_lab(url, world) as lab:
        await lab.hydrate("users", people[:3])
        lab.clock.turn(days=1)
        done = await lab.hydrate("users", people[:2], force=True)
        assert (done.fetched, done.present, lab.line.asked) == (list(people[:2]), [], [3, 2])
        async with lab.app.database.read() as connection:
            asked = text("SELECT count(DISTINCT last_updated_at) FROM users")
            assert (await connection.execute(asked)).scalar_one() == 2
        assert await lab.rows() == {"users": 3}


async def test_force_with_an_unknown_id_leaves_what_is_stored_as_it_was(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with open_lab(url, world) as lab:
        await lab.hydrate("users", people[:2])
        lab.clock.turn(days=1)
        with pytest.raises(NotReturned):
            await lab.hydrate("users", [*people[:2], NOBODY], force=True)
        async with lab.app.database.read() as connection:
            asked = text("SELECT count(DISTINCT last_updated_at) FROM users")
            assert (await connection.execute(asked)).scalar_one() == 1


@pytest.mark.parametrize(
    ("turn", "error"),
    [
        (broken, BrokenAnswer),
        (refusing(503), SourceDown),
        (refusing(401), SourceRefused),
        (refusing(429, **{"Retry-After": "600"}), RateLimited),
    ],
)
async def test_a_fault_of_the_source_halfway_leaves_nothing(
    url: str, world: World, people: Sequence[UserId], turn: Turn, error: type[Exception]
) -> None:
    async with open_lab(url, world) as lab:
        lab.line.spoil[2] = turn
        with pytest.raises(error):
            await lab.hydrate("users", people)
        assert (await lab.rows(), lab.slept) == ({}, [])


async def test_a_short_wait_is_sat_out_once_something_was_paid_for(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with open_lab(url, world) as lab:
        lab.line.spoil[2] = refusing(429, **{"Retry-After": "5"})
        done = await lab.hydrate("users", people)
        assert (done.calls, lab.slept, lab.line.asked) == (3, [5.0], [100, 100, 100, 30])
        assert await lab.rows() == {"users": 230}


async def test_a_wait_at_the_first_call_is_reported_at_once(url: str, world: World, people: Sequence[UserId]) -> None:
    async with open_lab(url, world) as lab:
        lab.line.spoil[1] = refusing(429, **{"Retry-After": "5"})
        with pytest.raises(RateLimited):
            await lab.hydrate("users", people)
        assert lab.slept == []


async def test_patience_ends(url: str, world: World, people: Sequence[UserId]) -> None:
    async with open_lab(url, world) as lab:
        lab.line.spoil = {number: refusing(429, **{"Retry-After": "12"}) for number in range(2, 20)}
        with pytest.raises(NotNow):
            await lab.hydrate("users", people)
        assert timedelta(seconds=sum(lab.slept)) <= PATIENCE
        assert await lab.rows() == {}


async def test_if_the_database_refuses_a_row_of_the_last_batch_none_is_written(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with open_lab(url, world) as lab:
        async with lab.app.database.transaction() as connection:
            pair = f"{people[0]}, {people[-1]}"
            await connection.execute(text(f"CREATE UNIQUE INDEX pair ON users (platform) WHERE id IN ({pair})"))
        with pytest.raises(WriteRefused):
            await lab.hydrate("users", people)
        assert (await lab.rows(), lab.line.asked) == ({}, [100, 100, 30])


async def test_what_cannot_be_read_is_named_and_nothing_is_written(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with open_lab(url, world) as lab:
        lab.line.spoil[1] = with_one_illegible
        with pytest.raises(NotReturned, match=r"1 of 3 users: \d+ \(some of the answer could not be read: "):
            await lab.hydrate("users", people[:3])
        assert await lab.rows() == {}


async def test_a_hydration_is_recorded_with_its_requested_ids(url: str, world: World, people: Sequence[UserId]) -> None:
    async with open_lab(url, world) as lab:
        await lab.hydrate("users", people[:2])
        lab.clock.turn(minutes=1)
        done = await lab.hydrate("users", people[:130], asked_by="a test")
        event = (await lab.app.ingests.list()).items[0]
        assert done.ingest_id == event.id
        assert (event.kind, event.status, event.mode, event.asked_by) == (
            "users_by_ids",
            "success",
            "missing",
            "a test",
        )
        assert (event.calls, event.items, event.problem, event.exchange) == (2, 128, None, None)
        assert (event.started_at, event.finished_at) == (lab.clock.now(), lab.clock.now())
        assert await lab.app.ingests.ids(event.id) == list(people[2:130])


async def test_a_hydration_that_finds_nothing_missing_is_not_on_record(
    url: str, world: World, people: Sequence[UserId], words: Sequence[PostId]
) -> None:
    async with open_lab(url, world) as lab:
        await lab.hydrate("users", people[:3])
        await lab.hydrate("posts", words[:3])
        before = [each.id for each in (await lab.app.ingests.list()).items]
        again = await lab.hydrate("users", people[:3]), await lab.hydrate("posts", words[:3])
        assert [done.ingest_id for done in again] == [None, None]
        assert [each.id for each in (await lab.app.ingests.list()).items] == before
        assert len(lab.line.asked) == 2


@pytest.mark.parametrize("what", ["users", "posts"])
async def test_a_missing_id_is_on_record_and_nothing_else_is(
    url: str, world: World, people: Sequence[UserId], words: Sequence[PostId], what: What
) -> None:
    async with open_lab(url, world) as lab:
        wanted: list[int] = [*(people if what == "users" else words)[:3], NOBODY]
        with pytest.raises(NotReturned) as told:
            await lab.hydrate(what, wanted)
        event = await lab.event()
        assert told.value.ingest_id == event.id
        assert (event.kind, event.status, event.calls, event.items) == (f"{what}_by_ids", "error", 1, 0)
        assert "99" in str(event.problem)
        assert await lab.app.ingests.ids(event.id) == sorted(wanted)
        assert await lab.rows() == {}


@pytest.mark.parametrize(
    ("turn", "status"), [(broken, 200), (refusing(503, server="away"), 503), (refusing(400), 400), (refusing(402), 402)]
)
async def test_a_failed_hydration_keeps_the_exchange_and_no_row(
    url: str, world: World, people: Sequence[UserId], turn: Turn, status: int
) -> None:
    async with open_lab(url, world) as lab:
        lab.line.spoil[2] = turn
        with pytest.raises(WorkError) as told:
            await lab.hydrate("users", people)
        event = await lab.event()
        assert (event.status, event.calls, event.http_status) == ("error", 2, status)
        assert event.exchange is not None
        assert (event.exchange.endpoint, event.endpoint) == ("user/batch_info_by_ids", "user/batch_info_by_ids")
        assert event.exchange.body == ("{" if status == 200 else '{"message": "no"}')
        assert event.exchange.headers == ({"server": "away"} if status == 503 else {})
        assert told.value.ingest_id == event.id
        assert await lab.rows() == {}


async def test_no_secret_is_kept_with_a_failure(url: str, world: World, people: Sequence[UserId]) -> None:
    def chatty(_answer: HttpAnswer) -> HttpAnswer:
        headers = {"X-API-Key": KEY, "Set-Cookie": f"k={KEY}", "Via": f"proxy {KEY}"}
        return HttpAnswer(status=500, headers=headers, body=f"your key {KEY} is fine".encode())

    async with open_lab(url, world) as lab:
        lab.line.spoil[1] = chatty
        with pytest.raises(SourceDown):
            await lab.hydrate("users", people)
        async with lab.app.database.read() as connection:
            asked = "SELECT CAST(exchange AS text) AS exchange, problem FROM ingest_events"
            (row,) = (await connection.execute(text(asked))).all()
        assert KEY not in f"{row.exchange} {row.problem}"
        assert "your key *** is fine" in row.exchange


async def test_a_source_that_does_not_answer_is_on_record_without_a_status(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    def silent(_answer: HttpAnswer) -> HttpAnswer:
        raise Unanswered("no answer in time")

    async with open_lab(url, world) as lab:
        lab.line.spoil = {1: silent, 2: silent}
        with pytest.raises(SourceDown):
            await lab.hydrate("users", people)
        event = await lab.event()
        assert (event.status, event.http_status, event.endpoint) == ("error", None, "user/batch_info_by_ids")
        assert event.exchange is not None
        assert event.exchange.body == "no answer in time"


async def test_calls_are_as_large_as_the_settings_say(
    url: str, world: World, people: Sequence[UserId], words: Sequence[PostId]
) -> None:
    async with open_lab(url, world, batch_users_by_ids_max=7, batch_posts_by_ids_max=3) as lab:
        await lab.hydrate("users", people[:15])
        await lab.app.hydration.hydrate("posts", words[:7])
        assert lab.line.asked == [7, 7, 1, 3, 3, 1]
        assert lab.app.kinds[args.HYDRATE_USER].rules.batch == 7
        assert lab.app.kinds[args.HYDRATE_POST].rules.batch == 3


async def test_an_interrupted_hydration_is_cancelled_and_leaves_nothing(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with open_lab(url, world) as lab:
        reached = asyncio.Event()

        async def wait(_seconds: float) -> None:
            reached.set()
            await asyncio.Event().wait()

        hydration = Hydration(lab.app.database, lab.app.x, sleep=wait)
        lab.line.spoil[2] = refusing(429, **{"Retry-After": "5"})
        task = asyncio.create_task(hydration.hydrate("users", people))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        event = await lab.event()
        assert (event.status, event.calls) == (IngestStatus.CANCELLED, 1)
        assert await lab.rows() == {}


async def test_background_hydrations_are_on_record_one_event_per_call(
    url: str, world: World, people: Sequence[UserId], words: Sequence[PostId]
) -> None:
    async with open_lab(url, world, second_look_seconds=0) as lab:
        now = lab.clock.now()
        jobs = [args.hydrate_user(each, now=now, fill=timedelta()) for each in (*people[:4], UserId(NOBODY))]
        await lab.app.enqueue([*jobs, *(args.hydrate_post(each) for each in words[:2])])
        async with lab.app.worker(until_idle=True) as worker:
            await worker.run()
        events = {each.kind: each for each in (await lab.app.ingests.list()).items}
        assert len(events) == len(lab.line.asked) == 2
        users, posts = events[IngestKind.USERS_BY_IDS], events[IngestKind.POSTS_BY_IDS]
        assert (users.status, users.mode, users.items) == ("success", "background", 4)
        assert users.problem == "upstream does not return 1 of 5"
        assert await lab.app.ingests.ids(users.id) == sorted([NOBODY, *people[:4]])
        assert (posts.status, posts.items, posts.problem) == ("success", 2, None)
        assert users.job_id is not None
        assert {*people[:4]} <= await lab.ids("users")
        assert await lab.ids("missing WHERE what = 'user'") == {NOBODY}
        asked = ", ".join(map(str, people[:4]))
        assert await lab.wrote("users", f"id IN ({asked})") == {users.id}
        assert await lab.wrote("posts") == {posts.id}


async def test_a_failed_call_in_the_background_is_on_record_and_leaves_no_row(
    url: str, world: World, people: Sequence[UserId]
) -> None:
    async with open_lab(url, world) as lab:
        lab.line.spoil[1] = refusing(400)
        await lab.app.enqueue([args.hydrate_user(each, now=lab.clock.now(), fill=timedelta()) for each in people[:4]])
        async with lab.app.worker(until_idle=True) as worker:
            await worker.run()
        event = await lab.event()
        assert (event.status, event.http_status, event.calls) == ("error", 400, 1)
        assert await lab.rows() == {}
