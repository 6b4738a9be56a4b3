"""Parts that features and plugins add to the application. Plugins are named by a setting."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mistnet.queue.errors import BadPlugin
from mistnet.queue.kinds import Kind
from mistnet.queue.leader import Duty
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.writes import Writer


class Feature:
    """What a feature adds to the application. A subclass overrides what it has."""

    kinds: Sequence[Kind] = ()

    def writers(self, jobs: JobWriter) -> Sequence[Writer[Any]]:  # noqa: ARG002 (for those that create jobs)
        """Writers for the values that its handlers return, in the order in which they are written."""
        return ()

    def duties(self, jobs: JobWriter) -> Sequence[Duty]:  # noqa: ARG002
        """Periodic tasks of the leading process."""
        return ()

    def upkeep_tasks(self, jobs: JobWriter) -> Sequence[Callable[[], Awaitable[int]]]:  # noqa: ARG002
        """Tasks that every worker runs with its upkeep. Each returns how many things it changed."""
        return ()


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin adds."""

    kinds: Sequence[Kind] = ()
    """Kinds of jobs."""

    writers: Sequence[Writer[Any]] = ()
    """Writers for the values that their handlers return."""

    sources: Sequence[Callable[..., Any]] = ()
    """Functions that make a `Source` from a `SourceContext`."""


def load_plugin(name: str) -> Plugin:
    """Call the function that a setting names. It must return a Plugin."""
    module_name, _, function_name = name.partition(":")
    if not function_name:
        raise BadPlugin(name, "write it as module:function")
    if str(Path.cwd()) not in sys.path:
        # A module next to mistnet.toml need not be installed.
        sys.path.append(str(Path.cwd()))
    try:
        make: object = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise BadPlugin(name, str(error)) from error
    except Exception as error:  # it is the plugin's code: anything can go wrong
        raise BadPlugin(name, f"importing it failed with {type(error).__name__}: {error}") from error
    if not callable(make):
        raise BadPlugin(name, f"{function_name} is not a function")
    try:
        made = make()
    except Exception as error:
        raise BadPlugin(name, f"calling it failed with {type(error).__name__}: {error}") from error
    if not isinstance(made, Plugin):
        raise BadPlugin(name, f"it returned {type(made).__name__}, not a Plugin")
    _require_parts(name, made)
    return made


def _require_parts(name: str, plugin: Plugin) -> None:
    parts = [*((Kind, each) for each in plugin.kinds), *((Writer, each) for each in plugin.writers)]
    for of, each in parts:
        if not isinstance(each, of):
            raise BadPlugin(name, f"it brings {each!r} as a {of.__name__.lower()}")
    for make in plugin.sources:
        if not callable(make):
            raise BadPlugin(name, f"it brings {make!r} as a function that makes a source")


def require_own_kinds(name: str, plugin: Plugin, known: Iterable[Kind]) -> None:
    """Refuse a second kind of the same name: the two would take each other's jobs."""
    names = {kind.name for kind in known}
    for kind in plugin.kinds:
        if kind.name in names:
            raise BadPlugin(name, f"there is a kind called {kind.name!r} already; give its own another name")
        names.add(kind.name)
