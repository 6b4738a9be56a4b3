"""The dashboard's navigation: entries, the tabs of each, and where in it a page is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Tab(msgspec.Struct, frozen=True):
    """A page in the navigation. `also` are the beginnings of other paths that belong to it."""

    href: str
    name: str
    also: tuple[str, ...] = ()

    def holds(self, path: str) -> bool:
        return path == self.href or any(path.startswith(f"{each}/") for each in (self.href, *self.also) if each != "/")


class Entry(msgspec.Struct, frozen=True):
    """One entry of the menu. It leads to its first tab; the tabs are shown if there are several."""

    name: str
    tabs: tuple[Tab, ...]

    @property
    def href(self) -> str:
        return self.tabs[0].href


class Shown(msgspec.Struct, frozen=True):
    """The navigation as one page shows it: with the entry and the tab that the page belongs to."""

    entries: Sequence[Entry]
    path: str
    entry: Entry | None
    tab: Tab | None

    @property
    def tabs(self) -> Sequence[Tab]:
        return self.entry.tabs if self.entry and len(self.entry.tabs) > 1 else ()


def navigation(entries: Sequence[Entry], path: str) -> Shown:
    """The navigation on the page at this path."""
    places = ((entry, tab) for entry in entries for tab in entry.tabs)
    entry, tab = next(((entry, tab) for entry, tab in places if tab.holds(path)), (None, None))
    return Shown(entries, path, entry, tab)
