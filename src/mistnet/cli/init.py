"""Sets up an installation: settings, the key in a file of its own, tables, first accounts; and tokens of the API."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from msgspec.structs import asdict

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, program_name, shared_options
from mistnet.cli.db import open_database
from mistnet.cli.input import argument, option, storable, unique
from mistnet.cli.output import Grid, Output, document
from mistnet.kit.errors import SettingsError
from mistnet.kit.migrate import migrate
from mistnet.kit.text import LARGEST_ID, split_list
from mistnet.settings import ENV_FILE, Settings, settings_file
from mistnet.shops.catalog import CRAWL_LANES
from mistnet.social.model import read_handle
from mistnet.social.store.tracking import NewSuggestion
from mistnet.social.tracking import track_handles
from mistnet.sources.x.client import CREDITS_PER_DOLLAR
from mistnet.sources.x.source import USUAL_DAY_CREDITS
from mistnet.web.tokens import Scope, Tokens

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
_HEADER: Final = """\
# Settings of mistnet. What is commented out has its default; the values shown are examples.
# Keys and passwords belong in the environment, or in a file .env beside this one: MISTNET_X_API_KEY,
# MISTNET_THREADS_TOKEN, MISTNET_ADMIN_TOKEN.
"""
_KEY: Final = re.compile(r"[^\s'\"#$\\]+")
_KEY_VARIABLE: Final = "MISTNET_X_API_KEY"
_USUAL_DOLLARS: Final = USUAL_DAY_CREDITS / CREDITS_PER_DOLLAR
_FEWEST_DOLLARS, _MOST_DOLLARS = 0.01, 1_000_000


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked or given by flags."""

    key: str | None
    day_credits: int
    handles: Sequence[str]


@shared_options
async def init(
    invocation: Invocation,
    handles: Annotated[list[str] | None, argument("[HANDLE]...", "The first accounts to track: @name or name.")] = None,
    *,
    key: Annotated[
        str | None, option("--key", "KEY", "A key of twitterapi.io; - reads it from standard input.")
    ] = None,
    day_dollars: Annotated[
        float | None,
        option("--day-dollars", "USD", "What X may cost in a day; else 2.", min=_FEWEST_DOLLARS, max=_MOST_DOLLARS),
    ] = None,
) -> None:
    """Prepare this folder: settings, key, tables, and the next steps.

    On a terminal it asks for what no flag sets. The key is written to .env, which only you can read; a key in the
    environment is used from there and not written. Safe to run again: existing settings are kept, and tables are
    migrated to this version.
    """
    settings, file = invocation.settings, settings_file()
    if file.exists() and day_dollars is not None:
        raise typer.BadParameter(
            f"{file} exists already and is kept: change x_day_credits there", param_hint="--day-dollars"
        )
    if key == "-":
        key = sys.stdin.readline()
    asked = invocation.out.on_terminal and sys.stdin.isatty()
    answers = _answer(settings, key, day_dollars, handles or [], asked=asked, has_file=file.exists())
    named = settings.database_url.get_secret_value()
    is_default = named == Settings.model_fields["database_url"].default.get_secret_value()
    async with open_database(settings, checked=False) as database:
        # A URL that contains a secret is shown without it, and not written.
        chosen = None if is_default or named != database.shown_url else named
        written = write_new(file, sample(chosen, answers.day_credits))
        if answers.key:
            write_key(ENV_FILE, answers.key)
        before = await migrate(database)
        url = database.shown_url
    tracked = []
    if answers.handles:
        async with open_app(settings) as app:
            tracked = await track_handles(app, [NewSuggestion(handle=each) for each in answers.handles])
    has_key = bool(answers.key or settings.x_api_key)
    cap = f"{answers.day_credits:,} credits (US$ {answers.day_credits / CREDITS_PER_DOLLAR:g})"
    lines = [
        f"{file} is written: settings to change; X may cost at most {cap} a day"
        if written
        else f"{file} exists already and is kept",
        *([f"{ENV_FILE} holds the key; only you may read it"] if answers.key else []),
        f"{url} is ready" if before.found != before.wanted else f"{url} is up to date",
        *map(str, tracked),
    ]
    following = _next_steps(has_key=has_key, handle=answers.handles[0] if answers.handles else None)
    facts = document(file=str(file), written=written, database_url=url, found=before.found, now=before.wanted)
    facts |= document(key_file=str(ENV_FILE) if answers.key else None, key_configured=has_key, accounts=tracked)
    said = "\n".join([*lines, "", "Next:", "", *(f"  {line}" for line in following)])
    invocation.out.show({**facts, "next": following}, said)


def _answer(
    settings: Settings, key: str | None, dollars: float | None, handles: Sequence[str], *, asked: bool, has_file: bool
) -> Answers:
    """What flags give; on a terminal the rest is asked."""
    with interruptible():
        if asked and key is None and not settings.x_api_key:
            key = typer.prompt(
                "Key of twitterapi.io (not shown; Enter to set it later)", "", hide_input=True, show_default=False
            )
        if asked and dollars is None and not has_file:
            question = "US dollars that X may cost in a day"
            dollars = typer.prompt(question, _USUAL_DOLLARS, value_proc=_dollars)
        if asked and not handles:
            handles = split_list(typer.prompt("Accounts to track first (Enter for none)", "", show_default=False))
    key = (key or "").strip() or None
    if key and not _KEY.fullmatch(key):
        raise typer.BadParameter("it is no key: a key has no blanks, quotes or line ends", param_hint="--key")
    day_credits = round((_USUAL_DOLLARS if dollars is None else dollars) * CREDITS_PER_DOLLAR)
    return Answers(key=key, day_credits=day_credits, handles=unique(map(read_handle, handles)))


def _dollars(text: str) -> float:
    try:
        dollars = float(text)
    except ValueError:
        dollars = 0.0
    if not _FEWEST_DOLLARS <= dollars <= _MOST_DOLLARS:
        raise typer.BadParameter(f"a number from {_FEWEST_DOLLARS} to {_MOST_DOLLARS:,}")
    return dollars


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end a question at once: the event loop would wait for its next turn."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _next_steps(*, has_key: bool, handle: str | None) -> list[str]:
    steps = {
        f"export {_KEY_VARIABLE}=...": None if has_key else "a key of twitterapi.io; `init --key` stores one",
        f"{program_name()} track --quote {handle or 'nasa'}": "shows the likely cost; fetches one profile",
        f"{program_name()} track nasa": None if handle else "collects its posts from now on",
        f"{program_name()} up": "collects, and serves the dashboard",
    }
    width = max(map(len, steps))
    return [f"{command:<{width}}  # {what}" for command, what in steps.items() if what]


def sample(database_url: str | None, day_credits: int = USUAL_DAY_CREDITS) -> str:
    """The file: everything commented out, except the cap on spending and a chosen database."""
    lines = [_HEADER]
    # Without a cap, one mistake may spend the whole balance.
    written = {"database_url": database_url, "x_day_credits": day_credits}
    for title, offered in _OFFERED.items():
        lines.append(f"\n# {title}\n")
        for name, example in offered.items():
            chosen = written.get(name)
            lines.append(f"#   {Settings.model_fields[name].description}\n")
            lines.append(f"{name} = {json.dumps(chosen)}\n" if chosen else f"# {name} = {json.dumps(example)}\n")
    return "".join(lines)


def write_key(file: Path, key: str) -> None:
    """Put the key into the file in place of an earlier one. Only its owner may read the file; other lines stay."""
    try:
        kept = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        lines = [each for each in kept if not each.removeprefix("export ").startswith(f"{_KEY_VARIABLE}=")]
        part = file.with_name(f"{file.name}.part")
        part.unlink(missing_ok=True)
        write_new(part, "\n".join([*lines, f"{_KEY_VARIABLE}={key}"]) + "\n")
        part.replace(file)
    except OSError as error:
        raise SettingsError("file", str(file), f"cannot be written: {error.strerror}") from None


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


_SCOPES: Final = [scope.word for scope in Scope]


def known_scope(given: str) -> str:
    if given not in _SCOPES:
        raise typer.BadParameter(f"there is no scope {given!r}: use {', '.join(_SCOPES)}")
    return given


@shared_options
async def add_token(
    invocation: Invocation,
    name: Annotated[str, argument("NAME", "Who uses it.")],
    *,
    scope: Annotated[str, option("--scope", "read|operate|admin", "What it allows.", parser=known_scope)] = "read",
) -> None:
    """Create a token and print it. It is shown only once."""
    storable("NAME", name)
    if not name.strip():
        raise typer.BadParameter("give the token a name that says who uses it", param_hint="NAME")
    async with open_app(invocation.settings) as app:
        made, token = await Tokens(app.database).make(name.strip(), Scope.of(scope), now=app.database.clock.now())
    shown = document(id=made.id, name=made.name, scope=scope, token=token)
    invocation.out.show(shown, f"token {made.id} ({made.name}, {scope}), shown only this once:\n{token}")


@app_command
async def list_tokens(app: App, out: Output) -> None:
    """List all tokens, revoked ones too: their names, and when each was used last."""
    tokens = await Tokens(app.database).listed()
    grid = Grid.of(
        tokens,
        "id, name, scope, made (UTC), last used (UTC), revoked (UTC)",
        scope=lambda each: each.scope.word,
        made="created_at",
        empty="no tokens yet: `mistnet tokens add NAME` makes one",
    )
    out.show(document(tokens=[{**asdict(each), "scope": each.scope.word} for each in tokens]), grid)


@app_command
async def revoke_token(
    app: App,
    out: Output,
    token_id: Annotated[int, argument("ID", "Its number in the list.", min=1, max=LARGEST_ID)],
) -> None:
    """Revoke a token, and end its sessions."""
    from mistnet.web.errors import TokenNotFound  # noqa: PLC0415 (it loads the web framework)

    revoked = await Tokens(app.database).revoke(token_id, now=app.database.clock.now())
    if revoked is None:
        raise TokenNotFound(token_id)
    out.show(document(id=revoked.id, revoked=True), f"token {revoked.id} ({revoked.name}) is revoked")
