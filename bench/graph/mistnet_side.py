"""mistnet: the real command reads the list, with leases, fences, ledger, ingest record, edges and events.

python -m bench.graph.mistnet_side sync --dsn DSN --jobs FOLLOWERS
python -m bench.graph.mistnet_side mutuals --dsn DSN --jobs EDGES
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.collect.common import Options
from bench.collect.mistnet_side import environment as collecting
from bench.collect.side import database_url
from bench.collect.source import Source as Collected
from bench.graph.mutuals import mutuals
from bench.graph.side import main
from bench.graph.source import SUBJECT, Source
from mistnet.app import App
from mistnet.graph.follows.model import Side, SyncMode, follow_sync
from mistnet.kit.migrate import ready
from mistnet.settings import load_settings
from mistnet.social.model import UserId


def prepare(options: Options) -> None:
    asyncio.run(_prepare(options))


async def _prepare(options: Options) -> None:
    app = App(load_settings(database_url=database_url(options)))
    try:
        await ready(app.database, create=True)
        await app.enqueue([follow_sync(UserId(SUBJECT), Side.FOLLOWERS, mode=SyncMode.FULL, asked_by="bench")])
    finally:
        await app.database.close()


def command(_dsn: str, _url: str) -> list[str]:
    return [str(Path(sys.executable).with_name("mistnet")), "work", "--until-idle"]


def environment(options: Options, source: Source) -> Mapping[str, str]:
    return collecting(options, Collected(source.url))


if __name__ == "__main__":
    main(
        "mistnet",
        "1 process",
        command,
        environment=environment,
        prepare=prepare,
        more={"mutuals": mutuals},
    )
