"""A fleet that collects a simulated world and visits every shop it links to, while its machines crash and freeze."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import text

from mistnet.app import App
from mistnet.governor.model import X_SOURCE
from mistnet.kit.database import Database
from mistnet.queue.kinds import Policy
from mistnet.queue.model import WorkerCard, WorkerName
from mistnet.queue.store.wakeups import LocalWakeups
from mistnet.queue.worker import Worker
from mistnet.settings import Settings
from mistnet.shops.links.address import RefusedUrl
from mistnet.shops.links.naming import canonical_link
from mistnet.sim.service import XService
from mistnet.sim.shelf import BY_CANONICAL, BY_ITEM, POSTED, SHORT_LINKS, Fate
from mistnet.sim.shops import ROUGH, ShopFault, ShopService
from mistnet.sim.world import World
from mistnet.social.jobs import args
from tests.shops import LANES, WRITER, Crowd, ShopTransport, post
from tests.simulation.virtual import run_virtually
from tests.simulation.world import POLICY, Chaos, Fleet, Machine, VirtualClock, open_database
from tests.worlds import KEY, SMALLEST, Oracle, WorldTransport, service_of

ALL_LANES = ("x", *LANES)
HARMLESS = (
    *POSTED,
    "https://s.shopee.tw/deadCode99",
    "https://shop.example.com/coins/gone",
    "https://shopee.tw/product/55512345/7700112233",
    "https://shopee.vn/product/77712345/6600998877",
    "https://pictures.example.com/coin.png",
    "https://trap.example.com/thing",
)
"""Links that come to an end, good or bad; those behind walls are tried for ever."""

SETTINGS: dict[str, Any] = {
    "x_api_key": KEY,
    "x_rate_per_minute": 60_000,
    "second_look_seconds": 30,
    "batch_fill_seconds": 20,
    "max_attempts": 1000,
    "breaker_seconds": 60,
    "crawl_lanes": list(LANES),
    "crawl_rate_per_minute": 600,
    "crawl_host_seconds": 0.5,
    "crawl_second_look_seconds": 60,
}


def settings_for(url: str) -> Settings:
    return Settings.model_validate({"database_url": url, **SETTINGS})


@dataclass
class CrawlFleet(Fleet):
    """Machines that run the whole app against one world and its shops."""

    service: XService | None = None
    shops: ShopService | None = None
    crowd: Crowd = field(default_factory=Crowd)
    policy: Policy = POLICY

    def settings(self) -> Settings:
        return settings_for(self.url)

    async def _live(self, machine: Machine) -> None:
        async def point() -> None:
            await machine.point("on the wire")

        assert self.service is not None
        assert self.shops is not None
        app = App(
            self.settings(),
            database=machine.database(),
            transports={"x": WorldTransport(self.service, point), "web": ShopTransport(self.shops, point, self.crowd)},
        )
        tools = app.tools(LocalWakeups(), policy=self.policy, chance=random.Random(f"{self.chaos.seed} {machine.name}"))
        card = WorkerCard(
            name=WorkerName(machine.name), host="box", pid=1, concurrency=4, lanes=list(ALL_LANES), version="sim"
        )
        async with app.sources[X_SOURCE].opened(), app.sources.opened():
            await Worker(tools, card).run()


@dataclass(frozen=True)
class Visited:
    """What came of it: all that is wrong, who met in a shop, and how much went wrong on purpose.

    Two may only meet where a machine that lived lost its lease: it could not reach the database in time to keep it.
    """

    wrong: list[str]
    met: list[str]
    crashes: int
    faults: int
    trace: list[str] = field(default_factory=list)


def visit_shops(url: str, seed: int, *, faults: bool, chaos: Chaos | None = None, world: bool = True) -> Visited:
    """Collects one world from nothing, follows all its links, and compares."""
    return run_virtually(_visit_shops(url, seed, ROUGH if faults else {}, chaos, world=world))


async def _visit_shops(
    url: str, seed: int, faults: Mapping[ShopFault, float], chaos: Chaos | None, *, world: bool
) -> Visited:
    database = open_database(url)
    clock, service = VirtualClock(), service_of(World(seed, SMALLEST))
    shops = ShopService(clock.now, seed=seed, faults=faults)
    calm = Chaos(seed, calm=True, crashes_left=0, freezes_left=0)
    fleet = CrawlFleet(url, chaos or calm, size=3 if chaos else 1, service=service, shops=shops)
    app = App(
        settings_for(url), database=database, transports={"x": WorldTransport(service), "web": ShopTransport(shops)}
    )
    wrong: list[str] = []
    try:
        async with database.transaction() as connection:
            posted = [post(number + 1, f"看 {link} 好") for number, link in enumerate([*HARMLESS, *POSTED] * 3)]
            await app.writers.write(connection, app.writers.prepare([WRITER, *posted]), clock.now())
        if world:
            oracle = Oracle(service.world)
            await app.enqueue([args.suggestion(handle) for handle in oracle.handles[:3]])

        async def done() -> bool:
            return not await app.upkeep.work_left(list(app.kinds), list(ALL_LANES), now=database.clock.now())

        try:
            await fleet.run(until=done, deadline=12 * 3600)
        except AssertionError as error:
            wrong.append(str(error))
        wrong += await compare(database)
        async with database.read() as connection:
            lost = (await connection.execute(text(LOST))).all()
    finally:
        await database.close()
    dead = [line.split()[1] for line in fleet.trace if "CRASHES" in line]
    late = {row.key for row in lost if row.worker not in dead}
    met = [url for url in fleet.crowd.met if key_of(url) not in late]
    return Visited(wrong, met, len(dead), shops.stats.faults.total(), fleet.trace)


def key_of(url: str) -> str:
    """The key of the job that visits this URL."""
    item = parse_qs(urlsplit(url).query).get("itemid")
    if item:
        return BY_ITEM["shopee", item[0]].canonical
    name = canonical_link(url)
    return url if isinstance(name, RefusedUrl) else name.url_norm


LOST = """
    SELECT j.key, e.worker FROM job_errors e
    JOIN (SELECT id, key FROM jobs UNION ALL SELECT id, key FROM job_history) j ON j.id = e.job_id
    WHERE e.error LIKE 'the lease ran out%'
"""


async def compare(database: Database) -> list[str]:
    """Everything in the database that is not as the posts and the shops have it, in words."""
    async with database.read() as connection:

        async def rows(sql: str) -> Sequence[Any]:
            return (await connection.execute(text(sql))).all()

        posts = await rows("SELECT id, text, links, referenced_text FROM posts")
        mentions = await rows("SELECT m.post_id, l.url_norm FROM post_links m JOIN links l ON l.id = m.link_id")
        links = await rows("SELECT id, url_norm, kind, state, product_id, leads_to FROM links")
        crawls = await rows("SELECT link_id, outcome FROM crawls")
        offers = await rows(
            "SELECT p.url, o.amount, o.currency, o.doubt, o.observed_at, o.times_seen, o.id = p.offer_id AS shown "
            "FROM offers o JOIN products p ON p.id = o.product_id"
        )
        jobs = await rows("SELECT key, state, last_error FROM jobs WHERE kind = 'crawl'")
    names = {row.id: row.url_norm for row in links}
    told = Counter(names[row.link_id] for row in crawls if row.outcome in ENDS)
    return [
        *_wrong_mentions(posts, mentions),
        *(f"{name} is written {count} times" for name, count in Counter(names.values()).items() if count > 1),
        *_wrong_links(links, names, told),
        *_wrong_offers(offers),
        *(f"{row.key} is still {row.state}: {row.last_error}" for row in jobs if row.state != "failed"),
    ]


ENDS = ("offer", "unchanged", "no_price", "resolved", "gone", "refused")


def _wrong_mentions(posts: Sequence[Any], mentions: Sequence[Any]) -> list[str]:
    """Every link a stored post shows by its entities or, where it has none, by its text."""
    found: dict[int, set[str]] = {}
    for row in mentions:
        found.setdefault(row.post_id, set()).add(row.url_norm)
    wrong = []
    for row in posts:
        shown = row.links if isinstance(row.links, list) else json.loads(row.links or "[]")
        urls = [each.get("expanded_url") or each["url"] for each in shown]
        urls += [word for word in row.text.split() if word in HARMLESS]
        wanted = {name.url_norm for url in urls if not isinstance(name := canonical_link(url), RefusedUrl)}
        if lost := wanted - found.get(row.id, set()):
            wrong.append(f"post {row.id} lost its links to {lost}")
    return wrong


def _wrong_links(links: Sequence[Any], names: Mapping[int, str], told: Counter[str]) -> list[str]:
    wrong = []
    for row in links:
        thing = BY_CANONICAL.get(row.url_norm)
        if row.url_norm in SHORT_LINKS:
            if row.state != "resolved" or names.get(row.leads_to) != SHORT_LINKS[row.url_norm]:
                wrong.append(f"{row.url_norm} leads to {names.get(row.leads_to)} ({row.state})")
        elif thing and thing.fate is Fate.SALE and (row.state != "crawled" or row.product_id is None):
            wrong.append(f"{row.url_norm} is {row.state} and has product {row.product_id}")
        elif row.state == "new":
            wrong.append(f"{row.url_norm} was never visited")
        once = 0 if thing and thing.fate is Fate.DECOY else 1
        if row.kind != "code" and told[row.url_norm] != once:
            wrong.append(f"{row.url_norm} was visited to an end {told[row.url_norm]} times")
    return wrong


def _wrong_offers(offers: Sequence[Any]) -> list[str]:
    wrong = []
    for row in offers:
        thing = BY_CANONICAL[row.url]
        at = (
            row.observed_at
            if isinstance(row.observed_at, datetime)
            else datetime.fromisoformat(f"{row.observed_at}+00:00")
        )
        if thing.fate is Fate.DECOY:
            if row.doubt is None or row.shown:
                wrong.append(f"{row.url}: a decoy of {row.amount} is believed")
        elif row.doubt or not row.shown or (Decimal(row.amount), row.currency) != (thing.price(at), thing.currency):
            wrong.append(f"{row.url}: {row.amount} {row.currency} ({row.doubt}) and not {thing.price(at)}")
        if thing.fate is Fate.SALE and row.times_seen != 1:
            wrong.append(f"{row.url}: seen {row.times_seen} times by one crawl")
    return wrong
