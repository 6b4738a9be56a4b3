"""The foundation that every feature uses: database, SQL, HTTP transport, clock, export. It knows no feature."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package that offers names whose modules are imported when a name is first used.

    `homes` says in which of its modules a name is defined.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        # The next access is an ordinary one.
        setattr(sys.modules[package], name, value)
        return value

    return load
