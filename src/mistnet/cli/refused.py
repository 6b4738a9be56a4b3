"""How handles that could not be tracked are shown."""

from collections.abc import Sequence
from typing import Final

from mistnet.cli.output import Block, Grid, at
from mistnet.social.store.tracking import RefusedHandle

_SHOWN: Final = 20


def refused_blocks(refused: Sequence[RefusedHandle]) -> list[Block]:
    """Nothing if there are none; of very many, the latest."""
    if not refused:
        return []
    grid = Grid(
        title="refused: wanted, and not tracked",
        columns=("handle", "why", "refused (UTC)"),
        rows=[(f"@{each.handle}", each.reason, at(each.refused_at)) for each in refused[:_SHOWN]],
    )
    rest = len(refused) - _SHOWN
    more = [f"{rest:,} more: `mistnet suggest --list` shows all"] if rest > 0 else []
    return [grid, *more, "`mistnet track HANDLE` tries one again, `mistnet untrack HANDLE` takes it off this list"]
