"""The Typer application: built from the command tree, it imports a command's module when that command is called."""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from mistnet import __version__
from mistnet.cli.tree import COMMANDS, Command, CommandGroup

INTERRUPTED: Final = 130

app = typer.Typer(
    name="mistnet",
    help="Collects social accounts durably.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LateCommand(TyperCommand):
    """A command as its group lists it. Its callback imports and returns the function that does the work."""

    def load(self) -> Any:
        """The real command, with its options and full help."""
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(self.name)(self.callback())  # type: ignore[misc]  # a command made by Typer has a callback
        return typer.main.get_command(alone)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent, **extra)


class ListedFirst(TyperGroup):
    """A group that calls its command `list` when none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named else ["list", *args])


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mistnet {__version__}")
        raise typer.Exit


@app.callback()
def mistnet(
    context: typer.Context,
    _version_asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Collects social accounts durably: name one, and it collects everything and never loses its place."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def make_group(group: CommandGroup) -> typer.Typer:
    """A group of the tree with all its commands."""
    made = typer.Typer(
        cls=ListedFirst if group.lists_by_default else TyperGroup,
        help=group.line,
        no_args_is_help=group.no_args_is_help,
    )
    _add(group.commands, made)
    return made


def _add(commands: Mapping[str, Command | CommandGroup], to: typer.Typer) -> None:
    for name, entry in commands.items():
        if isinstance(entry, CommandGroup):
            to.add_typer(make_group(entry), name=name)
        else:
            to.command(name, cls=LateCommand, help=entry.line)(_importer(entry.target))


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
