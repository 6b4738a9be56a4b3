"""The text of `--help`: what a command does, an example, and its arguments, options or commands by panel."""

import inspect
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, Final

_WIDEST: Final = 100
_NAMES_WIDTH: Final = 28
EXAMPLE: Final = "Example: "
_FIRST: Final = ("Arguments", "Collect", "Look", "Export", "Prices", "Operate", "Commands", "Options")
_LAST: Final = "Everywhere"
"""Titles of panels, in the order in which they are shown. Others stand between."""


def help_text(command: Any, context: Any) -> str:
    """The page for a terminal. Headings are bold there, and plain elsewhere."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    bold = "\033[1m{}\033[0m" if sys.stdout.isatty() else "{}"
    parts = [f"Usage: {usage(context.command_path, command)}"]
    parts += [
        textwrap.fill(" ".join(each.split()), width) for each in inspect.cleandoc(command.help or "").split("\n\n")
    ]
    parts += [f"{bold.format(EXAMPLE.strip())}\n  {each}" for each in examples(command)]
    for title, rows in panels(command, context):
        names = min(max(len(name) for name, _ in rows), _NAMES_WIDTH)
        parts.append("\n".join([bold.format(f"{title}:"), *(_row(*row, names, width) for row in rows)]))
    return "\n\n".join(each for each in parts if each) + "\n"


def _row(name: str, text: str, names: int, width: int) -> str:
    first = f"  {name:<{names}}  "
    margin = " " * (names + 4)
    if len(name) > names:
        return f"  {name}\n" + textwrap.fill(text, width, initial_indent=margin, subsequent_indent=margin)
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=margin) if text else first.rstrip()


def usage(path: str, command: Any) -> str:
    arguments = [each.metavar or each.name.upper() for each in command.params if each.param_type_name == "argument"]
    return " ".join([path, *arguments, "COMMAND" if hasattr(command, "commands") else "[OPTIONS]"])


def examples(command: Any) -> Sequence[str]:
    return [command.epilog.removeprefix(EXAMPLE)] if (command.epilog or "").startswith(EXAMPLE) else []


def panels(command: Any, context: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """Arguments, options and commands: the title of each panel, with names and what they mean."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in command.get_params(context):
        if not getattr(each, "hidden", False):
            usual = "Arguments" if each.param_type_name == "argument" else "Options"
            found.setdefault(each.rich_help_panel or usual, []).append((names_of(each), meaning_of(each)))
    for name, below in getattr(command, "commands", {}).items():
        found.setdefault(below.rich_help_panel or "Commands", []).append((name, below.help))
    others = [title for title in found if title not in (*_FIRST, _LAST)]
    return [(title, found[title]) for title in (*_FIRST, *others, _LAST) if title in found]


def names_of(param: Any) -> str:
    """An argument, or the names of an option and what it takes. A flag takes nothing."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    kind = param.type_descriptor
    value = param.metavar or ("|".join(map(_choice, kind.choices)) if kind.is_choice else "N")
    if len(value) > _NAMES_WIDTH and kind.is_choice:
        value = param.name.upper()
    names = ", ".join([*sorted(param.opts, key=len), *param.secondary_opts])
    return names if param.is_flag else f"{names} {value}"


def _choice(value: Any) -> str:
    return str(getattr(value, "value", value))


def meaning_of(param: Any) -> str:
    text, kind = param.help or "", param.type_descriptor
    if kind.is_choice and names_of(param).endswith(param.name.upper()):
        text = f"{text} One of {', '.join(map(_choice, kind.choices))}."
    if param.param_type_name == "argument" or param.default in (None, False, ()) or callable(param.default):
        return text
    return f"{text} Default: {_choice(param.default)}."
