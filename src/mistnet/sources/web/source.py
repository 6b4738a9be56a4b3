"""The web as sources, one for each lane, and the crawling of linked pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from mistnet import __version__
from mistnet.governor.model import KeyLabel
from mistnet.governor.source import Source, SourceContext
from mistnet.kit.transport import SharedResource
from mistnet.operations.pruning import kept_since
from mistnet.prices.store.crawled_prices import OfferFollowers
from mistnet.prices.store.watches import Watches
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.model import JobClass
from mistnet.queue.plugins import Feature
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
from mistnet.sources.web.port import LateNetwork

DIRECT: Final = KeyLabel("direct")
"""Pages need no key; the rate of a lane is shared under this label."""

LOOK_EVERY: Final = timedelta(minutes=1)
TIDY_EVERY: Final = timedelta(hours=1)
_BURST: Final = 2
_MEGABYTE: Final = 1_000_000
_LONGEST: Final = timedelta(minutes=5)
_READS_LIKE_A_BROWSER: Final = {
    "Accept": "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,zh-TW;q=0.8,zh;q=0.7,*;q=0.5",
}


class WebCrawler(Feature):
    """Visits to linked pages. Each lane is a source with its own rate, breaker and pause."""

    def __init__(self, context: SourceContext, reader: PageReader, shops: ShopCatalog = CATALOG) -> None:
        settings, database = context.settings, context.database
        self.lanes: Collection[str] = tuple(settings.crawl_lanes)
        self.answers = StoreAnswers(database)
        self._settings = settings
        self._database = database
        transport = network_of(context)
        network = SharedResource([transport.opened])
        self.sources = [
            Source(
                governor=context.governor(
                    lane,
                    {DIRECT: ""},
                    rate_per_minute=settings.crawl_rates.get(lane, settings.crawl_rate_per_minute),
                    burst=_BURST,
                ),
                parts=[network.opened],
                needs_key=False,
                enabled=lane in self.lanes,
                keeps_answers=settings.crawl_cache,
            )
            for lane in CRAWL_LANES
        ]
        self.web = WebClient(
            transport,
            gates={source.name: source.governor for source in self.sources},
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
            rules=CrawlRules(
                second_look=timedelta(seconds=settings.crawl_second_look_seconds),
                keep_pages=settings.crawl_keep_pages,
                shopee_api=settings.crawl_shopee_api,
            ),
            shops=shops,
        )
        self.kinds: Sequence[Kind] = [
            single(CRAWL, crawler.crawl, CrawlArgs, job_class=JobClass.WALK, lanes=CRAWL_LANES, timeout=_LONGEST)
        ]

    def writers(self, jobs: JobWriter) -> Sequence[Writer[Any]]:
        """The links of a post are written together with it, and so are their crawl jobs."""
        link_writer = LinkWriter(jobs, self.lanes)
        followers = OfferFollowers(Watches.from_settings(self._settings, jobs))
        return [
            Writer(PostLinks, link_writer.write_post_links, parts=link_writer.parts),
            Writer(Crawled, CrawlWriter(link_writer, followers.offer_seen).write),
        ]

    def duties(self, jobs: JobWriter) -> Sequence[Duty]:
        hours = self._settings.crawl_every_hours
        every = LOOK_EVERY if hours is None else min(LOOK_EVERY, timedelta(hours=hours))

        return [
            Duty(name="look at things again", every=every, run=partial(self.make_due, jobs)),
            Duty(name="forget kept pages", every=TIDY_EVERY, run=self.forget),
        ]

    async def make_due(self, job_writer: JobWriter) -> int:
        """Create crawls of products that were seen too long ago; return how many."""
        every = self._settings.crawl_every_hours
        if every is None or not self.lanes:
            return 0
        before = self._database.clock.now() - timedelta(hours=every)
        return await make_due(self._database, job_writer, lanes=self.lanes, before=before)

    async def forget(self) -> int:
        before = kept_since(self._database.clock.now(), self._settings.history_days)
        return await self.answers.prune(before=before) if before else 0


def network_of(context: SourceContext) -> LateNetwork:
    settings = context.settings
    return LateNetwork(
        context.transports.get("web"),
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


def user_agent(settings: Settings) -> str:
    return settings.crawl_user_agent or f"mistnet/{__version__}"
