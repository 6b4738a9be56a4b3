"""The state of a source in one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mistnet.governor.model import SourceName, SourceState

if TYPE_CHECKING:
    from mistnet.app import App


async def state_of(app: App, source: SourceName) -> SourceState:
    """The shared row; where nobody has written one yet, what it would be."""
    states = {state.name: state for state in await app.collector.book.states()}
    return states.get(source) or SourceState(name=source)
