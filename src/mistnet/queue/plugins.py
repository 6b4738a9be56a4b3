"""Kinds of jobs that others bring along: loaded by the name a setting gives, and refused with the reason."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mistnet.queue.errors import BadPlugin
from mistnet.queue.kinds import Kind
from mistnet.queue.store.writes import Writer


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin brings: kinds of jobs, and writers for the values their handlers return."""

    kinds: Sequence[Kind] = ()
    writers: Sequence[Writer[Any]] = ()


def load_plugin(name: str) -> Plugin:
    """Calls the function a setting names; it must answer with a Plugin."""
    module_name, _, function_name = name.partition(":")
    if not function_name:
        raise BadPlugin(name, "write it as module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a module beside one's own mistnet.toml needs no installing
    try:
        make: object = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise BadPlugin(name, str(error)) from error
    except Exception as error:  # code of others, of which anything can be expected
        raise BadPlugin(name, f"importing it failed with {type(error).__name__}: {error}") from error
    if not callable(make):
        raise BadPlugin(name, f"{function_name} is not a function")
    try:
        made = make()
    except Exception as error:
        raise BadPlugin(name, f"calling it failed with {type(error).__name__}: {error}") from error
    if not isinstance(made, Plugin):
        raise BadPlugin(name, f"it returned {type(made).__name__}, not a Plugin")
    for of, each in [*((Kind, each) for each in made.kinds), *((Writer, each) for each in made.writers)]:
        if not isinstance(each, of):
            raise BadPlugin(name, f"it brings {each!r} as a {of.__name__.lower()}")
    return made


def require_own_kinds(name: str, plugin: Plugin, known: Iterable[Kind]) -> None:
    """Two kinds of one name would take each other's jobs."""
    names = {kind.name for kind in known}
    for kind in plugin.kinds:
        if kind.name in names:
            raise BadPlugin(name, f"there is a kind called {kind.name!r} already; give its own another name")
        names.add(kind.name)
