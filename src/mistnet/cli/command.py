"""Runs commands: the options that all of them share, their event loop, exit codes and log."""

import asyncio
import contextlib
import functools
import inspect
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TextIO, TypeAlias, get_type_hints

import msgspec
import typer
from loguru import logger

from mistnet.cli.output import Output, abandon_output, complain, fields_of
from mistnet.kit.errors import MistnetError, UsageError, leaves_of
from mistnet.kit.text import printable, redact
from mistnet.settings import Settings, load_settings

if TYPE_CHECKING:
    from loguru import Message, Record

BUG: Final = 70
"""EX_SOFTWARE of sysexits.h."""
# A driver thread that hangs must not keep a finished command from ending.
_THREADS_END_SECONDS: Final = 1.0
_PANEL: Final = "Everywhere"
_HINT: Final = "set MISTNET_LOG_LEVEL=DEBUG to see where"


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """What every command gets: the settings, and where to print."""

    settings: Settings
    out: Output


AsyncCommand: TypeAlias = Callable[..., Coroutine[Any, Any, int | None]]


class SharedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of all commands."""

    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url", metavar="URL", help="sqlite:///FILE, postgresql://… or libsql://…", rich_help_panel=_PANEL
        ),
    ] = None
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", metavar="text|json", help="How log lines look.", rich_help_panel=_PANEL),
    ] = None
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help="The least important log line written: TRACE, DEBUG, INFO, WARNING or ERROR.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of text.", rich_help_panel=_PANEL)
    ] = False


def shared_options(command: AsyncCommand) -> Callable[..., None]:
    """Add the options of all commands to one. It gets an `Invocation` in their place, and may return an exit code.

    A parameter whose type is a struct is a group of options: its fields.
    """
    return _with_options(command, command, passed=1)


def app_command(command: AsyncCommand) -> Callable[..., None]:
    """The same for a command that works with the app throughout: it gets the open app, and where to print."""

    async def call(invocation: Invocation, **given: Any) -> int | None:
        from mistnet.app import open_app  # noqa: PLC0415 (commands that need no app start faster)

        async with open_app(invocation.settings) as app:
            return await command(app, invocation.out, **given)

    return _with_options(command, call, passed=2)


def _with_options(command: AsyncCommand, call: AsyncCommand, *, passed: int) -> Callable[..., None]:
    """What Typer calls. `passed` parameters of the command are not options."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = list(inspect.signature(command, eval_str=True).parameters.values())[passed:]
    parameters = [*own, inspect.Parameter("shared", keyword, annotation=SharedOptions)]
    kinds = {each.name: each.annotation for each in parameters}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in group.__struct_fields__})
        shared: SharedOptions = given.pop("shared")
        out = Output(as_json=shared.as_json)
        flags = fields_of(shared, "as_json")
        raise typer.Exit(guarded(lambda settings: call(Invocation(settings=settings, out=out), **given), flags))

    options: list[inspect.Parameter] = []
    for each in parameters:
        if each.name not in groups:
            options.append(each.replace(kind=keyword))
            continue
        group = groups[each.name]
        hints = get_type_hints(group, include_extras=True)
        fields = msgspec.structs.fields(group)
        options += [
            inspect.Parameter(one.name, keyword, default=one.default, annotation=hints[one.name]) for one in fields
        ]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # Typer reads the options from it
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def guarded(command: Callable[[Settings], Coroutine[Any, Any, int | None]], flags: dict[str, Any]) -> int:
    """Run a command in its event loop. An error becomes one line on stderr and an exit code."""
    secrets: Sequence[str] = ()
    # Read without the settings, which may be what is wrong.
    debugging = os.environ.get("MISTNET_LOG_LEVEL") in ("DEBUG", "TRACE")
    try:
        settings = load_settings(**flags)
        secrets = settings.secrets
        debugging = settings.log_level in ("DEBUG", "TRACE")
        set_up_log(style=settings.log_format, level=settings.log_level, secrets=secrets)
        running = _run(command(settings))
        try:
            import uvloop  # noqa: PLC0415 (comes with the extra `postgresql`)
        except ModuleNotFoundError:
            return asyncio.run(running) or 0
        return uvloop.run(running) or 0
    except (typer.TyperException, typer.Exit, typer.Abort):
        # `main.run` prints these, with a hint at --help.
        raise
    except Exception as error:  # noqa: BLE001 (the last resort: users must not have to read a traceback)
        if isinstance(error, OSError) and (code := abandon_output(error)) is not None:
            return code
        if debugging:
            sys.stderr.write(redact(traceback.format_exc(), secrets))
        leaves = leaves_of(error)
        known = [each for each in leaves if isinstance(each, MistnetError)]
        if len(known) < len(leaves):
            complain(f"this is a bug in mistnet: {type(error).__name__}: {error} ({_HINT})", secrets)
            return BUG
        # Tasks that ran at the same time may fail of the same cause: it is printed once.
        for problem in dict.fromkeys(map(str, known)):
            complain(problem, secrets)
        return 2 if any(isinstance(each, UsageError) for each in known) else 1


async def _run(command: Coroutine[Any, Any, int | None]) -> int | None:
    """Keep the loop open until driver threads have ended: one that finds it closed prints a traceback."""
    others = threading.active_count()
    try:
        return await command
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_THREADS_END_SECONDS):
                while threading.active_count() > others:  # noqa: ASYNC110 (threads send no event when they end)
                    await asyncio.sleep(0.002)


def program_name() -> str:
    """What a user types to run this program: `mistnet` where it is on the path."""
    if shutil.which("mistnet"):
        return "mistnet"
    called = Path(sys.argv[0])
    return str(called) if called.name == "mistnet" else "python -m mistnet"


_TEXT = "<dim>{time:YYYY-MM-DD HH:mm:ss.SSS!UTC}</dim> <level>{level: <7}</level> {message}\n{exception}"
_STACK = "{extra[stack]}\n"
# A fact of any type may stand in a log line: it must not stop the line.
_encode = msgspec.json.Encoder(enc_hook=str).encode


def set_up_log(
    *, style: Literal["text", "json"], level: str, secrets: Sequence[str] = (), stream: TextIO | None = None
) -> None:
    """Replace all sinks by one on stderr."""
    out = stream or sys.stderr

    def write_text(message: "Message") -> None:
        out.write(redact(message, secrets))

    def write_json(message: "Message") -> None:
        out.write(json_line(message.record, secrets) + "\n")

    logger.remove()
    logger.add(
        write_json if style == "json" else write_text,
        level=level,
        format="{message}" if style == "json" else _text_format,
        colorize=style == "text" and out.isatty(),
        backtrace=False,
        # It would print the values of variables, which may be secrets.
        diagnose=False,
    )


def json_line(record: "Record", secrets: Sequence[str]) -> str:
    """Time, level, message, and all facts of a log line."""
    facts = {
        name: redact(value, secrets) if isinstance(value, str) else value for name, value in record["extra"].items()
    }
    # Readers of JSON make floats of numbers and change the last digits of ids.
    if isinstance(facts.get("job_id"), int):
        facts["job_id"] = str(facts["job_id"])
    entry = {
        **facts,
        "time": datetime.fromtimestamp(record["time"].timestamp(), UTC),
        "level": record["level"].name,
        "message": redact(record["message"], secrets),
    }
    if record["exception"] and record["exception"].value:
        entry["exception"] = redact(repr(record["exception"].value), secrets)
    return _encode(entry).decode()


def _text_format(record: "Record") -> str:
    record["message"] = printable(record["message"], one_line=True)
    stack = record["extra"].get("stack")
    if not isinstance(stack, str):
        return _TEXT
    record["extra"]["stack"] = "\n".join(f"  {printable(line)}" for line in stack.splitlines())
    return _TEXT + _STACK
