"""Where the program starts. Commands that only turn input into output load nothing of the rest, and start at once."""

import sys
from collections.abc import Sequence

import typer

from mistnet.cli.shared import INTERRUPTED, complain


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; the answer is the exit code."""
    return run_with(_pure(arguments) or _whole(), arguments)


def run_with(app: typer.Typer, arguments: Sequence[str]) -> int:
    try:
        return int(app(args=list(arguments), prog_name="mistnet", standalone_mode=False) or 0)
    except typer.TyperException as error:
        complain(f"{error.format_message()} (`{_command_path(error)} --help` tells more)")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED


def _pure(arguments: Sequence[str]) -> typer.Typer | None:
    """The few commands that need no database: each with what it needs and no more."""
    match arguments[:2]:
        case ["links", "extract" | "canonical"]:
            from mistnet.cli.links import commands  # noqa: PLC0415 (loaded only if asked for)
        case ["prices", "parse"]:
            from mistnet.cli.prices import commands  # noqa: PLC0415
        case ["products", "extract"]:
            from mistnet.cli.products_extract import commands  # noqa: PLC0415
        case _:
            return None
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.add_typer(commands, name=arguments[0])
    return app


def _whole() -> typer.Typer:
    from mistnet.cli.main import app  # noqa: PLC0415

    return app


def _command_path(error: typer.TyperException) -> str:
    return str(getattr(getattr(error, "ctx", None), "command_path", "mistnet"))
