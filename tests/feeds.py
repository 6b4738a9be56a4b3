"""Threads for tests: a simulated one in this process, and what a database must hold when its feeds were read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from pydantic import SecretStr
from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.model import THREADS_SOURCE
from mistnet.kit.database import Database
from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered
from mistnet.queue.model import Lane, WorkerCard, WorkerName
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.worker import Worker
from mistnet.settings import Settings
from mistnet.sim.clock import WORLD_START_AT
from mistnet.sim.faults import PRESETS, Faults
from mistnet.sim.people import WorldSize
from mistnet.sim.service import NeverAnswers
from mistnet.sim.threads import DEFAULT_TOKEN, ThreadsService
from mistnet.sim.threads_world import FeedTruth, ThreadsTruth
from mistnet.sim.world import World
from mistnet.sources.threads.decode import user_id_of
from tests.databases import make_app
from tests.support import TurnedClock

NOBODY = "nobody.at.all"
PAGE = 20
SIZE = WorldSize(users=24, stars=9, posts=170)


class ThreadsTransport:
    """Calls the simulated Threads in-process; what would be a silent or cut connection is unanswered."""

    def __init__(self, service: ThreadsService, before: Callable[[], Awaitable[None]] | None = None) -> None:
        self._service = service
        self._before = before
        self.requests: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpAnswer:
        self.requests.append(request)
        if self._before:
            await self._before()
        query = urlencode({**request.query, **request.hidden})
        try:
            answer = await self._service.handle("GET", request.path, query, request.headers)
        except NeverAnswers:
            raise Unanswered(f"no answer in time from {request.path}?{query}") from None
        if self._before:
            await self._before()
        if answer.cut:
            raise Unanswered("the answer was cut short")
        return HttpAnswer(status=answer.status, headers=answer.headers, body=answer.body)


def threads_of(
    seed: int = 7,
    *,
    size: WorldSize | str = SIZE,
    faults: str = "none",
    now: Callable[[], datetime] = lambda: WORLD_START_AT,
    **about: Any,
) -> ThreadsService:
    trouble = Faults(seed, PRESETS[faults])
    return ThreadsService(World(seed, size), now, faults=trouble, page_limit=PAGE, **about)


def threads_settings(url: str, **settings: Any) -> Settings:
    given = {"threads_token": SecretStr(DEFAULT_TOKEN), "threads_rate_per_minute": 600_000, "second_look_seconds": 0}
    return Settings(database_url=SecretStr(url), **{**given, **settings})


@asynccontextmanager
async def open_feeds(
    url: str, service: ThreadsService, *, clock: TurnedClock | None = None, **settings: Any
) -> AsyncIterator[App]:
    app = make_app(
        threads_settings(url, **settings),
        clock=clock or TurnedClock(),
        transports={"threads": ThreadsTransport(service)},
    )
    try:
        async with app.sources[THREADS_SOURCE].opened():
            yield app
    finally:
        await app.database.close()


async def work_off(app: App, *, lanes: Sequence[str] = ("threads",)) -> None:
    """One worker until nothing is due any more."""
    card = WorkerCard(name=WorkerName("ann"), host="here", pid=1, concurrency=4, lanes=lanes, version="test")
    await Worker(app.tools(LocalWakeups()), card, lanes=[Lane(lane) for lane in lanes], until_idle=True).run()


@dataclass
class FeedOracle:
    """Compares what is stored of Threads with what is true."""

    service: ThreadsService
    at: datetime = WORLD_START_AT
    wrong: list[str] = field(default_factory=list)

    @property
    def truth(self) -> ThreadsTruth:
        return ThreadsTruth(self.service.threads)

    @property
    def open_handles(self) -> Sequence[str]:
        return self.truth.accounts(self.at)

    @property
    def all_handles(self) -> Sequence[str]:
        return [*self.open_handles, *self.truth.closed(self.at), NOBODY]

    def feed(self, handle: str) -> FeedTruth:
        found = self.truth.feed(handle, self.at)
        assert found is not None
        return found

    async def compare(self, database: Database, handles: Sequence[str] | None = None) -> list[str]:
        """Everything that is not as it should be, in words."""
        async with database.read() as connection:

            async def rows(sql: str) -> Sequence[Any]:
                return (await connection.execute(text(sql))).all()

            posts = {row.id: row for row in await rows(_POSTS)}
            users = {row.id for row in await rows("SELECT id FROM users WHERE platform = 'threads'")}
            feeds = {row.handle: row for row in await rows(_FEEDS)}
            missing = {row.id for row in await rows("SELECT id FROM missing WHERE platform = 'threads'")}
            jobs = await rows("SELECT kind, key, state, last_error FROM jobs WHERE kind = 'feed_poll'")
        self.wrong = [f"job {row.kind} {row.key} is {row.state}: {row.last_error}" for row in jobs]
        wanted = {handle: self.feed(handle) for handle in handles or self.open_handles}
        self._check_posts(posts, wanted)
        for handle, truth in wanted.items():
            self._check_feed(feeds.get(handle), truth)
            self._say(user_id_of(handle) not in users, f"{handle} is no user")
            self._say(bool(set(truth.gone) - missing), f"{handle}: posts {truth.gone} are not recorded as gone")
        for handle in [*self.truth.closed(self.at), NOBODY] if handles is None else []:
            row = feeds.get(handle)
            refused = row is not None and row.state == "refused" and row.reason and row.user_id is None
            self._say(not refused, f"{handle} is not refused with a reason")
        return self.wrong

    def _check_posts(self, posts: dict[int, Any], wanted: dict[str, FeedTruth]) -> None:
        expected = {each for truth in wanted.values() for each in truth.all_posts}
        self._say(bool(lost := expected - posts.keys()), f"{len(lost)} posts are missing: {sorted(lost)[:5]}")
        self._say(bool(more := posts.keys() - expected), f"{len(more)} posts too many: {sorted(more)[:5]}")
        for post_id in expected & posts.keys():
            row, true = posts[post_id], self.service.threads.post(post_id)
            assert true is not None
            shown = (row.text, row.quoted_id, row.reposted_id, row.in_reply_to_id)
            known = (true.text, true.quoted, true.reposted, true.parent)
            self._say(shown != known, f"post {post_id} is {shown} and should be {known}")
            self._say(row.author_id != user_id_of(self._author(post_id)), f"post {post_id} has another author")

    def _author(self, post_id: int) -> str:
        post = self.service.threads.post(post_id)
        assert post is not None
        return self.service.threads.handle(post.author, int(self.at.timestamp() * 1000))

    def _check_feed(self, row: Any, truth: FeedTruth) -> None:
        if row is None or row.state != "active" or row.reason:
            self.wrong.append(f"the feed of {truth.handle} stands at {row}")
            return
        self._say(row.user_id != user_id_of(truth.handle), f"the feed of {truth.handle} belongs to another user")
        own = len(truth.posts) + len(truth.replies)
        self._say(row.posts > own, f"the feed of {truth.handle} counts {row.posts} posts of {own}")
        self._say(row.polled_at is None, f"the feed of {truth.handle} was never looked at")

    def _say(self, wrong: bool, problem: str) -> None:
        if wrong:
            self.wrong.append(problem)


_POSTS = (
    "SELECT id, author_id, text, quoted_id, reposted_id, in_reply_to_id FROM posts "
    "WHERE platform = 'threads' AND NOT nested"
)
_FEEDS = "SELECT handle, state, reason, user_id, posts, polled_at FROM feeds"
