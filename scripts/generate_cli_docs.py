"""Write docs/cli.md from the commands themselves, or with --check say whether it is stale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mistnet.cli.command import SHARED_OPTIONS
from mistnet.cli.main import LateCommand, app

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
OPENING = """# Commands

<!-- Written by scripts/generate_cli_docs.py; change the commands, then run it again. -->

Settings come from a flag, else from the environment (`MISTNET_…`), else from `mistnet.toml`, else from
their default. A fault is one line on stderr. Exit codes: 0 done, 1 the database or the work is at fault,
2 wrong usage or settings, 3 `work --until-idle` left gaps, 4 the budget
stopped it, 5 the source refuses the key, 70 a bug in mistnet, 130 interrupted.
"""


def main(arguments: list[str]) -> int:
    written = page()
    if arguments == ["--check"]:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != written
        if stale:
            print(f"{PAGE} is stale; run scripts/generate_cli_docs.py", file=sys.stderr)
        return int(stale)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(written, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page. Typer's own command objects are walked, so nothing can be left out."""
    root: Any = typer.main.get_command(app)
    everywhere = next(command for _, command in commands(root, "mistnet") if not hasattr(command, "commands"))
    shared = [option for option in everywhere.params if option.name in SHARED_OPTIONS]
    parts = [OPENING, "## Options of every command\n", table(shared)]
    parts += [section(path, command) for path, command in commands(root, "mistnet")]
    return "\n".join(parts)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command.load() if isinstance(command, LateCommand) else command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


def section(path: str, command: Any) -> str:
    own = [each for each in command.params if each.name not in SHARED_OPTIONS and not getattr(each, "hidden", False)]
    usage = " ".join([path, *(shown(each) for each in own if each.param_type_name == "argument")])
    usage += " COMMAND" if hasattr(command, "commands") else ""
    told = "\n".join(line.strip() for line in (command.help or "").strip().splitlines())
    return "\n".join([f"## `{usage}`\n", told, "", *([table(own)] if own else [])])


def table(params: list[Any]) -> str:
    rows = [f"| `{names(each)}` | {(each.help or '').replace('|', chr(92) + '|')}{default(each)} |" for each in params]
    return "\n".join(["| | |", "|---|---|", *rows, ""])


def names(param: Any) -> str:
    if param.param_type_name == "argument":
        return shown(param)
    value = "" if param.is_flag else f" {(param.metavar or kind_of(param)).replace('|', ' or ')}"
    return ", ".join(param.opts) + value


def kind_of(param: Any) -> str:
    """What an option without a word of its own takes: a choice of words, or a number."""
    return "STATE" if param.name == "state" else "N"


def shown(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def default(param: Any) -> str:
    if param.param_type_name == "argument" or param.default in (None, False, ()):
        return ""
    return f" Default: {param.default}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
