"""Assembles the price sources: their clients, governors and cache, the price job and its schedule."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

from mistnet import __version__
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import CallRecord, Halt, KeyLabel, SourceName, SourceState, fingerprint
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.kit.errors import SettingsError
from mistnet.kit.shared_resource import SharedResource
from mistnet.kit.transport import LateTransport, Transport
from mistnet.prices.jobs import LONGEST, Pricer
from mistnet.prices.model import EBAY_API, PRICE, ItemId, PriceArgs, PriceAsked, PriceSource
from mistnet.prices.store.items import Items
from mistnet.prices.store.points import PointWriter
from mistnet.prices.store.price_calls import CrawledPrices, call_for_prices, make_due
from mistnet.prices.watches.service import watches_of
from mistnet.queue.kinds import Kind, single
from mistnet.queue.leader import Duty
from mistnet.queue.metrics import SourceMetrics
from mistnet.queue.model import Enqueued, JobClass
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer
from mistnet.settings import Settings
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.shops.store.crawls import StoreHosts
from mistnet.shops.store.http_cache import StoreAnswers
from mistnet.sources import ebay, shopfile
from mistnet.sources.market.memory import KEPT, Remembered
from mistnet.sources.reading import PageReader
from mistnet.sources.web.client import WebClient, WebRules
from mistnet.sources.web.port import LateNetwork, WebTransport
from mistnet.sources.web.source import network_rules, user_agent

KEY: Final = KeyLabel("app")
"""eBay knows one application; shops of the file have one rate each."""

LOOK_EVERY: Final = timedelta(minutes=1)
TIDY_EVERY: Final = timedelta(hours=1)
BURST: Final = 2


class PriceCollector:
    """All questions about prices of one process. They can be asked while it is open."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        reader: PageReader,
        transport: Transport | None = None,
        web: WebTransport | None = None,
        metrics: SourceMetrics | None = None,
        on_call: Callable[[CallRecord], None] | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._reader = reader
        self._book = DatabaseSourceStore(database)
        self._answers = StoreAnswers(database)
        self.shops = shopfile.read_shops(settings.price_sources) if settings.price_sources else {}
        credentials = credentials_of(settings)
        self.governors: Mapping[SourceName, Governor] = {
            name: Governor(
                name,
                {KEY: "kept apart"},
                book=self._book,
                clock=database.clock,
                limits=limits_of(settings, self.shops.get(name)),
                metrics=metrics,
                on_call=on_call,
                fingerprint_of=partial(self._fingerprint, name, credentials),
            )
            for name in [*([EBAY_API] if credentials else []), *self.shops]
        }
        self._http = LateTransport(
            settings.ebay_base_url,
            user_agent=f"mistnet/{__version__}",
            total_seconds=settings.ebay_timeout_seconds,
            given=transport,
        )
        self._network = LateNetwork(network_rules(settings), web)
        asked = [*([self._ebay(credentials)] if credentials else []), *map(self._shop, self.shops)]
        crawled = [CrawledPrices(database, SourceName(lane)) for lane in CRAWL_LANES]
        self.plain: Mapping[SourceName, PriceSource] = {each.name: each for each in [*asked, *crawled]}
        """All sources, without a memory: for whoever wants to see what they say now."""
        self.sources = {**self.plain, **{each.name: self._remembering(each) for each in asked}}
        pricer = Pricer(items=Items(database), sources=self.sources)
        self.kinds: Sequence[Kind] = [
            single(PRICE, pricer.price, PriceArgs, job_class=JobClass.WALK, lanes=list(self.sources), timeout=LONGEST)
        ]
        doors = [self._http.opened, self._network.opened, *(each.opened for each in self.governors.values())]
        self._door = SharedResource(doors if self.governors else [])

    def _fingerprint(self, name: SourceName, credentials: ebay.Credentials | None) -> str:
        """Of what the source would refuse: eBay's credentials, or what a shop's secret headers hold."""
        if name == EBAY_API and credentials:
            return fingerprint(f"{credentials.client_id}:{credentials.client_secret}")
        variables = sorted(self.shops[name].secret_headers.values())
        return fingerprint(":".join(os.environ.get(each, "") for each in variables))

    def _ebay(self, credentials: ebay.Credentials) -> PriceSource:
        clock = self._database.clock
        asker = ebay.EbayAsker(self._http, gate=self.governors[EBAY_API], clock=clock, credentials=credentials)
        return ebay.EbaySource(asker, clock=clock, rules=ebay_rules(self._settings), pages=self._answers)

    def _shop(self, name: SourceName) -> PriceSource:
        rules, clock = self.shops[name], self._database.clock
        web = WebClient(
            self._network,
            gates={name: self.governors[name]},
            hosts=StoreHosts(self._database),
            answers=self._answers,
            clock=clock,
            rules=web_rules(self._settings, name, rules),
        )
        return shopfile.ConfiguredShop(name, rules, web=web, reader=self._reader, clock=clock, pages=self._answers)

    def _remembering(self, source: PriceSource) -> PriceSource:
        if not self._settings.price_cache:
            return source
        keep = timedelta(seconds=self._settings.price_cache_seconds)
        clock = self._database.clock
        with_grade = source.name in self.shops and self.shops[source.name].asks_for_grade
        return Remembered(source, answers=self._answers, clock=clock, keep=keep, with_grade=with_grade)

    def writers(self, job_writer: JobWriter) -> Sequence[Writer[Any]]:
        return [Writer(PriceAsked, PointWriter(watches_of(self._settings, job_writer)).write)]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A worker and any number of requests may have it open at once; the last one closes it."""
        async with self._door.opened():
            yield

    async def halts(self) -> Mapping[str, Halt]:
        """The sources that will not serve us until somebody acts, and why."""
        known = {state.name: state for state in await self._book.states()} if self.governors else {}
        asked = {
            name: governor.halted(known.get(name) or SourceState(name=name), a_page=0)
            for name, governor in self.governors.items()
        }
        return {name: halt for name, halt in asked.items() if halt}

    def duties(self, job_writer: JobWriter) -> Sequence[Duty]:
        """For the process that leads."""

        async def look() -> int:
            return await self.make_due(job_writer)

        looking = [Duty(name="look for items", every=LOOK_EVERY, run=look)] if self._settings.scheduler_enabled else []
        return [*looking, Duty(name="forget what shops said", every=TIDY_EVERY, run=self.forget)]

    async def forget(self) -> int:
        """Answers that nobody may take any more, and pages of looks that never came to an end."""
        longest = max(timedelta(seconds=self._settings.price_cache_seconds), KEPT)
        before = self._database.clock.now() - longest
        return await self._answers.prune(before=before, sources=self.governors) if self.governors else 0

    async def make_due(self, job_writer: JobWriter) -> int:
        """Makes the price jobs of items whose time has come; returns how many."""
        every = timedelta(hours=self._settings.items_every_hours)
        return await make_due(
            self._database,
            job_writer,
            every=every,
            sources=list(self.sources),
            crawl_lanes=self._settings.crawl_lanes,
        )

    async def ask(
        self, item_ids: Collection[ItemId], sources: Collection[SourceName] | None, job_writer: JobWriter
    ) -> Enqueued:
        """Makes price jobs now: at these sources, or at those each item wants."""
        return await call_for_prices(
            self._database, job_writer, item_ids=item_ids, sources=sources, known=list(self.sources)
        )

    @property
    def secrets(self) -> Sequence[str]:
        """What shops of the file are sent, and nobody may see."""
        variables = {name for shop in self.shops.values() for name in shop.secret_headers.values()}
        return [os.environ[name] for name in sorted(variables) if os.environ.get(name)]


def credentials_of(settings: Settings) -> ebay.Credentials | None:
    if settings.ebay_client_id is None and settings.ebay_client_secret is None:
        return None
    if settings.ebay_client_id is None or settings.ebay_client_secret is None:
        lacking = "ebay_client_secret" if settings.ebay_client_id else "ebay_client_id"
        raise SettingsError(lacking, "settings", "eBay gives out tokens for a name and its secret: set both, or none")
    return ebay.Credentials(
        client_id=settings.ebay_client_id.get_secret_value(),
        client_secret=settings.ebay_client_secret.get_secret_value(),
        marketplace=settings.ebay_marketplace,
        sold=settings.ebay_sold,
    )


def ebay_rules(settings: Settings) -> ebay.EbayRules:
    return ebay.EbayRules(listings=settings.ebay_listings, sold=settings.ebay_sold, filter=settings.ebay_filter)


def limits_of(settings: Settings, shop: shopfile.ShopRules | None) -> GovernorLimits:
    """eBay's limits by the settings, a shop's by its file."""
    return GovernorLimits(
        rate_per_minute=shop.rate_per_minute if shop else settings.ebay_rate_per_minute,
        burst=BURST,
        breaker_failures=settings.breaker_failures,
        breaker_cooldown=timedelta(seconds=settings.breaker_seconds),
    )


def web_rules(settings: Settings, name: SourceName, shop: shopfile.ShopRules) -> WebRules:
    """As pages are visited, but for the shop's own rate and headers."""
    secrets = {header: os.environ.get(variable, "") for header, variable in shop.secret_headers.items()}
    usual = {"Accept": "application/json" if shop.format == "json" else "text/html,application/xhtml+xml"}
    return WebRules(
        agent=user_agent(settings).partition("/")[0],
        ports=frozenset(map(int, settings.crawl_ports.split(","))),
        trusted=frozenset(settings.crawl_allow_hosts),
        most_hops=settings.crawl_hops,
        host_delay=0.0,
        robots=frozenset({name} if shop.asks_robots else ()),
        robots_key=f"robots of shop {name}",
        headers={**usual, **shop.headers, **secrets},
    )
