"""Single groups of commands, as tests call them."""

import typer

from mistnet.cli.main import make_group
from mistnet.cli.tree import COMMANDS, CommandGroup


def commands_of(name: str) -> typer.Typer:
    """All commands of one top-level group."""
    group = COMMANDS[name]
    assert isinstance(group, CommandGroup)
    return make_group(group)
