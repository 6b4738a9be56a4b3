"""The price sources: eBay and the shops of the file, the cache of their answers, the price job and its schedule."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mistnet.governor.governor import Governor
from mistnet.governor.model import KeyLabel, SourceName, fingerprint
from mistnet.governor.source import Source, SourceContext
from mistnet.kit.transport import SharedResource
from mistnet.prices.jobs import LONGEST, Pricer
from mistnet.prices.model import EBAY_API, PRICE, ItemId, PriceArgs, PriceFetch, PriceSource
from mistnet.prices.store.crawled_prices import CrawledPrices
from mistnet.prices.store.items import Items
from mistnet.prices.store.points import PointWriter
from mistnet.prices.store.price_jobs import enqueue_fetches, make_due
from mistnet.prices.store.watches import Watches
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.model import Enqueued, JobClass
from mistnet.queue.plugins import Feature
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.store.crawls import StoreHosts
from mistnet.shops.store.http_cache import StoreAnswers
from mistnet.sources.price_answers import KEPT, Remembered
from mistnet.sources.reading import PageReader
from mistnet.sources.web.client import WebClient, WebRules
from mistnet.sources.web.source import network_of, web_rules

if TYPE_CHECKING:
    from mistnet.sources.ebay.client import Credentials
    from mistnet.sources.shopfile import ShopRules

KEY: Final = KeyLabel("app")
"""eBay identifies one application; shops of the file have one rate each."""

LOOK_EVERY: Final = timedelta(minutes=1)
TIDY_EVERY: Final = timedelta(hours=1)
BURST: Final = 2


class PriceCollector(Feature):
    """The price sources of one process. A source can be searched while it is open."""

    def __init__(self, context: SourceContext, reader: PageReader) -> None:
        settings, database = context.settings, context.database
        self._settings = settings
        self._database = database
        self._answers = StoreAnswers(database)
        self.shops: Mapping[SourceName, ShopRules] = {}
        # Readers of pages take long to load, and few have shops of their own or use eBay's API.
        if settings.price_sources:
            from mistnet.sources import shopfile  # noqa: PLC0415

            self.shops = shopfile.read_shops(settings.price_sources)
        credentials = None
        if settings.ebay_client_id or settings.ebay_client_secret:
            from mistnet.sources.ebay.client import EbayAsker, credentials_of  # noqa: PLC0415
            from mistnet.sources.ebay.source import EbayRules, EbaySource  # noqa: PLC0415

            credentials = credentials_of(settings)
        http = context.http(EBAY_API, settings.ebay_base_url, total_seconds=settings.ebay_timeout_seconds)
        ebay_source = Source(
            governor=self._governor(context, EBAY_API, settings.ebay_rate_per_minute, credentials),
            parts=[http.opened] if credentials else [],
            setup="set MISTNET_EBAY_CLIENT_ID and MISTNET_EBAY_CLIENT_SECRET",
            keeps_answers=settings.price_cache,
        )
        self.sources, clock = [ebay_source], database.clock
        called_sources: list[PriceSource] = []
        if credentials:
            asker = EbayAsker(http, gate=ebay_source.governor, clock=clock, credentials=credentials)
            searches = EbayRules(listings=settings.ebay_listings, sold=settings.ebay_sold, filter=settings.ebay_filter)
            called_sources.append(EbaySource(asker, clock=clock, rules=searches, pages=self._answers))
        transport = network_of(context)
        network = SharedResource([transport.opened])
        for name, rules in self.shops.items():
            source = Source(
                governor=self._governor(context, name, rules.rate_per_minute, credentials),
                parts=[network.opened],
                keeps_answers=settings.price_cache,
                secrets=rules.held_secrets,
            )
            web = WebClient(
                transport,
                gates={name: source.governor},
                hosts=StoreHosts(database),
                answers=self._answers,
                clock=clock,
                rules=search_rules(settings, name, rules),
            )
            self.sources.append(source)
            called_sources.append(
                shopfile.ConfiguredShop(name, rules, web=web, reader=reader, clock=clock, pages=self._answers)
            )
        crawled = [CrawledPrices(database, SourceName(lane)) for lane in CRAWL_LANES]
        self.plain: Mapping[SourceName, PriceSource] = {each.name: each for each in [*called_sources, *crawled]}
        """Every price source without its cache, to show what it answers now."""
        self.by_name = dict(self.plain)
        for each in called_sources if settings.price_cache else ():
            self.by_name[each.name] = Remembered(
                each,
                answers=self._answers,
                clock=clock,
                keep=timedelta(seconds=settings.price_cache_seconds),
                # The cache key must contain what the search contains, or two grades would share an answer.
                with_grade=each.name in self.shops and self.shops[each.name].asks_for_grade,
            )
        pricer = Pricer(items=Items(database), sources=self.by_name)
        self.kinds: Sequence[Kind] = [
            single(PRICE, pricer.price, PriceArgs, job_class=JobClass.WALK, lanes=list(self.by_name), timeout=LONGEST)
        ]

    def _governor(
        self, context: SourceContext, name: SourceName, rate_per_minute: float, credentials: Credentials | None
    ) -> Governor:
        def fingerprint_of() -> str:
            """The fingerprint of what the source may refuse: eBay's credentials, or a shop's secret header values."""
            if name == EBAY_API and credentials:
                return fingerprint(f"{credentials.client_id}:{credentials.client_secret}")
            variables = sorted(self.shops[name].secret_headers.values())
            return fingerprint(":".join(os.environ.get(each, "") for each in variables))

        return context.governor(
            name,
            {KEY: "kept apart"} if name in self.shops or credentials else {},
            rate_per_minute=rate_per_minute,
            burst=BURST,
            fingerprint_of=fingerprint_of,
        )

    def writers(self, jobs: JobWriter) -> Sequence[Writer[Any]]:
        return [Writer(PriceFetch, PointWriter(Watches.from_settings(self._settings, jobs)).write)]

    def duties(self, jobs: JobWriter) -> Sequence[Duty]:
        due = [Duty(name="look for items", every=LOOK_EVERY, run=partial(self.make_due, jobs))]
        return [
            *(due if self._settings.scheduler_enabled else []),
            Duty(name="forget what shops said", every=TIDY_EVERY, run=self.forget),
        ]

    async def forget(self) -> int:
        """Delete expired answers, and pages of fetches that were never completed."""
        longest = max(timedelta(seconds=self._settings.price_cache_seconds), KEPT)
        before = self._database.clock.now() - longest
        called = [source.name for source in self.sources if source.keys]
        return await self._answers.prune(before=before, sources=called) if called else 0

    async def make_due(self, job_writer: JobWriter) -> int:
        """Create the price jobs of items that are due; return how many."""
        every = timedelta(hours=self._settings.items_every_hours)
        return await make_due(
            self._database,
            job_writer,
            every=every,
            sources=list(self.by_name),
            crawl_lanes=self._settings.crawl_lanes,
        )

    async def ask(
        self, item_ids: Collection[ItemId], sources: Collection[SourceName] | None, job_writer: JobWriter
    ) -> Enqueued:
        """Create price jobs now: for these sources, or for those of each item."""
        return await enqueue_fetches(
            self._database, job_writer, item_ids=item_ids, sources=sources, known=list(self.by_name)
        )


def search_rules(settings: Settings, name: SourceName, shop: ShopRules) -> WebRules:
    """Like visits to pages, but with the shop's own rate and headers."""
    secrets = {header: os.environ.get(variable, "") for header, variable in shop.secret_headers.items()}
    usual = {"Accept": "application/json" if shop.format == "json" else "text/html,application/xhtml+xml"}
    return msgspec.structs.replace(
        web_rules(settings),
        cache_ttl=None,
        host_delay=0.0,
        robots=frozenset({name} if shop.asks_robots else ()),
        robots_key=f"robots of shop {name}",
        headers={**usual, **shop.headers, **secrets},
    )
