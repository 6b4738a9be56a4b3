"""Each command loads what it uses: a start is paid for at every call."""

import asyncio
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import mistnet
from mistnet.cli.tree import COMMANDS, Command, CommandGroup
from mistnet.kit import libsql
from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate
from mistnet.queue import rabbitmq
from mistnet.shops import extraction, links

SQLITE = {"sqlalchemy", "aiosqlite"}
DATABASES = {*SQLITE, "asyncpg", "alembic"}
SERVERS = {"fastapi", "starlette", "uvicorn", "jinja2"}
CLIENTS = {"aiohttp", "aio_pika", "aiormq", "apprise", "opentelemetry", "protego"}
READERS = {"selectolax", "price_parser", "w3lib"}
FOUNDATION = {"typer", "pydantic", "pydantic_settings", "msgspec", "loguru"}
HEAVY = {
    *DATABASES,
    *SERVERS,
    *CLIENTS,
    *READERS,
    *FOUNDATION,
    "apscheduler",
    "prometheus_client",
    "rich",
    "mistnet.sim",
}

SERVER_COMMANDS = ("work", "serve", "up", "status", "track")

PROGRAM = """
import sys
SIM = "mistnet.sim"
from mistnet.__main__ import run
for line in sys.argv[1:]:
    code = run(line.split())
    names = {SIM if name == SIM else name.partition(".")[0] for name in sys.modules}
    sys.stderr.write(f"\\nloaded {code} " + " ".join(names))
"""

LINES_AND_ALLOWED: Mapping[str, tuple[Sequence[str], set[str]]] = {
    "the version": (["--version"], set()),
    "the list of commands": (["--help"], {"typer"}),
    "the list of a group": (["jobs --help", "segments inputs --help"], {"typer", "pydantic"}),
    "names of links": (["links extract /dev/null", "links canonical /dev/null"], {*FOUNDATION, "w3lib"}),
    "price texts": (["prices parse /dev/null"], {*FOUNDATION, "price_parser"}),
    "the schema": (["db check"], {*FOUNDATION, *SQLITE}),
    "the database alone": (["status", "search moon", "rates list"], {*FOUNDATION, *SQLITE}),
    "all that reads": (
        [
            "jobs list",
            "jobs dead",
            "sources",
            "coverage",
            "spend",
            "export posts",
            "runs list",
            "segments list",
            "feeds list",
            "items list",
            "products list",
            "doctor",
        ],
        {*FOUNDATION, *SQLITE, "prometheus_client"},
    ),
    "the queue": (
        ["track somebody", "suggest somebody", "jobs pause walk", "jobs resume walk", "status", "untrack somebody"],
        {*FOUNDATION, *SQLITE, "prometheus_client"},
    ),
    "a worker": (["work --until-idle"], {*FOUNDATION, *SQLITE, "prometheus_client", "aiohttp"}),
}
"""Command lines that are run by one process after the other, and what of the heavy packages they may load."""


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with tables, so that no command has to make them."""
    file = tmp_path_factory.mktemp("start_up") / "mistnet.db"

    async def make() -> None:
        database = Database(f"sqlite:///{file}")
        await migrate(database)
        await database.close()

    asyncio.run(make())
    return file


@pytest.mark.parametrize(("lines", "allowed"), LINES_AND_ALLOWED.values(), ids=LINES_AND_ALLOWED)
def test_a_command_loads_no_heavy_package_that_it_does_not_use(
    lines: Sequence[str], allowed: set[str], sqlite_file: Path, tmp_path: Path
) -> None:
    own_file = shutil.copy(sqlite_file, tmp_path)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MISTNET_")}
    env |= {"MISTNET_DATABASE_URL": f"sqlite:///{own_file}", "MISTNET_X_API_KEY": "never-asked"}
    command = [sys.executable, "-c", PROGRAM, *lines]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path, env=env, text=True, timeout=120)
    told = [each.split()[1:] for each in done.stderr.splitlines() if each.startswith("loaded ")]
    for line, (code, *loaded) in zip(lines, told, strict=True):
        assert (line, code) == (line, "0"), done.stderr
        assert (line, HEAVY.intersection(loaded) - allowed) == (line, set())


def test_no_server_command_loads_the_simulator() -> None:
    """The whole application with its API and dashboard, and the modules of the commands that run on servers."""
    targets = {path: command.target for path, command in listed(COMMANDS)}
    modules = sorted({f"mistnet.cli.{targets[name].partition(':')[0]}" for name in SERVER_COMMANDS})
    script = (
        "import importlib, pkgutil, sys, mistnet.app, mistnet.web\n"
        "for found in pkgutil.walk_packages(mistnet.web.__path__, 'mistnet.web.'):\n"
        "    importlib.import_module(found.name)\n"
        "for name in sys.argv[1:]:\n    importlib.import_module(name)\n"
        "print([name for name in sys.modules if name.startswith('mistnet.sim')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *modules], capture_output=True, check=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def listed(commands: Mapping[str, Command | CommandGroup], path: str = "") -> Iterator[tuple[str, Command]]:
    for name, entry in commands.items():
        if isinstance(entry, CommandGroup):
            yield from listed(entry.commands, f"{path}{name} ")
        else:
            yield f"{path}{name}", entry


def test_the_line_of_each_command_is_the_first_paragraph_of_its_docstring() -> None:
    written = {path: command.line for path, command in listed(COMMANDS)}
    assert len(written) > 50
    assert written == {path: first_paragraph(command.target) for path, command in listed(COMMANDS)}


def first_paragraph(target: str) -> str:
    module, _, function = target.partition(":")
    documented = inspect.getdoc(getattr(import_module(f"mistnet.cli.{module}"), function)) or ""
    return documented.partition("\n\n")[0]


@pytest.mark.parametrize(
    "package", [mistnet, extraction, libsql, links, rabbitmq], ids=lambda package: package.__name__
)
def test_every_name_a_package_offers_is_there_when_it_is_used(package: ModuleType) -> None:
    offered = [getattr(package, name) for name in package.__all__]
    assert None not in offered
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018 (that it raises is what is tested)
