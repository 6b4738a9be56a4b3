"""Assembles the crawling of linked pages: guarded web client, governors, crawl job, writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from mistnet import __version__
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import CallRecord, KeyLabel, SourceName
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.operations.retention import kept_since
from mistnet.prices.store.price_calls import OfferFollowers
from mistnet.prices.watches.service import watches_of
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.metrics import SourceMetrics
from mistnet.queue.model import JobClass
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings
from mistnet.shops.catalog import CATALOG, CRAWL_LANES, ShopCatalog
from mistnet.shops.jobs import Crawler
from mistnet.shops.model import CRAWL, CrawlArgs, Crawled, CrawlRules, PostLinks
from mistnet.shops.store.crawls import CrawlWriter, StoreHosts, make_due
from mistnet.shops.store.http_cache import StoreAnswers
from mistnet.shops.store.links import LinkWriter
from mistnet.shops.store.products import StoreCrawlLook
from mistnet.sources.reading import PageReader
from mistnet.sources.web.client import WebClient, WebRules
from mistnet.sources.web.port import LateNetwork, NetworkRules, WebTransport

DIRECT: Final = KeyLabel("direct")
"""Pages need no key: a lane has one rate for all."""

LOOK_EVERY: Final = timedelta(minutes=1)
TIDY_EVERY: Final = timedelta(hours=1)
_BURST: Final = 2
_MEGABYTE: Final = 1_000_000
_LONGEST: Final = timedelta(minutes=5)
_READS_LIKE_A_BROWSER: Final = {
    "Accept": "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,zh-TW;q=0.8,zh;q=0.7,*;q=0.5",
}


class WebCrawler:
    """All visits of one process. They can be made while it is open."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        reader: PageReader,
        shops: ShopCatalog = CATALOG,
        transport: WebTransport | None = None,
        metrics: SourceMetrics | None = None,
        on_call: Callable[[CallRecord], None] | None = None,
    ) -> None:
        self.lanes: Collection[str] = tuple(settings.crawl_lanes)
        self.answers = StoreAnswers(database)
        self._settings = settings
        self._database = database
        self._book = DatabaseSourceStore(database)
        self._governors = {
            lane: Governor(
                SourceName(lane),
                {DIRECT: ""},
                book=self._book,
                clock=database.clock,
                limits=limits_of(settings, lane),
                metrics=metrics,
                on_call=on_call,
            )
            for lane in CRAWL_LANES
        }
        self._transport = LateNetwork(network_rules(settings), transport)
        self.web = WebClient(
            self._transport,
            gates=self._governors,
            hosts=StoreHosts(database),
            answers=self.answers,
            clock=database.clock,
            rules=web_rules(settings),
        )
        crawler = Crawler(
            look=StoreCrawlLook(database, shops),
            web=self.web,
            clock=database.clock,
            read_page=reader.page,
            rules=crawl_rules(settings),
            shops=shops,
        )
        self.kinds: Sequence[Kind] = [
            single(CRAWL, crawler.crawl, CrawlArgs, job_class=JobClass.WALK, lanes=CRAWL_LANES, timeout=_LONGEST)
        ]
        self._target = asyncio.Lock()
        self._guests = 0
        self._parts = AsyncExitStack()

    def writers(self, job_writer: JobWriter) -> Sequence[Writer[Any]]:
        """After the posts: the links of each post that is written land with it, and so do their crawl jobs."""
        found = LinkWriter(job_writer, self.lanes)
        followers = OfferFollowers(watches_of(self._settings, job_writer))
        return [
            Writer(PostLinks, found.write_post_links),
            Writer(Crawled, CrawlWriter(found, followers.offer_seen).write),
        ]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A worker and any number of requests may have it open at once; the last one closes it."""
        async with self._target:
            if not self._guests:
                await self._parts.enter_async_context(self._transport.opened())
                for governor in self._governors.values():
                    await self._parts.enter_async_context(governor.opened())
            self._guests += 1
        try:
            yield
        finally:
            async with self._target:
                self._guests -= 1
                if not self._guests:
                    await self._parts.aclose()

    async def paused(self) -> set[str]:
        """Lanes that nobody may visit until somebody acts."""
        return {state.name for state in await self._book.states() if state.name in CRAWL_LANES and state.paused_at}

    def duties(self, job_writer: JobWriter) -> Sequence[Duty]:
        """For the process that leads."""

        async def look() -> int:
            return await self.make_due(job_writer)

        return [
            Duty(name="look at things again", every=self._look_every, run=look),
            Duty(name="forget kept pages", every=TIDY_EVERY, run=self.forget),
        ]

    @property
    def _look_every(self) -> timedelta:
        """Each minute, or as often as things are to be looked at where that is more often."""
        every = self._settings.crawl_every_hours
        return LOOK_EVERY if every is None else min(LOOK_EVERY, timedelta(hours=every))

    async def make_due(self, job_writer: JobWriter) -> int:
        """Makes the crawls of things that were last seen too long ago; returns how many."""
        every = self._settings.crawl_every_hours
        if every is None or not self.lanes:
            return 0
        before = self._database.clock.now() - timedelta(hours=every)
        return await make_due(self._database, job_writer, lanes=self.lanes, before=before)

    async def forget(self) -> int:
        before = kept_since(self._database.clock.now(), self._settings.history_days)
        return await self.answers.prune(before=before) if before else 0


def limits_of(settings: Settings, lane: str) -> GovernorLimits:
    return GovernorLimits(
        rate_per_minute=settings.crawl_rates.get(lane, settings.crawl_rate_per_minute),
        burst=_BURST,
        breaker_failures=settings.breaker_failures,
        breaker_cooldown=timedelta(seconds=settings.breaker_seconds),
    )


def network_rules(settings: Settings) -> NetworkRules:
    return NetworkRules(
        user_agent=user_agent(settings),
        largest=int(settings.crawl_largest_megabytes * _MEGABYTE),
        total_seconds=settings.crawl_timeout_seconds,
        via=settings.crawl_via,
    )


def web_rules(settings: Settings) -> WebRules:
    return WebRules(
        agent=user_agent(settings).partition("/")[0],
        ports=frozenset(map(int, settings.crawl_ports.split(","))),
        trusted=frozenset(settings.crawl_allow_hosts),
        most_hops=settings.crawl_hops,
        host_delay=settings.crawl_host_seconds,
        robots=frozenset(settings.crawl_robots.split(",")) - {"none"},
        cache_ttl=timedelta(seconds=settings.crawl_cache_seconds) if settings.crawl_cache else None,
        headers=_READS_LIKE_A_BROWSER,
    )


def crawl_rules(settings: Settings) -> CrawlRules:
    return CrawlRules(
        second_look=timedelta(seconds=settings.crawl_second_look_seconds),
        keep_pages=settings.crawl_keep_pages,
        shopee_api=settings.crawl_shopee_api,
    )


def user_agent(settings: Settings) -> str:
    return settings.crawl_user_agent or f"mistnet/{__version__}"
