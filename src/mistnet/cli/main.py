"""The Typer application: built from the command tree, it imports a command's module when that command is called."""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from mistnet import __version__
from mistnet.cli.help import EXAMPLE, help_text
from mistnet.cli.tree import COMMANDS, Command, CommandGroup

INTERRUPTED: Final = 130


class HelpedCommand(TyperCommand):
    """A command whose help names no type beside a flag, and has an example."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(self, ctx))


class LateCommand(HelpedCommand):
    """A command as its group lists it. Its callback imports and returns the function that does the work."""

    def load(self) -> Any:
        """The real command, with its options and full help."""
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, cls=HelpedCommand, epilog=self.epilog)(self.callback())  # type: ignore[misc]  # a command made by Typer has a callback
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
    """Collects social accounts durably: name one, and it collects everything and never loses its place.

    `mistnet demo` shows it without a key. `mistnet COMMAND --help` explains a command.
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
            made(_importer(entry.target))


def _importer(target: str) -> Callable[[], Callable[..., None]]:
    # Not a partial: Typer needs a function.
    def load() -> Callable[..., None]:
        module, _, function = target.partition(":")
        command: Callable[..., None] = getattr(import_module(f"mistnet.cli.{module}"), function)
        if not gc.isenabled():
            # Loaded modules stay: no collection needs to visit them.
            gc.freeze()
            gc.enable()
        return command

    return load


_add(COMMANDS, app)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


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
