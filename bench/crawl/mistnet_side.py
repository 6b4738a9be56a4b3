"""mistnet: the real command visits links, with leases, fences, governor, call ledger, products, offers and history.

python -m bench.crawl.mistnet_side crawl --dsn DSN --jobs PAGES [--form here]
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import func, select

from bench.collect.common import Options
from bench.collect.side import database_url, install
from bench.crawl.side import main
from bench.crawl.source import Source, page_url
from mistnet.app import App
from mistnet.kit.database import Database
from mistnet.settings import load_settings
from mistnet.shops import links
from mistnet.shops.model import Canonical, CrawlOutcome, LinkTarget
from mistnet.shops.shop import WEB_LANE
from mistnet.shops.store.links import LinkWriter
from mistnet.shops.tables import crawls

AT_ONCE = 500
SETTINGS = {"single": "page readers, as workers do it", "here": "pages read in the worker's process"}


def prepare(options: Options) -> None:
    asyncio.run(_prepare(options))


async def _prepare(options: Options) -> None:
    await install(options)
    app = App(load_settings(database_url=database_url(options)))
    writer = LinkWriter(app.job_writer, [WEB_LANE])
    try:
        for begin in range(0, options.jobs, AT_ONCE):
            some = map(_target, range(begin, min(begin + AT_ONCE, options.jobs)))
            async with app.database.transaction() as connection:
                targets = {each.canonical.url_norm: each for each in some}
                await writer.ensure(connection, targets, app.database.clock.now())
    finally:
        await app.database.close()


def _target(number: int) -> LinkTarget:
    found = links.canonical_link(page_url(number))
    assert isinstance(found, Canonical)
    return LinkTarget(url=page_url(number), canonical=found)


def command(options: Options, _source: Source) -> list[str]:
    here = [sys.executable, "-m", "bench.crawl.reads_here"]
    mistnet = here if options.form == "here" else [str(Path(sys.executable).with_name("mistnet"))]
    return [*mistnet, "work", "--until-idle", "--lanes", WEB_LANE]


def environment(options: Options, source: Source) -> Mapping[str, str]:
    """The shops are ours: no politeness is due. All else is as it comes."""
    return {
        "MISTNET_DATABASE_URL": database_url(options),
        "MISTNET_CRAWL_LANES": WEB_LANE,
        "MISTNET_CRAWL_VIA": json.dumps({"*": source.url}),
        "MISTNET_CRAWL_RATE_PER_MINUTE": "1000000",
        "MISTNET_CRAWL_HOST_SECONDS": "0",
        "MISTNET_CRAWL_ROBOTS": "none",
        "MISTNET_LOG_LEVEL": "WARNING",
    }


def stored(options: Options) -> int:
    return asyncio.run(_stored(options))


async def _stored(options: Options) -> int:
    """Pages from which an offer was written."""
    database = Database(database_url(options))
    try:
        async with database.read() as connection:
            offered = (crawls.c.outcome == CrawlOutcome.OFFER) & crawls.c.offer_id.is_not(None)
            counted = select(func.count(crawls.c.link_id.distinct())).where(offered)
            return int((await connection.execute(counted)).scalar_one())
    finally:
        await database.close()


if __name__ == "__main__":
    main(
        "mistnet",
        lambda options: SETTINGS[options.form],
        command,
        environment=environment,
        prepare=prepare,
        stored=stored,
    )
