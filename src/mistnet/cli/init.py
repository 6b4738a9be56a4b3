"""The init command: a settings file to fill in, tables, and the next steps."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mistnet.cli.command import Invocation, program_name, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.output import document
from mistnet.kit.errors import SettingsError
from mistnet.kit.migrate import migrate
from mistnet.settings import Settings, settings_file
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.sources.x.client import CREDITS_PER_DOLLAR
from mistnet.sources.x.source import USUAL_DAY_CREDITS

_OFFERED: Final[Mapping[str, Mapping[str, object]]] = {
    "The database. A URL with a password belongs in the environment: MISTNET_DATABASE_URL.": {
        "database_url": Settings.model_fields["database_url"].default.get_secret_value(),
    },
    "Money. A hundred thousand credits of TwitterAPI.io are one dollar.": {
        "x_day_credits": USUAL_DAY_CREDITS,
        "x_month_credits": 3_000_000,
    },
    "Links and prices.": {
        "crawl_lanes": CRAWL_LANES,
        "crawl_every_hours": 24,
        "price_watch_percent": 10,
    },
    "Feeds of Threads.": {"threads_token_file": "threads-token", "feed_every_seconds": 1_800},
    "Several machines: lanes whose jobs go to workers over RabbitMQ (MISTNET_BROKER_URL).": {
        "amqp_lanes": ["shopee", "taobao"]
    },
    "The rest.": {"concurrency": 20, "log_format": "json"},
}
_WRITTEN: Final = ("x_day_credits",)
"""Written without a comment sign: without a cap, one mistake may spend the whole balance."""

_WHAT: Final = (
    f"settings to fill in; X may cost at most {USUAL_DAY_CREDITS:,} credits "
    f"(US$ {USUAL_DAY_CREDITS // CREDITS_PER_DOLLAR}) a day"
)
_HEADER: Final = """\
# Settings of mistnet. What is commented out has its default; the values shown are examples.
# Keys and passwords belong in the environment: MISTNET_X_API_KEY, MISTNET_THREADS_TOKEN, MISTNET_ADMIN_TOKEN.
"""


@shared_options
async def init(invocation: Invocation) -> None:
    """Prepare this folder: a settings file to fill in, tables, and the next steps.

    Safe to run again: an existing file is kept, and tables are migrated to this version.
    """
    settings, file = invocation.settings, settings_file()
    named = settings.database_url.get_secret_value()
    is_default = named == Settings.model_fields["database_url"].default.get_secret_value()
    async with open_database(settings, checked=False) as database:
        # A URL that contains a secret is shown without it, and not written.
        chosen = None if is_default or named != database.shown_url else named
        written = write_new(file, sample(chosen))
        before = await migrate(database)
        url = database.shown_url
    own = program_name()
    following = [] if settings.x_api_key else ["export MISTNET_X_API_KEY=...       # a key of twitterapi.io"]
    following.append(f"{own} track --quote nasa       # shows the likely cost; fetches one profile, nothing else")
    following.append(f"{own} track nasa")
    following.append(f"{own} up                       # collects, and serves the dashboard")
    about_file = f"{file} is written: {_WHAT}" if written else f"{file} exists already and is kept"
    about_tables = f"{url} is ready" if before.found != before.wanted else f"{url} is up to date"
    said = "\n".join([about_file, about_tables, "", "Next:", "", *(f"  {line}" for line in following)])
    facts = document(file=str(file), written=written, database_url=url, found=before.found, now=before.wanted)
    invocation.out.show({**facts, "next": following}, said)


def sample(database_url: str | None) -> str:
    """The file: everything commented out, except the cap on spending and a chosen database."""
    lines = [_HEADER]
    for title, offered in _OFFERED.items():
        lines.append(f"\n# {title}\n")
        for name, example in offered.items():
            chosen = database_url if name == "database_url" else example if name in _WRITTEN else None
            lines.append(f"#   {Settings.model_fields[name].description}\n")
            lines.append(f"{name} = {json.dumps(chosen)}\n" if chosen else f"# {name} = {json.dumps(example)}\n")
    return "".join(lines)


def write_new(file: Path, text: str) -> bool:
    try:
        # Only its owner may read it: people write passwords into it.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise SettingsError("file", str(file), f"cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    return True
