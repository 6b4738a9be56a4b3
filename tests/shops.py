"""What tests of crawling share: a web without a network, shared books in memory, and the simulated shops behind it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from mistnet.governor.model import CallPurpose
from mistnet.kit.transport import Unanswered
from mistnet.queue.model import Outcome
from mistnet.settings import load_settings
from mistnet.shops.model import CRAWL, CachedAnswer, Hop, PageVisit
from mistnet.sim.service import NeverAnswers
from mistnet.sim.shops import ShopFault, ShopService
from mistnet.social.model import Detail, LinkMention, Post, PostId, User, UserId, X
from mistnet.sources.web.client import WebClient, WebRules
from mistnet.sources.web.port import Readable, SafeUrl, WebAnswer
from tests.databases import make_app
from tests.stepping import Stepping
from tests.support import START, OpenGate, TurnedClock

LANES = ("shopee", "taobao", "ebay", "web")


@dataclass
class Books:
    """The shared books of hosts and answers, in memory."""

    next_at: dict[str, datetime] = field(default_factory=dict)
    answers: dict[str, CachedAnswer] = field(default_factory=dict)

    async def claim(self, host: str, *, now: datetime, delay: float) -> datetime | None:
        if (free_at := self.next_at.get(host)) and free_at > now:
            return free_at
        self.next_at[host] = now + timedelta(seconds=delay)
        return None

    async def leave_alone(self, host: str, *, until: datetime) -> None:
        self.next_at[host] = max(until, self.next_at.get(host, until))

    async def get(self, key: str) -> CachedAnswer | None:
        return self.answers.get(key)

    async def put(self, answer: CachedAnswer) -> None:
        self.answers[answer.key] = answer

    async def refresh(self, key: str, *, fresh_until: datetime) -> None:
        kept = self.answers[key]
        about = {name: getattr(kept, name) for name in kept.__struct_fields__}
        self.answers[key] = CachedAnswer(**about | {"fresh_until": fresh_until})


@dataclass
class Pages:
    """A web of canned answers, by URL. What is not there is not found."""

    answers: dict[str, WebAnswer] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        self.asked.append((target.url, headers))
        if target.host in self.silent:
            raise Unanswered("no answer in time")
        answer = self.answers.get(target.url) or html(b"not found", status=404)
        unread = readable(answer.status, answer.headers)
        return WebAnswer(
            status=answer.status, headers=answer.headers, body=b"" if unread else answer.body, unread=unread
        )

    @property
    def urls(self) -> list[str]:
        return [url for url, _headers in self.asked]


@dataclass
class Crowd:
    """Who is in which shop now: no two should meet there."""

    inside: Counter[str] = field(default_factory=Counter)
    met: list[str] = field(default_factory=list)


class ShopTransport:
    """The simulated shops, called in-process. Notices when one URL is visited twice at once."""

    def __init__(
        self,
        shops: ShopService,
        before: Callable[[], Awaitable[None]] | None = None,
        crowd: Crowd | None = None,
    ) -> None:
        self.shops = shops
        self._before = before
        self._crowd = crowd or Crowd()

    @property
    def crowded(self) -> list[str]:
        return self._crowd.met

    async def get(self, target: SafeUrl, *, headers: Mapping[str, str], readable: Readable) -> WebAnswer:
        path, _, query = target.url.split("://", 1)[1].partition("/")[2].partition("?")
        inside = self._crowd.inside
        inside[target.url] += 1
        if inside[target.url] > 1 and path != "robots.txt":
            self._crowd.met.append(target.url)
        try:
            await (self._before() if self._before else asyncio.sleep(0))
            answer = self.shops.handle(target.host, f"/{path}", query, headers)
            await (self._before() if self._before else asyncio.sleep(0))
        except NeverAnswers:
            raise Unanswered("no answer in time") from None
        finally:
            inside[target.url] -= 1
        if answer.cut:
            raise Unanswered("the answer was cut short")
        unread = readable(answer.status, answer.headers)
        return WebAnswer(
            status=answer.status, headers=answer.headers, body=b"" if unread else answer.body, unread=unread
        )


def html(body: bytes, *, status: int = 200, **headers: str) -> WebAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return WebAnswer(status=status, headers={"content-type": "text/html", **named}, body=body)


def redirect(location: str) -> WebAnswer:
    return WebAnswer(status=302, headers={"location": location}, body=b"")


async def unread(_seen: PageVisit) -> None:
    """For tests of the way to a page."""


@dataclass
class Visitor:
    """A web client on a web of canned pages."""

    pages: Pages = field(default_factory=Pages)
    books: Books = field(default_factory=Books)
    clock: TurnedClock = field(default_factory=TurnedClock)
    rules: WebRules = field(default_factory=WebRules)
    gates: dict[str, OpenGate] = field(default_factory=lambda: {lane: OpenGate("") for lane in LANES})

    def __post_init__(self) -> None:
        self.client = WebClient(
            self.pages,
            gates=self.gates,
            hosts=self.books,
            answers=self.books,
            clock=self.clock,
            rules=self.rules,
        )

    async def visit(
        self,
        url: str,
        *,
        lane: str = "web",
        hop: Callable[[str, str], Hop] = lambda _before, _after: Hop.FOLLOW,
        read: Callable[[PageVisit], Awaitable[None]] = unread,
    ) -> PageVisit:
        visited, _ = await self.client.visit(url, lane=lane, what="page", hop=hop, read=read, purpose=CallPurpose())
        return visited


WRITER = User(platform=X, id=UserId(7), detail=Detail.PROFILE, handle="collector", raw=b"{}")


def post(number: int, said: str, *, links: Sequence[str] = (), **about: Any) -> Post:
    return Post(
        platform=X,
        id=PostId(number),
        author_id=WRITER.id,
        text=said,
        created_at=START,
        links=[LinkMention(url=f"https://t.co/{place}", expanded_url=link) for place, link in enumerate(links)],
        raw=b"{}",
        **about,
    )


@dataclass
class Town(Stepping):
    """With the simulated shops behind the app."""

    KIND = CRAWL

    shops: ShopService
    transport: ShopTransport

    async def write(self, *posts: Post) -> None:
        prepared = self.app.writers.prepare([WRITER, *posts])
        async with self.app.database.transaction() as connection:
            await self.app.writers.write(connection, prepared, self.clock.now())

    async def crawl(self) -> list[Outcome]:
        return await self.all_steps()


T = TypeVar("T", bound=Town)


@asynccontextmanager
async def open_town(
    url: str, *, faults: Mapping[ShopFault, float] | None = None, **settings: Any
) -> AsyncIterator[Town]:
    clock = TurnedClock()
    async with open_shops(url, clock, ShopService(clock.now, faults=faults), Town, **settings) as town:
        yield town


@asynccontextmanager
async def open_shops(
    url: str, clock: TurnedClock, shops: ShopService, town: type[T], **settings: Any
) -> AsyncIterator[T]:
    transport = ShopTransport(shops)
    given: dict[str, Any] = {
        "database_url": url,
        "crawl_lanes": list(LANES),
        "crawl_host_seconds": 0,
        "crawl_rate_per_minute": 100_000,
        "x_api_key": [],
        **settings,
    }
    app = make_app(load_settings(**given), clock=clock, transports={"web": transport})
    try:
        async with app.sources.opened():
            yield town(app=app, clock=clock, shops=shops, transport=transport)
    finally:
        await app.database.close()
