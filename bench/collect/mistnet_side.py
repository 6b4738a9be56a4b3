"""mistnet: the real command, with leases, fences, history, ledger, thread walks and hydration."""

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.collect.common import Options
from bench.collect.cost import cost
from bench.collect.floors import floors
from bench.collect.growth import growth
from bench.collect.side import Side, database_url, main
from bench.collect.source import KEY, Source
from mistnet.app import App
from mistnet.kit.migrate import ready
from mistnet.settings import load_settings
from mistnet.social.jobs import args

GAPS = 3
"""Users whom the source never returns are gaps, and every world has some."""

BESIDES = (args.WALK, args.HYDRATE_USER, args.HYDRATE_POST)
"""What no other side does: the way up from replies, and the users they answer."""


async def prepare(options: Options, handles: list[str]) -> None:
    app = App(load_settings(database_url=database_url(options)))
    try:
        await ready(app.database, create=True)
        await app.enqueue([args.suggestion(handle) for handle in handles])
        for kind in BESIDES if options.form == "sweeps" else ():
            await app.operations.pause(kind, "the others do not do this", now=app.database.clock.now())
    finally:
        await app.database.close()


def command(options: Options, _source: Source, _handles: list[str]) -> list[str]:
    mistnet = Path(sys.executable).with_name("mistnet")
    return [str(mistnet), "work", "--until-idle", "--processes", str(options.processes)]


def environment(options: Options, source: Source) -> Mapping[str, str]:
    """The source is ours: no politeness is due, and its end needs no long pause to be believed."""
    return {
        "MISTNET_DATABASE_URL": database_url(options),
        "MISTNET_X_API_KEY": KEY,
        "MISTNET_X_BASE_URL": source.url,
        "MISTNET_X_RATE_PER_MINUTE": "60000",
        "MISTNET_X_BURST": "1000",
        "MISTNET_SECOND_LOOK_SECONDS": "0.1",
        "MISTNET_BATCH_FILL_SECONDS": "1",
        "MISTNET_LOG_LEVEL": "WARNING",
    }


def setting(options: Options) -> str:
    crew = "1 process" if options.processes == 1 else f"{options.processes} processes"
    return f"the same pages, {crew}" if options.form == "sweeps" else f"threads and people too, {crew}"


SIDE = Side(
    name="mistnet",
    setting=setting,
    command=command,
    environment=environment,
    prepare=prepare,
    codes=frozenset({0, GAPS}),
    more={"growth": growth, "cost": cost, "floors": floors},
)

if __name__ == "__main__":
    main(SIDE)
