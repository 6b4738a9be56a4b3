"""Draws blocks as tables for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mistnet.cli.output import Block
from mistnet.cli.printable import printable


def rendered(blocks: Sequence[Block]) -> RenderableType:
    return Group(*(_rich(block) for block in blocks))


def _rich(block: Block) -> RenderableType:
    if isinstance(block, str):
        return Text(printable(block))
    if not block.rows and block.empty:
        return Text(block.empty, style="dim")
    table = Table(title=block.title, title_justify="left", header_style="bold")
    for column in block.columns:
        table.add_column(column, overflow="fold")
    for row in block.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
