"""The Typer application: built from the command tree, it imports a command's module when that command is called.

Also the text of `--help`: what a command does, an example, and its arguments, options or commands by panel.
"""

import gc
import inspect
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from mistnet import __version__
from mistnet.cli.tree import COMMANDS, Command, CommandGroup

INTERRUPTED: Final = 130
_WIDEST: Final = 100
_NAMES_WIDTH: Final = 28
EXAMPLE: Final = "Example: "
_FIRST: Final = ("Arguments", "Collect", "Look", "Export", "Prices", "Operate", "Commands", "Options")
_LAST: Final = "Everywhere"
"""Titles of panels, in the order in which they are shown. Others stand between."""


# The name of an option is not broken into lines.
filled = partial(textwrap.fill, break_on_hyphens=False)


def help_text(command: Any, context: Any) -> str:
    """The page for a terminal. Headings are bold there, and plain elsewhere."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    bold = "\033[1m{}\033[0m" if sys.stdout.isatty() else "{}"
    parts = [f"Usage: {usage(context.command_path, command)}"]
    parts += [filled(" ".join(each.split()), width) for each in inspect.cleandoc(command.help or "").split("\n\n")]
    parts += [f"{bold.format(EXAMPLE.strip())}\n  {each}" for each in examples(command)]
    for title, rows in panels(command, context):
        names = min(max(len(name) for name, _ in rows), _NAMES_WIDTH)
        margin = " " * (names + 4)
        lines = [bold.format(f"{title}:")]
        for name, text in rows:
            first = f"  {name:<{names}}  "
            if len(name) > names:
                lines.append(f"  {name}")
                first = margin
            lines.append(filled(text, width, initial_indent=first, subsequent_indent=margin) or first.rstrip())
        parts.append("\n".join(lines))
    return "\n\n".join(each for each in parts if each) + "\n"


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


class HelpedCommand(TyperCommand):
    """A command whose help names no type beside a flag, and has an example."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(self, ctx))


class LateCommand(HelpedCommand):
    """A command as its group lists it. Its callback is `Command.load`."""

    def load(self) -> Any:
        """The real command, with its options and full help."""
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, cls=HelpedCommand, epilog=self.epilog)(self.callback())  # type: ignore[misc]  # a command made by Typer has a callback
        if not gc.isenabled():
            # Loaded modules stay: no collection needs to visit them.
            gc.freeze()
            gc.enable()
        return typer.main.get_command(alone)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent, **extra)


class HelpedGroup(TyperGroup):
    """A group that prints its help when no command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(self, ctx))


class ListedFirst(HelpedGroup):
    """A group that calls its command `list` when none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named or ctx.resilient_parsing else ["list", *args])


app = typer.Typer(
    name="mistnet",
    cls=HelpedGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mistnet {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: mistnet demo")
def mistnet(
    _version_asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Collects social accounts durably: everything they wrote, resumed after any interruption.

    `mistnet demo` needs no key. `mistnet COMMAND --help` explains a command.
    """


def make_group(group: CommandGroup) -> typer.Typer:
    """A group of the tree with all its commands."""
    made = typer.Typer(
        cls=ListedFirst if group.lists_by_default else HelpedGroup, help=group.line, rich_markup_mode=None
    )
    _add(group.commands, made)
    return made


def _add(commands: Mapping[str, Command | CommandGroup], to: typer.Typer) -> None:
    for name, entry in commands.items():
        panel = entry.panel or None
        if isinstance(entry, CommandGroup):
            to.add_typer(make_group(entry), name=name, rich_help_panel=panel)
        else:
            made = to.command(
                name, cls=LateCommand, help=entry.line, epilog=EXAMPLE + entry.example, rich_help_panel=panel
            )
            made(entry.load)


_add(COMMANDS, app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return int(app(args=list(arguments), prog_name="mistnet", standalone_mode=False) or 0)
    except typer.TyperException as error:
        from mistnet.cli.output import complain  # noqa: PLC0415 (what it loads takes longer than printing help)

        path = getattr(getattr(error, "ctx", None), "command_path", "mistnet")
        complain(f"{error.format_message()} (see `{path} --help`)")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
